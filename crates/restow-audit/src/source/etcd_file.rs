//! A snapshot of an etcd, or the database of a stopped one.

use std::{
    fs::{File, TryLockError},
    path::{Path, PathBuf},
};

use super::reader::{Source, SourceError};
use crate::{meter::Meter, snapshot};

/// The file of an etcd.
#[derive(Clone, Debug)]
pub struct EtcdFile {
    path: PathBuf,
}

impl EtcdFile {
    /// The file at this path. For a data directory of etcd, it is the database in it.
    pub fn new(path: &Path) -> Self {
        let database = path.join("member").join("snap").join("db");
        Self { path: if path.is_dir() { database } else { path.to_owned() } }
    }
}

impl Source for EtcdFile {
    fn name(&self) -> String {
        self.path.display().to_string()
    }

    fn read(&self, meter: &Meter, visit: &mut dyn FnMut(&[u8], &[u8])) -> Result<u64, SourceError> {
        let path = || self.path.clone();
        let file = File::open(&self.path).map_err(|source| SourceError::Open { path: path(), source })?;
        // A running etcd locks its file and changes it. Some file systems have no locks.
        if let Err(TryLockError::WouldBlock) = file.try_lock_shared() {
            return Err(SourceError::InUse { path: path() });
        }
        snapshot::read(&file, meter, visit).map_err(|source| SourceError::File { path: path(), source })
    }
}
