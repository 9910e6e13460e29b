//! A store in memory: every revision is kept until it is compacted.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use futures::stream::{self, BoxStream, StreamExt as _};
use restow_store::{
    Change, Changes, Entry, Got, Listed, Range, Store, StoreError, Unchanged, Write, Written,
};
use tokio::sync::watch;

/// What no key begins with.
const NONE: &str = "none";

/// The store.
pub(crate) struct Memory {
    state: Arc<Mutex<State>>,
    newest: watch::Sender<u64>,
    hold: watch::Sender<Hold>,
    is_broken: AtomicBool,
    checks: AtomicUsize,
    refused: Mutex<&'static str>,
    most_listed: AtomicUsize,
}

/// Writes that are held up: those of keys that begin so, and how many wait.
#[derive(Default)]
struct Hold {
    prefixes: Vec<&'static str>,
    waiting: usize,
}

#[derive(Default)]
struct State {
    revision: u64,
    oldest: u64,
    log: Vec<Change>,
}

impl State {
    fn at(&self, revision: u64) -> BTreeMap<&str, &Entry> {
        let mut entries = BTreeMap::new();
        for change in self.log.iter().filter(|change| change.revision <= revision) {
            match &change.now {
                Some(entry) => entries.insert(change.key.as_str(), entry),
                None => entries.remove(change.key.as_str()),
            };
        }
        entries
    }

    fn readable(&self, revision: u64) -> Result<(), StoreError> {
        if revision < self.oldest {
            return Err(StoreError::Compacted { asked: revision, oldest: self.oldest });
        }
        if revision > self.revision {
            return Err(StoreError::Future { asked: revision, newest: self.revision });
        }
        Ok(())
    }
}

impl Memory {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self {
            state: Arc::default(),
            newest: watch::Sender::new(0),
            hold: watch::Sender::default(),
            is_broken: AtomicBool::new(false),
            checks: AtomicUsize::new(0),
            refused: Mutex::new(NONE),
            most_listed: AtomicUsize::new(0),
        })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Holds writes of keys up that begin with one of these; none lets all pass.
    pub(crate) fn hold(&self, prefixes: &[&'static str]) {
        self.hold.send_modify(|hold| *hold = Hold { prefixes: prefixes.to_vec(), waiting: 0 });
    }

    /// Fails writes that change what is stored under keys that begin so; none if the prefix is none.
    pub(crate) fn refuse_changes(&self, prefix: Option<&'static str>) {
        *self.refused.lock().unwrap() = prefix.unwrap_or(NONE);
    }

    /// Makes a change whatever is held up; none deletes.
    pub(crate) fn force(&self, key: &str, value: Option<Bytes>) {
        let state = self.state();
        let expected = state.at(state.revision).get(key).map_or(0, |entry| entry.mod_revision);
        let written = self.change(state, Write { key: key.to_owned(), expected, value });
        assert!(matches!(written, Written::Done { .. }), "{written:?}");
    }

    /// Says from now on that it is broken, or that it is not.
    pub(crate) fn set_broken(&self, is_broken: bool) {
        self.is_broken.store(is_broken, Ordering::SeqCst);
    }

    /// How often it was asked how it is.
    pub(crate) fn checks(&self) -> usize {
        self.checks.load(Ordering::SeqCst)
    }

    /// How many bytes were listed at once, at most.
    pub(crate) fn most_listed(&self) -> usize {
        self.most_listed.load(Ordering::SeqCst)
    }

    /// Returns when a write is held up.
    pub(crate) async fn holds(&self) {
        self.hold.subscribe().wait_for(|hold| hold.waiting > 0).await.unwrap();
    }

    async fn pass(&self, key: &str) {
        let held = |hold: &Hold| hold.prefixes.iter().any(|prefix| key.starts_with(prefix));
        if held(&self.hold.borrow()) {
            self.hold.send_modify(|hold| hold.waiting += 1);
            self.hold.subscribe().wait_for(|hold| !held(hold)).await.unwrap();
        }
    }

    /// Puts bytes under a key as they are.
    pub(crate) async fn put(&self, key: &str, value: &'static str) {
        let expected = self.get(key).await.unwrap().entry.map_or(0, |entry| entry.mod_revision);
        let value = Some(Bytes::from_static(value.as_bytes()));
        self.write(Write { key: key.to_owned(), expected, value }).await.unwrap();
    }

    /// Makes one change, if the key is as the writer knows it.
    fn change(&self, mut state: MutexGuard<'_, State>, write: Write) -> Written {
        let before = state.at(state.revision).get(write.key.as_str()).map(|entry| (*entry).clone());
        if before.as_ref().map_or(0, |entry| entry.mod_revision) != write.expected {
            return Written::Conflict { current: before };
        }
        state.revision += 1;
        let revision = state.revision;
        let now = write.value.map(|value| Entry {
            key: write.key.clone(),
            value,
            create_revision: before.as_ref().map_or(revision, |entry| entry.create_revision),
            mod_revision: revision,
        });
        state.log.push(Change { key: write.key, revision, now, before });
        self.newest.send_replace(revision);
        Written::Done { revision }
    }
}

