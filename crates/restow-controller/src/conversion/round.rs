//! One round of a Conversion: read everything, decide the next step, take it.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use kube::runtime::reflector::{ObjectRef, Store};
use kube::{Api, ResourceExt as _};
use restow_api::ConversionConditionType as Condition;
use restow_api::{
    ConditionType, Conversion, ConversionSpec, ConversionStatus, Reason, StorageVersionMigration,
};
use restow_clock::Instant;
use restow_core::controller::condition::Stage;
use restow_core::controller::conversion::{
    self as decide, Candidate, Observation, Refusal, Step, Waiting, migration_name,
};
use restow_core::resource::hash::storage_version_hash;
use restow_core::resource::name::GroupVersion;
use restow_lease::Stop;

use super::definitions::{self, Found};
use super::error::RoundError;
use super::record::Record;
use crate::context::Context;
use crate::record::checkpoint;
use crate::settings::Controllers;

/// How soon to look again after an error.
const RETRY_DELAY: Duration = Duration::from_secs(2);
/// How soon to look again after a step.
const SOON: Duration = Duration::from_millis(100);
/// How long a definition or a webhook may be missing before the Conversion is refused.
const PATIENCE: Duration = Duration::from_secs(60);
/// How long the trigger may take to create a migration after the storage version was set.
const TRIGGER_DELAY: jiff::SignedDuration = jiff::SignedDuration::from_secs(20);

/// What all rounds share.
pub(super) struct Rounds<'a> {
    pub(super) context: &'a Context,
    controllers: Controllers,
    pub(super) migrations: &'a Store<StorageVersionMigration>,
    pub(super) conversions: &'a Store<Conversion>,
    pub(super) stop: &'a Stop,
    /// What Conversions wait for, and since when.
    waiting: Mutex<HashMap<String, (Reason, Instant)>>,
}

/// A Conversion in its round.
pub(super) struct Round<'a, 'b> {
    pub(super) rounds: &'a Rounds<'b>,
    pub(super) record: Record<'b>,
    pub(super) spec: ConversionSpec,
    /// The storage version hash of the new version.
    pub(super) hash: String,
}

impl<'a> Rounds<'a> {
    pub(super) fn new(
        context: &'a Context,
        controllers: Controllers,
        migrations: &'a Store<StorageVersionMigration>,
        conversions: &'a Store<Conversion>,
        stop: &'a Stop,
    ) -> Self {
        Self { context, controllers, migrations, conversions, stop, waiting: Mutex::default() }
    }

    pub(super) fn api(&self) -> Api<Conversion> {
        Api::all(self.context.client().clone())
    }

    /// Whether this process carries it out.
    pub(super) fn is_mine(&self, object: &Conversion) -> bool {
        self.context.settings.only_conversion.as_ref().is_none_or(|only| *only == object.name_any())
    }

    /// Takes the next step of a Conversion; returns when to look again.
    pub(super) async fn round(&self, name: &str) -> Duration {
        let (api, stop) = (self.api(), self.stop);
        let object = match stop.unless(api.get_opt(name)).await {
            Some(Ok(Some(object))) => object,
            Some(Err(error)) => {
                tracing::info!(conversion = name, error = %RoundError::from(error), "cannot read the Conversion; retrying");
                return RETRY_DELAY;
            }
            _ => return RETRY_DELAY,
        };
        if object.is_finished() || object.metadata.deletion_timestamp.is_some() {
            return RETRY_DELAY;
        }
        let spec = object.spec.clone();
        let version = GroupVersion::new(&spec.group, &spec.new_version);
        let hash = storage_version_hash(&version, &spec.kind);
        let record = Record { context: self.context, stop, api, object };
        let mut round = Round { rounds: self, record, spec, hash };
        if let Some(retry) = round.record.object.retry().map(str::to_owned) {
            self.went_on(name);
            let now = restow_clock::now();
            let again = round.record.update(|status| decide::begin_again(status, &retry, now));
            return match stop.unless(again).await {
                Some(Err(RoundError::Changed) | Ok(())) | None => SOON,
                Some(Err(error)) => round.failed(&error).await,
            };
        }
        match stop.unless(round.advance()).await {
            Some(Ok(wait)) => wait,
            Some(Err(RoundError::Changed)) | None => SOON,
            Some(Err(error)) => round.failed(&error).await,
        }
    }

    /// How long a Conversion has waited for this reason.
    fn waited(&self, name: &str, reason: Reason) -> Duration {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        let since = waiting.entry(name.to_owned()).or_insert_with(|| (reason, Instant::now()));
        if since.0 != reason {
            *since = (reason, Instant::now());
        }
        since.1.elapsed()
    }

    pub(super) fn went_on(&self, name: &str) {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner).remove(name);
    }

    /// The Conversion of the same kind that goes first, if there is one.
    fn goes_first(&self, name: &str) -> Option<String> {
        let entry = |object: &std::sync::Arc<Conversion>| {
            let status = object.status.as_ref();
            let begun = status.is_some_and(|status| status.is(Condition::StorageVersionSet));
            Waiting {
                name: object.name_any(),
                kind: (object.spec.group.clone(), object.spec.kind.clone()),
                created: object
                    .metadata
                    .creation_timestamp
                    .as_ref()
                    .map_or(jiff::Timestamp::UNIX_EPOCH, |time| time.0),
                begun,
                idle: object.is_finished()
                    || object.metadata.deletion_timestamp.is_some()
                    || (object.spec.is_suspended() && !begun),
            }
        };
        let all: Vec<Waiting> = self.conversions.state().iter().map(entry).collect();
        decide::turn(name, &all).map(str::to_owned)
    }

    /// Whether to go on after a page, which shows that nothing is waited for.
    pub(super) fn goes_on(&self, name: &str, object: &Conversion) -> bool {
        self.went_on(name);
        self.is_wanted(object)
    }

    /// Whether a Conversion is still to be carried out, as far as the cache shows.
    fn is_wanted(&self, object: &Conversion) -> bool {
        let now = self.conversions.get(&ObjectRef::new(&object.name_any()));
        now.is_some_and(|now| {
            now.metadata.uid == object.metadata.uid
                && now.metadata.deletion_timestamp.is_none()
                && !now.spec.is_suspended()
        })
    }
}

