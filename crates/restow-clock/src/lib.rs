//! The one way restow reads time and draws random numbers.
//!
//! Production code calls [`now`] for the wall clock, [`Instant`] for the monotonic clock and [`random`] for chance. A
//! simulation takes over all three on its thread with [`simulate`]; nothing else in the workspace has to know.

use std::cell::Cell;
use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher as _, Hasher as _};

use jiff::{SignedDuration, Timestamp};
/// The monotonic clock. It follows tokio's clock, which a simulation pauses and advances.
pub use tokio::time::Instant;

#[derive(Clone, Copy)]
struct Wall {
    epoch: Timestamp,
    began: Instant,
    skew: SignedDuration,
}

thread_local! {
    static SIMULATED: Cell<Option<Wall>> = const { Cell::new(None) };
}

/// The wall clock.
pub fn now() -> Timestamp {
    match SIMULATED.get() {
        Some(wall) => {
            let elapsed = SignedDuration::try_from(wall.began.elapsed()).unwrap_or_default();
            wall.epoch.checked_add(elapsed + wall.skew).unwrap_or(wall.epoch)
        }
        #[allow(clippy::disallowed_methods)] // this is the one place
        None => Timestamp::now(),
    }
}

/// A random number. It is not fit for secrets.
pub fn random() -> u64 {
    match SIMULATED.get() {
        Some(_) => fastrand::u64(..),
        // Seeded by the operating system, so that two processes do not draw the same.
        None => RandomState::new().build_hasher().finish(),
    }
}

/// Controls time and chance on this thread until it is dropped.
#[derive(Debug)]
pub struct Simulation(());

/// Starts a simulation on this thread: the wall clock shows `epoch` now and follows tokio's clock from here on, and
/// every random number follows from `seed`.
pub fn simulate(epoch: Timestamp, seed: u64) -> Simulation {
    fastrand::seed(seed);
    SIMULATED.set(Some(Wall { epoch, began: Instant::now(), skew: SignedDuration::ZERO }));
    Simulation(())
}

impl Simulation {
    /// Moves the wall clock by this much against the monotonic clock, counted from no skew at all.
    pub fn skew(&self, skew: SignedDuration) {
        SIMULATED.set(SIMULATED.get().map(|wall| Wall { skew, ..wall }));
    }
}

impl Drop for Simulation {
    fn drop(&mut self) {
        SIMULATED.set(None);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_simulation_controls_time_and_chance() {
        let epoch = Timestamp::UNIX_EPOCH;
        let drawn = |seed| {
            let _simulation = simulate(epoch, seed);
            [random(), random()]
        };
        assert_eq!(drawn(7), drawn(7));
        assert_ne!(drawn(7), drawn(8));
        let simulation = simulate(epoch, 7);
        assert_eq!(now(), epoch);
        tokio::time::sleep(std::time::Duration::from_secs(60)).await;
        assert_eq!(now(), Timestamp::from_second(60).unwrap());
        simulation.skew(SignedDuration::from_hours(-1));
        assert_eq!(now(), Timestamp::from_second(60 - 3600).unwrap());
        drop(simulation);
        assert!(now() > Timestamp::from_second(1_700_000_000).unwrap());
    }
}
