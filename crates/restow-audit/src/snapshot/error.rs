//! What can be wrong with the database of an etcd.

use crate::bolt::BoltError;

/// Why the database of an etcd cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// The file is not a sound bbolt database.
    #[error(transparent)]
    Bolt(#[from] BoltError),
    /// Its hash does not match its content.
    #[error(
        "its content does not match the SHA-256 hash at its end: it was changed or damaged; take a new snapshot"
    )]
    Hash,
    /// It has no keys of etcd.
    #[error("it is not a database of etcd: it has no bucket {bucket:?}")]
    NoBucket {
        /// The name of the bucket.
        bucket: &'static str,
    },
    /// A revision is damaged.
    #[error("its revision {main}.{sub} is damaged: {problem}")]
    Revision {
        /// The number of the transaction.
        main: u64,
        /// The number of the write in the transaction.
        sub: u64,
        /// What is wrong.
        problem: &'static str,
    },
    /// Something in the keyspace is damaged.
    #[error("it is damaged: {0}")]
    Damaged(&'static str),
    /// Writes are missing.
    #[error(
        "it is damaged: revision {missing} is missing, although everything after revision {compacted} is kept"
    )]
    Gap {
        /// A missing revision.
        missing: u64,
        /// The revision up to which etcd has removed superseded writes.
        compacted: u64,
    },
}
