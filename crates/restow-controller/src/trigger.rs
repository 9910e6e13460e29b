//! The trigger: checks all storage versions and carries out what `restow_core::controller::trigger` decides.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::time::Duration;

use jiff::Timestamp;
use kube::api::{DeleteParams, ListParams, Preconditions};
use kube::{Api, ResourceExt as _};
use restow_api::{
    ConditionType, StorageState, StorageStateStatus, StorageVersionMigration, StorageVersionMigrationStatus,
};
use restow_clock::Instant;
use restow_core::agreement::consensus::Consensus;
use restow_core::agreement::encryption::Encryption;
use restow_core::controller::object_name;
use restow_core::controller::retry;
use restow_core::controller::trigger::{
    Attempt, AttemptFailure, Decision, Observation, Wanted, decide, is_incomplete, observation_interval,
    renew_after, stale_after,
};
use restow_core::controller::unmatched::{unmatched_name, unmatched_pattern};
use restow_core::resource::hash::storage_version_hash;
use restow_core::resource::inventory::{Crd, Resource};
use restow_core::resource::name::{GroupResource, GroupVersion};
use restow_lease::Stop;
use restow_migrate::client::{RequestError, plain};
use restow_migrate::cluster::Survey;
use restow_migrate::cluster::{Trust, is_refused};

use self::carry_out::Executor;
use self::rival::{Rival, ended_by_another};
use crate::context::Context;
use crate::ownership::is_triggered;
use crate::record::checkpoint;
use crate::requests::delete;
use crate::settings::Controllers;

mod carry_out;
mod rival;

/// The shortest time until the next check.
const MIN_DELAY: Duration = Duration::from_secs(1);
/// How long to collect changes before a check.
const COLLECT_CHANGES: Duration = Duration::from_millis(300);
/// The shortest time between the starts of two checks, however much changes.
const MIN_INTERVAL: Duration = Duration::from_secs(2);
/// How long the requests about one resource may take before the loop counts as stuck.
const MAX_REQUESTS_TIME: Duration = Duration::from_secs(600);

/// Why a check failed.
#[derive(Debug, thiserror::Error)]
enum CheckError {
    #[error(transparent)]
    Survey(#[from] RequestError),
    #[error(transparent)]
    Objects(#[from] kube::Error),
}

/// Checks all storage versions again and again, until it is time to stop.
pub(crate) async fn run(context: &Context, controllers: Controllers, stop: &Stop) {
    let mut trigger = Trigger {
        context,
        stop,
        controllers,
        silent_since: HashMap::new(),
        executor: Executor::new(context, stop),
        missing: HashSet::new(),
        unsettled: 0,
        rival: Rival::default(),
        unmatched: BTreeSet::new(),
    };
    let every = observation_interval(context.settings.poll);
    let mut changes = context.storage_changed.subscribe();
    while !stop.is_stopped() {
        changes.mark_unchanged();
        trigger.beat();
        let began = Instant::now();
        let wait = match stop.unless(trigger.check()).await {
            None => break,
            Some(Ok(wait)) => wait.min(every),
            Some(Err(error)) => {
                tracing::warn!(error = %plain(&error), "could not check the storage versions; retrying");
                MIN_DELAY * 5
            }
        };
        let woken = async {
            let _ = changes.changed().await;
            tokio::time::sleep(COLLECT_CHANGES.max(MIN_INTERVAL.saturating_sub(began.elapsed()))).await;
        };
        stop.unless(async {
            tokio::select! {
                biased;
                () = woken => {}
                () = tokio::time::sleep(wait) => {}
            }
        })
        .await;
    }
}

struct Trigger<'a> {
    context: &'a Context,
    stop: &'a Stop,
    controllers: Controllers,
    silent_since: HashMap<GroupResource, Instant>,
    /// Carries decisions out.
    executor: Executor<'a>,
    /// Resources that the last check did not find.
    missing: HashSet<GroupResource>,
    /// How many checks in a row found a resource that is still changing.
    unsettled: u32,
    /// Another controller that writes the same states.
    rival: Rival,
    /// Why names in the flags cover no resource, as it was last logged.
    unmatched: BTreeSet<String>,
}

impl Trigger<'_> {
    /// Reports that the loop is alive.
    fn beat(&self) {
        let within = max_silence(self.context.settings.poll, self.context.cluster.trust());
        self.context.health.beat("trigger", within);
    }

