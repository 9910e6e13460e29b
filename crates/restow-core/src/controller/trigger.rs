//! When a resource is to be migrated: what becomes of its StorageState and its migrations after one observation.

use restow_api::{Reason, StorageStateStatus, UNKNOWN};

pub use self::decision::{Decision, Step, explain};
pub use self::heartbeat::{
    HEARTBEAT_TIMEOUT, MAX_CLOCK_SKEW, distrust, is_foreign, is_incomplete, observation_interval,
    renew_after, stale_after,
};
use self::heartbeat::{age, heartbeat, hides_key, is_silent, is_stale, is_tolerated};
pub use self::observation::{Attempt, AttemptFailure, Observation, Wanted};
use self::observation::{proofs, wanted};
use self::replace::{
    Pending, Replacement, left_over, outdated, pending, replacement, resume, superseded, unfinished,
};
pub(crate) use self::state_update::knows_key;
pub use self::state_update::name_versions;
use self::state_update::{
    describe, forget_key, has_agreed_anew, has_missed_versions, reloaded, update_hashes,
};
use crate::agreement::consensus::Consensus;
use crate::agreement::version::SILENT_SERVER_TIMEOUT;

mod decision;
mod heartbeat;
mod observation;
mod replace;
mod state_update;

/// Decides what to do about a resource after one observation.
pub fn decide(observation: &Observation<'_>) -> Decision {
    // A known key that cannot be read is waited for, like the key of a silent server.
    let silent = Consensus::Silent(Vec::new());
    let waits = observation.silent_for < SILENT_SERVER_TIMEOUT
        && hides_key(observation.encryption, observation.state);
    decide_by(&Observation {
        encryption: if waits { Some(&silent) } else { observation.encryption },
        ..observation.clone()
    })
}

fn decide_by(observation: &Observation<'_>) -> Decision {
    let foreign = observation.state.is_some_and(is_foreign);
    let stale = foreign || observation.state.is_some_and(|state| is_stale(observation, state));
    if !stale && observation.state.is_some_and(|state| is_tolerated(observation, state)) {
        return Decision::default();
    }
    // A stale or foreign state is forgotten, because anything may have been stored meanwhile. This is written even while
    // servers are silent, because another controller may make the next observation.
    let known = observation.state.filter(|_| !stale);
    let mut state = known.cloned().unwrap_or_default();
    if state.persisted_storage_version_hashes.is_empty() {
        state.persisted_storage_version_hashes.push(UNKNOWN.to_owned());
    }
    let forgotten =
        if observation.encryption.is_none() { forget_key(observation.state, &mut state) } else { None };
    let unwatched = observation.encryption.is_some() && !knows_key(&state);
    if observation.encryption.is_some() && state.persisted_encryption_config_hashes.is_empty() {
        state.persisted_encryption_config_hashes.push(UNKNOWN.to_owned());
    }
    let storage_changed = update_hashes(
        observation.storage,
        &mut state.persisted_storage_version_hashes,
        &mut state.current_storage_version_hash,
    );
    let encryption_changed = observation.encryption.is_some_and(|consensus| {
        update_hashes(
            consensus,
            &mut state.persisted_encryption_config_hashes,
            &mut state.current_encryption_config_hash,
        )
    });
    let wanted = wanted(observation);
    let in_between = has_missed_versions(observation, &mut state)
        | has_agreed_anew(observation, storage_changed, &mut state)
        | wanted.as_ref().is_some_and(|wanted| outdated(observation, wanted, &state));
    let reloaded = reloaded(observation, encryption_changed, &mut state);
    let retired = state.served_versions.iter().any(|version| !observation.served.contains(version));
    describe(observation, &mut state);
    let reason = match () {
        () if foreign => Some(Reason::ForeignState),
        () if stale => Some(Reason::StaleHeartbeat),
        () if known.is_none() => Some(Reason::NewResource),
        () if wanted.is_none() && (storage_changed || encryption_changed) => Some(Reason::Disagreement),
        () if storage_changed => Some(Reason::StorageVersionChanged),
        () if encryption_changed && unwatched => Some(Reason::EncryptionUnwatched),
        // The key did not become readable in time.
        () if forgotten.as_deref() == Some(UNKNOWN) && wanted.is_some() => Some(Reason::EncryptionUnseen),
        () if encryption_changed => Some(Reason::EncryptionChanged),
        () if in_between => Some(Reason::StorageVersionChangedTwice),
        () if reloaded => Some(Reason::EncryptionChangedTwice),
        // managedFields entries must be moved before the version is dropped: afterwards the next write wipes them all.
        () if retired && wanted.is_some() => Some(Reason::VersionRetired),
        () => None,
    };
    let beat = heartbeat(observation);
    if reason.is_some() {
        if wanted.is_some() {
            state.served_versions = observation.served.to_vec();
        }
        (state.replaced_migrations, state.next_migration_time) = (None, None);
        // A run verifies its own result, however long nobody observed the resource.
        let keeps = reason == Some(Reason::StaleHeartbeat);
        let kept = wanted.as_ref().filter(|_| keeps).map(|wanted| unfinished(observation, wanted));
        let kept = kept.unwrap_or_default();
        state.pending_migration =
            wanted.as_ref().map(|_| kept.own.clone().unwrap_or_else(|| pending(observation)));
        state.last_heartbeat_time = beat;
        let mut delete = superseded(observation, wanted.is_some());
        delete.retain(|name| !kept.contains(name));
        return Decision { delete, create: wanted, state: Some(state), reason };
    }
    let unseen = forgotten.map(|_| Reason::EncryptionUnseen);
    let Some(wanted) = wanted else {
        return Decision { delete: left_over(observation), ..kept(observation, state, unseen) };
    };
    if let Some(decision) = continue_pending(observation, &wanted, &mut state) {
        return decision;
    }
    if refine(observation, &wanted, &mut state) {
        return kept(observation, state, Some(Reason::Migrated));
    }
    match replacement(observation, &wanted, &mut state) {
        Replacement::None => kept(observation, state, unseen),
        Replacement::Planned => {
            let planned = known.is_some_and(|known| known.next_migration_time == state.next_migration_time);
            kept(observation, state, (!planned).then_some(Reason::RetryPlanned))
        }
        Replacement::Due(delete) => {
            state.pending_migration = Some(pending(observation));
            state.last_heartbeat_time = beat;
            Decision { delete, create: Some(wanted), state: Some(state), reason: Some(Reason::Retried) }
        }
    }
}

