//! The migrator: starts and stops migrations as `restow_core::controller::schedule` decides, and requeues those that must wait.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use futures::future::{Fuse, FusedFuture as _, LocalBoxFuture};
use futures::stream::FuturesUnordered;
use futures::{FutureExt as _, StreamExt as _};
use jiff::Timestamp;
use kube::runtime::reflector::Store;
use kube::{Api, ResourceExt as _};
use restow_api::{ConditionType, Reason, StorageVersionMigration, StorageVersionMigrationStatus};
use restow_clock::Instant;
use restow_core::controller::condition::{self, Stage};
use restow_core::controller::schedule::{self, Entry, Queued};
use restow_core::controller::verdict::Requeue;
use restow_lease::Stop;
use tokio_util::sync::CancellationToken;

use crate::attempt::Attempt;
use crate::context::Context;
use crate::ownership::conversion_of;
use crate::record::Record;

/// How often to schedule when nothing changes.
const IDLE_INTERVAL: Duration = Duration::from_secs(30);
/// The longest delay of a migration that is requeued again and again.
const MAX_REQUEUE_DELAY: Duration = Duration::from_secs(60);
/// The timeout for writing the status of a migration that does not run.
const STATUS_TIMEOUT: Duration = Duration::from_secs(5);
/// How long an ended migration is not started again, until the cache shows its end.
const CACHE_DELAY: Duration = Duration::from_secs(1);

/// Runs migrations until it is time to stop. The next leader resumes those that are unfinished.
pub(crate) async fn run(context: &Context, migrations: &Store<StorageVersionMigration>, stop: &Stop) {
    let mut scheduler =
        Scheduler { context, running: HashMap::new(), not_before: HashMap::new(), requeued: HashMap::new() };
    let mut under_way: FuturesUnordered<LocalBoxFuture<'_, (String, Requeue)>> = FuturesUnordered::new();
    // Concurrently: a server that is slow to take a status must not delay the migrations.
    let mut reporting: Fuse<LocalBoxFuture<'_, ()>> = Fuse::terminated();
    let mut changes = context.migrations_changed.subscribe();
    while !stop.is_stopped() {
        context.health.beat("migrator", IDLE_INTERVAL * 4);
        changes.mark_unchanged();
        let mut objects = migrations.state();
        objects.retain(|object| is_mine(context, object));
        let schedule = scheduler.schedule(&objects);
        for name in &schedule.stop {
            scheduler.running[name].stop.cancel();
        }
        for name in schedule.start {
            let (cancel, child) = stop.child();
            let resource = objects.iter().find(|object| object.name_any() == name);
            let resource = resource.map(|object| object.spec.resource.name()).unwrap_or_default();
            scheduler.running.insert(name.clone(), Running { resource, stop: cancel });
            let attempt = Attempt { context, name: name.clone(), lead: stop.clone(), stop: child };
            under_way.push(async move { (name, attempt.run().await) }.boxed_local());
        }
        if reporting.is_terminated() {
            let updates = scheduler.status_updates(&objects, &schedule.queued);
            reporting = async move {
                for update in updates {
                    update.write(context, stop).await;
                }
            }
            .boxed_local()
            .fuse();
        }
        // Never completes: a written status wakes this loop through the watch.
        let reported = async {
            (&mut reporting).await;
            std::future::pending::<()>().await;
        };
        tokio::select! {
            biased;
            Some((name, requeue)) = under_way.next(), if !under_way.is_empty() => scheduler.ended(&name, requeue),
            _ = changes.changed() => {}
            () = reported => {}
            () = tokio::time::sleep(scheduler.next_due()) => {}
            () = stop.stopped() => {}
        }
    }
    // Each stops within its page, and saves its progress.
    while let Some((name, requeue)) = under_way.next().await {
        scheduler.ended(&name, requeue);
    }
}

/// Whether this process runs a migration.
fn is_mine(context: &Context, migration: &StorageVersionMigration) -> bool {
    let only = context.settings.only_conversion.as_ref();
    only.is_none_or(|only| conversion_of(migration).is_some_and(|(name, _)| name == *only))
}

/// A migration that runs in this process.
struct Running {
    resource: String,
    stop: CancellationToken,
}

/// Which migrations run, and which wait until when.
struct Scheduler<'a> {
    context: &'a Context,
    running: HashMap<String, Running>,
    /// When a requeued migration may start again.
    not_before: HashMap<String, Instant>,
    /// How often each was requeued in a row.
    requeued: HashMap<String, u32>,
}

