//! How far one pass over the objects is, and how fast, told from the counts of a status.

use jiff::Timestamp;
use restow_api::MigrationProgress;

/// How far one pass over the objects is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Pass {
    /// Objects that were decided in it.
    pub(crate) done: u64,
    /// All of its objects, where that can be told.
    pub(crate) total: Option<u64>,
    /// Objects decided since the start, of all passes.
    decided: u64,
}

impl Pass {
    /// Counts are of the pass that rewrites, what remains is of the pass under way: where the two do not make the
    /// percentage, that one verifies what the other has been through.
    pub(crate) fn of(progress: &MigrationProgress) -> Self {
        let decided = progress.rewritten + progress.current + progress.skipped + progress.quarantined;
        let Some(remaining) = progress.remaining else { return Self { done: decided, total: None, decided } };
        let total = decided + remaining;
        let share = (decided * 100).checked_div(total).unwrap_or(100);
        let told = progress.percent.as_deref().and_then(|text| text.trim_end_matches('%').parse().ok());
        if remaining == 0 || told.is_none_or(|told: u64| told == share.min(99)) {
            return Self { done: decided, total: Some(total), decided };
        }
        let done = decided.saturating_sub(remaining);
        Self { done, total: Some(done + remaining), decided: decided + done }
    }

    /// Objects a second, from the first page to the last.
    pub(crate) fn rate(self, progress: &MigrationProgress) -> Option<f64> {
        let (start, end) = (progress.started_at.as_ref()?, progress.updated_at.as_ref()?);
        let seconds = end.0.duration_since(start.0).as_secs_f64();
        (seconds > 0.0 && self.decided > 0).then(|| round(self.decided as f64 / seconds))
    }
}

/// Seconds until the end of the pass: as the controller expects it, else by the average rate.
pub(crate) fn seconds_left(progress: &MigrationProgress, rate: Option<f64>, now: Timestamp) -> Option<f64> {
    match &progress.estimated_completion {
        Some(end) => Some(round(end.0.duration_since(now).as_secs_f64().max(0.0))),
        None => Some(round(progress.remaining? as f64 / rate?)),
    }
}

/// To a thousandth, as reports have it.
pub(crate) fn round(number: f64) -> f64 {
    (number * 1000.0).round() / 1000.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn how_far_a_pass_is() {
        for (rewritten, remaining, percent, done, total) in [
            (0, Some(1000), "0%", 0, Some(1000)),
            (420, Some(580), "42%", 420, Some(1000)),
            // Objects that were made meanwhile: the controller does not say that all is done.
            (1000, Some(0), "99%", 1000, Some(1000)),
            (1000, Some(0), "100%", 1000, Some(1000)),
            // The pass that verifies: counts stay, and what remains starts anew.
            (1000, Some(1000), "0%", 0, Some(1000)),
            (1000, Some(580), "42%", 420, Some(1000)),
            (0, Some(0), "100%", 0, Some(0)),
            (420, None, "", 420, None),
        ] {
            let progress = MigrationProgress {
                rewritten,
                remaining,
                percent: (!percent.is_empty()).then(|| percent.to_owned()),
                ..MigrationProgress::default()
            };
            let pass = Pass::of(&progress);
            assert_eq!((pass.done, pass.total), (done, total), "{rewritten} {remaining:?} {percent}");
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
            remaining: Some(500),
            percent: Some("50%".to_owned()),
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
