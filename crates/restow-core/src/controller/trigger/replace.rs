//! Which migrations are deleted, and which one replaces them.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use restow_api::{PendingMigration, StorageStateStatus};

use super::observation::{Attempt, Observation, Wanted, proofs};
use crate::controller::retry;

/// Migrations that are outdated: all of them when a new one is created, else those that are not finished.
pub(super) fn superseded(observation: &Observation<'_>, all: bool) -> Vec<String> {
    // A suspended migration does nothing, and its replacement is suspended too.
    let goes = |attempt: &&Attempt| all || !(attempt.finished || attempt.suspended);
    names(observation.migrations.iter().filter(goes))
}

/// Unfinished migrations for the wanted hash and key, which continue although nobody observed the resource for too long.
#[derive(Default)]
pub(super) struct Unfinished {
    /// The trigger's own, which exists already. The state names it as the migration to create, so that the migrations it
    /// replaces are deleted before they count as proofs.
    pub(super) own: Option<PendingMigration>,
    /// Those that users created.
    others: Vec<String>,
}

impl Unfinished {
    pub(super) fn contains(&self, name: &str) -> bool {
        self.own.as_ref().is_some_and(|own| own.name == name) || self.others.iter().any(|other| other == name)
    }
}

/// Finds migrations that need not start again. A run continues only if nothing has changed since it was stopped, and its
/// verifying pass reads everything that was written meanwhile. A finished migration no longer proves anything.
pub(super) fn unfinished(observation: &Observation<'_>, wanted: &Wanted) -> Unfinished {
    let mut found = Unfinished::default();
    for attempt in observation.migrations.iter().filter(|attempt| !attempt.finished) {
        let runs = || Wanted {
            hash: attempt.hash.clone().unwrap_or_default(),
            encryption: attempt.encryption.clone(),
        };
        match &attempt.made_for {
            Some(made) if found.own.is_none() && made.covers(wanted) => {
                found.own = Some(PendingMigration { name: attempt.name.clone(), suspend: attempt.suspended });
            }
            None if runs().covers(wanted) => found.others.push(attempt.name.clone()),
            _ => {}
        }
    }
    found
}

/// The trigger's own unfinished migrations while the API servers disagree: an earlier observation was stopped before it
/// deleted them. A user's migration waits for the agreement by itself.
pub(super) fn left_over(observation: &Observation<'_>) -> Vec<String> {
    let own = |attempt: &&Attempt| attempt.made_for.is_some() && !attempt.finished && !attempt.suspended;
    names(observation.migrations.iter().filter(own))
}

/// Whether a migration does nothing: it has finished, or a user created and suspended it.
///
/// If a user suspended the trigger's own migration, that is a request not to migrate, and no other is started.
fn is_idle(attempt: &Attempt) -> bool {
    attempt.finished || (attempt.suspended && attempt.made_for.is_none())
}

fn names<'a>(attempts: impl Iterator<Item = &'a Attempt>) -> Vec<String> {
    attempts.map(|attempt| attempt.name.clone()).collect()
}

/// The migration to create after this observation; it is suspended if a user suspended the one it replaces.
pub(super) fn pending(observation: &Observation<'_>) -> PendingMigration {
    let suspends = |attempt: &Attempt| attempt.suspended && attempt.made_for.is_some() && !attempt.verified;
    PendingMigration {
        name: observation.name.to_owned(),
        suspend: observation.migrations.iter().any(suspends),
    }
}

/// What is left to do about the migration that an earlier observation decided to create.
pub(super) enum Pending {
    /// Nothing: a user has created or retried a migration.
    Dropped,
    /// It exists; these are to be deleted.
    Made(Vec<String>),
    /// It is to be created after these are deleted.
    Due(Vec<String>),
}

/// Continues with the migration that an earlier observation decided to create.
pub(super) fn resume(
    observation: &Observation<'_>,
    state: &StorageStateStatus,
    pending: &PendingMigration,
) -> Pending {
    let others = || observation.migrations.iter().filter(|attempt| attempt.name != pending.name);
    let retries = state.replaced_migrations.is_some();
    // A user has retried the failed migration or created another.
    if retries && !others().all(is_idle) {
        return Pending::Dropped;
    }
    let delete = names(others().filter(|attempt| !retries || is_replaced(attempt)));
    let made = observation.migrations.iter().any(|attempt| attempt.name == pending.name);
    if made { Pending::Made(delete) } else { Pending::Due(delete) }
}

/// Whether a retry replaces a migration.
fn is_replaced(attempt: &Attempt) -> bool {
    attempt.made_for.is_some() && !attempt.verified
}

/// Whether everything was proven under a CRD that has changed since, and no migration is running.
pub(super) fn outdated(observation: &Observation<'_>, wanted: &Wanted, state: &StorageStateStatus) -> bool {
    let idle = state.pending_migration.is_none() && observation.migrations.iter().all(is_idle);
    let mut proofs = proofs(observation, wanted).peekable();
    !state.is_settled() && idle && proofs.peek().is_some() && !proofs.any(|(_, holds)| holds)
}

/// What to do about a failed migration.
pub(super) enum Replacement {
    /// Nothing: none failed, or a user has to act.
    None,
    /// It is replaced later.
    Planned,
    /// It is replaced now; these are to be deleted.
    Due(Vec<String>),
}

/// Whether and when to replace a migration that failed for a reason that may go away.
pub(super) fn replacement(
    observation: &Observation<'_>,
    wanted: &Wanted,
    state: &mut StorageStateStatus,
) -> Replacement {
    let planned = state.next_migration_time.take();
    if state.is_settled() || !observation.migrations.iter().all(is_idle) {
        return Replacement::None;
    }
    let own = |attempt: &&Attempt| attempt.made_for.as_ref().is_some_and(|made| made.covers(wanted));
    let failed = observation.migrations.iter().filter(own).filter_map(|attempt| attempt.failed.as_ref());
    let Some(last) = failed.max_by_key(|failed| failed.at) else { return Replacement::None };
    let before = state.replaced_migrations.unwrap_or_default();
    let Some(pause) = last.reason.and_then(|reason| retry::replacement_delay(reason, before)) else {
        return Replacement::None;
    };
    // A failure time in the future comes from another clock, and so may the planned time.
    let latest = last.at.min(observation.now).checked_add(pause).unwrap_or(observation.now);
    let due = match planned {
        Some(planned) if last.at > observation.now => planned.0.min(latest),
        _ => latest,
    };
    if due > observation.now {
        state.next_migration_time = Some(Time(due));
        return Replacement::Planned;
    }
    state.replaced_migrations = Some(before.saturating_add(1));
    Replacement::Due(names(observation.migrations.iter().filter(|attempt| is_replaced(attempt))))
}
