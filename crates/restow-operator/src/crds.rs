//! The CRDs of an operator: registers them, and migrates what is stored.

use std::time::Duration;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use restow_core::agreement::encryption::KeyRequirement;
use restow_core::resource::inventory::Resource;
use restow_core::rewrite::pace::Preset;
use restow_core::rewrite::progress::Quarantined;
use restow_lease::Stop;
use restow_migrate::client::Throttle;
use restow_migrate::cluster::{Cluster, Trust};
use restow_migrate::migration::{ListMode, Migration, MigrationSettings};
use restow_migrate::prune::prune_stored_versions;
use restow_migrate::rewrite::WriteOptions;
use tokio::sync::watch;

use crate::converted::Converted;
use crate::error::{CrdsError, causes};
use crate::metrics::Metrics;
use crate::progress::{NotKept, Reporter};
use crate::register::Registering;
use crate::served::{name_of, resource};
use crate::webhook::{Replica, Webhook, WebhookError};

/// The longest pause before another attempt.
const MAX_PAUSE: Duration = Duration::from_secs(300);

/// The CRDs of an operator.
pub struct Crds {
    cluster: Cluster,
    definitions: Vec<CustomResourceDefinition>,
    metrics: Metrics,
    throttle: Throttle,
    preset: Preset,
    /// What converts them; none if the operator has no webhook.
    converted: Option<Converted>,
    registered: watch::Sender<bool>,
}

/// How a resource is stored now.
#[derive(Clone, Debug, PartialEq)]
pub enum Outcome {
    /// Nothing had to be done: storedVersions has only the storage version.
    Current {
        /// The storage version.
        version: String,
    },
    /// All objects are stored in the storage version, a second pass has shown it, and storedVersions has only that version.
    Migrated {
        /// The storage version.
        version: String,
        /// How many objects were rewritten.
        rewritten: u64,
    },
    /// The API server refused some objects. The others are done, and storedVersions was not changed.
    ObjectsLeft {
        /// The storage version.
        version: String,
        /// The objects, and why.
        left: Vec<Quarantined>,
    },
}

impl Crds {
    /// The CRDs of an operator, and its connection. All API servers are found by their identity Leases.
    ///
    /// # Errors
    /// When the connection cannot be set up.
    pub fn new(
        config: kube::Config,
        definitions: impl IntoIterator<Item = CustomResourceDefinition>,
    ) -> Result<Self, kube::Error> {
        Self::with_trust(config, Trust::Members, definitions)
    }

    /// The same, where API servers are found in another way: behind one address, as on most managed clusters, they are
    /// sampled (`Trust::Sampled`).
    ///
    /// # Errors
    /// When the connection cannot be set up.
    pub fn with_trust(
        config: kube::Config,
        trust: Trust,
        definitions: impl IntoIterator<Item = CustomResourceDefinition>,
    ) -> Result<Self, kube::Error> {
        Ok(Self::in_cluster(Cluster::connect(config, trust)?, definitions))
    }

    /// The CRDs in a cluster that is reached in any way.
    pub fn in_cluster(
        cluster: Cluster,
        definitions: impl IntoIterator<Item = CustomResourceDefinition>,
    ) -> Self {
        let preset = Preset::Steady;
        let definitions = definitions.into_iter().collect();
        let throttle = Throttle::new(preset.bounds());
        let registered = watch::Sender::new(false);
        Self {
            cluster,
            definitions,
            metrics: Metrics::default(),
            throttle,
            preset,
            converted: None,
            registered,
        }
    }

    /// The same CRDs, converted by a webhook that every replica of the operator serves: run the [`Replica`] in each.
    ///
    /// # Errors
    /// When a converter does not fit the definitions.
    pub fn webhook(mut self, webhook: Webhook) -> Result<(Self, Replica), WebhookError> {
        let client = self.cluster.server().client().clone();
        let metrics = self.metrics.clone();
        let (converted, mut replica) = Converted::new(&client, &self.definitions, webhook)?;
        replica.server = replica.server.register_metrics(|registry| metrics.register(registry));
        self.converted = Some(converted);
        Ok((self, replica))
    }

    /// Another pace; the default is steady.
    #[must_use]
    pub fn pace(mut self, preset: Preset) -> Self {
        self.preset = preset;
        self.throttle = Throttle::new(preset.bounds());
        self
    }

    /// The metrics, to be registered by the operator.
    pub fn metrics(&self) -> &Metrics {
        &self.metrics
    }

    /// Returns when all CRDs are registered and served: then the operator's controllers can start.
    pub async fn registered(&self) {
        let mut registered = self.registered.subscribe();
        // The sender lives as long as this does.
        let _ = registered.wait_for(|registered| *registered).await;
    }

    /// Registers and migrates all CRDs, and tries again after a pause until that is done for each, or `stop` is stopped. Give
    /// it the `Stop` of a term: it sends nothing when the operator no longer leads.
    ///
    /// With a webhook, it then keeps the CRDs as they shall be until it is stopped: certificates are renewed.
    pub async fn run(&self, stop: &Stop) {
        let Some(converted) = &self.converted else { return self.run_until_done(stop).await };
        if stop.unless(converted.has_certificate()).await.is_some() {
            tokio::join!(self.run_until_done(stop), converted.registrar.run(stop));
        }
    }