impl Round<'_, '_> {
    pub(super) fn name(&self) -> String {
        self.record.object.name_any()
    }

    pub(super) fn status(&self) -> ConversionStatus {
        self.record.status()
    }

    async fn advance(&mut self) -> Result<Duration, RoundError> {
        let name = self.name();
        if self.spec.is_suspended() {
            self.suspend().await?;
            return Ok(RETRY_DELAY * 5);
        }
        if let Some(other) = self.rounds.goes_first(&name) {
            let message = format!("waits for {other}, which converts the same kind");
            self.record.waits(Reason::Queued, &message).await?;
            return Ok(RETRY_DELAY);
        }
        let server = self.rounds.context.cluster.server();
        let found = definitions::find(server, &self.spec, self.status().resource.as_deref()).await?;
        if let Some(found) = &found {
            let resource = found.definition.name.to_string();
            if self.status().resource.as_ref() != Some(&resource) {
                self.record.update(|status| status.resource = Some(resource)).await?;
            }
        }
        let step = self.decide(found.as_ref());
        if step.lets_migrations_run() {
            self.resume().await?;
        }
        if !matches!(step, Step::Wait(_) | Step::Check | Step::Recheck(_)) {
            self.rounds.went_on(&name);
        }
        self.carry_out(step, found).await
    }

    fn decide(&self, found: Option<&Found>) -> Step {
        let status = self.status();
        let own = self.own_migration(&status);
        let migrations: Vec<Candidate> = found.map_or_else(Vec::new, |found| {
            let resource = found.definition.name.to_string();
            let all = self.rounds.migrations.state();
            let of = all.iter().filter(|one| {
                one.spec.resource.name() == resource && one.metadata.deletion_timestamp.is_none()
            });
            of.map(|migration| candidate(migration)).collect()
        });
        decide::next(&Observation {
            spec: &self.spec,
            status: &status,
            definition: found.map(|found| &found.definition),
            hash: &self.hash,
            own: &own,
            migrations: &migrations,
            trigger_is_due: found.is_some_and(|found| self.trigger_is_due(found, &status)),
        })
    }

    /// The name of the migration that this Conversion creates, or has created.
    pub(super) fn own_migration(&self, status: &ConversionStatus) -> String {
        let uid = self.record.object.uid().unwrap_or_default();
        let definition = status.definition.as_deref().unwrap_or_default();
        migration_name(&self.name(), &uid, definition, status.retried.as_deref())
    }

    /// Whether the trigger of this process is about to create the migration.
    fn trigger_is_due(&self, found: &Found, status: &ConversionStatus) -> bool {
        let rounds = self.rounds;
        let set = status.condition(Condition::StorageVersionSet).map(|set| set.last_transition_time.0);
        rounds.controllers.trigger
            && rounds.context.is_watched(&found.definition.name)
            && set.is_some_and(|set| restow_clock::now().duration_since(set) < TRIGGER_DELAY)
    }

    /// Waits for something that may appear, and gives up after a while.
    pub(super) async fn wait_for(&mut self, refusal: &Refusal) -> Result<Duration, RoundError> {
        let (reason, message) = (refusal.reason(), refusal.to_string());
        if refusal.may_pass() && self.rounds.waited(&self.name(), reason) < PATIENCE {
            self.record.waits(reason, &message).await?;
            return Ok(RETRY_DELAY);
        }
        self.record.ends(Stage::Failed, reason, &message).await?;
        Ok(RETRY_DELAY)
    }

    /// Reports why a round failed; a webhook that does not answer for long ends the Conversion before it has begun.
    async fn failed(&mut self, error: &RoundError) -> Duration {
        let (name, reason) = (self.name(), error.reason());
        tracing::info!(conversion = name, %error, "could not take the next step; retrying");
        let waited = self.rounds.waited(&name, reason);
        let begun = self.status().is(Condition::StorageVersionSet);
        let may_end = [Reason::WebhookUnavailable, Reason::RulesInvalid].contains(&reason);
        let ends = (may_end && !begun && waited > PATIENCE) || reason == Reason::InvalidSpec;
        let written = match ends {
            true => self.record.ends(Stage::Failed, reason, &error.to_string()).await,
            false => self.record.waits(reason, &error.to_string()).await,
        };
        if let Err(error) = written {
            tracing::debug!(conversion = name, %error, "could not write the Conversion's status");
        }
        RETRY_DELAY
    }
}

/// A migration as the decision needs it.
fn candidate(migration: &StorageVersionMigration) -> Candidate {
    let status = migration.status.as_ref();
    let progress = status.and_then(checkpoint);
    let failed = status.and_then(|status| status.condition(ConditionType::Failed));
    let failed = failed.filter(|_| migration.is(ConditionType::Failed));
    Candidate {
        name: migration.name_any(),
        made_for: migration.spec.storage_version_hash.clone(),
        hash: progress.as_ref().map(|progress| progress.storage_version_hash.clone()),
        verified: migration.is(ConditionType::Succeeded)
            && progress.as_ref().is_some_and(|progress| progress.verified),
        definition: progress.and_then(|progress| progress.definition),
        finished: migration.is_finished() && !migration.retry_requested(),
        failed: failed.map(|failed| (failed.reason(), failed.message.clone().unwrap_or_default())),
    }
}
