//! The SHA-256 hash at the end of a snapshot.

use sha2::{Digest as _, Sha256};

use super::error::FileError;
use crate::bolt::{BoltError, ReadAt};

const HASH: u64 = 32;
/// A database consists of pages, which are multiples of this.
const SECTOR: u64 = 512;
const BUFFER: usize = 1 << 20;

/// The size of a snapshot without its hash; `None` for a database, which has none. etcd tells them apart in the same way.
pub(super) fn size_without(size: u64) -> Option<u64> {
    (size % SECTOR == HASH).then(|| size - HASH)
}

/// Checks the hash of the first `size` bytes.
pub(super) fn verify(file: &dyn ReadAt, size: u64) -> Result<(), FileError> {
    let mut hash = Sha256::new();
    let mut buffer = vec![0; BUFFER];
    let mut at = 0;
    while at < size {
        let some = usize::try_from(size - at).unwrap_or(BUFFER).min(BUFFER);
        file.read_exact_at(&mut buffer[..some], at).map_err(BoltError::from)?;
        hash.update(&buffer[..some]);
        at += some as u64;
    }
    let mut expected = [0; HASH as usize];
    file.read_exact_at(&mut expected, size).map_err(BoltError::from)?;
    if hash.finalize()[..] != expected { Err(FileError::Hash) } else { Ok(()) }
}
