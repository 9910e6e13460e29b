//! The state that the two halves of garbage collection share: one follows changes, the other acts on them.

use std::collections::{HashSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;

use super::graph::Graph;
use crate::controllers::writer::Writer;
use crate::verbs::api::Api;

/// How many are taken up at once.
const BATCH: usize = 256;
/// How long to wait before what failed is tried again, at first.
pub(super) const PAUSE: Duration = Duration::from_secs(1);

/// What both halves share: one follows changes, the other acts on them.
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

/// Keys to attend to, each of them once.
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
    /// What is next; nothing while not all is known.
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

    /// Puts keys where they will be attended to.
    pub(super) fn enqueue(&self, keys: impl IntoIterator<Item = Arc<str>>) {
        let mut state = self.state();
        keys.into_iter().for_each(|key| state.queue.push(key));
        drop(state);
        self.more.notify_one();
    }
}
