//! A store in memory, for tests and simulations. It keeps every revision until it is compacted.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use futures::stream::{self, BoxStream, StreamExt as _};
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::{Change, Changes, Entry, Got, Listed, Range, Store, StoreError, Unchanged, Write, Written};

/// The revision of an empty store, as in the other stores.
const FIRST: u64 = 1;

/// Is called with every write, in order.
pub type Witness = Box<dyn Fn(&Change) + Send + Sync>;

/// A store in memory. Clones share their contents.
#[derive(Clone)]
pub struct MemoryStore(Arc<Inner>);

struct Inner {
    state: Mutex<State>,
    /// A `watch` channel would wake its receivers in a random order, which a simulation could not replay.
    written: Notify,
    witnesses: Mutex<Vec<Witness>>,
}

struct State {
    newest: u64,
    compacted: u64,
    /// The versions of each key, in the order of their revisions.
    keys: BTreeMap<String, Vec<(u64, Option<Entry>)>>,
    log: Vec<Change>,
    /// When each change of the log was made.
    times: Vec<Instant>,
}

impl State {
    fn get(&self, key: &str) -> Option<&Entry> {
        last(self.keys.get(key)?, self.newest)
    }

    fn mod_revision(&self, key: &str) -> u64 {
        self.get(key).map_or(0, |entry| entry.mod_revision)
    }

    /// Checks that a revision can be read.
    fn check(&self, asked: u64) -> Result<(), StoreError> {
        if asked < self.compacted {
            return Err(StoreError::Compacted { asked, oldest: self.compacted });
        }
        if asked > self.newest {
            return Err(StoreError::Future { asked, newest: self.newest });
        }
        Ok(())
    }

    /// The place in the log of the first change after a revision.
    fn after(&self, revision: u64) -> usize {
        self.log.partition_point(|change| change.revision <= revision)
    }
}

fn last(versions: &[(u64, Option<Entry>)], revision: u64) -> Option<&Entry> {
    versions.iter().rev().find(|(at, _)| *at <= revision)?.1.as_ref()
}

impl Default for MemoryStore {
    fn default() -> Self {
        let state =
            State { newest: FIRST, compacted: 0, keys: BTreeMap::new(), log: Vec::new(), times: Vec::new() };
        Self(Arc::new(Inner {
            state: Mutex::new(state),
            written: Notify::new(),
            witnesses: Mutex::default(),
        }))
    }
}

impl MemoryStore {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a witness of all further writes.
    pub fn add_witness(&self, witness: Witness) {
        self.0.witnesses.lock().unwrap_or_else(PoisonError::into_inner).push(witness);
    }

    /// The newest revision.
    pub fn newest(&self) -> u64 {
        self.state().newest
    }

    /// All current entries below a prefix.
    pub fn below(&self, prefix: &str) -> Vec<Entry> {
        let state = self.state();
        let range = state.keys.range(prefix.to_owned()..).take_while(|(key, _)| key.starts_with(prefix));
        range.filter_map(|(_, versions)| last(versions, state.newest).cloned()).collect()
    }

    /// Writes or deletes a key, whatever is stored there.
    pub fn put(&self, key: &str, value: Option<Bytes>) {
        let state = self.state();
        let expected = state.mod_revision(key);
        self.change(state, Write { key: key.to_owned(), expected, value });
    }

    /// Waits for a change after a revision, and until the change is as old as `lag`.
    pub async fn wait_for_change(&self, after: u64, lag: Duration) {
        loop {
            let written = self.0.written.notified();
            if self.newest() > after {
                break;
            }
            written.await;
        }
        if !lag.is_zero() {
            let made = {
                let state = self.state();
                state.times[state.after(after)]
            };
            tokio::time::sleep_until(made + lag).await;
        }
    }

