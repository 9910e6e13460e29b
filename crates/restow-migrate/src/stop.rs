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
/// It ends by itself: a process that was paused finds it over before anybody tells it so. Once somebody has found it
/// over it is over for everybody, until a new one begins.
#[derive(Debug)]
pub struct Term {
    start: Instant,
    end: Mutex<End>,
}

/// When a term ends.
#[derive(Clone, Copy, Debug)]
struct End {
    /// Since the start, by the monotonic clock.
    until: Duration,
    /// By the wall clock, which goes on while a machine is suspended.
    wall: Timestamp,
    /// Whether somebody has found it over.
    over: bool,
}

/// A moment by both clocks.
#[derive(Clone, Copy, Debug)]
pub struct Moment {
    since: Duration,
    wall: Timestamp,
}

impl Default for Term {
    fn default() -> Self {
        let end = End { until: Duration::ZERO, wall: Timestamp::MIN, over: true };
        Self { start: Instant::now(), end: Mutex::new(end) }
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

    /// Begins a new term, which ends so long after a moment, by whichever clock comes to that first: the monotonic
    /// clock may stand still while a machine is suspended, and the wall clock may be set back.
    pub fn begin(&self, moment: Moment, long: Duration) {
        let wall = moment.wall.checked_add(long).unwrap_or(moment.wall);
        *self.end() = End { until: moment.since + long, wall, over: false };
    }

    /// Moves the end of a term that is not over; says whether that is so.
    pub fn renew(&self, moment: Moment, long: Duration) -> bool {
        let stands = !self.left().is_zero();
        if stands {
            self.begin(moment, long);
        }
        stands
    }

    /// Ends it now.
    pub fn finish(&self) {
        self.end().over = true;
    }

    /// How much of it is left.
    pub fn left(&self) -> Duration {
        let mut end = self.end();
        if end.over {
            return Duration::ZERO;
        }
        let by_wall = Duration::try_from(end.wall.duration_since(restow_clock::now())).unwrap_or_default();
        let left = end.until.saturating_sub(self.now()).min(by_wall);
        end.over = left.is_zero();
        left
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
            term.begin(term.moment(), ten);
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
        term.begin(sent, ten);
        assert!(stop.is_stopped());

        // What is woken after the pause does nothing more, and what sleeps is stopped soon.
        clock.skew(SignedDuration::ZERO);
        term.begin(term.moment(), ten);
        let mut wrote = false;
        let work = stop.unless(async {
            clock.skew(SignedDuration::from_secs(60));
            tokio::task::yield_now().await;
            wrote = true;
        });
        assert_eq!(work.await, None);
        assert!(!wrote);
        clock.skew(SignedDuration::ZERO);
        term.begin(term.moment(), ten);
        let since = Instant::now();
        let pause = async {
            tokio::time::sleep(Duration::from_millis(100)).await;
            clock.skew(SignedDuration::from_secs(60));
            std::future::pending::<()>().await;
        };
        assert_eq!(stop.unless(pause).await, None);
        assert!(since.elapsed() <= LOOK_EVERY * 2, "{:?}", since.elapsed());
    }

    #[tokio::test(start_paused = true)]
    async fn a_term_that_somebody_found_over_is_not_renewed() {
        let clock = restow_clock::simulate(Timestamp::UNIX_EPOCH, 1);
        let term = Arc::new(Term::default());
        let stop = Stop::within(CancellationToken::new(), Some(Arc::clone(&term)));
        let ten = Duration::from_secs(10);
        // By how many seconds the clock is off when somebody looks, and when the term is renewed.
        for (looks, renews, renewed) in
            [(0, 0, true), (9, 0, true), (15, 15, false), (15, 0, false), (0, 15, false)]
        {
            clock.skew(SignedDuration::ZERO);
            term.begin(term.moment(), ten);
            clock.skew(SignedDuration::from_secs(looks));
            let stopped = stop.is_stopped();
            clock.skew(SignedDuration::from_secs(renews));
            assert_eq!(term.renew(term.moment(), ten), renewed, "{looks} {renews}");
            assert!(
                !stopped || stop.is_stopped(),
                "who was stopped is stopped like all others: {looks} {renews}"
            );
        }
    }

    #[tokio::test]
    async fn a_term_ends_by_itself() {
        let term = Arc::new(Term::default());
        let stop = Stop::within(CancellationToken::new(), Some(Arc::clone(&term)));
        assert!(stop.is_stopped(), "a term that has not begun gives no right");
        term.begin(term.moment(), Duration::from_secs(3600));
        assert!(!stop.is_stopped());
        assert_eq!(stop.unless(async { 1 }).await, Some(1));
        let (told, child) = stop.child();
        told.cancel();
        assert!(child.is_stopped() && !stop.is_stopped());
        child.stopped().await;
        term.finish();
        stop.stopped().await;
        assert_eq!(stop.unless(async { 1 }).await, None);
    }
}
