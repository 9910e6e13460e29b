//! The directory a server keeps its things in: for its owner alone, and for one server at a time.

use std::fs::{self, DirBuilder, File, TryLockError};
use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use jiff::Timestamp;

use crate::http::tls::{Authority, TlsError, random_hex};
use crate::private_file;

/// How many random bytes the admin's token has.
const TOKEN_BYTES: usize = 32;

/// Why a directory cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum DataDirError {
    /// Another server has it.
    #[error("another server is using {0}")]
    Locked(PathBuf),
    /// It cannot be made, read or written.
    #[error("{path} cannot be used")]
    Io {
        /// The directory.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
}

/// A server's directory, as long as the server runs.
#[derive(Debug)]
pub struct DataDir {
    path: PathBuf,
    lock: File,
}

impl DataDir {
    /// Takes a directory, and makes it if there is none.
    pub fn open(path: &Path) -> Result<Self, DataDirError> {
        let at = |source| DataDirError::Io { path: path.to_owned(), source };
        create(path).map_err(at)?;
        let lock = private_file::append(&path.join("lock")).map_err(at)?;
        match lock.try_lock() {
            Ok(()) => Ok(Self { path: path.to_owned(), lock }),
            Err(TryLockError::WouldBlock) => Err(DataDirError::Locked(path.to_owned())),
            Err(TryLockError::Error(source)) => Err(at(source)),
        }
    }

    /// The directory.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// What only the process that has locked it has; none where that cannot be told.
    pub fn instance(&self) -> Option<String> {
        self.lock.metadata().ok().and_then(|locked| restow_store::instance(&locked))
    }

    /// Something in it.
    pub fn file(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }
}

/// Makes a directory that only its owner may enter; one that is there stays as it is.
pub fn create(path: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(path)?;
    // A file, or what cannot be entered, is told here and not by something later.
    fs::read_dir(path).map(drop)
}

/// What clients need to trust a server and to be trusted: several servers of one store share it.
#[derive(Debug)]
pub struct Credentials {
    /// The authority that signs serving certificates.
    pub authority: Authority,
    /// The token of the user who may do everything.
    pub admin_token: String,
}

impl Credentials {
    /// What is in a directory, made if there is none.
    pub fn open(dir: &Path, now: Timestamp) -> Result<Self, TlsError> {
        create(dir)?;
        let authority = Authority::open(dir, now)?;
        let token = private_file::read_or_make(&dir.join("admin.token"), || random_hex(TOKEN_BYTES))?;
        Ok(Self { authority, admin_token: token.trim().to_owned() })
    }

    /// Credentials that are gone when the process is.
    pub fn ephemeral(now: Timestamp) -> Result<Self, TlsError> {
        Ok(Self { authority: Authority::ephemeral(now)?, admin_token: random_hex(TOKEN_BYTES)? })
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn a_directory_is_one_servers() {
        let parent = tempfile::tempdir().unwrap();
        let path = parent.path().join("a/b");
        let first = DataDir::open(&path).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o700);
        let error = DataDir::open(&path).unwrap_err();
        assert_eq!(error.to_string(), format!("another server is using {}", path.display()));
        drop(first);
        DataDir::open(&path).unwrap();
    }

    #[test]
    fn what_is_no_directory_is_told() {
        let parent = tempfile::tempdir().unwrap();
        let file = parent.path().join("file");
        fs::write(&file, "").unwrap();
        assert!(matches!(DataDir::open(&file), Err(DataDirError::Io { .. })));
        assert!(matches!(DataDir::open(&file.join("below")), Err(DataDirError::Io { .. })));
    }

    #[test]
    fn credentials_stay_the_same() {
        let dir = tempfile::tempdir().unwrap();
        let first = Credentials::open(dir.path(), restow_clock::now()).unwrap();
        let again = Credentials::open(dir.path(), restow_clock::now()).unwrap();
        assert_eq!(first.admin_token, again.admin_token);
        assert_eq!(first.admin_token.len(), 2 * TOKEN_BYTES);
        for name in ["admin.token", "ca.key"] {
            let mode = fs::metadata(dir.path().join(name)).unwrap().permissions().mode();
            assert_eq!(mode & 0o777, 0o600, "{name}");
        }
        let other = Credentials::ephemeral(restow_clock::now()).unwrap();
        assert_ne!(first.admin_token, other.admin_token);
    }
}
