//! The trigger: looks at all storage versions and carries out what `restow_core::trigger` decides.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::time::Duration;

use k8s_openapi::api::core::v1::ObjectReference;
use kube::api::{DeleteParams, ListParams, ObjectMeta, PostParams, Preconditions};
use kube::{Api, Resource as _, ResourceExt as _};
use restow_api::{
    ConditionType, GroupVersionResource, StorageState, StorageStateSpec, StorageStateStatus,
    StorageVersionMigration, StorageVersionMigrationSpec, UNKNOWN,
};
use restow_clock::Instant;
use restow_core::inventory::{Crd, Resource};
use restow_core::resource::{GroupResource, GroupVersion, storage_version_hash};
use restow_core::trigger::{Attempt, Decision, Look, Wanted, Word, decide, look_every, stale_after};
use restow_migrate::server::RequestError;
use restow_migrate::stop::Stop;
use restow_migrate::survey::Survey;
use sha2::{Digest as _, Sha256};

use crate::events::EventType;
use crate::record::{checkpoint, code, delete};
use crate::run::Controllers;
use crate::shared::Shared;

/// How soon to look again after something could not be settled at once.
const SOON: Duration = Duration::from_secs(1);
/// Several changes in a row are looked at once.
const GATHER: Duration = Duration::from_millis(300);
/// However much changes, a look follows the one before no sooner.
const APART: Duration = Duration::from_secs(2);

/// Why a look could not be finished.
#[derive(Debug, thiserror::Error)]
enum LookError {
    #[error(transparent)]
    Survey(#[from] RequestError),
    #[error(transparent)]
    Objects(#[from] kube::Error),
}

/// Looks at everything, again and again, until it is time to stop.
pub(crate) async fn run(shared: &Shared, controllers: Controllers, stop: &Stop) {
    let mut trigger =
        Trigger { shared, stop, controllers, known: HashSet::new(), silent_since: HashMap::new() };
    let every = look_every(shared.settings.poll);
    let mut changes = shared.storage_changed.subscribe();
    while !stop.is_stopped() {
        changes.mark_unchanged();
        shared.health.beat("trigger", every * 2 + Duration::from_secs(120));
        let began = Instant::now();
        let wait = match stop.unless(trigger.look()).await {
            None => break,
            Some(Ok(true)) => every,
            Some(Ok(false)) => SOON.min(every),
            Some(Err(error)) => {
                tracing::warn!(%error, "the storage versions could not be looked at");
                SOON * 5
            }
        };
        let woken = async {
            let _ = changes.changed().await;
            tokio::time::sleep(GATHER.max(APART.saturating_sub(began.elapsed()))).await;
        };
        stop.unless(async {
            tokio::select! {
                () = woken => {}
                () = tokio::time::sleep(wait) => {}
            }
        })
        .await;
    }
}

struct Trigger<'a> {
    shared: &'a Shared,
    stop: &'a Stop,
    controllers: Controllers,
    /// Those whose state this controller has looked after since it leads.
    known: HashSet<GroupResource>,
    silent_since: HashMap<GroupResource, Instant>,
}

impl Trigger<'_> {
    /// Looks once; false when something is still on the move.
    async fn look(&mut self) -> Result<bool, LookError> {
        let survey = self.shared.cluster.survey(false).await?;
        let covered = |resource: &Resource| {
            self.looks_after(&resource.name) && self.shared.is_encrypted(&resource.name)
        };
        let covered = survey.resources.iter().any(covered);
        let keys = if self.controllers.encryption && covered { self.keys().await? } else { None };
        let client = self.shared.client();
        let everything = ListParams::default();
        let states = Api::<StorageState>::all(client.clone()).list(&everything).await?;
        let migrations = Api::<StorageVersionMigration>::all(client.clone()).list(&everything).await?;
        let states: BTreeMap<String, StorageState> =
            states.into_iter().map(|state| (state.name_any(), state)).collect();
        let (mut settled, mut disagreeing, mut unsettled) = (true, 0_usize, 0_usize);
        let watched = |resource: &&Resource| resource.obstacle.is_none() && self.looks_after(&resource.name);
        for resource in survey.resources.iter().filter(watched).collect::<Vec<_>>() {
            let name = resource.name.to_string();
            let of_resource: Vec<&StorageVersionMigration> =
                migrations.items.iter().filter(|migration| migration.spec.resource.name() == name).collect();
            let state = states.get(&name);
            let (decision, word) = self.decide(&survey, resource, keys.as_ref(), state, &of_resource);
            disagreeing += usize::from(!matches!(word, Word::Agreed(_)));
            let after = decision.state.as_ref().or(state.and_then(|state| state.status.as_ref()));
            unsettled += usize::from(!after.is_some_and(StorageStateStatus::is_settled));
            // A definition's discovery follows it in a moment.
            settled &= resource.crd.is_none()
                || matches!(&word, Word::Agreed(hash) if Some(hash) == resource.hash.as_ref());
            if self.carry_out(resource, state, &of_resource, decision).await {
                self.known.insert(resource.name.clone());
            } else {
                settled = false;
            }
        }
        self.forget_gone(&survey, &states, &migrations.items).await;
        self.shared.metrics.disagreeing(disagreeing);
        self.shared.metrics.unsettled(unsettled);
        Ok(settled)
    }

