//! A [`Term`] is the time for which a process may act.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use restow_clock::Instant;

/// How often the wall clock is read: timers do not advance while a machine is suspended.
pub(crate) const CHECK_EVERY: Duration = Duration::from_secs(1);

/// The time for which a process may act, as a leader may while it holds its Lease.
///
/// It ends by itself: a process that was paused finds it over without asking a server. Once one caller has found it
/// over, it is over for all, until a new term begins.
#[derive(Debug)]
pub struct Term {
    start: Instant,
    end: Mutex<End>,
}

#[derive(Clone, Copy, Debug)]
struct End {
    /// Since the start, by the monotonic clock.
    until: Duration,
    /// By the wall clock, which advances while a machine is suspended.
    wall: Timestamp,
    /// Whether a caller has found it over.
    over: bool,
}

/// A point in time on both clocks.
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
    /// The time since this term was constructed.
    pub fn now(&self) -> Duration {
        self.start.elapsed()
    }

    /// The current time on both clocks.
    pub fn moment(&self) -> Moment {
        Moment { since: self.now(), wall: restow_clock::now() }
    }

    /// Begins a new term that ends `long` after `moment`, on whichever clock reaches that first: the monotonic clock may
    /// stop while a machine is suspended, and the wall clock may be set back.
    pub fn begin(&self, moment: Moment, long: Duration) {
        let wall = moment.wall.checked_add(long).unwrap_or(moment.wall);
        *self.end() = End { until: moment.since + long, wall, over: false };
    }

    /// Extends a term; false if it is over.
    pub fn renew(&self, moment: Moment, long: Duration) -> bool {
        let valid = !self.left().is_zero();
        if valid {
            self.begin(moment, long);
        }
        valid
    }

    /// Ends the term now.
    pub fn finish(&self) {
        self.end().over = true;
    }

    /// The rest of the term; zero if it is over.
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

    /// Returns when the term is over.
    pub async fn over(&self) {
        loop {
            let left = self.left();
            if left.is_zero() {
                return;
            }
            tokio::time::sleep(left.min(CHECK_EVERY)).await;
        }
    }

    fn end(&self) -> MutexGuard<'_, End> {
        self.end.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
