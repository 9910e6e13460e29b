//! The open connections, and which of them is evicted for another one.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio_util::sync::CancellationToken;

use crate::activity::Activity;

/// All open connections. Clones share them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Connections(Arc<Mutex<OpenConnections>>);

#[derive(Debug, Default)]
struct OpenConnections {
    next: u64,
    taken: HashMap<u64, (Activity, CancellationToken)>,
}

/// An open connection, until this is dropped.
#[derive(Debug)]
pub(crate) struct Connection {
    id: u64,
    connections: Connections,
    evicted: CancellationToken,
}

impl Connections {
    fn lock(&self) -> MutexGuard<'_, OpenConnections> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a connection.
    pub(crate) fn enter(&self, activity: Activity) -> Connection {
        let evicted = CancellationToken::new();
        let mut places = self.lock();
        places.next += 1;
        let id = places.next;
        places.taken.insert(id, (activity, evicted.clone()));
        Connection { id, connections: self.clone(), evicted }
    }

    /// Evicts the connection of an unknown client that has been idle for the longest time.
    pub(crate) fn evict(&self) {
        let places = self.lock();
        let idle = places.taken.values().filter(|(_, evicted)| !evicted.is_cancelled());
        let idle = idle.filter_map(|(activity, evicted)| Some((activity.evictable_since()?, evicted)));
        if let Some((_, evicted)) = idle.min_by_key(|(since, _)| *since) {
            evicted.cancel();
        }
    }
}

impl Connection {
    /// Completes when the connection is evicted.
    pub(crate) async fn evicted(&self) {
        self.evicted.cancelled().await;
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.connections.lock().taken.remove(&self.id);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn the_longest_idle_connection_of_an_unknown_client_is_closed_first() {
        let connections = Connections::default();
        let activities: [Activity; 5] = Default::default();
        let [busy, known, silent, fresh, gone] = &activities;
        let taken = activities.clone().map(|activity| connections.enter(activity));
        let _busy = busy.begin();
        drop(known.begin());
        known.known();
        drop(silent.begin());
        tokio::time::sleep(Duration::from_secs(1)).await;
        drop(fresh.begin());
        let [busy, known, silent, fresh, gone] = {
            drop(gone.begin());
            taken
        };
        drop(gone);
        for expected in [[true, false], [true, true], [true, true]] {
            connections.evict();
            assert_eq!([&silent, &fresh].map(|taken| taken.evicted.is_cancelled()), expected);
        }
        assert!(![&busy, &known].iter().any(|taken| taken.evicted.is_cancelled()));
    }
}
