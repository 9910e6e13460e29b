//! Carries a decision out, step by step, and tries again what failed.

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
use crate::ownership::{is_triggered, managed};
use crate::requests::{code, delete};
use restow_migrate::server::plain;

/// A decision that could not be carried out.
struct Unfinished {
    what: What,
    tries: u32,
    /// It is not tried again before.
    until: Instant,
}

/// What a decision comes to, whenever it is taken.
type What = (Vec<String>, Option<Wanted>, Option<Reason>);

fn what(decision: &Decision) -> What {
    (decision.delete.clone(), decision.create.clone(), decision.reason)
}

/// Why migrations are deleted by a decision, and what comes in their place.
fn deletion(decision: &Decision) -> String {
    let why = decision.reason.map(|reason| format!("{}; ", explain(reason))).unwrap_or_default();
    let pending = decision.state.as_ref().and_then(|state| state.pending_migration.as_ref());
    match pending.filter(|_| decision.create.is_some()) {
        Some(pending) => format!("{why}{} takes its place", pending.name),
        None => format!("{why}another one is made when all API servers agree"),
    }
}

/// Why a decision was not carried out.
#[derive(Debug, thiserror::Error)]
enum StepError {
    #[error("this controller is to stop")]
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

    /// Carries a decision out; says when to look again if something came in between.
    pub(super) async fn carry_out(
        &mut self,
        resource: &Resource,
        state: Option<&StorageState>,
        migrations: &[&StorageVersionMigration],
        decision: Decision,
    ) -> Duration {
        let what = what(&decision);
        let before = self.unfinished.remove(&resource.name).filter(|before| before.what == what);
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
        // Whatever was done already is found at the next look.
        let wait = retry::again(tries);
        tracing::warn!(resource = %resource.name, error = %plain(&error), tries, "its state could not be followed; trying again in {wait:?}");
        let unfinished = Unfinished { what, tries, until: Instant::now() + wait };
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
            self.may_go_on()?;
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

    fn may_go_on(&self) -> Result<(), StepError> {
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
        let next = status.next_migration_time.map(|time| format!("; it is replaced at {}", time.0));
        let text = format!("{message}{why}{}", next.unwrap_or_default());
        // A changed version is what the trigger is for, and nothing to be mended.
        let text = if reason == Reason::StorageVersionChanged { text } else { explained(reason, &text) };
        self.context.events.tell(&reference, EventType::Normal, reason.as_str(), &text);
    }

    /// Says in an Event that somebody else's migration was deleted, and why.
    pub(super) fn report_deleted(&self, migration: &StorageVersionMigration, why: &str) {
        if is_triggered(migration) {
            return;
        }
        tracing::info!(migration = migration.name_any(), "deleted: {why}");
        let reference: ObjectReference = migration.object_ref(&());
        let message = explained(Reason::Superseded, &format!("deleted: {why}"));
        self.context.events.tell(&reference, EventType::Warning, Reason::Superseded.as_str(), &message);
    }

    async fn delete(&self, migration: &StorageVersionMigration, retries: bool) -> Result<(), kube::Error> {
        let api = Api::<StorageVersionMigration>::all(self.context.client().clone());
        if !retries {
            return delete(&api, migration).await;
        }
        // One that failed, and for which somebody has asked for another try since, is left to that.
        let preconditions =
            Preconditions { uid: migration.uid(), resource_version: migration.resource_version() };
        let params = DeleteParams { preconditions: Some(preconditions), ..DeleteParams::background() };
        match api.delete(&migration.name_any(), &params).await {
            Err(error) if code(&error) != Some(404) => Err(error),
            _ => Ok(()),
        }
    }

    /// Makes a migration, unless it is there already.
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
                suspend: pending.suspend.then_some(true),
                ..StorageVersionMigrationSpec::default()
            },
            status: None,
        };
        let api = Api::<StorageVersionMigration>::all(self.context.client().clone());
        match api.create(&PostParams::default(), &migration).await {
            Ok(_) => Ok(()),
            // The answer to an earlier try was lost; but a webhook denies with the same code.
            Err(error) if code(&error) == Some(409) => {
                let there = api.get_opt(&pending.name).await?;
                let same = |there: &StorageVersionMigration| {
                    is_triggered(there) && there.spec.resource.name() == resource.name.to_string()
                };
                if there.as_ref().is_some_and(same) { Ok(()) } else { Err(error) }
            }
            Err(error) => Err(error),
        }
    }

    /// Writes a state, on condition that it is still the one that was seen.
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
                let made = api.create(&PostParams::default(), &new).await?;
                self.may_go_on()?;
                made
            }
        };
        let mut status = status.clone();
        name_versions(&mut status, |hash| resource.version_of(hash));
        new.status = Some(status);
        Ok(api.replace_status(&name, &PostParams::default(), &new).await?)
    }
}
