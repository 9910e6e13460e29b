//! The trait that every source implements, and its errors.

use std::path::PathBuf;

use restow_store::{StoreError, file::OpenError};

use crate::{meter::Meter, snapshot::FileError};

/// Reads everything that is stored, as of one revision.
pub trait Source: Send {
    /// What a report calls it.
    fn name(&self) -> String;

    /// Visits every live key with its value, and returns the revision. What was visited counts only if this succeeds.
    ///
    /// It blocks its thread.
    fn read(&self, meter: &Meter, visit: &mut dyn FnMut(&[u8], &[u8])) -> Result<u64, SourceError>;
}

/// Why a source cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum SourceError {
    /// A file of etcd is damaged or is something else.
    #[error("cannot audit {}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The cause.
        #[source]
        source: FileError,
    },
    /// A file cannot be opened.
    #[error("cannot open {}", path.display())]
    Open {
        /// The file.
        path: PathBuf,
        /// The cause.
        #[source]
        source: std::io::Error,
    },
    /// An etcd has the file open.
    #[error("{} is in use by etcd", path.display())]
    InUse {
        /// The file.
        path: PathBuf,
    },
    /// The store of an embedded API server cannot be read.
    #[error(transparent)]
    Store(#[from] OpenError),
    /// A running etcd cannot be read.
    #[error("cannot read {endpoints}")]
    Etcd {
        /// The addresses.
        endpoints: String,
        /// The cause.
        #[source]
        source: StoreError,
    },
}
