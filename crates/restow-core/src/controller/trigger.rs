//! When a resource is to be migrated: what becomes of its StorageState and its migrations after one look.

use restow_api::{Reason, StorageStateStatus, UNKNOWN};

pub use self::decision::{Decision, Step, explain};
pub use self::heartbeat::{
    SILENCE, SKEW, STALE, distrust, is_foreign, is_incomplete, look_every, renew_after, stale_after,
};
use self::heartbeat::{age, heartbeat, hides_key, is_borne, is_silent, is_stale};
pub(crate) use self::news::knows_key;
pub use self::news::name_versions;
use self::news::{describe, forget_key, missed, parted, reloaded, take_in};
pub use self::observation::{Attempt, Failed, Look, Wanted};
use self::observation::{proofs, wanted};
use self::replace::{
    Pending, Replacement, left_over, outdated, pending, replacement, resume, superseded, unfinished,
};
use crate::agreement::consensus::Consensus;

mod decision;
mod heartbeat;
mod news;
mod observation;
mod replace;

/// Decides by one look at a resource.
pub fn decide(look: &Look<'_>) -> Decision {
    // A key that is known and cannot be seen is waited for, as one that a silent server does not tell.
    let silent = Consensus::Silent(Vec::new());
    let waits = look.silent_for < SILENCE && hides_key(look.encryption, look.state);
    decide_by(&Look { encryption: if waits { Some(&silent) } else { look.encryption }, ..look.clone() })
}

fn decide_by(look: &Look<'_>) -> Decision {
    let foreign = look.state.is_some_and(is_foreign);
    let stale = foreign || look.state.is_some_and(|state| is_stale(look, state));
    if !stale && look.state.is_some_and(|state| is_borne(look, state)) {
        return Decision::default();
    }
    // A stale state is forgotten: everything may have been stored meanwhile. That is written down even while servers
    // are silent, because the next look may be another controller's. So is one that rests on nobody's proof.
    let known = look.state.filter(|_| !stale);
    let mut state = known.cloned().unwrap_or_default();
    if state.persisted_storage_version_hashes.is_empty() {
        state.persisted_storage_version_hashes.push(UNKNOWN.to_owned());
    }
    let forgotten = if look.encryption.is_none() { forget_key(look.state, &mut state) } else { None };
    let unwatched = look.encryption.is_some() && !knows_key(&state);
    if look.encryption.is_some() && state.persisted_encryption_config_hashes.is_empty() {
        state.persisted_encryption_config_hashes.push(UNKNOWN.to_owned());
    }
    let storage_changed = take_in(
        look.storage,
        &mut state.persisted_storage_version_hashes,
        &mut state.current_storage_version_hash,
    );
    let encryption_changed = look.encryption.is_some_and(|word| {
        take_in(
            word,
            &mut state.persisted_encryption_config_hashes,
            &mut state.current_encryption_config_hash,
        )
    });
    let wanted = wanted(look);
    let in_between = missed(look, &mut state)
        | parted(look, storage_changed, &mut state)
        | wanted.as_ref().is_some_and(|wanted| outdated(look, wanted, &state));
    let reloaded = reloaded(look, encryption_changed, &mut state);
    let retired = state.served_versions.iter().any(|version| !look.served.contains(version));
    describe(look, &mut state);
    let reason = match () {
        () if foreign => Some(Reason::ForeignState),
        () if stale => Some(Reason::StaleHeartbeat),
        () if known.is_none() => Some(Reason::NewResource),
        () if wanted.is_none() && (storage_changed || encryption_changed) => Some(Reason::Disagreement),
        () if storage_changed => Some(Reason::StorageVersionChanged),
        () if encryption_changed && unwatched => Some(Reason::EncryptionUnwatched),
        // What was waited for will not come.
        () if forgotten.as_deref() == Some(UNKNOWN) && wanted.is_some() => Some(Reason::EncryptionUnseen),
        () if encryption_changed => Some(Reason::EncryptionChanged),
        () if in_between => Some(Reason::StorageVersionChangedTwice),
        () if reloaded => Some(Reason::EncryptionChangedTwice),
        // Its owners' entries are to be moved before it is dropped, when the next write would wipe them all.
        () if retired && wanted.is_some() => Some(Reason::VersionRetired),
        () => None,
    };
    let beat = heartbeat(look);
    if reason.is_some() {
        if wanted.is_some() {
            state.served_versions = look.served.to_vec();
        }
        (state.replaced_migrations, state.next_migration_time) = (None, None);
        // A run proves its result by itself, however long nobody watched.
        let keeps = reason == Some(Reason::StaleHeartbeat);
        let kept = wanted.as_ref().filter(|_| keeps).map(|wanted| unfinished(look, wanted));
        let kept = kept.unwrap_or_default();
        state.pending_migration = wanted.as_ref().map(|_| kept.own.clone().unwrap_or_else(|| pending(look)));
        state.last_heartbeat_time = beat;
        let mut delete = superseded(look, wanted.is_some());
        delete.retain(|name| !kept.contains(name));
        return Decision { delete, create: wanted, state: Some(state), reason };
    }
    let unseen = forgotten.map(|_| Reason::EncryptionUnseen);
    let Some(wanted) = wanted else {
        return Decision { delete: left_over(look), ..kept(look, state, unseen) };
    };
    if let Some(decision) = go_on(look, &wanted, &mut state) {
        return decision;
    }
    if refine(look, &wanted, &mut state) {
        return kept(look, state, Some(Reason::Migrated));
    }
    match replacement(look, &wanted, &mut state) {
        Replacement::None => kept(look, state, unseen),
        Replacement::Planned => {
            let planned = known.is_some_and(|known| known.next_migration_time == state.next_migration_time);
            kept(look, state, (!planned).then_some(Reason::RetryPlanned))
        }
        Replacement::Due(delete) => {
            state.pending_migration = Some(pending(look));
            state.last_heartbeat_time = beat;
            Decision { delete, create: Some(wanted), state: Some(state), reason: Some(Reason::Retried) }
        }
    }
}

/// Goes on with a migration that an earlier look was to make, until there is nothing left to do about it.
fn go_on(look: &Look<'_>, wanted: &Wanted, state: &mut StorageStateStatus) -> Option<Decision> {
    let pending = state.pending_migration.take()?;
    match resume(look, state, &pending) {
        Pending::Due(delete) => {
            state.pending_migration = Some(pending);
            let state = kept(look, state.clone(), None).state.unwrap_or_else(|| state.clone());
            Some(Decision { delete, create: Some(wanted.clone()), state: Some(state), reason: None })
        }
        Pending::Made(delete) if !delete.is_empty() => {
            Some(Decision { delete, ..kept(look, state.clone(), None) })
        }
        Pending::Made(_) | Pending::Dropped => None,
    }
}

/// Writes a state that starts nothing, if it is another one or its heartbeat is due.
fn kept(look: &Look<'_>, mut state: StorageStateStatus, reason: Option<Reason>) -> Decision {
    let due = !is_silent(look) && look.state.is_none_or(|known| age(known, look.now) >= look.renew);
    if !due && look.state.is_some_and(|known| *known == state) {
        return Decision::default();
    }
    state.last_heartbeat_time = heartbeat(look);
    Decision { state: Some(state), reason, ..Decision::default() }
}

/// Takes in a verified migration for just what is current; another one proves nothing.
fn refine(look: &Look<'_>, wanted: &Wanted, state: &mut StorageStateStatus) -> bool {
    let Some((attempt, _)) = proofs(look, wanted).find(|(_, holds)| *holds) else { return false };
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
