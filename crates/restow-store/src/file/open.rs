//! Opens the file of a store, and creates it if there is none.

use std::{
    fs, io,
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf},
};

use redb::{Database, DatabaseError, StorageError, TableHandle};

use super::{
    compaction::Keep,
    errors::failed,
    handle::{Opener, Opening},
    tables::{COMPACTED, FIRST, FORMAT, NEWEST, SWEPT, THIS_FORMAT},
    write::Tables,
};
use crate::StoreError;

/// The name of the file in its directory.
pub(super) const FILE: &str = "store.redb";

/// Settings of a store in a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileSettings {
    /// How much history it keeps.
    pub keep: Keep,
    /// The size of the cache in bytes.
    pub cache: usize,
}

impl Default for FileSettings {
    fn default() -> Self {
        Self { keep: Keep::default(), cache: 128 << 20 }
    }
}

/// Why a store cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// Another process has it open.
    #[error("the data directory {} is in use by another process", dir.display())]
    InUse {
        /// The data directory.
        dir: PathBuf,
    },
    /// The file is damaged or is not a store.
    #[error("{} is not a store or is damaged: {reason}", file.display())]
    Damaged {
        /// The file that could not be opened.
        file: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// A later version of restow wrote it.
    #[error("{} has format {found}; this version reads format {THIS_FORMAT}", file.display())]
    Format {
        /// The file that could not be opened.
        file: PathBuf,
        /// The format it has.
        found: u64,
    },
    /// The directory or the file cannot be created, read or written.
    #[error("cannot open {}", path.display())]
    Io {
        /// The directory or file.
        path: PathBuf,
        /// The cause.
        #[source]
        source: io::Error,
    },
}

/// Returns a function that opens the file at this path.
pub(super) fn opener(file: PathBuf, cache: usize) -> Opener {
    Box::new(move |opening| {
        let mut builder = Database::builder();
        builder.set_cache_size(cache);
        match opening {
            Opening::First => builder.create(&file),
            Opening::Again => builder.open(&file),
        }
    })
}

/// Creates a missing file that only its owner can read, because it may contain Secrets.
pub(super) fn make_private(file: &Path) -> io::Result<()> {
    match fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(file) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
        _ => Ok(()),
    }
}

/// Creates the tables of a new file, and returns the format of the file.
pub(super) fn prepare(database: &Database) -> Result<u64, StoreError> {
    let writing = database.begin_write().map_err(failed)?;
    let mut names = writing.list_tables().map_err(failed)?.map(|table| table.name().to_owned());
    let is_new = names.next().is_none();
    drop(names);
    let mut tables = Tables::open(&writing)?;
    if is_new {
        for (name, number) in [(FORMAT, THIS_FORMAT), (NEWEST, FIRST), (COMPACTED, 0), (SWEPT, 0)] {
            tables.set_number(name, number)?;
        }
    }
    let format = tables.number(FORMAT)?;
    drop(tables);
    match is_new {
        true => writing.commit().map_err(failed)?,
        false => writing.abort().map_err(failed)?,
    }
    format.ok_or_else(|| StoreError::Damaged("it was written by another program".to_owned()))
}

pub(super) fn refused(error: DatabaseError, dir: &Path, file: &Path) -> OpenError {
    let file = file.to_owned();
    match error {
        DatabaseError::DatabaseAlreadyOpen => OpenError::InUse { dir: dir.to_owned() },
        DatabaseError::Storage(StorageError::Io(source)) if source.kind() != io::ErrorKind::InvalidData => {
            OpenError::Io { path: file, source }
        }
        error => OpenError::Damaged { file, reason: error.to_string() },
    }
}
