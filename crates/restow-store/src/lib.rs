//! Where an API server keeps its objects: keys, bytes and revisions, behind one trait.
//!
//! Every write has a revision, one higher than the one before. What was stored at a revision can be read until it is
//! compacted away; whoever watches hears of every change after a revision, in order, or that it is too old.
//!
//! It knows nothing of objects: `restow-apiserver` says what the bytes mean.

pub mod encryption;
pub mod etcd;
pub mod file;
mod instance;

pub use instance::instance;

use async_trait::async_trait;
use bytes::Bytes;
use futures::stream::BoxStream;

/// What is stored under one key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The key.
    pub key: String,
    /// The bytes.
    pub value: Bytes,
    /// The revision of the write that created it.
    pub create_revision: u64,
    /// The revision of the write that put these bytes here.
    pub mod_revision: u64,
}

/// One entry or none, and the revision at which that was so.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Got {
    /// The entry.
    pub entry: Option<Entry>,
    /// The newest revision of the store when it was read.
    pub revision: u64,
}

/// Which keys to list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Range {
    /// All keys that begin so.
    pub prefix: String,
    /// Of those, only the ones not before this.
    pub start: Option<String>,
    /// At most so many; 0 for all.
    pub limit: usize,
    /// As they were at this revision; none for now.
    pub revision: Option<u64>,
}

/// Entries in the order of their keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed {
    /// The entries.
    pub entries: Vec<Entry>,
    /// How many of the range were left out because of its limit.
    pub remaining: u64,
    /// The revision this shows.
    pub revision: u64,
}

/// One change to one key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Write {
    /// The key.
    pub key: String,
    /// Its mod revision as the writer knows it: 0 when there must be none.
    pub expected: u64,
    /// The new bytes; none to delete it.
    pub value: Option<Bytes>,
}

/// Another key that a write depends on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unchanged {
    /// The key.
    pub key: String,
    /// Its mod revision as the writer knows it: 0 when there must be none.
    pub mod_revision: u64,
}

/// What became of a write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Written {
    /// It is stored, and stays so through a crash.
    Done {
        /// The revision of the write.
        revision: u64,
    },
    /// Another was faster; nothing was changed.
    Conflict {
        /// What is there.
        current: Option<Entry>,
    },
}

/// One change that has happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// The key.
    pub key: String,
    /// The revision of the write.
    pub revision: u64,
    /// The entry afterwards; none when it was deleted.
    pub now: Option<Entry>,
    /// The entry before; none when it was created, or when what was there has been compacted away.
    pub before: Option<Entry>,
}

/// Changes in order, with the revision up to which nothing is missing; without changes it tells just that.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Changes {
    /// The changes.
    pub changes: Vec<Change>,
    /// All changes up to this revision have been told.
    pub revision: u64,
}

/// Why a store did not do what it was asked.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StoreError {
    /// What was stored then is gone.
    #[error("revision {asked} is compacted; {oldest} is the oldest one kept")]
    Compacted {
        /// The revision asked for.
        asked: u64,
        /// The oldest that can be read.
        oldest: u64,
    },
    /// That revision has not been reached yet.
    #[error("revision {asked} is in the future; the newest is {newest}")]
    Future {
        /// The revision asked for.
        asked: u64,
        /// The newest.
        newest: u64,
    },
    /// The store cannot be reached, or cannot do it now: whether a write was done is not known.
    #[error("the store does not answer: {0}")]
    Unavailable(String),
    /// A watch has left out changes: whoever relies on it has to list again.
    #[error("the watch has missed changes: {0}")]
    Missed(String),
    /// What is stored cannot be read.
    #[error("the store is damaged: {0}")]
    Damaged(String),
}

/// A store.
#[async_trait]
pub trait Store: Send + Sync + 'static {
    /// Reads one key, as it is now.
    async fn get(&self, key: &str) -> Result<Got, StoreError>;

    /// Reads many keys. What a range without a limit finds is in memory at once.
    async fn list(&self, range: Range) -> Result<Listed, StoreError>;

    /// Makes one change, if the key is as the writer knows it. To delete what is not there is a conflict with nothing.
    async fn write(&self, write: Write) -> Result<Written, StoreError>;

    /// Makes one change as `write` does, if the other keys are unchanged. Writes nothing and returns `None` if one of
    /// them has changed.
    async fn write_while(
        &self,
        write: Write,
        unchanged: Vec<Unchanged>,
    ) -> Result<Option<Written>, StoreError>;

    /// All changes to keys with this prefix after a revision, which must have been reached. An error ends the stream,
    /// and that the revision is compacted may be the first thing it tells.
    async fn watch(
        &self,
        prefix: &str,
        after: u64,
    ) -> Result<BoxStream<'static, Result<Changes, StoreError>>, StoreError>;

    /// The newest revision.
    async fn revision(&self) -> Result<u64, StoreError>;

    /// Forgets what was stored before a revision, except what is still stored at it. Once more is no error.
    async fn compact(&self, revision: u64) -> Result<(), StoreError>;

    /// A name that only one process at a time can have: that of a store which nobody else can open, and never that of
    /// a copy. None for a store that several share.
    fn instance(&self) -> Option<String> {
        None
    }

    /// Whether the store can be read and written, as far as it knows; it is asked often.
    async fn check(&self) -> Result<(), StoreError> {
        self.revision().await.map(drop)
    }
}