    /// Checks once, and returns when to check again.
    async fn check(&mut self) -> Result<Duration, CheckError> {
        let began = restow_clock::now();
        let survey = self.context.cluster.survey(false).await?;
        self.report_unmatched(&survey);
        let covered = |resource: &Resource| {
            self.is_responsible_for(&resource.name) && self.context.is_encrypted(&resource.name)
        };
        let covered = survey.resources.iter().any(covered);
        let keys = if self.controllers.encryption && covered { self.keys().await } else { None };
        let client = self.context.client();
        let everything = ListParams::default();
        let states = Api::<StorageState>::all(client.clone()).list(&everything).await?;
        let migrations = Api::<StorageVersionMigration>::all(client.clone()).list(&everything).await?;
        let states: BTreeMap<String, StorageState> =
            states.into_iter().map(|state| (state.name_any(), state)).collect();
        if let Some(written) = self.rival.wrote(&states) {
            rival::report(self.context, written);
        }
        for ended in self.rival.ended(&migrations.items) {
            rival::report_ended(self.context, ended);
        }
        let rival_active = self.rival.is_active();
        let (mut settled, mut disagreeing, mut unsettled) = (true, 0_usize, 0_usize);
        let mut next = Duration::MAX;
        let watched =
            |resource: &&Resource| resource.obstacle.is_none() && self.is_responsible_for(&resource.name);
        for resource in survey.resources.iter().filter(watched).collect::<Vec<_>>() {
            let name = resource.name.to_string();
            let of_resource: Vec<&StorageVersionMigration> =
                migrations.items.iter().filter(|migration| migration.spec.resource.name() == name).collect();
            let state = states.get(&name);
            let (decision, consensus) =
                self.decide(&survey, resource, keys.as_ref(), state, &of_resource, began);
            // The heartbeats are renewed even so: otherwise everything would be migrated again afterwards.
            if rival_active && !decision.is_heartbeat(state.and_then(|state| state.status.as_ref())) {
                continue;
            }
            disagreeing += usize::from(!matches!(consensus, Consensus::Agreed(_)));
            let after = decision.state.as_ref().or(state.and_then(|state| state.status.as_ref()));
            unsettled += usize::from(!after.is_some_and(StorageStateStatus::is_settled));
            // Discovery shows a changed definition a moment later.
            settled &= resource.crd.is_none()
                || matches!(&consensus, Consensus::Agreed(hash) if Some(hash) == resource.hash.as_ref());
            next = next.min(after.and_then(until_next_migration).unwrap_or(Duration::MAX));
            self.beat();
            next = next.min(self.executor.carry_out(resource, state, &of_resource, decision).await);
        }
        if rival_active {
            return Ok(Duration::MAX);
        }
        let served = |name: &GroupResource| survey.resources.iter().any(|resource| resource.name == *name);
        self.executor.retain(served);
        settled &= self.forget_gone(&survey, &states, &migrations.items).await;
        self.context.metrics.disagreeing(disagreeing);
        self.context.metrics.unsettled(unsettled);
        self.unsettled = if settled { 0 } else { self.unsettled.saturating_add(1) };
        Ok(if settled { next } else { next.min(retry::request_backoff(self.unsettled)) })
    }

    /// Warns once of each name in the flags that covers no resource.
    fn report_unmatched(&mut self, survey: &Survey) {
        let settings = &self.context.settings;
        let (resources, unavailable) = (&survey.resources, &survey.unavailable);
        let watched = settings.resources.iter().flatten().filter_map(|name| {
            unmatched_name(resources, unavailable, name)
                .map(|why| format!("--resources has a name that covers nothing: {why}"))
        });
        let encrypted = settings.encryption_resources.iter().flatten().filter_map(|pattern| {
            unmatched_pattern(resources, unavailable, pattern)
                .map(|why| format!("--encryption-resources has a name that covers nothing: {why}"))
        });
        let unmatched: BTreeSet<String> = watched.chain(encrypted).collect();
        unmatched.difference(&self.unmatched).for_each(|why| tracing::warn!("{why}"));
        self.unmatched = unmatched;
    }

    /// Whether this controller is responsible for a resource; without `trigger`, only for encrypted ones.
    fn is_responsible_for(&self, resource: &GroupResource) -> bool {
        self.context.is_watched(resource) && (self.controllers.trigger || self.context.is_encrypted(resource))
    }

