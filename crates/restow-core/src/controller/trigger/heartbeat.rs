//! Whether a StorageState is recent enough to rely on, and when its heartbeat is renewed.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use restow_api::{Reason, StorageStateStatus, UNKNOWN};

use super::observation::Observation;
use super::state_update::knows_key;
use crate::agreement::consensus::Consensus;
use crate::agreement::version::SILENT_SERVER_TIMEOUT;

/// A StorageState whose heartbeat is older than this may have missed a change.
pub const HEARTBEAT_TIMEOUT: Duration = Duration::from_secs(600);
/// How far the clocks of two controllers may differ.
pub const MAX_CLOCK_SKEW: Duration = Duration::from_secs(60);

/// Whether a controller other than restow wrote a state, such as kube-storage-version-migrator, which does not verify
/// migrations. restow always writes `agreement`, so a state without it is foreign.
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

/// Whether a state may have missed a change. A state that knows nothing and waits for all servers to answer cannot miss
/// anything: it will treat their agreement as a change.
pub(super) fn is_stale(observation: &Observation<'_>, state: &StorageStateStatus) -> bool {
    let anything =
        |persisted: &[String]| persisted.is_empty() || persisted.iter().any(|hash| hash == UNKNOWN);
    let nothing_known = anything(&state.persisted_storage_version_hashes)
        && anything(&state.persisted_encryption_config_hashes);
    let waits = !is_known(&state.current_storage_version_hash)
        || (observation.encryption.is_some() && !is_known(&state.current_encryption_config_hash));
    distrust(state, observation.began, observation.stale).is_some() && !(nothing_known && waits)
}

/// Whether to wait for silent servers: the current hash was known until now, and the other servers still report it.
pub(super) fn is_tolerated(observation: &Observation<'_>, state: &StorageStateStatus) -> bool {
    let nothing_new = |consensus: &Consensus, current: &Option<String>| match consensus {
        Consensus::Agreed(hash) => current.as_ref() == Some(hash),
        Consensus::Split(_) => false,
        Consensus::Silent(heard) => {
            is_known(current) && heard.iter().all(|hash| current.as_ref() == Some(hash))
        }
    };
    observation.silent_for < SILENT_SERVER_TIMEOUT
        && is_silent(observation)
        && nothing_new(observation.storage, &state.current_storage_version_hash)
        && observation
            .encryption
            .is_none_or(|consensus| nothing_new(consensus, &state.current_encryption_config_hash))
}

pub(super) fn is_known(current: &Option<String>) -> bool {
    current.as_ref().is_some_and(|current| current != UNKNOWN)
}

pub(super) fn is_silent(observation: &Observation<'_>) -> bool {
    [Some(observation.storage), observation.encryption]
        .into_iter()
        .flatten()
        .any(|consensus| matches!(consensus, Consensus::Silent(_)))
}

/// Whether an observation is incomplete: a server does not report its storage version or its key, or a known key can no
/// longer be read.
pub fn is_incomplete(
    storage: &Consensus,
    encryption: Option<&Consensus>,
    state: Option<&StorageStateStatus>,
) -> bool {
    let silent = |consensus: &Consensus| matches!(consensus, Consensus::Silent(_));
    silent(storage) || encryption.is_some_and(silent) || hides_key(encryption, state)
}

/// Whether the key is known from before and can no longer be read.
pub(super) fn hides_key(encryption: Option<&Consensus>, state: Option<&StorageStateStatus>) -> bool {
    encryption.is_none() && state.is_some_and(knows_key)
}

/// The heartbeat after this observation. An observation that did not reach every server does not renew it.
pub(super) fn heartbeat(observation: &Observation<'_>) -> Option<Time> {
    if is_silent(observation) {
        return observation.state.and_then(|state| state.last_heartbeat_time.clone());
    }
    Some(Time(observation.now))
}

/// How old the heartbeat of a state is. A heartbeat slightly in the future comes from another clock and counts as new; one further in
/// the future cannot be relied on.
pub(super) fn age(state: &StorageStateStatus, now: Timestamp) -> Duration {
    let beat = state.last_heartbeat_time.as_ref().map_or(Timestamp::UNIX_EPOCH, |time| time.0);
    let age = now.duration_since(beat);
    match Duration::try_from(age) {
        Ok(age) => age,
        Err(_) if age.unsigned_abs() <= MAX_CLOCK_SKEW => Duration::ZERO,
        Err(_) => Duration::MAX,
    }
}

/// The age at which a heartbeat is stale, for controllers that observe at this interval.
pub fn stale_after(poll: Duration) -> Duration {
    HEARTBEAT_TIMEOUT.max(poll)
}

/// How often to observe, so that the heartbeat of a running controller never becomes stale.
///
/// An observation may come just before a heartbeat is due, so the next one must come early enough. A third of the time is
/// left for slow observations and for another controller to take over.
pub fn observation_interval(poll: Duration) -> Duration {
    poll.min(stale_after(poll) / 3)
}

/// The age at which a heartbeat is renewed.
pub fn renew_after(poll: Duration) -> Duration {
    observation_interval(poll)
}
