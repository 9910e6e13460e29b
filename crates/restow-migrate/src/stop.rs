//! When to stop: told so, or because the right to go on has run out.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use restow_clock::Instant;
use tokio_util::sync::CancellationToken;

/// The time for which somebody may act, as a leader may while it holds its Lease.
///
/// It ends by itself: a process that was paused finds it over before anybody tells it so.
#[derive(Debug)]
pub struct Term {
    start: Instant,
    /// Milliseconds since the start.
    until: AtomicU64,
}

impl Default for Term {
    fn default() -> Self {
        Self { start: Instant::now(), until: AtomicU64::new(0) }
    }
}

impl Term {
    /// The time since this term's clock was started.
    pub fn now(&self) -> Duration {
        self.start.elapsed()
    }

    /// Moves the end.
    pub fn lasts_until(&self, until: Duration) {
        self.until.store(u64::try_from(until.as_millis()).unwrap_or(u64::MAX), Ordering::SeqCst);
    }

    /// How much of it is left.
    pub fn left(&self) -> Duration {
        Duration::from_millis(self.until.load(Ordering::SeqCst)).saturating_sub(self.now())
    }
}

/// Asked before everything that is sent.
#[derive(Clone, Debug)]
pub struct Stop {
    told: CancellationToken,
    term: Option<Arc<Term>>,
}

impl From<CancellationToken> for Stop {
    fn from(told: CancellationToken) -> Self {
        Self { told, term: None }
    }
}

impl Stop {
    /// Stops when told, and with the end of a term.
    pub fn within(told: CancellationToken, term: Option<Arc<Term>>) -> Self {
        Self { told, term }
    }

    /// One that is stopped with this one, and by itself.
    pub fn child(&self) -> (CancellationToken, Self) {
        let told = self.told.child_token();
        (told.clone(), Self { told, term: self.term.clone() })
    }

    /// Whether to send nothing more.
    pub fn is_stopped(&self) -> bool {
        self.told.is_cancelled() || self.term.as_ref().is_some_and(|term| term.left().is_zero())
    }

    /// Ends when it is time to stop.
    pub async fn stopped(&self) {
        let Some(term) = &self.term else { return self.told.cancelled().await };
        loop {
            let left = term.left();
            if left.is_zero() {
                return;
            }
            tokio::select! {
                biased;
                () = self.told.cancelled() => return,
                () = tokio::time::sleep(left) => {}
            }
        }
    }

    /// Does something, unless it is time to stop first.
    pub async fn unless<T>(&self, work: impl Future<Output = T>) -> Option<T> {
        tokio::select! {
            biased;
            () = self.stopped() => None,
            done = work => Some(done),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_term_ends_by_itself() {
        let term = Arc::new(Term::default());
        let stop = Stop::within(CancellationToken::new(), Some(Arc::clone(&term)));
        assert!(stop.is_stopped(), "a term that has not begun gives no right");
        term.lasts_until(term.now() + Duration::from_secs(3600));
        assert!(!stop.is_stopped());
        assert_eq!(stop.unless(async { 1 }).await, Some(1));
        let (told, child) = stop.child();
        told.cancel();
        assert!(child.is_stopped() && !stop.is_stopped());
        child.stopped().await;
        term.lasts_until(Duration::ZERO);
        stop.stopped().await;
        assert_eq!(stop.unless(async { 1 }).await, None);
    }
}