    /// The encryption configurations; none without permission to read metrics. Unreadable metrics affect only encrypted
    /// resources.
    async fn keys(&self) -> Option<Keys> {
        match self.context.cluster.encryption().await {
            Ok(Encryption { consensus, reloads, .. }) => {
                consensus.map(|consensus| Keys { consensus, reloads })
            }
            Err(error) if is_refused(&error) => {
                tracing::warn!(%error, "no permission to read the API servers' metrics; key rotations are not detected");
                None
            }
            Err(error) => {
                tracing::warn!(%error, "cannot read the API servers' metrics; key rotations are not detected for now");
                Some(Keys { consensus: Consensus::Silent(Vec::new()), reloads: BTreeMap::new() })
            }
        }
    }

    fn decide(
        &mut self,
        survey: &Survey,
        resource: &Resource,
        keys: Option<&Keys>,
        state: Option<&StorageState>,
        migrations: &[&StorageVersionMigration],
        began: Timestamp,
    ) -> (Decision, Consensus) {
        let (consensus, agreement) = survey.consensus(resource);
        let keys = keys.filter(|_| self.context.is_encrypted(&resource.name));
        let encryption = keys.map(|keys| &keys.consensus);
        let status = state.and_then(|state| state.status.as_ref());
        let silent_for = if is_incomplete(&consensus, encryption, status) {
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
        let (poll, now) = (self.context.settings.poll, restow_clock::now());
        let occasion = format!(
            "{} {} {now}",
            state.and_then(StorageState::uid).unwrap_or_default(),
            state.and_then(StorageState::resource_version).unwrap_or_default()
        );
        let decision = decide(&Observation {
            storage: &consensus,
            agreement: &agreement,
            encryption,
            reloads: keys.map_or(&BTreeMap::new(), |keys| &keys.reloads),
            stored: stored.as_deref().unwrap_or_default(),
            definition: definition.as_deref(),
            served: &served,
            state: status,
            migrations: &attempts,
            stale: stale_after(poll),
            renew: renew_after(poll),
            silent_for,
            name: &object_name::unique(&resource.name.to_string(), &occasion),
            began,
            now,
        });
        (decision, consensus)
    }

    /// Deletes the states and migrations of resources that are no longer served; false if that must be checked again.
    async fn forget_gone(
        &mut self,
        survey: &Survey,
        states: &BTreeMap<String, StorageState>,
        migrations: &[StorageVersionMigration],
    ) -> bool {
        let before = std::mem::take(&mut self.missing);
        for state in states.values() {
            let of = &state.spec.resource;
            let name = GroupResource::new(&of.group, &of.resource);
            if !self.is_responsible_for(&name) || !survey.is_missing(&name) || self.stop.is_stopped() {
                continue;
            }
            self.beat();
            self.missing.insert(name.clone());
            // Missing in two checks in a row, and at every server that is ready.
            let gone = before.contains(&name)
                && self.context.cluster.is_served_nowhere(&name).await.unwrap_or(false);
            if !gone || self.stop.is_stopped() {
                tracing::debug!(resource = %name, "the resource may no longer be served");
                continue;
            }
            tracing::info!(resource = %name, "the resource is no longer served");
            match self.forget(state, migrations).await {
                Ok(()) => drop(self.missing.remove(&name)),
                Err(error) => {
                    tracing::info!(resource = %name, error = %plain(&error), "could not delete the state or migrations of the resource; retrying");
                }
            }
        }
        self.missing.is_empty()
    }

    /// Deletes a state, and then its unfinished migrations: in the other order, a stop in between would leave a state that
    /// waits for a migration if the resource comes back.
    async fn forget(
        &self,
        state: &StorageState,
        migrations: &[StorageVersionMigration],
    ) -> Result<(), kube::Error> {
        let params = DeleteParams {
            preconditions: Some(Preconditions {
                uid: state.uid(),
                resource_version: state.resource_version(),
            }),
            ..DeleteParams::default()
        };
        Api::<StorageState>::all(self.context.client().clone()).delete(&state.name_any(), &params).await?;
        let own = |migration: &&StorageVersionMigration| {
            migration.spec.resource.name() == state.name_any() && !migration.is_finished()
        };
        let api = Api::<StorageVersionMigration>::all(self.context.client().clone());
        for migration in migrations.iter().filter(own) {
            if self.stop.is_stopped() {
                break;
            }
            delete(&api, migration).await?;
            self.executor.report_deleted(migration, "its resource is no longer served");
        }
        Ok(())
    }
}

/// How long the loop may be silent before it counts as stuck.
fn max_silence(poll: Duration, trust: &Trust) -> Duration {
    // One period for the storage versions, one for the keys, and one more if a server restarts meanwhile.
    let samples = match trust {
        Trust::Sampled(period) => *period * 3,
        _ => Duration::ZERO,
    };
    observation_interval(poll) * 2 + MAX_REQUESTS_TIME + samples
}

/// The encryption configurations, and when the API servers loaded them.
struct Keys {
    consensus: Consensus,
    reloads: BTreeMap<String, String>,
}

/// How long until a failed migration is replaced.
fn until_next_migration(status: &StorageStateStatus) -> Option<Duration> {
    let due = status.next_migration_time.as_ref()?.0;
    Some(Duration::try_from(due.duration_since(restow_clock::now())).unwrap_or_default().max(MIN_DELAY))
}

/// What a migration object says about its progress.
fn attempt(migration: &StorageVersionMigration) -> Attempt {
    let progress = migration.status.as_ref().and_then(checkpoint);
    let verified = progress.as_ref().is_some_and(|progress| progress.verified);
    // A migration that is being deleted was superseded, and does nothing more however long a finalizer keeps it.
    let deleted = migration.metadata.deletion_timestamp.is_some();
    Attempt {
        name: migration.name_any(),
        finished: deleted || (migration.is_finished() && !migration.retry_requested()),
        verified: !deleted && migration.is(ConditionType::Succeeded) && verified,
        suspended: !deleted && migration.is_suspended(),
        hash: progress.as_ref().map(|progress| progress.storage_version_hash.clone()),
        encryption: progress.as_ref().and_then(|progress| progress.encryption.clone()),
        definition: progress.and_then(|progress| progress.definition),
        made_for: migration
            .spec
            .storage_version_hash
            .clone()
            .filter(|_| is_triggered(migration))
            .map(|hash| Wanted { hash, encryption: migration.spec.encryption_config_hash.clone() }),
        failed: migration.status.as_ref().and_then(failure).or_else(|| ended_by_another(migration)),
    }
}

/// How a migration failed, if it did.
fn failure(status: &StorageVersionMigrationStatus) -> Option<AttemptFailure> {
    let failed = status.condition(ConditionType::Failed).filter(|_| status.is(ConditionType::Failed))?;
    let at = failed.last_update_time.as_ref().map_or(Timestamp::UNIX_EPOCH, |time| time.0);
    Some(AttemptFailure { reason: failed.reason(), at })
}

#[cfg(test)]
mod tests {
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