impl Scheduler<'_> {
    fn schedule(&mut self, objects: &[Arc<StorageVersionMigration>]) -> schedule::Schedule {
        let exists = |name: &String| objects.iter().any(|object| object.name_any() == *name);
        self.not_before.retain(|name, _| exists(name));
        self.requeued.retain(|name, _| exists(name));
        let mut entries: Vec<Entry> = objects.iter().map(|object| self.entry(object)).collect();
        // A running migration whose object is gone must be stopped, too.
        let orphans = self.running.iter().filter(|(name, _)| !exists(name));
        entries.extend(orphans.map(|(name, running)| Entry {
            name: name.clone(),
            resource: running.resource.clone(),
            created: Timestamp::UNIX_EPOCH,
            begun: true,
            finished: false,
            suspended: false,
            deleting: true,
            resting: false,
            running: true,
        }));
        schedule::schedule(&entries, self.context.settings.concurrent_migrations)
    }

    fn entry(&self, object: &StorageVersionMigration) -> Entry {
        let name = object.name_any();
        Entry {
            resource: object.spec.resource.name(),
            created: object.metadata.creation_timestamp.as_ref().map_or(Timestamp::UNIX_EPOCH, |time| time.0),
            begun: object.is(ConditionType::Running),
            finished: object.is_finished() && !object.retry_requested(),
            suspended: object.is_suspended(),
            deleting: object.metadata.deletion_timestamp.is_some(),
            resting: self.not_before.get(&name).is_some_and(|time| *time > Instant::now()),
            running: self.running.contains_key(&name),
            name,
        }
    }

    fn ended(&mut self, name: &str, requeue: Requeue) {
        self.running.remove(name);
        let wait = match requeue {
            Requeue::Never => {
                self.requeued.remove(name);
                CACHE_DELAY
            }
            Requeue::After(wait) => {
                let times = self.requeued.entry(name.to_owned()).or_default();
                *times += 1;
                (wait * (1 << (*times - 1).min(5))).min(MAX_REQUEUE_DELAY)
            }
        };
        self.not_before.insert(name.to_owned(), Instant::now() + wait);
    }

    /// How long until a requeued migration may start.
    fn next_due(&self) -> Duration {
        let now = Instant::now();
        let next = self.not_before.values().filter(|time| **time > now).min();
        let wait = next.map(|time| time.duration_since(now));
        wait.unwrap_or(IDLE_INTERVAL).clamp(Duration::from_millis(50), IDLE_INTERVAL)
    }

    /// Status updates that say why a migration does not run: users look at the objects first.
    fn status_updates(
        &self,
        objects: &[Arc<StorageVersionMigration>],
        queued: &[(String, Queued)],
    ) -> Vec<StatusUpdate> {
        let mut updates = Vec::new();
        for object in objects.iter().filter(|object| !self.running.contains_key(&object.name_any())) {
            let name = object.name_any();
            let phase = object.status.as_ref().and_then(|status| status.phase.as_deref());
            let queued = queued.iter().find(|(queued, _)| *queued == name).map(|(_, queued)| queued);
            if object.is_suspended() && !object.is_finished() && phase != Some(Stage::Suspended.name()) {
                let message = "spec.suspend is true".to_owned();
                updates.push(StatusUpdate {
                    name,
                    stage: Stage::Suspended,
                    reason: Reason::Suspended,
                    message,
                });
            } else if let Some(queued) = queued
                && (phase.is_none() || phase == Some(Stage::Suspended.name()) || queued_for(object).is_some())
                && queued_for(object) != Some(&queued.explain())
            {
                let message = queued.explain();
                updates.push(StatusUpdate { name, stage: Stage::Waiting, reason: Reason::Queued, message });
            }
        }
        updates
    }
}

/// What a migration's status says it is queued for.
fn queued_for(object: &StorageVersionMigration) -> Option<&String> {
    let running = object.status.as_ref()?.condition(ConditionType::Running)?;
    running.message.as_ref().filter(|_| running.reason() == Some(Reason::Queued))
}

/// The status of a migration that does not run.
struct StatusUpdate {
    name: String,
    stage: Stage,
    reason: Reason,
    message: String,
}

impl StatusUpdate {
    async fn write(&self, context: &Context, stop: &Stop) {
        let write = async {
            let api = Api::all(context.client().clone());
            let record = Record::read(&api, &self.name, stop).await.ok().flatten()?;
            let seen = record.object().await;
            if self.stage == Stage::Waiting && (seen.is(ConditionType::Running) || seen.is_finished()) {
                return Some(());
            }
            let (seen, now) = (seen.status.unwrap_or_default(), restow_clock::now());
            let put = |status: &mut StorageVersionMigrationStatus| {
                // The migration may have started since.
                if *status == seen {
                    condition::set(status, self.stage, self.reason, &self.message, now);
                }
            };
            record.update(put).await.ok()
        };
        if !matches!(tokio::time::timeout(STATUS_TIMEOUT, write).await, Ok(Some(()))) {
            tracing::debug!(migration = self.name, "could not write the migration's status");
        }
    }
}
