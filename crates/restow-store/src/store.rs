//! The trait that every store implements, and what it reads, writes and reports.

use async_trait::async_trait;
use bytes::Bytes;
use futures::stream::BoxStream;

/// A stored key and its value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The key, such as `/registry/secrets/default/a`.
    pub key: String,
    /// The stored bytes, encrypted or not.
    pub value: Bytes,
    /// The revision of the write that created it.
    pub create_revision: u64,
    /// The revision of the write that stored this value.
    pub mod_revision: u64,
}

/// The result of reading one key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Got {
    /// The entry, if the key exists.
    pub entry: Option<Entry>,
    /// The newest revision of the store at that time.
    pub revision: u64,
}

/// Which keys to list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Range {
    /// Only keys with this prefix.
    pub prefix: String,
    /// Only keys from this one on.
    pub start: Option<String>,
    /// The maximum number of keys; 0 for all.
    pub limit: usize,
    /// The revision to read; `None` for the newest.
    pub revision: Option<u64>,
}

/// Entries in the order of their keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed {
    /// The entries in the order of their keys.
    pub entries: Vec<Entry>,
    /// How many keys of the range follow after the limit.
    pub remaining: u64,
    /// The revision of the list.
    pub revision: u64,
}

/// One change to one key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Write {
    /// The key, such as `/registry/secrets/default/a`.
    pub key: String,
    /// The mod revision that the key must have; 0 if it must not exist.
    pub expected: u64,
    /// The new value; `None` to delete the key.
    pub value: Option<Bytes>,
}

/// Another key that a write depends on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unchanged {
    /// The key, such as `/registry/secrets/default/a`.
    pub key: String,
    /// The mod revision that the key must have; 0 if it must not exist.
    pub mod_revision: u64,
}

/// The result of a write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Written {
    /// It is stored durably.
    Done {
        /// The revision of the write.
        revision: u64,
    },
    /// The key has another mod revision; nothing was changed.
    Conflict {
        /// The current entry.
        current: Option<Entry>,
    },
}

/// One change that has happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// The key, such as `/registry/secrets/default/a`.
    pub key: String,
    /// The revision of the write.
    pub revision: u64,
    /// The entry after the change; `None` if it was deleted.
    pub now: Option<Entry>,
    /// The entry before the change; `None` if it was created, or if the former value is compacted.
    pub before: Option<Entry>,
}

/// Changes in order, and the revision up to which they are complete. Without changes it reports progress.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Changes {
    /// The changes in the order of their revisions.
    pub changes: Vec<Change>,
    /// All changes up to this revision have been delivered.
    pub revision: u64,
}

/// Why a store could not carry out a request.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StoreError {
    /// The revision is compacted.
    #[error("revision {asked} is compacted; {oldest} is the oldest one kept")]
    Compacted {
        /// The requested revision.
        asked: u64,
        /// The oldest readable revision.
        oldest: u64,
    },
    /// The revision does not exist yet.
    #[error("revision {asked} is in the future; the newest is {newest}")]
    Future {
        /// The requested revision.
        asked: u64,
        /// The newest revision.
        newest: u64,
    },
    /// The store cannot be reached or cannot carry out the request now. A write may or may not be stored.
    #[error("the store is unavailable: {0}")]
    Unavailable(String),
    /// A watch has missed changes: its reader has to list again.
    #[error("the watch has missed changes: {0}")]
    Missed(String),
    /// Stored data cannot be read.
    #[error("the store is damaged: {0}")]
    Damaged(String),
}

/// A key-value store with revisions.
#[async_trait]
pub trait Store: Send + Sync + 'static {
    /// Reads the current value of one key.
    async fn get(&self, key: &str) -> Result<Got, StoreError>;

    /// Reads many keys. Without a limit, all of them are held in memory.
    async fn list(&self, range: Range) -> Result<Listed, StoreError>;

    /// Makes one change if the key has the expected mod revision. Deleting a missing key is a conflict without an entry.
    async fn write(&self, write: Write) -> Result<Written, StoreError>;

    /// Makes one change like `write`, if the other keys are unchanged. Returns `None` and writes nothing if one of them has
    /// changed.
    async fn write_while(
        &self,
        write: Write,
        unchanged: Vec<Unchanged>,
    ) -> Result<Option<Written>, StoreError>;

    /// Streams all changes to keys with this prefix after an existing revision. An error ends the stream; the first item may
    /// say that the revision is compacted.
    async fn watch(
        &self,
        prefix: &str,
        after: u64,
    ) -> Result<BoxStream<'static, Result<Changes, StoreError>>, StoreError>;

    /// The newest revision.
    async fn revision(&self) -> Result<u64, StoreError>;

    /// Removes the history before a revision. Values that exist at the revision stay. Repeating it is not an error.
    async fn compact(&self, revision: u64) -> Result<(), StoreError>;

    /// A name that only one process at a time can have: it identifies a store that only one process can open, and a copy has
    /// another name. `None` for a shared store.
    fn instance(&self) -> Option<String> {
        None
    }

    /// Whether the store can be read and written, as far as it knows. This is called often, so it has to be cheap.
    async fn check(&self) -> Result<(), StoreError> {
        self.revision().await.map(drop)
    }
}