    async fn run_until_done(&self, stop: &Stop) {
        let mut attempt: u32 = 0;
        while !self.run_once(stop).await && !stop.is_stopped() {
            let pause = Duration::from_secs(1 << attempt.min(9)).min(MAX_PAUSE);
            attempt += 1;
            tracing::info!("trying the CRDs that are not done again in {pause:?}");
            stop.unless(tokio::time::sleep(pause)).await;
        }
    }

    /// Whether all CRDs are done.
    async fn run_once(&self, stop: &Stop) -> bool {
        let mut ready = Vec::new();
        for definition in &self.definitions {
            match self.register(definition, stop).await {
                Ok(()) => ready.push(definition),
                Err(error) => drop(report(&name_of(definition).to_string(), &Err(error))),
            }
        }
        let mut done = ready.len() == self.definitions.len();
        if done {
            self.registered.send_replace(true);
            if let Some(converted) = &self.converted {
                converted.open();
            }
        }
        for definition in ready {
            let ended = self.migrate(definition, stop).await;
            done &= report(&name_of(definition).to_string(), &ended);
        }
        done
    }

    /// Creates or changes a CRD, and waits until it is served.
    ///
    /// # Errors
    /// When it must not be changed so, or cannot be written.
    pub async fn register(
        &self,
        definition: &CustomResourceDefinition,
        stop: &Stop,
    ) -> Result<(), CrdsError> {
        let registering = Registering {
            cluster: &self.cluster,
            definition,
            converted: self.converted.as_ref().filter(|converted| converted.converts(definition)),
            stop,
        };
        registering.run().await
    }

    /// Rewrites all objects of a CRD whose storedVersions has other versions than the storage version, verifies it, and
    /// reduces storedVersions.
    ///
    /// # Errors
    /// When the migration ends early. Nothing is lost; the next one goes on with what is left.
    pub async fn migrate(
        &self,
        definition: &CustomResourceDefinition,
        stop: &Stop,
    ) -> Result<Outcome, CrdsError> {
        let resource = resource(&self.cluster, &name_of(definition), stop).await?;
        let version = resource.storage_version_name().to_owned();
        if !needs_migration(&resource) {
            self.metrics.verified(&resource.name.to_string());
            return Ok(Outcome::Current { version });
        }
        let ended = self.rewrite(&resource, version, stop).await;
        let result = match &ended {
            Ok(Outcome::ObjectsLeft { .. }) => "objects_left",
            Ok(_) => "succeeded",
            Err(_) => "failed",
        };
        self.metrics.ended(&resource.name.to_string(), result);
        ended
    }

    async fn rewrite(&self, resource: &Resource, version: String, stop: &Stop) -> Result<Outcome, CrdsError> {
        let name = resource.name.to_string();
        let reporter = Reporter::new(name.clone(), &self.metrics);
        let settings = MigrationSettings {
            page_size: self.preset.page_size(),
            list: ListMode::Chunked,
            verify: true,
            write_options: WriteOptions::default(),
            // It is about versions; keys are not the operator's concern.
            encrypted: KeyRequirement::Nothing,
        };
        let migration = Migration {
            cluster: &self.cluster,
            resource,
            settings,
            throttle: &self.throttle,
            observer: &reporter,
            stop,
        };
        let mut journal = NotKept::default();
        let mut progress = stop.unless(migration.begin()).await.ok_or(CrdsError::Stopped)??;
        migration.run(&mut progress, &mut journal).await?;
        if !journal.left.is_empty() {
            return Ok(Outcome::ObjectsLeft { version, left: journal.left });
        }
        if let Some(why) = progress.unproven.clone() {
            return Err(CrdsError::Unproven(why));
        }
        let prune = prune_stored_versions(self.cluster.server(), &progress);
        let pruned = stop.unless(prune).await.ok_or(CrdsError::Stopped)??;
        if let Some(pruned) = pruned {
            let (before, after) = (pruned.before.join(", "), pruned.after.join(", "));
            tracing::info!(resource = name, before, after, "reduced storedVersions");
        }
        self.metrics.verified(&name);
        Ok(Outcome::Migrated { version, rewritten: progress.counts.rewritten })
    }
}

/// Whether objects may be stored in another version than the storage version.
fn needs_migration(resource: &Resource) -> bool {
    let current =
        |crd: &restow_core::resource::inventory::Crd| crd.stored_versions == [crd.storage_version.clone()];
    !resource.crd.as_ref().is_some_and(current)
}

/// Logs how a CRD ended, and says whether it is done.
fn report(name: &str, ended: &Result<Outcome, CrdsError>) -> bool {
    match ended {
        Ok(Outcome::Current { version }) => {
            tracing::info!(resource = name, version, "all objects are stored in the storage version");
            true
        }
        Ok(Outcome::Migrated { version, rewritten }) => {
            tracing::info!(resource = name, version, rewritten, "migrated and verified");
            true
        }
        Ok(Outcome::ObjectsLeft { version, left }) => {
            for Quarantined { namespace, name: object, reason, message, .. } in left {
                tracing::warn!(
                    resource = name,
                    namespace,
                    object,
                    reason,
                    "could not be rewritten: {message}"
                );
            }
            tracing::warn!(resource = name, version, left = left.len(), "some objects are left");
            false
        }
        Err(CrdsError::Stopped) => false,
        Err(error) => {
            let text = causes(error);
            tracing::warn!(resource = name, "{text}");
            false
        }
    }
}