    /// Whether a resource is this controller's; for the sake of its key alone, only one that is encrypted.
    fn looks_after(&self, resource: &GroupResource) -> bool {
        self.shared.is_watched(resource) && (self.controllers.trigger || self.shared.is_encrypted(resource))
    }

    /// The encryption configurations, unless they may not be read.
    async fn keys(&self) -> Result<Option<Word>, RequestError> {
        match self.shared.cluster.encryption().await {
            Ok(encryption) => Ok(encryption.word),
            Err(error) if error.is_final() => {
                tracing::warn!(%error, "the API servers' metrics may not be read, so key rotations are not seen");
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    fn decide(
        &mut self,
        survey: &Survey,
        resource: &Resource,
        keys: Option<&Word>,
        state: Option<&StorageState>,
        migrations: &[&StorageVersionMigration],
    ) -> (Decision, Word) {
        let (word, agreement) = survey.word(resource);
        let keys = keys.filter(|_| self.shared.is_encrypted(&resource.name));
        let silent = matches!(word, Word::Silent(_)) || matches!(keys, Some(Word::Silent(_)));
        let silent_for = if silent {
            self.silent_since.entry(resource.name.clone()).or_insert_with(Instant::now).elapsed()
        } else {
            self.silent_since.remove(&resource.name);
            Duration::ZERO
        };
        let stored = resource.crd.as_ref().map(|crd| {
            let hash = |version: &String| {
                storage_version_hash(&GroupVersion::new(&resource.name.group, version), &resource.kind)
            };
            crd.stored_versions.iter().map(hash).collect::<Vec<_>>()
        });
        let definition = resource.crd.as_ref().map(Crd::definition);
        let served: Vec<String> = resource.crd.as_ref().map_or_else(Vec::new, |crd| {
            crd.versions.iter().filter(|(_, served)| *served).map(|(name, _)| name.clone()).collect()
        });
        let attempts: Vec<Attempt> = migrations.iter().map(|migration| attempt(migration)).collect();
        let poll = self.shared.settings.poll;
        let decision = decide(&Look {
            storage: &word,
            agreement: &agreement,
            encryption: keys,
            stored: stored.as_deref().unwrap_or_default(),
            definition: definition.as_deref(),
            served: &served,
            state: state.and_then(|state| state.status.as_ref()),
            migrations: &attempts,
            first: !self.known.contains(&resource.name),
            stale: stale_after(poll),
            renew: look_every(poll),
            silent_for,
            now: restow_clock::now(),
        });
        (decision, word)
    }

    /// Deletes, creates and writes, in this order; false when something came in between.
    async fn carry_out(
        &self,
        resource: &Resource,
        state: Option<&StorageState>,
        migrations: &[&StorageVersionMigration],
        decision: Decision,
    ) -> bool {
        let done = self.try_carry_out(resource, state, migrations, &decision).await;
        if let Err(error) = &done {
            // Whatever was done already is found at the next look.
            tracing::info!(resource = %resource.name, %error, "to be looked at again");
        }
        done.is_ok()
    }

    async fn try_carry_out(
        &self,
        resource: &Resource,
        state: Option<&StorageState>,
        migrations: &[&StorageVersionMigration],
        decision: &Decision,
    ) -> Result<(), kube::Error> {
        for name in &decision.delete {
            if let Some(migration) = migrations.iter().find(|migration| migration.name_any() == *name) {
                self.delete(migration).await?;
            }
        }
        if let Some(wanted) = &decision.create
            && !self.stop.is_stopped()
        {
            self.create(resource, state, wanted).await?;
        }
        let Some(status) = &decision.state else { return Ok(()) };
        if self.stop.is_stopped() {
            return Ok(());
        }
        let written = self.write(resource, state, status).await?;
        if let Some(reason) = decision.reason {
            self.shared.metrics.triggered(reason);
            let message = format!(
                "{}: current {}, persisted {}",
                reason.explain(),
                status.current_storage_version_hash.as_deref().unwrap_or(UNKNOWN),
                status.persisted_storage_version_hashes.join(", ")
            );
            tracing::info!(resource = %resource.name, "{message}");
            let reference: ObjectReference = written.object_ref(&());
            let why = status.message.as_ref().map(|why| format!("; {why}")).unwrap_or_default();
            self.shared
                .events
                .tell(&reference, EventType::Normal, &format!("{reason:?}"), &format!("{message}{why}"))
                .await;
        }
        Ok(())
    }

    async fn delete(&self, migration: &StorageVersionMigration) -> Result<(), kube::Error> {
        delete(&Api::all(self.shared.client().clone()), migration).await
    }

    /// Makes a migration. Two controllers that act on one state make one migration: its name says what it is for.
    async fn create(
        &self,
        resource: &Resource,
        state: Option<&StorageState>,
        wanted: &Wanted,
    ) -> Result<(), kube::Error> {
        let version = resource.endpoint().map(|version| version.version.clone()).unwrap_or_default();
        let occasion = format!(
            "{} {} {} {}",
            state.and_then(StorageState::uid).unwrap_or_default(),
            state.and_then(StorageState::resource_version).unwrap_or_default(),
            wanted.hash,
            wanted.encryption.as_deref().unwrap_or_default()
        );
        let digest = Sha256::digest(occasion);
        let suffix: String = digest[..4].iter().map(|byte| format!("{byte:02x}")).collect();
        let migration = StorageVersionMigration {
            metadata: ObjectMeta {
                name: Some(format!("{}-{suffix}", resource.name)),
                labels: Some(managed()),
                ..ObjectMeta::default()
            },
            spec: StorageVersionMigrationSpec {
                resource: GroupVersionResource {
                    group: resource.name.group.clone(),
                    version,
                    resource: resource.name.resource.clone(),
                },
                storage_version_hash: Some(wanted.hash.clone()),
                encryption_config_hash: wanted.encryption.clone(),
                ..StorageVersionMigrationSpec::default()
            },
            status: None,
        };
        let api = Api::<StorageVersionMigration>::all(self.shared.client().clone());
        match api.create(&PostParams::default(), &migration).await {
            Ok(_) => Ok(()),
            Err(error) if code(&error) == Some(409) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Writes a state, on condition that it is still the one that was seen.
    async fn write(
        &self,
        resource: &Resource,
        state: Option<&StorageState>,
        status: &StorageStateStatus,
    ) -> Result<StorageState, kube::Error> {
        let api = Api::<StorageState>::all(self.shared.client().clone());
        let name = resource.name.to_string();
        let mut new = match state {
            Some(state) => state.clone(),
            None => {
                let spec = StorageStateSpec {
                    resource: restow_api::GroupResource {
                        group: resource.name.group.clone(),
                        resource: resource.name.resource.clone(),
                    },
                };
                let mut new = StorageState::new(&name, spec);
                new.metadata.labels = Some(managed());
                api.create(&PostParams::default(), &new).await?
            }
        };
        new.status = Some(status.clone());
        api.replace_status(&name, &PostParams::default(), &new).await
    }

    /// Removes what is left of resources that are served no more, and only of those.
    async fn forget_gone(
        &self,
        survey: &Survey,
        states: &BTreeMap<String, StorageState>,
        migrations: &[StorageVersionMigration],
    ) {
        for state in states.values() {
            let of = &state.spec.resource;
            let name = GroupResource::new(&of.group, &of.resource);
            if !self.looks_after(&name) || !survey.is_gone(&name) || self.stop.is_stopped() {
                continue;
            }
            tracing::info!(resource = %name, "it is served no more");
            let own = |migration: &&StorageVersionMigration| {
                migration.spec.resource.name() == name.to_string() && !migration.is_finished()
            };
            for migration in migrations.iter().filter(own) {
                if let Err(error) = self.delete(migration).await {
                    tracing::info!(resource = %name, %error, "its migration could not be deleted");
                }
            }
            let params = DeleteParams {
                preconditions: Some(Preconditions {
                    uid: state.uid(),
                    resource_version: state.resource_version(),
                }),
                ..DeleteParams::default()
            };
            let api = Api::<StorageState>::all(self.shared.client().clone());
            if let Err(error) = api.delete(&state.name_any(), &params).await {
                tracing::info!(resource = %name, %error, "its state could not be deleted");
            }
        }
    }
}

/// The labels of what restow makes by itself.
pub(crate) fn managed() -> BTreeMap<String, String> {
    BTreeMap::from([(restow_api::MANAGED_BY.to_owned(), restow_api::MANAGER.to_owned())])
}

/// What a migration object proves.
fn attempt(migration: &StorageVersionMigration) -> Attempt {
    let progress = migration.status.as_ref().and_then(checkpoint);
    let verified = progress.as_ref().is_some_and(|progress| progress.verified);
    Attempt {
        name: migration.name_any(),
        finished: migration.is_finished(),
        verified: migration.is(ConditionType::Succeeded) && verified,
        hash: progress.as_ref().map(|progress| progress.storage_version_hash.clone()),
        encryption: progress.as_ref().and_then(|progress| progress.encryption.clone()),
        definition: progress.and_then(|progress| progress.definition),
    }
}
