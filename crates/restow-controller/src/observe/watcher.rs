//! Observes a running migration: counts what it does, and remembers what it waits for.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use restow_clock::Instant;
use restow_core::rewrite::outcome::Outcome;
use restow_core::rewrite::progress::Progress;
use restow_migrate::client::Throttle;
use restow_migrate::list::Waiting;
use restow_migrate::migration::Observer;

use crate::observe::metrics::{Metrics, ResourceMetrics};

/// Shorter waits are not reported.
const MIN_REPORTED_WAIT: Duration = Duration::from_secs(3);

/// Counts outcomes and pages, and remembers what the migration waits for.
pub(crate) struct Watcher<'a> {
    metrics: &'a Metrics,
    throttle: &'a Throttle,
    resource: ResourceMetrics,
    page_began: Mutex<Instant>,
    waiting: Mutex<Option<Wait>>,
}

struct Wait {
    why: String,
    since: Instant,
    until: Instant,
}

impl<'a> Watcher<'a> {
    pub(crate) fn new(metrics: &'a Metrics, throttle: &'a Throttle, resource: &str) -> Self {
        Self {
            metrics,
            throttle,
            resource: metrics.resource(resource),
            page_began: Mutex::new(Instant::now()),
            waiting: Mutex::default(),
        }
    }

    /// What the migration has waited for long enough to report it.
    pub(crate) fn waits_for(&self) -> Option<String> {
        let mut waiting = lock(&self.waiting);
        if waiting.as_ref().is_some_and(|wait| wait.until + MIN_REPORTED_WAIT < Instant::now()) {
            *waiting = None;
        }
        waiting.as_ref().filter(|wait| wait.since.elapsed() >= MIN_REPORTED_WAIT).map(|wait| wait.why.clone())
    }

    fn wait(&self, why: &str, wait: Duration) {
        let mut waiting = lock(&self.waiting);
        let now = Instant::now();
        let since = waiting.as_ref().map_or(now, |wait| wait.since);
        *waiting = Some(Wait { why: why.to_owned(), since, until: now + wait });
    }
}

impl Waiting for Watcher<'_> {
    fn waiting(&self, why: &str, wait: Duration) {
        self.wait(why, wait);
    }
}

impl Observer for Watcher<'_> {
    fn settling(&self, _: Duration) {}

    fn pass(&self, progress: &Progress) {
        self.resource.pass(progress);
        *lock(&self.page_began) = Instant::now();
    }

    fn decided(&self, outcome: &Outcome) {
        self.resource.decided(outcome);
    }

    fn page(&self, progress: &Progress) {
        self.resource.page(progress);
        let began = std::mem::replace(&mut *lock(&self.page_began), Instant::now());
        self.metrics.page(began.elapsed());
        self.metrics.in_flight_limit(self.throttle.limit());
        *lock(&self.waiting) = None;
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use restow_core::rewrite::pace::Preset;

    use super::*;

    #[test]
    fn only_long_waits_are_reported() {
        let (metrics, throttle) = (Metrics::default(), Throttle::new(Preset::Steady.bounds()));
        let watcher = Watcher::new(&metrics, &throttle, "widgets.example.com");
        assert_eq!(watcher.waits_for(), None);
        watcher.waiting("the API server is overloaded", Duration::from_secs(1));
        assert_eq!(watcher.waits_for(), None, "it may be over in a moment");
        if let Some(wait) = watcher.waiting.lock().unwrap().as_mut() {
            wait.since -= MIN_REPORTED_WAIT;
        }
        assert_eq!(watcher.waits_for().as_deref(), Some("the API server is overloaded"));
        if let Some(wait) = watcher.waiting.lock().unwrap().as_mut() {
            wait.until -= MIN_REPORTED_WAIT * 2;
        }
        assert_eq!(watcher.waits_for(), None, "it went on since");
    }
}
