//! What all controllers share.

use std::sync::Arc;
use std::time::Duration;

use restow_core::encryption::{Demand, Pattern};
use restow_core::resource::GroupResource;
use restow_migrate::cluster::Cluster;
use restow_migrate::migration;
use restow_migrate::throttle::Throttle;
use tokio::sync::watch;

use crate::events::Events;
use crate::metrics::Metrics;
use crate::serve::Health;

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

/// What all controllers share.
pub(crate) struct Shared {
    pub(crate) cluster: Cluster,
    pub(crate) settings: Settings,
    /// One pace for all that is written.
    pub(crate) throttle: Throttle,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) health: Arc<Health>,
    pub(crate) events: Events,
    /// Counts changes of migration objects.
    pub(crate) migrations_changed: watch::Sender<u64>,
    /// Counts what storage versions depend on: changed definitions, servers that came or went, ended migrations.
    pub(crate) storage_changed: watch::Sender<u64>,
}

impl Shared {
    /// The client for typed requests.
    pub(crate) fn client(&self) -> &kube::Client {
        self.cluster.server().client()
    }

    /// Whether a resource's storage version is watched.
    pub(crate) fn is_watched(&self, resource: &GroupResource) -> bool {
        self.settings.resources.as_ref().is_none_or(|resources| resources.contains(resource))
    }

    /// What a migration of a resource has to prove about its encryption.
    pub(crate) fn demand(&self, resource: &GroupResource) -> Demand {
        Demand::of_controller(resource, self.settings.encryption_resources.as_deref())
    }

    /// Whether the key of a resource is watched.
    pub(crate) fn is_encrypted(&self, resource: &GroupResource) -> bool {
        self.demand(resource).is_watched()
    }
}

/// Tells all who wait that there was one more change.
pub(crate) fn changed(counter: &watch::Sender<u64>) {
    counter.send_modify(|count| *count += 1);
}
