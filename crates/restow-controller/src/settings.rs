//! How the controllers of a process work, and which of them run.

use std::time::Duration;

use restow_core::agreement::encryption::Pattern;
use restow_core::resource::name::GroupResource;
use restow_migrate::migration;

/// Which controllers run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Controllers {
    /// Runs migrations.
    pub migrator: bool,
    /// Creates migrations when storage versions change.
    pub trigger: bool,
    /// Creates migrations when encryption configurations change.
    pub encryption: bool,
    /// Prunes storedVersions after migrations.
    pub pruner: bool,
    /// Carries out Conversions.
    pub conversion: bool,
}

/// Which controller rewrites objects; restow verifies in both cases.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Backend {
    /// The engine of restow.
    #[default]
    Restow,
    /// The built-in controller of Kubernetes.
    InTree,
}

/// How the controllers work.
#[derive(Clone, Debug)]
pub struct ControllerSettings {
    /// The settings of each migration.
    pub migration: migration::MigrationSettings,
    /// How many migrations run concurrently.
    pub concurrent_migrations: usize,
    /// How often the trigger checks all storage versions, besides watching.
    pub poll: Duration,
    /// The resources whose storage versions are watched; none for all.
    pub resources: Option<Vec<GroupResource>>,
    /// The resources that the encryption configuration covers; none if that was not configured.
    pub encryption_resources: Option<Vec<Pattern>>,
    /// Which controller rewrites objects.
    pub backend: Backend,
    /// Whether migrations of the built-in API are served, too.
    pub adopt: bool,
    /// The only Conversion to carry out, with its migrations and no others; none for all.
    pub only_conversion: Option<String>,
}
