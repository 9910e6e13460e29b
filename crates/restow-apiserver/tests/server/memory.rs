//! A store in memory whose writes can be held up and refused.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use futures::stream::BoxStream;
use restow_store::memory::MemoryStore;
use restow_store::{Changes, Got, Listed, Range, Store, StoreError, Unchanged, Write, Written};
use tokio::sync::watch;

/// What no key begins with.
const NONE: &str = "none";

/// The store.
pub(crate) struct Memory {
    store: MemoryStore,
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

impl Memory {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self {
            store: MemoryStore::default(),
            hold: watch::Sender::default(),
            is_broken: AtomicBool::new(false),
            checks: AtomicUsize::new(0),
            refused: Mutex::new(NONE),
            most_listed: AtomicUsize::new(0),
        })
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
        self.store.put(key, value);
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
}

#[async_trait::async_trait]
impl Store for Memory {
    async fn get(&self, key: &str) -> Result<Got, StoreError> {
        self.store.get(key).await
    }

    async fn list(&self, range: Range) -> Result<Listed, StoreError> {
        let listed = self.store.list(range).await?;
        let bytes = listed.entries.iter().map(|entry| entry.value.len()).sum();
        self.most_listed.fetch_max(bytes, Ordering::SeqCst);
        Ok(listed)
    }

    async fn write(&self, write: Write) -> Result<Written, StoreError> {
        self.pass(&write.key).await;
        if write.expected > 0 && write.key.starts_with(*self.refused.lock().unwrap()) {
            return Err(StoreError::Unavailable("it is refused".to_owned()));
        }
        self.store.write(write).await
    }

    async fn write_while(
        &self,
        write: Write,
        unchanged: Vec<Unchanged>,
    ) -> Result<Option<Written>, StoreError> {
        self.pass(&write.key).await;
        self.store.write_while(write, unchanged).await
    }

    async fn watch(
        &self,
        prefix: &str,
        after: u64,
    ) -> Result<BoxStream<'static, Result<Changes, StoreError>>, StoreError> {
        self.store.watch(prefix, after).await
    }

    async fn revision(&self) -> Result<u64, StoreError> {
        self.store.revision().await
    }

    async fn compact(&self, revision: u64) -> Result<(), StoreError> {
        self.store.compact(revision).await
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
