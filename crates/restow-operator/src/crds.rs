//! Registers the CRDs of an operator, and migrates what is stored.

use std::time::Duration;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::Api;
use kube::api::PostParams;
use restow_core::agreement::encryption::KeyRequirement;
use restow_core::resource::inventory::Resource;
use restow_core::resource::name::GroupResource;
use restow_core::rewrite::pace::Preset;
use restow_core::rewrite::progress::Quarantined;
use restow_lease::Stop;
use restow_migrate::client::{RequestError, Throttle};
use restow_migrate::cluster::{Cluster, Trust};
use restow_migrate::migration::{ListMode, Migration, MigrationError, MigrationSettings};
use restow_migrate::prune::{PruneError, prune_stored_versions};
use restow_migrate::rewrite::WriteOptions;

use crate::metrics::Metrics;
use crate::progress::{NotKept, Reporter};
use crate::registration::{Plan, RegistrationError, plan, storage_version};

/// How often the cluster is asked whether a CRD is served.
const ASK_EVERY: Duration = Duration::from_millis(500);
/// The longest pause before another attempt.
const MAX_PAUSE: Duration = Duration::from_secs(300);

/// The CRDs of an operator.
pub struct Crds {
    cluster: Cluster,
    definitions: Vec<CustomResourceDefinition>,
    metrics: Metrics,
    throttle: Throttle,
    preset: Preset,
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

/// Why a CRD was not registered, or its objects were not migrated.
#[derive(Debug, thiserror::Error)]
pub enum CrdsError {
    /// The CRD in the cluster must not be changed so.
    #[error(transparent)]
    Registration(#[from] RegistrationError),
    /// The CRD could not be read or written.
    #[error("could not register the CRD")]
    Crd(#[from] kube::Error),
    /// The cluster could not be read.
    #[error("could not read which resources the cluster has")]
    Request(#[from] RequestError),
    /// The resource is not served, or cannot be migrated.
    #[error("{0}")]
    NotServed(String),
    /// The migration ended early.
    #[error("could not migrate the objects")]
    Migration(#[from] MigrationError),
    /// A complete run that proves nothing.
    #[error("the run does not prove that all objects are rewritten: {0}")]
    Unproven(String),
    /// storedVersions could not be changed.
    #[error("could not reduce status.storedVersions")]
    Prune(#[from] PruneError),
    /// The operator no longer leads, or ends.
    #[error("stopped")]
    Stopped,
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
        Self { cluster, definitions, metrics: Metrics::default(), throttle, preset }
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

    /// Registers and migrates all CRDs, and tries again after a pause until that is done for each, or `stop` is stopped. Give
    /// it the `Stop` of a term: it sends nothing when the operator no longer leads.
    pub async fn run(&self, stop: &Stop) {
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
        let mut done = true;
        for definition in &self.definitions {
            let name = name_of(definition);
            let ended = match self.register(definition, stop).await {
                Ok(()) => self.migrate(definition, stop).await,
                Err(error) => Err(error),
            };
            done &= report(&name.to_string(), &ended);
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
        let api: Api<CustomResourceDefinition> = Api::all(self.cluster.server().client().clone());
        let name = definition.metadata.name.clone().unwrap_or_default();
        loop {
            let found = stop.unless(api.get_opt(&name)).await.ok_or(CrdsError::Stopped)??;
            let written = match plan(found.as_ref(), definition)? {
                Plan::Leave => break,
                Plan::Create(new) => stop.unless(api.create(&PostParams::default(), &new)).await,
                Plan::Replace(next) => stop.unless(api.replace(&name, &PostParams::default(), &next)).await,
            };
            match written.ok_or(CrdsError::Stopped)? {
                Ok(_) => {
                    tracing::info!(crd = name, version = storage_version(definition), "registered the CRD");
                    break;
                }
                // Somebody else wrote it meanwhile: it is read again.
                Err(kube::Error::Api(status)) if status.code == 409 => {}
                Err(error) => return Err(error.into()),
            }
        }
        loop {
            let found = stop.unless(api.get(&name)).await.ok_or(CrdsError::Stopped)??;
            let conditions = found.status.iter().flat_map(|status| status.conditions.iter().flatten());
            if conditions
                .into_iter()
                .any(|condition| condition.type_ == "Established" && condition.status == "True")
            {
                return Ok(());
            }
            stop.unless(tokio::time::sleep(ASK_EVERY)).await.ok_or(CrdsError::Stopped)?;
        }
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
        let resource = self.resource(&name_of(definition), stop).await?;
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

    async fn resource(&self, name: &GroupResource, stop: &Stop) -> Result<Resource, CrdsError> {
        let inventory = stop.unless(self.cluster.inventory(false)).await.ok_or(CrdsError::Stopped)??;
        let found = inventory.resources.into_iter().find(|resource| resource.name == *name);
        let resource =
            found.ok_or_else(|| CrdsError::NotServed(format!("no API server serves {name} yet")))?;
        match &resource.obstacle {
            Some(obstacle) => Err(CrdsError::NotServed(format!("{name}: {}", obstacle.explain()))),
            None => Ok(resource),
        }
    }
}

fn name_of(definition: &CustomResourceDefinition) -> GroupResource {
    GroupResource::new(definition.spec.group.clone(), definition.spec.names.plural.clone())
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
            let causes = std::iter::successors(std::error::Error::source(error), |cause| cause.source());
            let text = causes.fold(error.to_string(), |text, cause| format!("{text}: {cause}"));
            tracing::warn!(resource = name, "{text}");
            false
        }
    }
}
