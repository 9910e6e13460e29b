//! The connection of one API server to the store.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use futures::stream::{self, BoxStream, StreamExt as _};
use restow_store::memory::MemoryStore;
use restow_store::{Changes, Got, Listed, Range, Store, StoreError, Unchanged, Write, Written};
use tokio::sync::Notify;

/// One server's connection to the store. While it is blocked, nothing that the server does has an effect: the server is
/// frozen.
#[derive(Clone)]
pub struct Connection {
    store: MemoryStore,
    blocked: Arc<(AtomicBool, Notify)>,
    /// How late the server hears about changes of CRDs.
    lag: Duration,
}

const DEFINITIONS: &str = "/registry/apiextensions.k8s.io/customresourcedefinitions/";

impl Connection {
    /// A connection that is not blocked.
    pub fn new(store: MemoryStore, lag: Duration) -> Self {
        Self { store, blocked: Arc::default(), lag }
    }

    /// Blocks or unblocks it.
    pub fn block(&self, blocked: bool) {
        self.blocked.0.store(blocked, Ordering::Relaxed);
        self.blocked.1.notify_waiters();
    }

    /// Waits until it is not blocked.
    async fn pass(&self) {
        loop {
            let turned = self.blocked.1.notified();
            if !self.blocked.0.load(Ordering::Relaxed) {
                return;
            }
            turned.await;
        }
    }
}

#[async_trait]
impl Store for Connection {
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
        let next = move |(connection, prefix, told): (Self, String, u64)| async move {
            connection.store.wait_for_change(told, lag).await;
            connection.pass().await;
            let changes = connection.store.changes_after(told, &prefix, lag);
            let told = changes.revision;
            Some((Ok(changes), (connection, prefix, told)))
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
