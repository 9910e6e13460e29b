//! A [`Term`]: the time for which a process may act.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use restow_clock::Instant;

/// How often the wall clock is looked at: timers stand still while a machine is suspended.
pub(crate) const LOOK_EVERY: Duration = Duration::from_secs(1);

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
