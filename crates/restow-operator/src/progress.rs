//! Reports a migration: in the logs of the operator, and in its metrics.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use restow_clock::Instant;
use restow_core::rewrite::outcome::Outcome;
use restow_core::rewrite::progress::{Phase, Progress, Quarantined};
use restow_migrate::list::Waiting;
use restow_migrate::migration::{Journal, Observer};

use crate::metrics::Metrics;

/// How often the log has a line about pages.
const LOG_EVERY: Duration = Duration::from_secs(10);
/// Shorter waits are not logged.
const MIN_LOGGED_WAIT: Duration = Duration::from_secs(3);

/// Observes the migration of one resource.
pub(crate) struct Reporter<'a> {
    resource: String,
    metrics: &'a Metrics,
    logged: Mutex<Option<Instant>>,
}

impl<'a> Reporter<'a> {
    pub(crate) fn new(resource: String, metrics: &'a Metrics) -> Self {
        Self { resource, metrics, logged: Mutex::default() }
    }

    fn is_due(&self) -> bool {
        let mut logged = self.logged.lock().unwrap_or_else(PoisonError::into_inner);
        let due = logged.is_none_or(|last| last.elapsed() >= LOG_EVERY);
        if due {
            *logged = Some(Instant::now());
        }
        due
    }
}

impl Waiting for Reporter<'_> {
    fn waiting(&self, why: &str, wait: Duration) {
        if wait >= MIN_LOGGED_WAIT && self.is_due() {
            tracing::info!(resource = self.resource, "waiting: {why}");
        }
    }
}

impl Observer for Reporter<'_> {
    fn settling(&self, wait: Duration) {
        tracing::info!(
            resource = self.resource,
            "the CRD has just changed; waiting {wait:?} for the API servers"
        );
    }

    fn pass(&self, progress: &Progress) {
        let what = if progress.phase == Phase::Verifying { "verifying" } else { "rewriting" };
        let objects = progress.remaining();
        tracing::info!(resource = self.resource, objects, version = progress.storage_version, "{what}");
        self.page(progress);
    }

    fn decided(&self, outcome: &Outcome) {
        let name = match outcome {
            Outcome::Rewritten => "rewritten",
            Outcome::Current => "current",
            Outcome::Conflicted => "conflicted",
            Outcome::Gone => "gone",
            Outcome::Quarantined { .. } => "quarantined",
            Outcome::Accepted | Outcome::Refused { .. } | Outcome::Retry { .. } | Outcome::Doubtful(_) => {
                return;
            }
        };
        self.metrics.decided(&self.resource, name);
    }

    fn page(&self, progress: &Progress) {
        if let Some(remaining) = progress.remaining() {
            self.metrics.remaining(&self.resource, remaining);
            if remaining > 0 && self.is_due() {
                tracing::info!(
                    resource = self.resource,
                    done = progress.pass().done(),
                    remaining,
                    "in progress"
                );
            }
        }
    }
}

/// Keeps nothing between two runs: a new run finds the objects that are done, and does not write them again.
#[derive(Default)]
pub(crate) struct NotKept {
    /// The objects that could not be rewritten.
    pub(crate) left: Vec<Quarantined>,
}

impl Journal for NotKept {
    async fn save(&mut self, _: &Progress, left: &[Quarantined]) -> std::io::Result<()> {
        self.left.extend_from_slice(left);
        Ok(())
    }
}
