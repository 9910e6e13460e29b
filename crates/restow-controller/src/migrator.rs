//! The migrator: whose turn it is, by `restow_core::controller::schedule`, and each migration from object to end.

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
use restow_lease::Stop;
use tokio_util::sync::CancellationToken;

use crate::attempt::Attempt;
use crate::context::Context;
use crate::record::Record;
use crate::verdict::Requeue;

/// How often turns are looked at when nothing happens.
const IDLE: Duration = Duration::from_secs(30);
/// How long one that was put off again and again is left alone at most.
const LONGEST: Duration = Duration::from_secs(60);
/// How long a word about one that does not run may take.
const PATIENCE: Duration = Duration::from_secs(5);
/// How long one that has just ended is left alone, until the cache has heard of it.
const REST: Duration = Duration::from_secs(1);

/// The reason of a migration that waits for its turn.

/// Runs migrations until it is time to stop; what is under way is left to go on from where it is.
pub(crate) async fn run(context: &Context, migrations: &Store<StorageVersionMigration>, stop: &Stop) {
    let mut desk =
        Desk { context, running: HashMap::new(), not_before: HashMap::new(), put_off: HashMap::new() };
    let mut under_way: FuturesUnordered<LocalBoxFuture<'_, (String, Requeue)>> = FuturesUnordered::new();
    // Beside those under way, never before them: a server that is slow to take a word must not stop their writes.
    let mut telling: Fuse<LocalBoxFuture<'_, ()>> = Fuse::terminated();
    let mut changes = context.migrations_changed.subscribe();
    while !stop.is_stopped() {
        context.health.beat("migrator", IDLE * 4);
        changes.mark_unchanged();
        let objects = migrations.state();
        let turns = desk.turns(&objects);
        for name in &turns.stop {
            desk.running[name].stop.cancel();
        }
        for name in turns.start {
            let (told, child) = stop.child();
            let resource = objects.iter().find(|object| object.name_any() == name);
            let resource = resource.map(|object| object.spec.resource.name()).unwrap_or_default();
            desk.running.insert(name.clone(), Running { resource, stop: told });
            let attempt = Attempt { context, name: name.clone(), lead: stop.clone(), stop: child };
            under_way.push(async move { (name, attempt.run().await) }.boxed_local());
        }
        if telling.is_terminated() {
            let words = desk.words(&objects, &turns.queued);
            telling = async move {
                for word in words {
                    word.tell(context, stop).await;
                }
            }
            .boxed_local()
            .fuse();
        }
        // What was told wakes this up through the watch, if at all.
        let told = async {
            (&mut telling).await;
            std::future::pending::<()>().await;
        };
        tokio::select! {
            biased;
            Some((name, after)) = under_way.next(), if !under_way.is_empty() => desk.ended(&name, after),
            _ = changes.changed() => {}
            () = told => {}
            () = tokio::time::sleep(desk.patience()) => {}
            () = stop.stopped() => {}
        }
    }
    // Each stops within its page, and keeps what it has done.
    while let Some((name, after)) = under_way.next().await {
        desk.ended(&name, after);
    }
}

/// A migration this controller is at.
struct Running {
    resource: String,
    stop: CancellationToken,
}

/// Who is at what.
struct Desk<'a> {
    context: &'a Context,
    running: HashMap<String, Running>,
    /// Those that are not tried again before, by a clock that nobody sets.
    not_before: HashMap<String, Instant>,
    /// How often each was put off in a row.
    put_off: HashMap<String, u32>,
}

impl Desk<'_> {
    fn turns(&mut self, objects: &[Arc<StorageVersionMigration>]) -> schedule::Turns {
        let exists = |name: &String| objects.iter().any(|object| object.name_any() == *name);
        self.not_before.retain(|name, _| exists(name));
        self.put_off.retain(|name, _| exists(name));
        let mut entries: Vec<Entry> = objects.iter().map(|object| self.entry(object)).collect();
        // One whose object is gone already is stopped all the same.
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
        schedule::turns(&entries, self.context.settings.at_once)
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

    fn ended(&mut self, name: &str, after: Requeue) {
        self.running.remove(name);
        let wait = match after {
            Requeue::Never => {
                self.put_off.remove(name);
                REST
            }
            Requeue::After(wait) => {
                let times = self.put_off.entry(name.to_owned()).or_default();
                *times += 1;
                (wait * (1 << (*times - 1).min(5))).min(LONGEST)
            }
        };
        self.not_before.insert(name.to_owned(), Instant::now() + wait);
    }

    /// How long nothing can become due by itself.
    fn patience(&self) -> Duration {
        let now = Instant::now();
        let next = self.not_before.values().filter(|time| **time > now).min();
        let wait = next.map(|time| time.duration_since(now));
        wait.unwrap_or(IDLE).clamp(Duration::from_millis(50), IDLE)
    }

    /// Why nothing happens to those that do not run: a person looks into the objects first.
    fn words(&self, objects: &[Arc<StorageVersionMigration>], queued: &[(String, Queued)]) -> Vec<Word> {
        let mut words = Vec::new();
        for object in objects.iter().filter(|object| !self.running.contains_key(&object.name_any())) {
            let name = object.name_any();
            let phase = object.status.as_ref().and_then(|status| status.phase.as_deref());
            let queued = queued.iter().find(|(queued, _)| *queued == name).map(|(_, queued)| queued);
            if object.is_suspended() && !object.is_finished() && phase != Some(Stage::Suspended.name()) {
                let message = "spec.suspend is true".to_owned();
                words.push(Word { name, stage: Stage::Suspended, reason: Reason::Suspended, message });
            } else if let Some(queued) = queued
                && (phase.is_none() || phase == Some(Stage::Suspended.name()) || queued_for(object).is_some())
                && queued_for(object) != Some(&queued.explain())
            {
                let message = queued.explain();
                words.push(Word { name, stage: Stage::Waiting, reason: Reason::Queued, message });
            }
        }
        words
    }
}

/// What a migration says it is queued for.
fn queued_for(object: &StorageVersionMigration) -> Option<&String> {
    let running = object.status.as_ref()?.condition(ConditionType::Running)?;
    running.message.as_ref().filter(|_| running.reason() == Some(Reason::Queued))
}

/// What is to be told in the object of a migration that does not run.
struct Word {
    name: String,
    stage: Stage,
    reason: Reason,
    message: String,
}

impl Word {
    async fn tell(&self, context: &Context, stop: &Stop) {
        let told = async {
            let api = Api::all(context.client().clone());
            let record = Record::read(&api, &self.name, stop).await.ok().flatten()?;
            let seen = record.object().await;
            if self.stage == Stage::Waiting && (seen.is(ConditionType::Running) || seen.is_finished()) {
                return Some(());
            }
            let (seen, now) = (seen.status.unwrap_or_default(), restow_clock::now());
            let put = |status: &mut StorageVersionMigrationStatus| {
                // It may have begun since.
                if *status == seen {
                    condition::set(status, self.stage, self.reason, &self.message, now);
                }
            };
            record.update(put).await.ok()
        };
        if !matches!(tokio::time::timeout(PATIENCE, told).await, Ok(Some(()))) {
            tracing::debug!(migration = self.name, "its status was not written");
        }
    }
}