#[async_trait::async_trait]
impl Store for Memory {
    async fn get(&self, key: &str) -> Result<Got, StoreError> {
        let state = self.state();
        let entry = state.at(state.revision).get(key).map(|entry| (*entry).clone());
        Ok(Got { entry, revision: state.revision })
    }

    async fn list(&self, range: Range) -> Result<Listed, StoreError> {
        let state = self.state();
        let revision = range.revision.unwrap_or(state.revision);
        state.readable(revision)?;
        let start = range.start.unwrap_or_default();
        let mut entries: Vec<Entry> = state
            .at(revision)
            .into_iter()
            .filter(|(key, _)| key.starts_with(&range.prefix) && *key >= start.as_str())
            .map(|(_, entry)| entry.clone())
            .collect();
        let all = entries.len();
        if range.limit > 0 {
            entries.truncate(range.limit);
        }
        let bytes = entries.iter().map(|entry| entry.value.len()).sum();
        self.most_listed.fetch_max(bytes, Ordering::SeqCst);
        Ok(Listed { remaining: (all - entries.len()) as u64, entries, revision })
    }

    async fn write(&self, write: Write) -> Result<Written, StoreError> {
        self.pass(&write.key).await;
        if write.expected > 0 && write.key.starts_with(*self.refused.lock().unwrap()) {
            return Err(StoreError::Unavailable("it is refused".to_owned()));
        }
        Ok(self.change(self.state(), write))
    }

    async fn write_while(
        &self,
        write: Write,
        unchanged: Vec<Unchanged>,
    ) -> Result<Option<Written>, StoreError> {
        self.pass(&write.key).await;
        let state = self.state();
        let entries = state.at(state.revision);
        let revision = |key: &str| entries.get(key).map_or(0, |entry| entry.mod_revision);
        let is_unchanged = unchanged.iter().all(|other| revision(&other.key) == other.mod_revision);
        drop(entries);
        Ok(is_unchanged.then(|| self.change(state, write)))
    }

    async fn watch(
        &self,
        prefix: &str,
        after: u64,
    ) -> Result<BoxStream<'static, Result<Changes, StoreError>>, StoreError> {
        if after < self.state().oldest {
            return Err(StoreError::Compacted { asked: after, oldest: self.state().oldest });
        }
        let (state, prefix, newest) = (Arc::clone(&self.state), prefix.to_owned(), self.newest.subscribe());
        Ok(stream::unfold((after, newest), move |(told, mut newest)| {
            let (state, prefix) = (Arc::clone(&state), prefix.clone());
            async move {
                newest.wait_for(|revision| *revision > told).await.ok()?;
                let state = state.lock().unwrap_or_else(PoisonError::into_inner);
                let new = |change: &&Change| change.revision > told && change.key.starts_with(&prefix);
                let changes = state.log.iter().filter(new).cloned().collect();
                let revision = state.revision;
                drop(state);
                Some((Ok(Changes { changes, revision }), (revision, newest)))
            }
        })
        .boxed())
    }

    async fn revision(&self) -> Result<u64, StoreError> {
        Ok(self.state().revision)
    }

    async fn compact(&self, revision: u64) -> Result<(), StoreError> {
        self.state().oldest = revision;
        Ok(())
    }

    async fn check(&self) -> Result<(), StoreError> {
        self.checks.fetch_add(1, Ordering::SeqCst);
        // As one that is not in this process.
        tokio::task::yield_now().await;
        match self.is_broken.load(Ordering::SeqCst) {
            true => Err(StoreError::Unavailable("the disk /dev/secret is full".to_owned())),
            false => Ok(()),
        }
    }
}
