//! What all controllers share: the cluster, the settings, the pace of writes, reporting, and change notifications.

use std::sync::Arc;

use restow_core::agreement::encryption::KeyRequirement;
use restow_core::resource::name::GroupResource;
use restow_migrate::client::Throttle;
use restow_migrate::cluster::Cluster;
use tokio::sync::watch;

use crate::observe::events::Events;
use crate::observe::health::Health;
use crate::observe::metrics::Metrics;
use crate::settings::ControllerSettings;

/// What all controllers of a process share.
pub(crate) struct Context {
    pub(crate) cluster: Cluster,
    pub(crate) settings: ControllerSettings,
    /// Paces the writes of all migrations together.
    pub(crate) throttle: Throttle,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) health: Arc<Health>,
    pub(crate) events: Events,
    /// Counts changes of migration objects.
    pub(crate) migrations_changed: watch::Sender<u64>,
    /// Counts changes that storage versions depend on: definitions, API servers, ended migrations.
    pub(crate) storage_changed: watch::Sender<u64>,
}

impl Context {
    pub(crate) fn client(&self) -> &kube::Client {
        self.cluster.server().client()
    }

    /// Whether a resource's storage version is watched.
    pub(crate) fn is_watched(&self, resource: &GroupResource) -> bool {
        self.settings.resources.as_ref().is_none_or(|resources| resources.contains(resource))
    }

    /// What a migration of this resource must prove about its encryption.
    pub(crate) fn key_requirement(&self, resource: &GroupResource) -> KeyRequirement {
        KeyRequirement::of_controller(resource, self.settings.encryption_resources.as_deref())
    }

    /// Whether the encryption key of a resource is watched.
    pub(crate) fn is_encrypted(&self, resource: &GroupResource) -> bool {
        self.key_requirement(resource).is_watched()
    }
}

/// Wakes every task that waits for a change.
pub(crate) fn changed(counter: &watch::Sender<u64>) {
    counter.send_modify(|count| *count += 1);
}
