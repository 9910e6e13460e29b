//! How much work a migration will be.

use std::time::Duration;

use crate::rewrite::pace::Preset;

/// What a migration will cost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Estimate {
    /// The number of requests: pages and writes of both passes.
    pub requests: u64,
    /// How long they take.
    pub time: Duration,
}

/// The assumed objects per second before a rate was measured. It is low, so that a migration ends early rather than late.
pub fn usual_rate(preset: Preset) -> f64 {
    match preset {
        Preset::Gentle => 7.0,
        Preset::Steady => 100.0,
        Preset::Fast => 300.0,
    }
}

/// Estimates the migration of a number of objects.
pub fn estimate(objects: u64, page_size: u64, verify: bool, rate: f64) -> Estimate {
    let passes = if verify { 2 } else { 1 };
    let pages = objects.div_ceil(page_size.max(1)).max(1);
    let writes = objects * passes;
    Estimate {
        requests: writes + pages * passes,
        time: Duration::from_secs_f64((writes as f64 / rate.max(0.001)).min(1e9)),
    }
}

/// How long the rest takes at the same rate as before.
pub fn time_left(done: u64, remaining: u64, spent: Duration) -> Option<Duration> {
    if done == 0 || spent.is_zero() {
        return None;
    }
    Some(Duration::from_secs_f64((spent.as_secs_f64() / done as f64 * remaining as f64).min(1e9)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_estimate_counts_both_passes() {
        let s = Duration::from_secs;
        for (objects, verify, requests, time) in [
            (0, true, 2, s(0)),
            (1000, false, 1002, s(10)),
            (1000, true, 2004, s(20)),
            (1001, true, 2008, s(20)),
        ] {
            let estimate = estimate(objects, 500, verify, 100.0);
            assert_eq!((estimate.requests, estimate.time.as_secs()), (requests, time.as_secs()), "{objects}");
        }
    }

    #[test]
    fn time_left_follows_the_rate() {
        assert_eq!(time_left(0, 10, Duration::from_secs(1)), None);
        assert_eq!(time_left(100, 50, Duration::from_secs(10)), Some(Duration::from_secs(5)));
    }
}
