//! A store in memory that tells a witness of every write, and doors to it that can be shut for one server.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use futures::stream::{self, BoxStream, StreamExt as _};
use restow_clock::Instant;
use restow_store::{
    Change, Changes, Entry, Got, Listed, Range, Store, StoreError, Unchanged, Write, Written,
};
use tokio::sync::Notify;

/// Is told of every write in its order.
pub type Witness = Box<dyn Fn(&Change) + Send + Sync>;

/// The store itself.
pub struct Memory {
    state: Mutex<State>,
    /// Told of every write. A `watch` channel wakes its receivers in a random order.
    written: Notify,
    witnesses: Mutex<Vec<Witness>>,
}

struct State {
    revision: u64,
    /// What each key held, in the order of revisions.
    keys: BTreeMap<String, Vec<(u64, Option<Entry>)>>,
    log: Vec<Change>,
    /// When each of them was made.
    times: Vec<Instant>,
}

impl State {
    fn at(&self, key: &str, revision: u64) -> Option<&Entry> {
        last(self.keys.get(key)?, revision)
    }
}

fn last(versions: &[(u64, Option<Entry>)], revision: u64) -> Option<&Entry> {
    versions.iter().rev().find(|(at, _)| *at <= revision)?.1.as_ref()
}

impl Memory {
    /// An empty store.
    pub fn new() -> Arc<Self> {
        let state = State { revision: 1, keys: BTreeMap::new(), log: Vec::new(), times: Vec::new() };
        Arc::new(Self { state: Mutex::new(state), written: Notify::new(), witnesses: Mutex::default() })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Has one more witness told of every write from now on.
    pub fn tell(&self, witness: Witness) {
        self.witnesses.lock().unwrap_or_else(PoisonError::into_inner).push(witness);
    }

    async fn beyond(&self, revision: u64) {
        loop {
            let written = self.written.notified();
            if self.newest() > revision {
                return;
            }
            written.await;
        }
    }

    /// The newest revision.
    pub fn newest(&self) -> u64 {
        self.state().revision
    }

    /// All entries below a prefix, as they are now.
    pub fn below(&self, prefix: &str) -> Vec<Entry> {
        let state = self.state();
        let range = state.keys.range(prefix.to_owned()..).take_while(|(key, _)| key.starts_with(prefix));
        range.filter_map(|(_, versions)| last(versions, state.revision).cloned()).collect()
    }

    /// Makes one change, if the key is as the writer knows it.
    fn change(&self, mut state: MutexGuard<'_, State>, write: Write) -> Result<Written, StoreError> {
        let before = state.at(&write.key, state.revision).cloned();
        if before.as_ref().map_or(0, |entry| entry.mod_revision) != write.expected
            || (before.is_none() && write.value.is_none())
        {
            return Ok(Written::Conflict { current: before });
        }
        state.revision += 1;
        let revision = state.revision;
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
        for witness in &*self.witnesses.lock().unwrap_or_else(PoisonError::into_inner) {
            witness(&change);
        }
        self.written.notify_waiters();
        Ok(Written::Done { revision: change.revision })
    }
}

#[async_trait]
impl Store for Memory {
    async fn get(&self, key: &str) -> Result<Got, StoreError> {
        let state = self.state();
        Ok(Got { entry: state.at(key, state.revision).cloned(), revision: state.revision })
    }

    async fn list(&self, range: Range) -> Result<Listed, StoreError> {
        let state = self.state();
        let revision = range.revision.unwrap_or(state.revision);
        if revision > state.revision {
            return Err(StoreError::Future { asked: revision, newest: state.revision });
        }
        let start = range.start.filter(|start| *start > range.prefix).unwrap_or_else(|| range.prefix.clone());
        let below = state.keys.range(start..).take_while(|(key, _)| key.starts_with(&range.prefix));
        let mut found = below.filter_map(|(_, versions)| last(versions, revision));
        let limit = if range.limit == 0 { usize::MAX } else { range.limit };
        let entries: Vec<Entry> = found.by_ref().take(limit).cloned().collect();
        Ok(Listed { entries, remaining: found.count() as u64, revision })
    }

