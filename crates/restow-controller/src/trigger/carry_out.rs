//! Carries out a decision step by step, and retries failed ones.

use std::collections::HashMap;
use std::time::Duration;

use k8s_openapi::api::core::v1::ObjectReference;
use kube::api::{DeleteParams, ObjectMeta, PostParams, Preconditions};
use kube::{Api, Resource as _, ResourceExt as _};
use restow_api::{
    GroupVersionResource, PendingMigration, Reason, StorageState, StorageStateSpec, StorageStateStatus,
    StorageVersionMigration, StorageVersionMigrationSpec,
};
use restow_clock::Instant;
use restow_core::controller::retry;
use restow_core::controller::trigger::{Decision, Step, Wanted, explain, name_versions};
use restow_core::controller::troubleshooting::explained;
use restow_core::resource::inventory::Resource;
use restow_core::resource::name::GroupResource;
use restow_lease::Stop;

use crate::context::Context;
use crate::observe::events::EventType;
use crate::ownership::{is_triggered, managed, triggered};
use crate::requests::{code, delete};
use restow_migrate::client::plain;

/// A decision that failed, and when it is retried.
struct Unfinished {
    effect: Effect,
    tries: u32,
    /// It is not retried before.
    until: Instant,
}

/// What a decision does, to recognize the same decision at the next check.
type Effect = (Vec<String>, Option<Wanted>, Option<Reason>);

fn effect(decision: &Decision) -> Effect {
    (decision.delete.clone(), decision.create.clone(), decision.reason)
}

/// Why a decision deletes migrations, and what replaces them.
fn deletion(decision: &Decision) -> String {
    let why = decision.reason.map(|reason| format!("{}; ", explain(reason))).unwrap_or_default();
    let pending = decision.state.as_ref().and_then(|state| state.pending_migration.as_ref());
    match pending.filter(|_| decision.create.is_some()) {
        Some(pending) => format!("{why}{} replaces it", pending.name),
        None => format!("{why}another one is created once all API servers agree"),
    }
}

/// Why a decision could not be carried out.
#[derive(Debug, thiserror::Error)]
enum StepError {
    #[error("the controller is stopping")]
    Stopped,
    #[error(transparent)]
    Request(#[from] kube::Error),
}

/// Carries decisions out, and remembers those that could not be.
pub(super) struct Executor<'a> {
    context: &'a Context,
    stop: &'a Stop,
    unfinished: HashMap<GroupResource, Unfinished>,
}

impl<'a> Executor<'a> {
    pub(super) fn new(context: &'a Context, stop: &'a Stop) -> Self {
        Self { context, stop, unfinished: HashMap::new() }
    }

    /// Forgets decisions on resources that are no longer served.
    pub(super) fn retain(&mut self, served: impl Fn(&GroupResource) -> bool) {
        self.unfinished.retain(|name, _| served(name));
    }

    /// Carries out a decision; returns when to check again if it failed.
    pub(super) async fn carry_out(
        &mut self,
        resource: &Resource,
        state: Option<&StorageState>,
        migrations: &[&StorageVersionMigration],
        decision: Decision,
    ) -> Duration {
        let effect = effect(&decision);
        let before = self.unfinished.remove(&resource.name).filter(|before| before.effect == effect);
        let tries = before.as_ref().map_or(1, |before| before.tries.saturating_add(1));
        if let Some(before) = before.filter(|before| before.until > Instant::now()) {
            let wait = before.until.duration_since(Instant::now());
            self.unfinished.insert(resource.name.clone(), before);
            return wait;
        }
        let error = match self.try_carry_out(resource, state, migrations, &decision).await {
            Ok(()) | Err(StepError::Stopped) => return Duration::MAX,
            Err(StepError::Request(error)) => error,
        };
        // The next check finds the steps that succeeded.
        let wait = retry::request_backoff(tries);
        tracing::warn!(resource = %resource.name, error = %plain(&error), tries, "could not update the StorageState and its migrations; retrying in {} s", wait.as_secs());
        let unfinished = Unfinished { effect, tries, until: Instant::now() + wait };
        self.unfinished.insert(resource.name.clone(), unfinished);
        wait
    }

    async fn try_carry_out(
        &self,
        resource: &Resource,
        state: Option<&StorageState>,
        migrations: &[&StorageVersionMigration],
        decision: &Decision,
    ) -> Result<(), StepError> {
        let mut state = state.cloned();
        let mut reason = decision.reason;
        let retries = decision.state.as_ref().is_some_and(|state| state.replaced_migrations.is_some());
        for step in decision.steps(state.as_ref().and_then(|state| state.status.as_ref())) {
            self.check_stopped()?;
            match step {
                Step::Delete(name) => {
                    if let Some(migration) = migrations.iter().find(|one| one.name_any() == name) {
                        self.delete(migration, retries).await?;
                        self.report_deleted(migration, &deletion(decision));
                    }
                }
                Step::Create(pending, wanted) => self.create(resource, &pending, &wanted).await?,
                Step::Write(status) => {
                    let written = self.write(resource, state, &status).await?;
                    if let Some(reason) = reason.take() {
                        self.report(resource, &written, reason);
                    }
                    state = Some(written);
                }
            }
        }
        Ok(())
    }

