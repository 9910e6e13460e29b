//! Delivers new writes to watchers.
//!
//! Each watcher has a queue of new changes. If a queue grows too long, it is discarded, and its watcher reads the history
//! from the file instead, until that is compacted. So no watcher blocks the writer or needs unbounded memory.

use std::{
    mem,
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
};

use tokio::sync::Notify;

use super::{read::Snapshot, write::Done};
use crate::{Change, Entry, StoreError};

/// The maximum size in bytes of one watcher's queue.
const QUEUE_BYTES: usize = 4 << 20;

/// The watchers, and the revision up to which changes have been published.
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

/// The contents of a watcher's queue.
#[derive(Debug)]
pub(super) enum Taken {
    /// All changes up to a revision, possibly none.
    Changes(Vec<Arc<Change>>, u64),
    /// The queue was discarded: the watcher has to read the history and then resume.
    Behind,
    /// The store is closed.
    Closed,
}

impl Feed {
    /// A feed without watchers.
    pub(super) fn new(published: u64) -> Self {
        Self::with_queues(published, QUEUE_BYTES)
    }

    fn with_queues(published: u64, queue_bytes: usize) -> Self {
        let state = State { published, watchers: Vec::new(), closed: false };
        Self { state: Mutex::new(state), queue_bytes }
    }

    /// Adds a watcher. It receives nothing before it resumes.
    pub(super) fn join(&self, prefix: &str) -> Arc<Watcher> {
        let mut state = self.state();
        let queue = Queue { closed: state.closed, ..Queue::default() };
        let watcher =
            Arc::new(Watcher { prefix: prefix.to_owned(), queue: Mutex::new(queue), wake: Notify::new() });
        state.watchers.push(Arc::downgrade(&watcher));
        watcher
    }

    /// From now on the watcher receives all changes after the returned revision.
    pub(super) fn resume(&self, watcher: &Watcher) -> u64 {
        // The lock is held, so that nothing is published in between.
        let state = self.state();
        let mut queue = watcher.queue();
        let closed = queue.closed;
        *queue = Queue { until: state.published, live: true, closed, ..Queue::default() };
        state.published
    }

    /// Publishes writes to the watchers. The former values are read from a snapshot that was taken after the writes.
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
                // The watchers read the changes, or the error, from the file.
                Err(_) => watcher.fall_behind(),
            }
        }
    }

    /// Continues from the newest revision of the file. Watchers read what was not published from the file.
    pub(super) fn go_on_from(&self, newest: u64) {
        let mut state = self.state();
        state.published = newest;
        for watcher in state.watchers.iter().filter_map(Weak::upgrade) {
            watcher.fall_behind();
        }
    }

    /// Ends all watches.
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
    /// Takes the contents of the queue.
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

    /// Waits for something in the queue; may return earlier.
    pub(super) async fn woken(&self) {
        self.wake.notified().await;
    }

    /// The prefix of the watched keys.
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

/// The approximate size of a change in memory.
fn size(change: &Change) -> usize {
    let entry = |entry: &Option<Entry>| entry.as_ref().map_or(0, |entry| entry.key.len() + entry.value.len());
    size_of::<Change>() + change.key.len() + entry(&change.now) + entry(&change.before)
}