    async fn write(&self, write: Write) -> Result<Written, StoreError> {
        self.change(self.state(), write)
    }

    async fn write_while(
        &self,
        write: Write,
        unchanged: Vec<Unchanged>,
    ) -> Result<Option<Written>, StoreError> {
        let state = self.state();
        let revision = |key: &str| state.at(key, state.revision).map_or(0, |entry| entry.mod_revision);
        if unchanged.iter().any(|other| revision(&other.key) != other.mod_revision) {
            return Ok(None);
        }
        self.change(state, write).map(Some)
    }

    async fn watch(
        &self,
        _: &str,
        _: u64,
    ) -> Result<BoxStream<'static, Result<Changes, StoreError>>, StoreError> {
        Err(StoreError::Unavailable("watch through a door".to_owned()))
    }

    async fn revision(&self) -> Result<u64, StoreError> {
        Ok(self.newest())
    }

    async fn compact(&self, _: u64) -> Result<(), StoreError> {
        Ok(())
    }
}

/// One server's way to the store. While it is shut, nothing the server does has an effect: the server is frozen.
#[derive(Clone)]
pub struct Door {
    store: Arc<Memory>,
    shut: Arc<(AtomicBool, Notify)>,
    /// How late changes of definitions are told.
    lag: Duration,
}

const DEFINITIONS: &str = "/registry/apiextensions.k8s.io/customresourcedefinitions/";

impl Door {
    /// A door that is open.
    pub fn new(store: Arc<Memory>, lag: Duration) -> Self {
        Self { store, shut: Arc::default(), lag }
    }

    /// Shuts or opens it.
    pub fn shut(&self, shut: bool) {
        self.shut.0.store(shut, Ordering::Relaxed);
        self.shut.1.notify_waiters();
    }

    async fn pass(&self) {
        loop {
            let turned = self.shut.1.notified();
            if !self.shut.0.load(Ordering::Relaxed) {
                return;
            }
            turned.await;
        }
    }
}

#[async_trait]
impl Store for Door {
    async fn get(&self, key: &str) -> Result<Got, StoreError> {
        self.pass().await;
        self.store.get(key).await
    }

    async fn list(&self, range: Range) -> Result<Listed, StoreError> {
        self.pass().await;
        self.store.list(range).await
    }

    async fn write(&self, write: Write) -> Result<Written, StoreError> {
        self.pass().await;
        self.store.write(write).await
    }

    async fn write_while(
        &self,
        write: Write,
        unchanged: Vec<Unchanged>,
    ) -> Result<Option<Written>, StoreError> {
        self.pass().await;
        self.store.write_while(write, unchanged).await
    }

    async fn watch(
        &self,
        prefix: &str,
        after: u64,
    ) -> Result<BoxStream<'static, Result<Changes, StoreError>>, StoreError> {
        let lag = if prefix.starts_with(DEFINITIONS) { self.lag } else { Duration::ZERO };
        let position = (self.clone(), prefix.to_owned(), after);
        let next = move |(door, prefix, told): (Self, String, u64)| async move {
            door.store.beyond(told).await;
            if !lag.is_zero() {
                let first = {
                    let state = door.store.state();
                    state.times[state.log.partition_point(|change| change.revision <= told)]
                };
                tokio::time::sleep_until(first + lag).await;
            }
            door.pass().await;
            let (changes, revision) = {
                let state = door.store.state();
                let from = state.log.partition_point(|change| change.revision <= told);
                let to = state.times.partition_point(|time| *time + lag <= Instant::now());
                let new = state.log[from..to].iter().filter(|change| change.key.starts_with(&prefix));
                (new.cloned().collect::<Vec<_>>(), state.log[to - 1].revision)
            };
            Some((Ok(Changes { changes, revision }), (door, prefix, revision)))
        };
        Ok(stream::unfold(position, next).boxed())
    }

    async fn revision(&self) -> Result<u64, StoreError> {
        self.pass().await;
        self.store.revision().await
    }

    async fn compact(&self, revision: u64) -> Result<(), StoreError> {
        self.store.compact(revision).await
    }
}
