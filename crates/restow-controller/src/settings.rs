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
    /// Makes migrations when storage versions change.
    pub trigger: bool,
    /// Makes migrations when encryption configurations change.
    pub encryption: bool,
    /// Prunes storedVersions after migrations.
    pub pruner: bool,
}

/// Who rewrites objects. restow verifies either way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Backend {
    /// restow itself.
    #[default]
    Restow,
    /// The controller that comes with Kubernetes.
    InTree,
}

/// How the controllers work.
#[derive(Clone, Debug)]
pub struct Settings {
    /// How each migration is done.
    pub migration: migration::Settings,
    /// How many migrations run at once.
    pub at_once: usize,
    /// How often the storage versions are looked at, besides watching.
    pub poll: Duration,
    /// The resources whose storage versions are watched; none for all.
    pub resources: Option<Vec<GroupResource>>,
    /// The resources that the encryption configuration covers; none where nobody has said so.
    pub encryption_resources: Option<Vec<Pattern>>,
    /// Who rewrites objects.
    pub backend: Backend,
    /// Whether migrations of the built-in API are served.
    pub adopt: bool,
}