    use super::*;

    #[test]
    fn a_migration_that_is_being_deleted_counts_as_finished() {
        let mut migration = StorageVersionMigration::default();
        migration.spec.suspend = Some(true);
        let live = attempt(&migration);
        assert_eq!((live.finished, live.suspended), (false, true));
        migration.metadata.deletion_timestamp = Some(Time(restow_clock::now()));
        let deleted = attempt(&migration);
        assert_eq!((deleted.finished, deleted.suspended, deleted.verified), (true, false, false));
    }

    #[test]
    fn a_success_that_nobody_verified_counts_as_a_failure() {
        use restow_api::Reason;
        use restow_core::controller::condition::{self, Stage};
        use restow_core::rewrite::progress::Progress;

        let at = Timestamp::from_second(1_000_000).unwrap();
        for (stage, checkpoint, expected) in [
            (Stage::Succeeded, None, Some(Reason::AnotherController)),
            (Stage::Succeeded, Some(false), Some(Reason::AnotherController)),
            (Stage::Succeeded, Some(true), None),
            (Stage::Running, Some(false), None),
            (Stage::Failed, Some(false), Some(Reason::Quarantined)),
        ] {
            let mut migration = StorageVersionMigration::default();
            let status = migration.status.get_or_insert_default();
            if let Some(verified) = checkpoint {
                let mut progress = Progress::new(GroupResource::parse("secrets"), "v1", "x", at);
                progress.verified = verified;
                crate::record::put(status, &progress, (at, 0), at);
            }
            condition::set(status, stage, Reason::Quarantined, "", at);
            let attempt = attempt(&migration);
            let failed = attempt.failed.as_ref().map(|failed| (failed.reason, failed.at));
            assert_eq!(failed, expected.map(|reason| (Some(reason), at)), "{stage:?} {checkpoint:?}");
            assert_eq!(attempt.verified, stage == Stage::Succeeded && checkpoint == Some(true));
        }
    }

    #[test]
    fn a_check_that_samples_servers_does_not_count_as_stuck() {
        let (minute, hour) = (Duration::from_secs(60), Duration::from_secs(3600));
        assert_eq!(max_silence(minute, &Trust::Members), minute * 2 + MAX_REQUESTS_TIME);
        assert_eq!(max_silence(minute, &Trust::Sampled(hour)), minute * 2 + MAX_REQUESTS_TIME + hour * 3);
    }
}
