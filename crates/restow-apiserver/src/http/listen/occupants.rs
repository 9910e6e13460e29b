//! Which connections can be closed for others when all places are taken.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio_util::sync::CancellationToken;

use super::activity::Activity;

/// All connections; clones are the same.
#[derive(Clone, Debug, Default)]
pub(super) struct Occupants(Arc<Mutex<Places>>);

#[derive(Debug, Default)]
struct Places {
    next: u64,
    taken: HashMap<u64, (Activity, CancellationToken)>,
}

/// A connection, until this is dropped.
#[derive(Debug)]
pub(super) struct Occupant {
    id: u64,
    occupants: Occupants,
    evicted: CancellationToken,
}

impl Occupants {
    fn lock(&self) -> MutexGuard<'_, Places> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a connection.
    pub(super) fn enter(&self, activity: Activity) -> Occupant {
        let evicted = CancellationToken::new();
        let mut places = self.lock();
        places.next += 1;
        let id = places.next;
        places.taken.insert(id, (activity, evicted.clone()));
        Occupant { id, occupants: self.clone(), evicted }
    }

    /// Closes the connection that has been idle for the longest time of those that nobody has authenticated on.
    pub(super) fn evict(&self) {
        let places = self.lock();
        let idle = places.taken.values().filter(|(_, evicted)| !evicted.is_cancelled());
        let idle = idle.filter_map(|(activity, evicted)| Some((activity.evictable_since()?, evicted)));
        if let Some((_, evicted)) = idle.min_by_key(|(since, _)| *since) {
            evicted.cancel();
        }
    }
}

impl Occupant {
    /// Returns when the connection is to be closed for another one.
    pub(super) async fn evicted(&self) {
        self.evicted.cancelled().await;
    }
}

impl Drop for Occupant {
    fn drop(&mut self) {
        self.occupants.lock().taken.remove(&self.id);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn the_longest_idle_connection_of_nobody_known_goes_first() {
        let occupants = Occupants::default();
        let activities: [Activity; 5] = Default::default();
        let [busy, known, silent, fresh, gone] = &activities;
        let taken = activities.clone().map(|activity| occupants.enter(activity));
        let _busy = busy.begin();
        drop(known.begin());
        known.authenticated();
        drop(silent.begin());
        tokio::time::sleep(Duration::from_secs(1)).await;
        drop(fresh.begin());
        let [busy, known, silent, fresh, gone] = {
            drop(gone.begin());
            taken
        };
        drop(gone);
        for expected in [[true, false], [true, true], [true, true]] {
            occupants.evict();
            assert_eq!([&silent, &fresh].map(|taken| taken.evicted.is_cancelled()), expected);
        }
        assert!(![&busy, &known].iter().any(|taken| taken.evicted.is_cancelled()));
    }
}