/// Continues with the migration that an earlier observation decided to create, until nothing is left to do about it.
fn continue_pending(
    observation: &Observation<'_>,
    wanted: &Wanted,
    state: &mut StorageStateStatus,
) -> Option<Decision> {
    let pending = state.pending_migration.take()?;
    match resume(observation, state, &pending) {
        Pending::Due(delete) => {
            state.pending_migration = Some(pending);
            let state = kept(observation, state.clone(), None).state.unwrap_or_else(|| state.clone());
            Some(Decision { delete, create: Some(wanted.clone()), state: Some(state), reason: None })
        }
        Pending::Made(delete) if !delete.is_empty() => {
            Some(Decision { delete, ..kept(observation, state.clone(), None) })
        }
        Pending::Made(_) | Pending::Dropped => None,
    }
}

/// Writes the state without starting a migration, if the state has changed or its heartbeat is due.
fn kept(observation: &Observation<'_>, mut state: StorageStateStatus, reason: Option<Reason>) -> Decision {
    let due = !is_silent(observation)
        && observation.state.is_none_or(|known| age(known, observation.now) >= observation.renew);
    if !due && observation.state.is_some_and(|known| *known == state) {
        return Decision::default();
    }
    state.last_heartbeat_time = heartbeat(observation);
    Decision { state: Some(state), reason, ..Decision::default() }
}

/// Reduces the state by a migration that was verified for the current hash and key; any other proves nothing.
fn refine(observation: &Observation<'_>, wanted: &Wanted, state: &mut StorageStateStatus) -> bool {
    let Some((attempt, _)) = proofs(observation, wanted).find(|(_, holds)| *holds) else { return false };
    let persisted = vec![wanted.hash.clone()];
    let keys: Vec<String> = wanted.encryption.clone().into_iter().collect();
    let refined = state.persisted_storage_version_hashes != persisted
        || (!keys.is_empty() && state.persisted_encryption_config_hashes != keys);
    if refined {
        state.persisted_storage_version_hashes = persisted;
        if !keys.is_empty() {
            state.persisted_encryption_config_hashes = keys;
        }
        state.verified_definition.clone_from(&attempt.definition);
        (state.replaced_migrations, state.next_migration_time) = (None, None);
    }
    refined
}

#[cfg(test)]
mod tests;
