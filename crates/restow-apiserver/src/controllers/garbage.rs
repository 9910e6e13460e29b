//! What is owned goes with its owners, as ownerReferences say: behind them, before them, or not at all.
//!
//! Nothing is known of most objects: a [`Graph`] has the keys of those that have owners, and of owners that wait. It is
//! filled by one scan and follows every change in order; what is decided is decided on objects that are read anew.

mod attend;
mod follow;
mod graph;
mod reference;

use std::collections::{HashSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::{StreamExt as _, stream};
use restow_clock::Instant;
use tokio::sync::Notify;

use super::writer::Writer;
use crate::verbs::api::Api;
use attend::Attended;
use graph::Graph;

/// How many objects are attended to at once.
const AT_ONCE: usize = 16;
/// How many are taken up at once.
const BATCH: usize = 256;
/// How long to wait before what failed is tried again, at first.
const PAUSE: Duration = Duration::from_secs(1);
/// And at most, while something goes on to fail.
const LONGEST_PAUSE: Duration = Duration::from_secs(15);

/// What both halves share: one follows changes, the other acts on them.
struct Collector {
    api: Arc<Api>,
    writer: Writer,
    state: Mutex<State>,
    more: Notify,
}

#[derive(Default)]
struct State {
    graph: Graph,
    queue: Queue,
}

/// Keys to attend to, each of them once.
#[derive(Default)]
struct Queue {
    order: VecDeque<Arc<str>>,
    members: HashSet<Arc<str>>,
}

impl Queue {
    fn push(&mut self, key: Arc<str>) {
        if self.members.insert(Arc::clone(&key)) {
            self.order.push_back(key);
        }
    }

    fn pop(&mut self) -> Option<Arc<str>> {
        let key = self.order.pop_front()?;
        self.members.remove(&key);
        Some(key)
    }
}

impl State {
    /// What is next; nothing while not all is known.
    fn batch(&mut self) -> Vec<Arc<str>> {
        if self.graph.revision == 0 {
            return Vec::new();
        }
        std::iter::from_fn(|| self.queue.pop()).take(BATCH).collect()
    }
}

impl Collector {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Puts keys where they will be attended to.
    fn enqueue(&self, keys: impl IntoIterator<Item = Arc<str>>) {
        let mut state = self.state();
        keys.into_iter().for_each(|key| state.queue.push(key));
        drop(state);
        self.more.notify_one();
    }

    /// Attends to what is in the queue; never ends.
    async fn work(&self) {
        let mut failed = Vec::new();
        let (mut pause, mut again_at) = (PAUSE, Instant::now());
        loop {
            let batch = self.state().batch();
            if batch.is_empty() {
                if failed.is_empty() {
                    pause = PAUSE;
                    self.more.notified().await;
                } else if tokio::time::timeout_at(again_at, self.more.notified()).await.is_err() {
                    pause = LONGEST_PAUSE.min(pause * 2);
                    self.enqueue(failed.drain(..));
                }
                continue;
            }
            let each = batch.into_iter().map(|key| async { (self.attend(&key).await, key) });
            let mut attended = stream::iter(each).buffer_unordered(AT_ONCE);
            while let Some((done, key)) = attended.next().await {
                if done == Attended::Later {
                    if failed.is_empty() {
                        again_at = Instant::now() + pause;
                    }
                    failed.push(key);
                }
            }
        }
    }
}

/// Collects garbage; never ends.
pub(super) async fn run(api: Arc<Api>, writer: Writer) {
    let collector = Collector { api, writer, state: Mutex::default(), more: Notify::new() };
    futures::join!(collector.follow(), collector.work());
}
