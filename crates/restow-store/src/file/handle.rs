//! The open database, which is reopened after an error.
//!
//! After the first failed read or write, redb refuses everything, because it cannot know what reached the disk. Committed
//! data is there when the file is reopened.

use std::sync::{
    Mutex, MutexGuard, PoisonError, RwLock,
    atomic::{AtomicBool, Ordering},
};

use redb::{Database, DatabaseError};

use super::{
    errors::{closed, failed},
    read::Snapshot,
};
use crate::StoreError;

/// Opens the file. It may be created only the first time.
pub(super) type Opener = Box<dyn Fn(Opening) -> Result<Database, DatabaseError> + Send + Sync>;

/// Why a file is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Opening {
    /// The store is opened; the file is created if there is none.
    First,
    /// The store reopens its file.
    Again,
}

/// The open database; readers and the writer share it.
pub(super) struct Handle {
    open: Opener,
    /// `None` while it cannot be opened.
    database: RwLock<Option<Database>>,
    /// Whether a read or write has failed since it was opened.
    is_broken: AtomicBool,
    /// Why the last transaction failed; `None` if it was written.
    last_error: Mutex<Option<StoreError>>,
}

impl Handle {
    /// Opens the file for the first time.
    pub(super) fn open(open: Opener) -> Result<Self, DatabaseError> {
        let database = open(Opening::First)?;
        Ok(Self {
            open,
            database: RwLock::new(Some(database)),
            is_broken: AtomicBool::new(false),
            last_error: Mutex::default(),
        })
    }

    /// Reopens the file. Until then readers get an error.
    pub(super) fn reopen(&self) -> Result<(), StoreError> {
        self.close();
        let database = (self.open)(Opening::Again).map_err(failed)?;
        self.is_broken.store(false, Ordering::Release);
        self.replace(Some(database));
        Ok(())
    }

    /// Closes the file; readers get an error from now on.
    pub(super) fn close(&self) {
        drop(self.replace(None));
    }

    /// Runs a function with the database.
    pub(super) fn with<T>(
        &self,
        work: impl FnOnce(&Database) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        let database = self.database.read().unwrap_or_else(PoisonError::into_inner);
        let Some(database) = &*database else { return Err(self.last_error().clone().unwrap_or_else(closed)) };
        let result = work(database);
        if matches!(result, Err(StoreError::Unavailable(_))) {
            self.is_broken.store(true, Ordering::Release);
        }
        result
    }

    /// Takes a snapshot.
    pub(super) fn snapshot(&self) -> Result<Snapshot, StoreError> {
        self.with(Snapshot::take)
    }

    /// Whether it has to be reopened before the next write.
    pub(super) fn is_broken(&self) -> bool {
        self.is_broken.load(Ordering::Acquire)
            || self.database.read().unwrap_or_else(PoisonError::into_inner).is_none()
    }

    /// Records the result of the last transaction.
    pub(super) fn note(&self, last_error: Option<StoreError>) {
        *self.last_error() = last_error;
    }

    /// The error of the last transaction, if it failed.
    pub(super) fn check(&self) -> Result<(), StoreError> {
        self.last_error().clone().map_or(Ok(()), Err)
    }

    fn replace(&self, database: Option<Database>) -> Option<Database> {
        let mut held = self.database.write().unwrap_or_else(PoisonError::into_inner);
        std::mem::replace(&mut *held, database)
    }

    fn last_error(&self) -> MutexGuard<'_, Option<StoreError>> {
        self.last_error.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
