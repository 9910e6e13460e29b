//! Limits writes to the pace that `restow_core::rewrite::pace` decides. All writers share one throttle.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use restow_clock::Instant;
use restow_core::rewrite::pace::{Bounds, Pace, Permit, Signal};
use tokio::sync::Notify;

/// Limits how many writes are in flight and how fast they are sent.
pub struct Throttle {
    started: Instant,
    state: Mutex<State>,
    freed: Notify,
}

struct State {
    pace: Pace,
    in_flight: usize,
}

/// A permit for one write in flight. If it is dropped without [`ended`](Self::ended), the write does not affect the pace.
pub struct Slot<'a> {
    throttle: &'a Throttle,
    sent: Instant,
}

impl Throttle {
    /// A throttle with these bounds.
    pub fn new(bounds: Bounds) -> Self {
        Self {
            started: Instant::now(),
            state: Mutex::new(State { pace: Pace::new(bounds), in_flight: 0 }),
            freed: Notify::new(),
        }
    }

    /// Waits until one more write may be sent.
    pub async fn acquire(&self) -> Slot<'_> {
        loop {
            let freed = self.freed.notified();
            let permit = {
                let mut state = self.state();
                let now = self.started.elapsed();
                let permit = state.pace.permit(now, state.in_flight);
                if permit == Permit::Now {
                    state.pace.sent(now);
                    state.in_flight += 1;
                }
                permit
            };
            match permit {
                Permit::Now => return Slot { throttle: self, sent: Instant::now() },
                Permit::WhenOneEnds => freed.await,
                Permit::At(at) => tokio::time::sleep(at.saturating_sub(self.started.elapsed())).await,
            }
        }
    }

    /// Waits until a list request fits into the bandwidth.
    pub(crate) async fn list(&self) {
        loop {
            let at = self.state().pace.lists_at();
            match at.checked_sub(self.started.elapsed()).filter(|wait| !wait.is_zero()) {
                Some(wait) => tokio::time::sleep(wait).await,
                None => return,
            }
        }
    }

    /// The limit in bytes per second.
    pub(crate) fn bandwidth(&self) -> Option<f64> {
        self.state().pace.bandwidth()
    }

    /// Counts bytes that were transferred without a slot.
    pub fn transferred(&self, bytes: usize) {
        let now = self.started.elapsed();
        self.state().pace.transferred(now, bytes);
    }

    /// How many writes may be in flight now.
    pub fn limit(&self) -> f64 {
        self.state().pace.limit()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Slot<'_> {
    /// Reports how the write ended, and frees the slot.
    pub fn ended(self, signal: Signal, bytes: usize) {
        let took: Duration = self.sent.elapsed();
        let now = self.throttle.started.elapsed();
        let mut state = self.throttle.state();
        state.pace.ended(now, took, signal);
        state.pace.transferred(now, bytes);
    }
}

impl Drop for Slot<'_> {
    fn drop(&mut self) {
        self.throttle.state().in_flight -= 1;
        self.throttle.freed.notify_one();
    }
}
