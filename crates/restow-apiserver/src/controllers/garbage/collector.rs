//! The state that the two halves of the garbage collector share: one follows changes, the other acts on them.

use std::collections::{HashSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;

use super::graph::Graph;
use crate::controllers::writer::Writer;
use crate::verbs::api::Api;

/// How many keys are taken from the queue at a time.
const BATCH: usize = 256;
/// The first pause before a retry.
pub(super) const PAUSE: Duration = Duration::from_secs(1);

/// The garbage collector.
pub(super) struct Collector {
    pub(super) api: Arc<Api>,
    pub(super) writer: Writer,
    pub(super) state: Mutex<State>,
    pub(super) more: Notify,
}

#[derive(Default)]
pub(super) struct State {
    pub(super) graph: Graph,
    pub(super) queue: Queue,
}

/// Keys to process, without duplicates.
#[derive(Default)]
pub(super) struct Queue {
    order: VecDeque<Arc<str>>,
    members: HashSet<Arc<str>>,
}

impl Queue {
    pub(super) fn push(&mut self, key: Arc<str>) {
        if self.members.insert(Arc::clone(&key)) {
            self.order.push_back(key);
        }
    }

    pub(super) fn pop(&mut self) -> Option<Arc<str>> {
        let key = self.order.pop_front()?;
        self.members.remove(&key);
        Some(key)
    }
}

impl State {
    /// The next keys; none before the first scan is complete.
    pub(super) fn batch(&mut self) -> Vec<Arc<str>> {
        if self.graph.revision == 0 {
            return Vec::new();
        }
        std::iter::from_fn(|| self.queue.pop()).take(BATCH).collect()
    }
}

impl Collector {
    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Queues keys.
    pub(super) fn enqueue(&self, keys: impl IntoIterator<Item = Arc<str>>) {
        let mut state = self.state();
        keys.into_iter().for_each(|key| state.queue.push(key));
        drop(state);
        self.more.notify_one();
    }
}
