//! What is counted of one resource while it is migrated.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use prometheus_client::metrics::gauge::Gauge;
use restow_core::rewrite::outcome::Outcome;
use restow_core::rewrite::progress::{Phase, Progress};

use super::count::{Count, gauge_value};

/// What is counted of one resource; counting takes neither a lock nor memory.
///
/// Its methods are those of an observer of the migration.
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

    /// An object was decided. As migrated it counts once, however often it is looked at to verify that.
    pub fn decided(&self, outcome: &Outcome) {
        let count = match outcome {
            Outcome::Rewritten => &self.rewritten,
            Outcome::Current => &self.current,
            Outcome::Conflicted => &self.conflicted,
            Outcome::Gone => &self.gone,
            Outcome::Quarantined { .. } => &self.quarantined,
            Outcome::Accepted | Outcome::Refused { .. } | Outcome::Again { .. } | Outcome::Doubtful(_) => {
                return;
            }
        };
        count.add_one();
        let stored = matches!(outcome, Outcome::Rewritten | Outcome::Current | Outcome::Conflicted);
        if stored && !self.verifying.load(Ordering::Relaxed) {
            self.migrated.add_one();
        }
    }

    /// Nothing is left to be looked at.
    pub fn done(&self) {
        self.remaining.set(0);
    }
}
