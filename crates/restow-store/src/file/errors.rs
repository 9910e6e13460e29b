//! The errors of reads and writes, and panics of the database, as errors of the store.

use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::StoreError;

/// Stored data cannot be read.
pub(super) fn damaged(reason: &str) -> StoreError {
    StoreError::Damaged(reason.to_owned())
}

/// The store error for an error of the database.
pub(super) fn failed(error: impl Into<redb::Error>) -> StoreError {
    match error.into() {
        error @ (redb::Error::Corrupted(_)
        | redb::Error::TableDoesNotExist(_)
        | redb::Error::TableTypeMismatch { .. }
        | redb::Error::TypeDefinitionChanged { .. }) => StoreError::Damaged(error.to_string()),
        error => StoreError::Unavailable(error.to_string()),
    }
}

/// Reads from a file that may be damaged: a panic of the database counts as damage.
pub(super) fn guarded<T>(read: impl FnOnce() -> Result<T, StoreError>) -> Result<T, StoreError> {
    catch_unwind(AssertUnwindSafe(read))
        .unwrap_or_else(|_| Err(StoreError::Damaged("the database panicked while reading".to_owned())))
}

pub(super) fn closed() -> StoreError {
    StoreError::Unavailable("the store is closed".to_owned())
}
