//! What all controllers share: the cluster, the settings, the pace of writes, reporting, and change notifications.

use std::sync::Arc;

use restow_core::agreement::encryption::Demand;
use restow_core::resource::name::GroupResource;
use restow_migrate::cluster::Cluster;
use restow_migrate::throttle::Throttle;
use tokio::sync::watch;

use crate::observe::events::Events;
use crate::observe::health::Health;
use crate::observe::metrics::Metrics;
use crate::settings::Settings;

/// What all controllers share.
pub(crate) struct Context {
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

impl Context {
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