    fn check_stopped(&self) -> Result<(), StepError> {
        if self.stop.is_stopped() { Err(StepError::Stopped) } else { Ok(()) }
    }

    fn report(&self, resource: &Resource, written: &StorageState, reason: Reason) {
        self.context.metrics.triggered(reason);
        let status = written.status.clone().unwrap_or_default();
        let message = format!(
            "{}: current {}, persisted {}",
            explain(reason),
            status.current_version(),
            status.persisted_versions().join(", ")
        );
        tracing::info!(resource = %resource.name, "{message}");
        let reference: ObjectReference = written.object_ref(&());
        let why = status.message.map(|why| format!("; {why}")).unwrap_or_default();
        let next = status.next_migration_time.map(|time| format!("; it will be replaced at {}", time.0));
        let text = format!("{message}{why}{}", next.unwrap_or_default());
        // A changed version is normal and needs no advice.
        let text = if reason == Reason::StorageVersionChanged { text } else { explained(reason, &text) };
        self.context.events.publish(&reference, EventType::Normal, reason.as_str(), &text);
    }

    /// Logs that a migration was deleted, and why. If the trigger did not create it, an Event says so too.
    pub(super) fn report_deleted(&self, migration: &StorageVersionMigration, why: &str) {
        tracing::info!(migration = migration.name_any(), "deleted: {why}");
        if is_triggered(migration) {
            return;
        }
        let reference: ObjectReference = migration.object_ref(&());
        let message = explained(Reason::Superseded, &format!("deleted: {why}"));
        self.context.events.publish(&reference, EventType::Warning, Reason::Superseded.as_str(), &message);
    }

    async fn delete(&self, migration: &StorageVersionMigration, retries: bool) -> Result<(), kube::Error> {
        let api = Api::<StorageVersionMigration>::all(self.context.client().clone());
        if !retries {
            return delete(&api, migration).await;
        }
        // The precondition keeps a failed migration that a user has asked to retry since.
        let preconditions =
            Preconditions { uid: migration.uid(), resource_version: migration.resource_version() };
        let params = DeleteParams { preconditions: Some(preconditions), ..DeleteParams::background() };
        match api.delete(&migration.name_any(), &params).await {
            Err(error) if code(&error) != Some(404) => Err(error),
            _ => Ok(()),
        }
    }

    /// Creates a migration, unless it exists already.
    async fn create(
        &self,
        resource: &Resource,
        pending: &PendingMigration,
        wanted: &Wanted,
    ) -> Result<(), kube::Error> {
        let version = resource.endpoint().map(|version| version.version.clone()).unwrap_or_default();
        let migration = StorageVersionMigration {
            metadata: ObjectMeta {
                name: Some(pending.name.clone()),
                labels: Some(triggered()),
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
                suspend: pending.suspend.then_some(true),
                ..StorageVersionMigrationSpec::default()
            },
            status: None,
        };
        let api = Api::<StorageVersionMigration>::all(self.context.client().clone());
        match api.create(&PostParams::default(), &migration).await {
            Ok(_) => Ok(()),
            // An earlier attempt may have created it; but an admission webhook may deny with the same code.
            Err(error) if code(&error) == Some(409) => {
                let existing = api.get_opt(&pending.name).await?;
                let same = |existing: &StorageVersionMigration| {
                    is_triggered(existing) && existing.spec.resource.name() == resource.name.to_string()
                };
                if existing.as_ref().is_some_and(same) { Ok(()) } else { Err(error) }
            }
            Err(error) => Err(error),
        }
    }

    /// Writes a state, with what was read as the precondition.
    async fn write(
        &self,
        resource: &Resource,
        state: Option<StorageState>,
        status: &StorageStateStatus,
    ) -> Result<StorageState, StepError> {
        let api = Api::<StorageState>::all(self.context.client().clone());
        let name = resource.name.to_string();
        let mut new = match state {
            Some(state) => state,
            None => {
                let spec = StorageStateSpec { resource: resource.name.clone() };
                let mut new = StorageState::new(&name, spec);
                new.metadata.labels = Some(managed());
                let created = api.create(&PostParams::default(), &new).await?;
                self.check_stopped()?;
                created
            }
        };
        let mut status = status.clone();
        name_versions(&mut status, |hash| resource.version_of(hash));
        new.status = Some(status);
        Ok(api.replace_status(&name, &PostParams::default(), &new).await?)
    }
}
