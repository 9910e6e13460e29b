//! When to stop: told so, or because the right to go on has run out.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Poll;
use std::time::Duration;

use jiff::Timestamp;
use restow_clock::Instant;
use tokio_util::sync::CancellationToken;

/// How often the wall clock is looked at: timers stand still while a machine is suspended.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// The time for which somebody may act, as a leader may while it holds its Lease.
///
/// It ends by itself: a process that was paused finds it over before anybody tells it so.
#[derive(Debug)]
pub struct Term {
    start: Instant,
    end: Mutex<End>,
}

/// When a term ends.
#[derive(Clone, Copy, Debug, Default)]
struct End {
    /// Since the start, by the monotonic clock.
    until: Duration,
    /// By the wall clock, which goes on while a machine is suspended.
    wall: Option<Timestamp>,
}

/// A moment by both clocks.
#[derive(Clone, Copy, Debug)]
pub struct Moment {
    since: Duration,
    wall: Timestamp,
}

impl Default for Term {
    fn default() -> Self {
        Self { start: Instant::now(), end: Mutex::default() }
    }
}

impl Term {
    /// The time since this term's clock was started.
    pub fn now(&self) -> Duration {
        self.start.elapsed()
    }

    /// This moment.
    pub fn moment(&self) -> Moment {
        Moment { since: self.now(), wall: restow_clock::now() }
    }

    /// Moves the end, by the monotonic clock alone.
    pub fn lasts_until(&self, until: Duration) {
        *self.end() = End { until, wall: None };
    }

    /// Moves the end to so long after a moment, by whichever clock comes to that first: the monotonic clock may stand
    /// still while a machine is suspended, and the wall clock may be set back.
    pub fn lasts_from(&self, moment: Moment, long: Duration) {
        let wall = moment.wall.checked_add(long).unwrap_or(moment.wall);
        *self.end() = End { until: moment.since + long, wall: Some(wall) };
    }

    /// How much of it is left.
    pub fn left(&self) -> Duration {
        let End { until, wall } = *self.end();
        let left = until.saturating_sub(self.now());
        let by_wall = wall.map(|wall| wall.duration_since(restow_clock::now()));
        by_wall.map_or(left, |by_wall| left.min(Duration::try_from(by_wall).unwrap_or_default()))
    }

    /// Returns when it is over.
    pub async fn over(&self) {
        loop {
            let left = self.left();
            if left.is_zero() {
                return;
            }
            tokio::time::sleep(left.min(LOOK_EVERY)).await;
        }
    }

    fn end(&self) -> MutexGuard<'_, End> {
        self.end.lock().unwrap_or_else(PoisonError::into_inner)
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
        tokio::select! {
            biased;
            () = self.told.cancelled() => {}
            () = term.over() => {}
        }
    }

    /// Does something, unless it is time to stop first. Whatever wakes the work up, it goes on only if it may.
    pub async fn unless<T>(&self, work: impl Future<Output = T>) -> Option<T> {
        let mut work = pin!(work);
        let may_go_on = poll_fn(|context| match self.is_stopped() {
            true => Poll::Ready(None),
            false => work.as_mut().poll(context).map(Some),
        });
        tokio::select! {
            biased;
            () = self.stopped() => None,
            done = may_go_on => done,
        }
    }
}

#[cfg(test)]
mod tests {
    use jiff::SignedDuration;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_term_is_over_after_a_pause_that_no_timer_has_seen() {
        let clock = restow_clock::simulate(Timestamp::UNIX_EPOCH, 1);
        let term = Arc::new(Term::default());
        let stop = Stop::within(CancellationToken::new(), Some(Arc::clone(&term)));
        let ten = Duration::from_secs(10);
        for (paused, stopped) in [(0, false), (9, false), (10, true), (3600, true), (-3600, false)] {
            clock.skew(SignedDuration::ZERO);
            term.lasts_from(term.moment(), ten);
            clock.skew(SignedDuration::from_secs(paused));
            assert_eq!(stop.is_stopped(), stopped, "{paused}");
        }
        // A clock that is set back does not make it longer.
        tokio::time::sleep(ten).await;
        assert!(stop.is_stopped());
        // A request that was sent before the pause gives no right after it.
        clock.skew(SignedDuration::ZERO);
        let sent = term.moment();
        clock.skew(SignedDuration::from_secs(30));
        term.lasts_from(sent, ten);
        assert!(stop.is_stopped());

        // What is woken after the pause does nothing more, and what sleeps is stopped soon.
        clock.skew(SignedDuration::ZERO);
        term.lasts_from(term.moment(), ten);
        let mut wrote = false;
        let work = stop.unless(async {
            clock.skew(SignedDuration::from_secs(60));
            tokio::task::yield_now().await;
            wrote = true;
        });
        assert_eq!(work.await, None);
        assert!(!wrote);
        clock.skew(SignedDuration::ZERO);
        term.lasts_from(term.moment(), ten);
        let since = Instant::now();
        let pause = async {
            tokio::time::sleep(Duration::from_millis(100)).await;
            clock.skew(SignedDuration::from_secs(60));
            std::future::pending::<()>().await;
        };
        assert_eq!(stop.unless(pause).await, None);
        assert!(since.elapsed() <= LOOK_EVERY * 2, "{:?}", since.elapsed());
    }

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
