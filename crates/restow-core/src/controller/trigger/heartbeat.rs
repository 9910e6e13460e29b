//! Whether a StorageState is recent enough to rely on, and when its heartbeat is renewed.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use restow_api::{Reason, StorageStateStatus, UNKNOWN};

use super::news::knows_key;
use super::observation::Observation;
use crate::agreement::consensus::Consensus;

/// A StorageState whose heartbeat is older than this may have missed a change.
pub const STALE: Duration = Duration::from_secs(600);
/// How long an API server may not answer before that counts as disagreement.
pub const SILENCE: Duration = Duration::from_secs(300);
/// How far the clocks of two controllers may differ.
pub const SKEW: Duration = Duration::from_secs(60);

/// Whether a controller other than restow wrote a state, such as kube-storage-version-migrator: what it calls migrated,
/// nobody has verified. restow always says what an agreement rests on.
pub fn is_foreign(state: &StorageStateStatus) -> bool {
    state.last_heartbeat_time.is_some() && state.agreement.is_none()
}

/// Why a state is not relied on at a time: another controller wrote it, or its heartbeat is older than `stale`, so that
/// a change may have been missed.
pub fn distrust(state: &StorageStateStatus, at: Timestamp, stale: Duration) -> Option<Reason> {
    match () {
        () if is_foreign(state) => Some(Reason::ForeignState),
        () if age(state, at) > stale => Some(Reason::StaleHeartbeat),
        () => None,
    }
}

/// Whether a state may have missed a change. One that knows nothing, and waits for all servers to be heard, can miss
/// nothing: their agreement will be news to it.
pub(super) fn is_stale(observation: &Observation<'_>, state: &StorageStateStatus) -> bool {
    let anything =
        |persisted: &[String]| persisted.is_empty() || persisted.iter().any(|hash| hash == UNKNOWN);
    let nothing_known = anything(&state.persisted_storage_version_hashes)
        && anything(&state.persisted_encryption_config_hashes);
    let waits = !is_known(&state.current_storage_version_hash)
        || (observation.encryption.is_some() && !is_known(&state.current_encryption_config_hash));
    distrust(state, observation.began, observation.stale).is_some() && !(nothing_known && waits)
}

/// Whether servers that are silent are waited for: what is current was known until now, and those that are heard say
/// nothing else.
pub(super) fn is_borne(observation: &Observation<'_>, state: &StorageStateStatus) -> bool {
    let nothing_new = |word: &Consensus, current: &Option<String>| match word {
        Consensus::Agreed(hash) => current.as_ref() == Some(hash),
        Consensus::Split(_) => false,
        Consensus::Silent(heard) => {
            is_known(current) && heard.iter().all(|hash| current.as_ref() == Some(hash))
        }
    };
    observation.silent_for < SILENCE
        && is_silent(observation)
        && nothing_new(observation.storage, &state.current_storage_version_hash)
        && observation.encryption.is_none_or(|word| nothing_new(word, &state.current_encryption_config_hash))
}

pub(super) fn is_known(current: &Option<String>) -> bool {
    current.as_ref().is_some_and(|current| current != UNKNOWN)
}

pub(super) fn is_silent(observation: &Observation<'_>) -> bool {
    [Some(observation.storage), observation.encryption]
        .into_iter()
        .flatten()
        .any(|word| matches!(word, Consensus::Silent(_)))
}

/// Whether an observation is incomplete: a server does not tell its storage version or its key, or a key that is known cannot be
/// seen any more.
pub fn is_incomplete(
    storage: &Consensus,
    encryption: Option<&Consensus>,
    state: Option<&StorageStateStatus>,
) -> bool {
    let silent = |word: &Consensus| matches!(word, Consensus::Silent(_));
    silent(storage) || encryption.is_some_and(silent) || hides_key(encryption, state)
}

/// Whether the key cannot be seen although it is known.
pub(super) fn hides_key(encryption: Option<&Consensus>, state: Option<&StorageStateStatus>) -> bool {
    encryption.is_none() && state.is_some_and(knows_key)
}

/// The heartbeat after this observation. An observation that did not hear every server does not renew it.
pub(super) fn heartbeat(observation: &Observation<'_>) -> Option<Time> {
    if is_silent(observation) {
        return observation.state.and_then(|state| state.last_heartbeat_time.clone());
    }
    Some(Time(observation.now))
}

/// How old its heartbeat is. One in the future was written by another clock; too far in the future, it says nothing.
pub(super) fn age(state: &StorageStateStatus, now: Timestamp) -> Duration {
    let beat = state.last_heartbeat_time.as_ref().map_or(Timestamp::UNIX_EPOCH, |time| time.0);
    let age = now.duration_since(beat);
    match Duration::try_from(age) {
        Ok(age) => age,
        Err(_) if age.unsigned_abs() <= SKEW => Duration::ZERO,
        Err(_) => Duration::MAX,
    }
}

/// How old a heartbeat may be, for controllers that look this often.
pub fn stale_after(poll: Duration) -> Duration {
    STALE.max(poll)
}

/// How often to observe, so that no heartbeat of a controller that runs becomes stale.
///
/// An observation may come early and find a heartbeat that is not quite due, so the next one must come soon enough; a third of
/// the time is left for looks that take long and for another controller to take over.
pub fn look_every(poll: Duration) -> Duration {
    poll.min(stale_after(poll) / 3)
}

/// How old a heartbeat is renewed.
pub fn renew_after(poll: Duration) -> Duration {
    look_every(poll)
}
