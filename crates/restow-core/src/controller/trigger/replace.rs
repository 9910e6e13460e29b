//! Which migrations are deleted, and which one is made in their place.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use restow_api::{PendingMigration, StorageStateStatus};

use super::observation::{Attempt, Observation, Wanted, proofs};
use crate::controller::retry;

/// Migrations that are for something else now: all of them when a new one is made, else those under way.
pub(super) fn superseded(observation: &Observation<'_>, all: bool) -> Vec<String> {
    // One that is suspended does nothing, and hands its suspension on to the next.
    let goes = |attempt: &&Attempt| all || !(attempt.finished || attempt.suspended);
    names(observation.migrations.iter().filter(goes))
}

/// Migrations under way for just what is wanted, which go on although nobody has watched the resource for too long.
#[derive(Default)]
pub(super) struct Unfinished {
    /// The trigger's own. The state names it as the one to make, so that what it replaces is deleted before anything of
    /// that counts as a proof; it is there already.
    pub(super) own: Option<PendingMigration>,
    /// Those of others.
    others: Vec<String>,
}

impl Unfinished {
    pub(super) fn contains(&self, name: &str) -> bool {
        self.own.as_ref().is_some_and(|own| own.name == name) || self.others.iter().any(|other| other == name)
    }
}

/// Finds migrations that need not begin anew. A run goes on only if nothing has moved since it was stopped, and its
/// verifying pass reads everything that was written meanwhile; one that has ended no longer proves anything.
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

/// Migrations of the trigger's own that are under way while the API servers do not agree: one that was to delete them
/// was stopped. Somebody else's waits for the agreement by itself.
pub(super) fn left_over(observation: &Observation<'_>) -> Vec<String> {
    let own = |attempt: &&Attempt| attempt.made_for.is_some() && !attempt.finished && !attempt.suspended;
    names(observation.migrations.iter().filter(own))
}

/// Whether a migration does nothing: it has ended, or somebody has made it and suspended it.
///
/// The trigger's own that is suspended is what somebody has asked for, and holds up the next one.
fn is_idle(attempt: &Attempt) -> bool {
    attempt.finished || (attempt.suspended && attempt.made_for.is_none())
}

fn names<'a>(attempts: impl Iterator<Item = &'a Attempt>) -> Vec<String> {
    attempts.map(|attempt| attempt.name.clone()).collect()
}

/// The migration to make by this observation: suspended, if somebody has suspended the one it replaces.
pub(super) fn pending(observation: &Observation<'_>) -> PendingMigration {
    let suspends = |attempt: &Attempt| attempt.suspended && attempt.made_for.is_some() && !attempt.verified;
    PendingMigration {
        name: observation.name.to_owned(),
        suspend: observation.migrations.iter().any(suspends),
    }
}

/// What is left to be done about a migration that an earlier observation was to make.
pub(super) enum Pending {
    /// Somebody else is at it already.
    Dropped,
    /// It is there, and these are deleted.
    Made(Vec<String>),
    /// It is to be made, after these are deleted.
    Due(Vec<String>),
}

/// Goes on with a migration that an earlier observation was to make.
pub(super) fn resume(
    observation: &Observation<'_>,
    state: &StorageStateStatus,
    pending: &PendingMigration,
) -> Pending {
    let others = || observation.migrations.iter().filter(|attempt| attempt.name != pending.name);
    let retries = state.replaced_migrations.is_some();
    // Somebody has asked for another try of the one that failed, or has made one.
    if retries && !others().all(is_idle) {
        return Pending::Dropped;
    }
    let delete = names(others().filter(|attempt| !retries || is_replaced(attempt)));
    let made = observation.migrations.iter().any(|attempt| attempt.name == pending.name);
    if made { Pending::Made(delete) } else { Pending::Due(delete) }
}

/// Whether a retry takes the place of a migration.
fn is_replaced(attempt: &Attempt) -> bool {
    attempt.made_for.is_some() && !attempt.verified
}

/// Whether all was proven under a definition that was changed since, and nothing else is under way.
pub(super) fn outdated(observation: &Observation<'_>, wanted: &Wanted, state: &StorageStateStatus) -> bool {
    let idle = state.pending_migration.is_none() && observation.migrations.iter().all(is_idle);
    let mut proofs = proofs(observation, wanted).peekable();
    !state.is_settled() && idle && proofs.peek().is_some() && !proofs.any(|(_, holds)| holds)
}

/// What becomes of a failed migration.
pub(super) enum Replacement {
    /// Nothing: none failed, or it has to be looked at by somebody.
    None,
    /// It is replaced later.
    Planned,
    /// It is replaced now, and these are deleted.
    Due(Vec<String>),
}

/// Whether a migration that failed for a reason that may pass by itself is replaced, and when.
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
    let Some(pause) = last.reason.and_then(|reason| retry::pause(reason, before)) else {
        return Replacement::None;
    };
    // A time in the future is another clock's, and so may be what was planned by it.
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
