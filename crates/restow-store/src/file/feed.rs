//! What has just been written, for those who watch.
//!
//! Each watcher has a queue of what is new for it. A queue that grows too long is thrown away: its watcher reads the
//! history from the file instead, and hears that it is compacted when it is slower than that. No watcher holds the
//! writer up, none takes memory without bound.

use std::{
    mem,
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
};

use tokio::sync::Notify;

use super::{read::Snapshot, write::Done};
use crate::{Change, Entry, StoreError};

/// Bytes of keys and values that may wait for one watcher.
const QUEUE_BYTES: usize = 4 << 20;

/// Who watches, and up to which revision they have been told.
#[derive(Debug)]
pub(super) struct Feed {
    state: Mutex<State>,
    queue_bytes: usize,
}

#[derive(Debug)]
struct State {
    published: u64,
    watchers: Vec<Weak<Watcher>>,
    closed: bool,
}

/// One who watches.
#[derive(Debug)]
pub(super) struct Watcher {
    prefix: String,
    queue: Mutex<Queue>,
    wake: Notify,
}

#[derive(Debug, Default)]
struct Queue {
    changes: Vec<Arc<Change>>,
    bytes: usize,
    until: u64,
    live: bool,
    closed: bool,
}

/// What a watcher finds in its queue.
#[derive(Debug)]
pub(super) enum Taken {
    /// All changes up to a revision, perhaps none.
    Changes(Vec<Arc<Change>>, u64),
    /// It is not told of changes: it has to read the history, then resume.
    Behind,
    /// The store is closed.
    Closed,
}

impl Feed {
    /// Nobody watches yet.
    pub(super) fn new(published: u64) -> Self {
        Self::with_queues(published, QUEUE_BYTES)
    }

    fn with_queues(published: u64, queue_bytes: usize) -> Self {
        let state = State { published, watchers: Vec::new(), closed: false };
        Self { state: Mutex::new(state), queue_bytes }
    }

    /// Adds a watcher, which has to resume before it is told anything.
    pub(super) fn join(&self, prefix: &str) -> Arc<Watcher> {
        let mut state = self.state();
        let queue = Queue { closed: state.closed, ..Queue::default() };
        let watcher =
            Arc::new(Watcher { prefix: prefix.to_owned(), queue: Mutex::new(queue), wake: Notify::new() });
        state.watchers.push(Arc::downgrade(&watcher));
        watcher
    }

    /// From now on the watcher is told of all changes after the revision this returns.
    pub(super) fn resume(&self, watcher: &Watcher) -> u64 {
        // Held while the queue changes, so that nothing is published in between.
        let state = self.state();
        let mut queue = watcher.queue();
        let closed = queue.closed;
        *queue = Queue { until: state.published, live: true, closed, ..Queue::default() };
        state.published
    }

    /// Tells the watchers of writes, with what was there before as a snapshot taken after them has it.
    pub(super) fn publish(
        &self,
        done: Vec<Done>,
        until: u64,
        snapshot: impl FnOnce() -> Result<Snapshot, StoreError>,
    ) {
        let mut state = self.state();
        state.published = until;
        let mut watchers = Vec::with_capacity(state.watchers.len());
        state.watchers.retain(|watcher| {
            watchers.extend(watcher.upgrade());
            watcher.strong_count() > 0
        });
        let heard = |done: &Done| watchers.iter().any(|watcher| done.key.starts_with(&watcher.prefix));
        let done: Vec<Done> = done.into_iter().filter(heard).collect();
        let changes = match done.is_empty() {
            true => Ok(Vec::new()),
            false => snapshot().and_then(|snapshot| changes(done, &snapshot)),
        };
        for watcher in watchers {
            match &changes {
                Ok(changes) => watcher.tell(changes, until, self.queue_bytes),
                // They find the same in the file, or why it cannot be read.
                Err(_) => watcher.fall_behind(),
            }
        }
    }

    /// Goes on from what the file has, which may be more than was published: watchers read that from the file.
    pub(super) fn go_on_from(&self, newest: u64) {
        let mut state = self.state();
        state.published = newest;
        for watcher in state.watchers.iter().filter_map(Weak::upgrade) {
            watcher.fall_behind();
        }
    }

    /// Tells all watchers that nothing more will come.
    pub(super) fn close(&self) {
        let mut state = self.state();
        state.closed = true;
        for watcher in state.watchers.drain(..).filter_map(|watcher| watcher.upgrade()) {
            watcher.queue().closed = true;
            watcher.wake.notify_one();
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Watcher {
    /// What is in the queue.
    pub(super) fn take(&self) -> Taken {
        let mut queue = self.queue();
        if queue.closed {
            return Taken::Closed;
        }
        if !queue.live {
            return Taken::Behind;
        }
        queue.bytes = 0;
        Taken::Changes(mem::take(&mut queue.changes), queue.until)
    }

    /// Returns when there is something in the queue, at the latest.
    pub(super) async fn woken(&self) {
        self.wake.notified().await;
    }

    /// The keys it watches begin so.
    pub(super) fn prefix(&self) -> &str {
        &self.prefix
    }

    fn tell(&self, changes: &[Arc<Change>], until: u64, most_bytes: usize) {
        let mut queue = self.queue();
        if !queue.live {
            return;
        }
        queue.until = until;
        let mut told = false;
        for change in changes.iter().filter(|change| change.key.starts_with(&self.prefix)) {
            queue.bytes += size(change);
            queue.changes.push(Arc::clone(change));
            told = true;
        }
        if queue.bytes > most_bytes {
            *queue = Queue::default();
        }
        if told {
            self.wake.notify_one();
        }
    }

    fn fall_behind(&self) {
        *self.queue() = Queue::default();
        self.wake.notify_one();
    }

    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn changes(done: Vec<Done>, snapshot: &Snapshot) -> Result<Vec<Arc<Change>>, StoreError> {
    let change = |done: Done| {
        let Done { key, revision, created, value, before } = done;
        let before = before.map(|version| snapshot.entry(version)).transpose()?;
        let entry =
            |value| Entry { key: key.clone(), value, create_revision: created, mod_revision: revision };
        let now = value.map(entry);
        Ok(Arc::new(Change { key, revision, now, before }))
    };
    done.into_iter().map(change).collect()
}

/// About how much memory a change takes.
fn size(change: &Change) -> usize {
    let entry = |entry: &Option<Entry>| entry.as_ref().map_or(0, |entry| entry.key.len() + entry.value.len());
    size_of::<Change>() + change.key.len() + entry(&change.now) + entry(&change.before)
}
