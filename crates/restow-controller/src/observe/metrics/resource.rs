//! The metrics of one resource while it is migrated.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use prometheus_client::metrics::gauge::Gauge;
use restow_core::rewrite::outcome::Outcome;
use restow_core::rewrite::progress::{Phase, Progress};

use super::count::{Count, gauge_value};

/// The metrics of one resource. Counting neither locks nor allocates.
#[derive(Clone, Debug)]
pub struct ResourceMetrics {
    pub(super) migrated: Count,
    pub(super) remaining: Gauge,
    pub(super) rewritten: Count,
    pub(super) current: Count,
    pub(super) conflicted: Count,
    pub(super) gone: Count,
    pub(super) quarantined: Count,
    pub(super) verifying: Arc<AtomicBool>,
}

impl ResourceMetrics {
    /// A pass begins.
    pub fn pass(&self, progress: &Progress) {
        self.verifying.store(progress.phase == Phase::Verifying, Ordering::Relaxed);
        self.page(progress);
    }

    /// A page was finished.
    pub fn page(&self, progress: &Progress) {
        if let Some(remaining) = progress.remaining() {
            self.remaining.set(gauge_value(remaining));
        }
    }

    /// Counts an object's outcome. Verification does not count an object as migrated again.
    pub fn decided(&self, outcome: &Outcome) {
        let count = match outcome {
            Outcome::Rewritten => &self.rewritten,
            Outcome::Current => &self.current,
            Outcome::Conflicted => &self.conflicted,
            Outcome::Gone => &self.gone,
            Outcome::Quarantined { .. } => &self.quarantined,
            Outcome::Accepted | Outcome::Refused { .. } | Outcome::Retry { .. } | Outcome::Doubtful(_) => {
                return;
            }
        };
        count.add_one();
        let stored = matches!(outcome, Outcome::Rewritten | Outcome::Current | Outcome::Conflicted);
        if stored && !self.verifying.load(Ordering::Relaxed) {
            self.migrated.add_one();
        }
    }

    /// No objects remain.
    pub fn done(&self) {
        self.remaining.set(0);
    }
}
