//! The open database, which is opened again after an error.
//!
//! redb refuses everything after the first read or write that failed, for it cannot know what reached the disk. What
//! had been committed before is there when the file is opened again.

use std::sync::{
    Mutex, MutexGuard, PoisonError, RwLock,
    atomic::{AtomicBool, Ordering},
};

use redb::{Database, DatabaseError};

use super::{closed, read::Snapshot, tables::failed};
use crate::StoreError;

/// Opens the file; only the first time it may be made.
pub(super) type Opener = Box<dyn Fn(Opening) -> Result<Database, DatabaseError> + Send + Sync>;

/// What a file is opened for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Opening {
    /// The store is opened, and the file made if there is none.
    First,
    /// The store goes on with the file that it had.
    Again,
}

/// The open database; readers and the writer share it.
pub(super) struct Handle {
    open: Opener,
    /// None while it cannot be opened.
    database: RwLock<Option<Database>>,
    /// Whether the database has refused to read or write since it was opened.
    is_broken: AtomicBool,
    /// Why the last transaction could not be written; none if it was.
    trouble: Mutex<Option<StoreError>>,
}

impl Handle {
    /// Opens the file for the first time.
    pub(super) fn open(open: Opener) -> Result<Self, DatabaseError> {
        let database = open(Opening::First)?;
        Ok(Self {
            open,
            database: RwLock::new(Some(database)),
            is_broken: AtomicBool::new(false),
            trouble: Mutex::default(),
        })
    }

    /// Closes the file and opens it again. Until that is done, readers get an error.
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

    /// Works with the database.
    pub(super) fn with<T>(
        &self,
        work: impl FnOnce(&Database) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        let database = self.database.read().unwrap_or_else(PoisonError::into_inner);
        let Some(database) = &*database else { return Err(self.trouble().clone().unwrap_or_else(closed)) };
        let result = work(database);
        if matches!(result, Err(StoreError::Unavailable(_))) {
            self.is_broken.store(true, Ordering::Release);
        }
        result
    }

    /// What is there now.
    pub(super) fn snapshot(&self) -> Result<Snapshot, StoreError> {
        self.with(Snapshot::take)
    }

    /// Whether it has to be opened again before anything can be written.
    pub(super) fn is_broken(&self) -> bool {
        self.is_broken.load(Ordering::Acquire)
            || self.database.read().unwrap_or_else(PoisonError::into_inner).is_none()
    }

    /// Remembers how the last transaction ended.
    pub(super) fn note(&self, trouble: Option<StoreError>) {
        *self.trouble() = trouble;
    }

    /// Whether the last transaction was written, and why not.
    pub(super) fn check(&self) -> Result<(), StoreError> {
        self.trouble().clone().map_or(Ok(()), Err)
    }

    fn replace(&self, database: Option<Database>) -> Option<Database> {
        let mut held = self.database.write().unwrap_or_else(PoisonError::into_inner);
        std::mem::replace(&mut *held, database)
    }

    fn trouble(&self) -> MutexGuard<'_, Option<StoreError>> {
        self.trouble.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
