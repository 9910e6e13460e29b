//! How an observation changes a StorageState, and whether it shows a change of how objects are stored.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use restow_api::{StorageStateStatus, UNKNOWN};

use super::observation::Observation;
use crate::agreement::consensus::Consensus;
use crate::agreement::encryption::UNREPORTED;

/// Adds what the servers report to a state's hashes; returns whether the current hash changed.
pub(super) fn update_hashes(
    consensus: &Consensus,
    persisted: &mut Vec<String>,
    current: &mut Option<String>,
) -> bool {
    let unknown = [UNKNOWN.to_owned()];
    let (now, seen): (&str, Vec<&String>) = match consensus {
        Consensus::Agreed(hash) => (hash, vec![hash]),
        Consensus::Split(hashes) => (UNKNOWN, hashes.iter().collect()),
        // A server that does not answer may be writing in any version.
        Consensus::Silent(hashes) => (UNKNOWN, hashes.iter().chain(&unknown).collect()),
    };
    let changed = current.as_deref() != Some(now);
    if changed {
        // The versions of a newly observed resource are unknown, whatever the current one is.
        let first = current.is_none() && persisted.iter().any(|hash| hash == UNKNOWN);
        let agreed = matches!(consensus, Consensus::Agreed(_));
        for hash in seen.into_iter().filter(|_| !(first && agreed)) {
            if !persisted.contains(hash) {
                persisted.push(hash.clone());
            }
        }
        *current = Some(now.to_owned());
    } else if !matches!(consensus, Consensus::Agreed(_)) {
        for hash in seen {
            if !persisted.contains(hash) {
                persisted.push(hash.clone());
            }
        }
    }
    changed
}

/// Adds the versions that the API server stored objects in since the last verified migration and that no observation has
/// shown; returns whether there are any.
pub(super) fn has_missed_versions(observation: &Observation<'_>, state: &mut StorageStateStatus) -> bool {
    let persisted = &mut state.persisted_storage_version_hashes;
    let verified =
        observation.definition.is_some() && state.verified_definition.as_deref() == observation.definition;
    if verified || persisted.iter().any(|hash| hash == UNKNOWN) {
        return false;
    }
    let before = persisted.len();
    for hash in observation.stored {
        if !persisted.contains(hash) {
            persisted.push(hash.clone());
        }
    }
    persisted.len() > before
}

/// Whether the API servers disagreed and agreed again on the same version since the last observation: what was stored in
/// between is unknown.
pub(super) fn has_agreed_anew(
    observation: &Observation<'_>,
    storage_changed: bool,
    state: &mut StorageStateStatus,
) -> bool {
    let Some(since) = observation.agreement.as_ref().ok().and_then(|agreement| agreement.since) else {
        return false;
    };
    let before = state.agreed_since.replace(Time(since));
    let has_agreed_anew = !storage_changed && before.is_some_and(|before| before.0 != since);
    let persisted = &mut state.persisted_storage_version_hashes;
    if has_agreed_anew && !persisted.iter().any(|hash| hash == UNKNOWN) {
        persisted.push(UNKNOWN.to_owned());
    }
    has_agreed_anew
}

/// Whether an API server has loaded an encryption configuration since the last observation, although all use the same one
/// as then: what was stored in between is unknown.
///
/// A server reports when it last loaded one only until it restarts, so a restart under the same configuration does not
/// count as a change.
pub(super) fn reloaded(
    observation: &Observation<'_>,
    encryption_changed: bool,
    state: &mut StorageStateStatus,
) -> bool {
    let Some(consensus) = observation.encryption else { return false };
    let before = state.encryption_config_reloads.take();
    let another = |before: &BTreeMap<String, String>| {
        observation.reloads.iter().any(|(server, time)| before.get(server) != Some(time))
    };
    let reloaded = !encryption_changed
        && matches!(consensus, Consensus::Agreed(_))
        && before.as_ref().is_some_and(another);
    // What a silent server reported before still counts.
    let mut after = before.filter(|_| matches!(consensus, Consensus::Silent(_))).unwrap_or_default();
    after.extend(observation.reloads.clone());
    state.encryption_config_reloads = Some(after);
    let persisted = &mut state.persisted_encryption_config_hashes;
    if reloaded && !persisted.iter().any(|hash| hash == UNKNOWN) {
        persisted.push(UNKNOWN.to_owned());
    }
    reloaded
}

pub(super) fn describe(observation: &Observation<'_>, state: &mut StorageStateStatus) {
    let (agreement, message) = match observation.agreement {
        Ok(agreement) => (agreement.basis.to_string(), None),
        Err(why) => ("none".to_owned(), Some(why.to_string())),
    };
    let differs = match observation.encryption {
        Some(Consensus::Split(_)) => Some("the API servers use different encryption configurations".to_owned()),
        Some(Consensus::Silent(_)) => {
            Some("not every API server reports which encryption configuration it uses".to_owned())
        }
        Some(Consensus::Agreed(hash)) if hash == UNREPORTED => Some(
            "no API server reports an encryption configuration, so a key rotation is not seen; API servers report one \
             that they reload by themselves"
                .to_owned(),
        ),
        None if !state.encryption_is_settled() => Some(
            "the encryption configuration cannot be seen any more, and objects may be under more than one key; they \
             are migrated when it can be seen again"
                .to_owned(),
        ),
        _ => None,
    };
    state.agreement = Some(agreement);
    state.message = message.or(differs);
}

/// Adds the version names of a state's hashes, for display, as far as they are known.
pub fn name_versions(state: &mut StorageStateStatus, version: impl Fn(&str) -> Option<String>) {
    let name = |hash: &String| version(hash).unwrap_or_else(|| hash.clone());
    state.current_storage_version = state.current_storage_version_hash.as_ref().map(name);
    state.persisted_storage_versions = state.persisted_storage_version_hashes.iter().map(name).collect();
}

/// Whether a state has information about the key. A state that was forgotten during a rotation has none.
pub(crate) fn knows_key(state: &StorageStateStatus) -> bool {
    let persisted = &state.persisted_encryption_config_hashes;
    state.current_encryption_config_hash.is_some() || persisted.iter().any(|hash| hash != UNKNOWN)
}

/// Forgets the key of a state, because nobody watches it; returns the current key, if it was known.
///
/// If the state, `seen` as it was, was not settled before, it stays unsettled until the key can be read again.
pub(super) fn forget_key(
    seen: Option<&StorageStateStatus>,
    state: &mut StorageStateStatus,
) -> Option<String> {
    let known = knows_key(state);
    let settled = seen.is_none_or(StorageStateStatus::encryption_is_settled);
    state.persisted_encryption_config_hashes = if settled { Vec::new() } else { vec![UNKNOWN.to_owned()] };
    state.encryption_config_reloads = None;
    let current = state.current_encryption_config_hash.take();
    known.then(|| current.unwrap_or_else(|| UNKNOWN.to_owned()))
}
