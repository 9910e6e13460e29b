//! Reads the database of an etcd, or a snapshot of it: the live value of each key.
//!
//! etcd keeps every write under its revision, in the order of revisions. This module goes through them from the last to the
//! first. The first one that it finds of a key is the live one, unless it is a deletion.

mod chain;
mod error;
mod hash;
mod latest;
mod record;
mod revision;
mod seen;

use std::thread;

use error::FileError as Error;
pub use error::FileError;

use crate::{
    bolt::{Database, ReadAt, find},
    meter::Meter,
};
use latest::{Latest, compacted};

/// Visits the live value of each key in a file, in no particular order, and returns the revision of the file.
///
/// What was visited is valid only if this succeeds: damage may show at the end.
pub fn read(file: &dyn ReadAt, meter: &Meter, visit: &mut dyn FnMut(&[u8], &[u8])) -> Result<u64, FileError> {
    read_in(file, meter, seen::MAX_KEYS, visit)
}

fn read_in(
    file: &dyn ReadAt,
    meter: &Meter,
    max_keys: usize,
    visit: &mut dyn FnMut(&[u8], &[u8]),
) -> Result<u64, FileError> {
    let size = file.size().map_err(crate::bolt::BoltError::from)?;
    let Some(without_hash) = hash::size_without(size) else {
        return read_database(file, size, meter, max_keys, visit);
    };
    thread::scope(|scope| {
        let hash = scope.spawn(|| hash::verify(file, without_hash));
        let read = read_database(file, without_hash, meter, max_keys, visit);
        // A wrong hash explains any damage that was found.
        hash.join().map_err(|_| Error::Hash)??;
        read
    })
}

fn read_database(
    file: &dyn ReadAt,
    size: u64,
    meter: &Meter,
    max_keys: usize,
    visit: &mut dyn FnMut(&[u8], &[u8]),
) -> Result<u64, FileError> {
    let database = Database::open(file, size)?;
    let keys = find(&database, "key")?.ok_or(Error::NoBucket { bucket: "key" })?;
    let meta = find(&database, "meta")?.ok_or(Error::NoBucket { bucket: "meta" })?;
    let compacted = compacted(&database, &meta)?;
    meter.begin(size);
    Latest { database: &database, keys: &keys, compacted, max_keys, meter }.read(visit)
}

#[cfg(test)]
mod tests;