    /// The changes to keys with a prefix after a revision that are as old as `lag`.
    pub fn changes_after(&self, after: u64, prefix: &str, lag: Duration) -> Changes {
        let (state, now) = (self.state(), Instant::now());
        let to = state.times.partition_point(|time| *time + lag <= now);
        let new = state.log[state.after(after).min(to)..to].iter();
        let changes = new.filter(|change| change.key.starts_with(prefix)).cloned().collect();
        let revision = state.log[..to].last().map_or(after, |change| change.revision);
        Changes { changes, revision }
    }

    /// Makes one change, if the key is as the writer knows it.
    fn change(&self, mut state: MutexGuard<'_, State>, write: Write) -> Written {
        let before = state.get(&write.key).cloned();
        let mod_revision = before.as_ref().map_or(0, |entry| entry.mod_revision);
        if mod_revision != write.expected || (before.is_none() && write.value.is_none()) {
            return Written::Conflict { current: before };
        }
        state.newest += 1;
        let revision = state.newest;
        let now = write.value.map(|value| Entry {
            key: write.key.clone(),
            value,
            create_revision: before.as_ref().map_or(revision, |entry| entry.create_revision),
            mod_revision: revision,
        });
        state.keys.entry(write.key.clone()).or_default().push((revision, now.clone()));
        let change = Change { key: write.key, revision, now, before };
        state.log.push(change.clone());
        state.times.push(Instant::now());
        drop(state);
        for witness in &*self.0.witnesses.lock().unwrap_or_else(PoisonError::into_inner) {
            witness(&change);
        }
        self.0.written.notify_waiters();
        Written::Done { revision }
    }
}

#[async_trait]
impl Store for MemoryStore {
    async fn get(&self, key: &str) -> Result<Got, StoreError> {
        let state = self.state();
        Ok(Got { entry: state.get(key).cloned(), revision: state.newest })
    }

    async fn list(&self, range: Range) -> Result<Listed, StoreError> {
        let state = self.state();
        let revision = range.revision.unwrap_or(state.newest);
        state.check(revision)?;
        let start = range.start.filter(|start| *start > range.prefix).unwrap_or_else(|| range.prefix.clone());
        let below = state.keys.range(start..).take_while(|(key, _)| key.starts_with(&range.prefix));
        let mut found = below.filter_map(|(_, versions)| last(versions, revision));
        let limit = if range.limit == 0 { usize::MAX } else { range.limit };
        let entries: Vec<Entry> = found.by_ref().take(limit).cloned().collect();
        Ok(Listed { entries, remaining: found.count() as u64, revision })
    }

    async fn write(&self, write: Write) -> Result<Written, StoreError> {
        Ok(self.change(self.state(), write))
    }

    async fn write_while(
        &self,
        write: Write,
        unchanged: Vec<Unchanged>,
    ) -> Result<Option<Written>, StoreError> {
        let state = self.state();
        if unchanged.iter().any(|other| state.mod_revision(&other.key) != other.mod_revision) {
            return Ok(None);
        }
        Ok(Some(self.change(state, write)))
    }

    async fn watch(
        &self,
        prefix: &str,
        after: u64,
    ) -> Result<BoxStream<'static, Result<Changes, StoreError>>, StoreError> {
        self.state().check(after)?;
        let next = |(store, prefix, told): (Self, String, u64)| async move {
            store.wait_for_change(told, Duration::ZERO).await;
            let changes = store.changes_after(told, &prefix, Duration::ZERO);
            let told = changes.revision;
            Some((Ok(changes), (store, prefix, told)))
        };
        Ok(stream::unfold((self.clone(), prefix.to_owned(), after), next).boxed())
    }

    async fn revision(&self) -> Result<u64, StoreError> {
        Ok(self.newest())
    }

    async fn compact(&self, revision: u64) -> Result<(), StoreError> {
        let mut state = self.state();
        if revision > state.newest {
            return Err(StoreError::Future { asked: revision, newest: state.newest });
        }
        state.compacted = state.compacted.max(revision);
        Ok(())
    }
}
