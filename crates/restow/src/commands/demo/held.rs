//! A store whose writes and watches the demo can delay, as a slow disk or network does.

use std::sync::Arc;

use async_trait::async_trait;
use futures::StreamExt as _;
use futures::stream::BoxStream;
use restow_store::{Changes, Got, Listed, Range, Store, StoreError, Unchanged, Write, Written};
use tokio::sync::watch;

/// Where StorageVersions are kept.
const STORAGE_VERSIONS: &str = "/registry/storageversions/";
/// Where CustomResourceDefinitions are kept.
const DEFINITIONS: &str = "/registry/apiextensions.k8s.io/customresourcedefinitions/";

/// What is delayed.
#[derive(Clone, Debug, Default)]
pub(crate) struct Holds {
    registrations: watch::Sender<bool>,
    definitions: watch::Sender<bool>,
}

impl Holds {
    /// Delays the registration of storage versions, or stops delaying it.
    pub(crate) fn registrations(&self, held: bool) {
        self.registrations.send_replace(held);
    }

    /// Delays the events of changed CRDs, or stops delaying them.
    pub(crate) fn definitions(&self, held: bool) {
        self.definitions.send_replace(held);
    }
}

async fn released(hold: &watch::Sender<bool>) {
    // It never fails: the sender lives as long as this.
    let _ = hold.subscribe().wait_for(|held| !held).await;
}

/// A store with such delays.
pub(crate) struct Held {
    pub(crate) inner: Arc<dyn Store>,
    pub(crate) holds: Holds,
}

#[async_trait]
impl Store for Held {
    async fn get(&self, key: &str) -> Result<Got, StoreError> {
        self.inner.get(key).await
    }

    async fn list(&self, range: Range) -> Result<Listed, StoreError> {
        self.inner.list(range).await
    }

    async fn write(&self, write: Write) -> Result<Written, StoreError> {
        if write.key.starts_with(STORAGE_VERSIONS) {
            released(&self.holds.registrations).await;
        }
        self.inner.write(write).await
    }

    async fn write_while(
        &self,
        write: Write,
        unchanged: Vec<Unchanged>,
    ) -> Result<Option<Written>, StoreError> {
        if write.key.starts_with(STORAGE_VERSIONS) {
            released(&self.holds.registrations).await;
        }
        self.inner.write_while(write, unchanged).await
    }

    async fn watch(
        &self,
        prefix: &str,
        after: u64,
    ) -> Result<BoxStream<'static, Result<Changes, StoreError>>, StoreError> {
        let changes = self.inner.watch(prefix, after).await?;
        if !prefix.starts_with(DEFINITIONS) {
            return Ok(changes);
        }
        let holds = self.holds.clone();
        let late = changes.then(move |changes| {
            let holds = holds.clone();
            async move {
                released(&holds.definitions).await;
                changes
            }
        });
        Ok(late.boxed())
    }

    async fn revision(&self) -> Result<u64, StoreError> {
        self.inner.revision().await
    }

    async fn compact(&self, revision: u64) -> Result<(), StoreError> {
        self.inner.compact(revision).await
    }
}
