//! Another controller that writes the same StorageStates, such as kube-storage-version-migrator.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::ObjectReference;
use kube::{Resource as _, ResourceExt as _};
use restow_api::{ConditionType, Reason, StorageState, StorageStateStatus, StorageVersionMigration};
use restow_clock::Instant;
use restow_core::controller::trigger::{AttemptFailure, is_foreign};
use restow_core::controller::troubleshooting::explained;

use crate::context::Context;
use crate::observe::events::EventType;
use crate::ownership::is_triggered;
use crate::record::checkpoint;

/// Without a write for this long it counts as stopped: kube-storage-version-migrator writes every ten minutes.
const STOPPED_AFTER: Duration = Duration::from_secs(15 * 60);

/// What is known about the other controller.
#[derive(Default)]
pub(super) struct Rival {
    /// The states as they were last read.
    seen: BTreeMap<String, StorageStateStatus>,
    /// When its last write was seen.
    wrote: Option<Instant>,
    /// The uids of migrations that it has ended and that were reported.
    ended: BTreeSet<String>,
}

impl Rival {
    /// A state that it has written since the last check. Writes before the first check do not count.
    pub(super) fn wrote<'a>(
        &mut self,
        states: &'a BTreeMap<String, StorageState>,
    ) -> Option<&'a StorageState> {
        let status = |state: &StorageState| state.status.clone().unwrap_or_default();
        let now: BTreeMap<String, StorageStateStatus> =
            states.iter().map(|(name, state)| (name.clone(), status(state))).collect();
        let before = std::mem::replace(&mut self.seen, now);
        let changed =
            |name: &String, now: &StorageStateStatus| before.get(name).is_some_and(|old| old != now);
        let written =
            |name: &String| self.seen.get(name).is_some_and(|now| is_foreign(now) && changed(name, now));
        let (_, state) = states.iter().find(|(name, _)| written(name))?;
        self.wrote = Some(Instant::now());
        Some(state)
    }

    /// The trigger's own migrations that the other controller has ended, and that were not reported yet.
    pub(super) fn ended<'a>(
        &mut self,
        migrations: &'a [StorageVersionMigration],
    ) -> Vec<&'a StorageVersionMigration> {
        let ended = |migration: &&StorageVersionMigration| {
            is_triggered(migration) && ended_by_another(migration).is_some()
        };
        let ended: Vec<&StorageVersionMigration> = migrations.iter().filter(ended).collect();
        let uids = ended.iter().filter_map(|migration| migration.uid()).collect();
        let reported = std::mem::replace(&mut self.ended, uids);
        let is_new = |migration: &&StorageVersionMigration| {
            migration.uid().is_some_and(|uid| !reported.contains(&uid))
        };
        ended.into_iter().filter(is_new).collect()
    }

    /// Whether it may still be running.
    pub(super) fn is_active(&self) -> bool {
        self.wrote.is_some_and(|wrote| wrote.elapsed() < STOPPED_AFTER)
    }
}

/// How another controller, such as kube-storage-version-migrator, ended a migration: as succeeded, without verifying it.
/// That proves nothing, so the migration is replaced like one that failed.
pub(super) fn ended_by_another(migration: &StorageVersionMigration) -> Option<AttemptFailure> {
    let status = migration.status.as_ref()?;
    let verified = checkpoint(status).is_some_and(|progress| progress.verified);
    let succeeded = status.condition(ConditionType::Succeeded).filter(|_| !verified)?;
    let ended = succeeded.last_update_time.as_ref().or(migration.metadata.creation_timestamp.as_ref());
    let at = ended.map_or(Timestamp::UNIX_EPOCH, |time| time.0);
    let failed = AttemptFailure { reason: Some(Reason::AnotherController), at };
    status.is(ConditionType::Succeeded).then_some(failed)
}

/// Reports that another controller has written a state.
pub(super) fn report(context: &Context, state: &StorageState) {
    let message = "another controller, such as kube-storage-version-migrator, writes this StorageState and marks resources as \
        migrated without verifying them. restow triggers no migration until the other controller has not written for \
        15 minutes: scale it down";
    tracing::warn!(state = state.metadata.name, "{message}");
    let reference: ObjectReference = state.object_ref(&());
    context.events.publish(
        &reference,
        EventType::Warning,
        Reason::AnotherController.as_str(),
        &explained(Reason::AnotherController, message),
    );
}

/// Reports that another controller has ended a migration.
pub(super) fn report_ended(context: &Context, migration: &StorageVersionMigration) {
    let message = "another controller, such as kube-storage-version-migrator, ended this migration without verifying it. The \
        trigger replaces it after a pause: scale the other controller down";
    tracing::warn!(migration = migration.name_any(), "{message}");
    let reference: ObjectReference = migration.object_ref(&());
    context.events.publish(
        &reference,
        EventType::Warning,
        Reason::AnotherController.as_str(),
        &explained(Reason::AnotherController, message),
    );
}
