//! The progress and rate of a pass, from the counts of a status.

use jiff::Timestamp;
use restow_api::MigrationProgress;

/// The progress of a pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Pass {
    /// Objects decided in this pass.
    pub(crate) done: u64,
    /// All objects of this pass, if known.
    pub(crate) total: Option<u64>,
    /// Objects decided in all passes.
    decided: u64,
}

impl Pass {
    /// Reads the counts of a status: they are of the rewriting pass, except `checked` and `remaining`, which are of the current
    /// pass.
    pub(crate) fn of(progress: &MigrationProgress) -> Self {
        let first = progress.rewritten + progress.current + progress.skipped + progress.quarantined;
        let done = if progress.pass.as_deref() == Some("verifying") { progress.checked } else { first };
        let total = progress.remaining.map(|remaining| done + remaining);
        Self { done, total, decided: first + progress.checked }
    }

    /// Objects per second, from the first page to the last.
    pub(crate) fn rate(self, progress: &MigrationProgress) -> Option<f64> {
        let (start, end) = (progress.started_at.as_ref()?, progress.updated_at.as_ref()?);
        let seconds = end.0.duration_since(start.0).as_secs_f64();
        (seconds > 0.0 && self.decided > 0).then(|| round(self.decided as f64 / seconds))
    }
}

/// Seconds until the end of the pass: the estimate of the controller, else by the average rate.
pub(crate) fn seconds_left(progress: &MigrationProgress, rate: Option<f64>, now: Timestamp) -> Option<f64> {
    match &progress.estimated_completion {
        Some(end) => Some(round(end.0.duration_since(now).as_secs_f64().max(0.0))),
        None => Some(round(progress.remaining? as f64 / rate?)),
    }
}

/// Rounds to a thousandth, as in reports.
pub(crate) fn round(number: f64) -> f64 {
    (number * 1000.0).round() / 1000.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pass_counts_done_and_total_objects() {
        for (pass, rewritten, checked, remaining, done, total) in [
            (Some("rewriting"), 0, 0, Some(1000), 0, Some(1000)),
            (Some("rewriting"), 420, 0, Some(580), 420, Some(1000)),
            (Some("verifying"), 1000, 0, Some(1000), 0, Some(1000)),
            (Some("verifying"), 1000, 420, Some(580), 420, Some(1000)),
            (None, 1000, 1000, Some(0), 1000, Some(1000)),
            (None, 0, 0, Some(0), 0, Some(0)),
            (Some("rewriting"), 420, 0, None, 420, None),
        ] {
            let progress = MigrationProgress {
                rewritten,
                checked,
                remaining,
                pass: pass.map(str::to_owned),
                ..MigrationProgress::default()
            };
            let of = Pass::of(&progress);
            assert_eq!((of.done, of.total), (done, total), "{pass:?} {rewritten} {remaining:?}");
        }
    }

    #[test]
    fn the_rate_is_of_all_passes_and_the_end_as_expected() {
        let at = |second| {
            Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(
                Timestamp::from_second(second).unwrap(),
            ))
        };
        let mut progress = MigrationProgress {
            rewritten: 1000,
            checked: 500,
            pass: Some("verifying".to_owned()),
            remaining: Some(500),
            started_at: at(0),
            updated_at: at(15),
            ..MigrationProgress::default()
        };
        let now = Timestamp::from_second(20).unwrap();
        let rate = Pass::of(&progress).rate(&progress);
        assert_eq!((rate, seconds_left(&progress, rate, now)), (Some(100.0), Some(5.0)));
        for (expected, left) in [(26, 6.0), (19, 0.0)] {
            progress.estimated_completion = at(expected);
            assert_eq!(seconds_left(&progress, rate, now), Some(left));
        }
        progress.updated_at = at(0);
        assert_eq!(Pass::of(&progress).rate(&progress), None);
    }
}
