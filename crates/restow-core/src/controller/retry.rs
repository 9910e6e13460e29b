//! Which failed migrations are replaced, and after how long; how soon a failed request is repeated.

use std::time::Duration;

use restow_api::Reason;

/// The pause before the first new attempt.
const FIRST_PAUSE: Duration = Duration::from_secs(60);
/// The longest pause between two attempts.
const MAX_PAUSE: Duration = Duration::from_secs(3600);
/// The longest pause for a failure after which every attempt rewrites all objects several times.
const MAX_RESTLESS_PAUSE: Duration = Duration::from_secs(6 * 3600);

/// How long after its failure a migration is replaced; none when it is not replaced.
///
/// A failure of the cluster may go away by itself. A failure of objects remains until a user changes them or requests a
/// retry.
pub fn replacement_delay(reason: Reason, failures_before: u32) -> Option<Duration> {
    let longest = match reason {
        Reason::ListRefused
        | Reason::NotServed
        | Reason::NotMigratable
        | Reason::StorageVersionChanged
        | Reason::Unverified
        | Reason::DelegateFailed
        | Reason::DelegateRefused
        | Reason::AnotherController => MAX_PAUSE,
        Reason::Restless => MAX_RESTLESS_PAUSE,
        _ => return None,
    };
    Some(FIRST_PAUSE.saturating_mul(1 << failures_before.min(16)).min(longest))
}

/// How long to wait before a failed request is repeated.
pub fn request_backoff(tries: u32) -> Duration {
    Duration::from_secs(1 << tries.saturating_sub(1).min(6)).min(Duration::from_secs(60))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_of_the_cluster_are_retried_with_growing_pauses() {
        let minutes =
            |reason: Reason, failures| replacement_delay(reason, failures).map(|pause| pause.as_secs() / 60);
        for (failures, expected) in [(0, 1), (1, 2), (2, 4), (5, 32), (6, 60), (7, 60), (u32::MAX, 60)] {
            assert_eq!(minutes(Reason::ListRefused, failures), Some(expected), "{failures}");
        }
        assert_eq!(minutes(Reason::Restless, 6), Some(64));
        assert_eq!(minutes(Reason::Restless, 60), Some(360));
        for reason in [
            Reason::NotServed,
            Reason::NotMigratable,
            Reason::StorageVersionChanged,
            Reason::Unverified,
            Reason::DelegateFailed,
            Reason::DelegateRefused,
            Reason::AnotherController,
        ] {
            assert_eq!(minutes(reason, 0), Some(1), "{reason}");
        }
        let seconds = [1, 2, 3, 7, 8, u32::MAX].map(|tries| request_backoff(tries).as_secs());
        assert_eq!(seconds, [1, 2, 4, 60, 60, 60]);
        for reason in [Reason::Quarantined, Reason::Started] {
            assert_eq!(minutes(reason, 0), None, "{reason}");
        }
    }
}
