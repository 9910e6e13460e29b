//! The data directory of a server: private, and for one server at a time.

use std::fs::{self, DirBuilder, File, TryLockError};
use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use jiff::Timestamp;

use crate::http::tls::{CertificateAuthority, TlsError, random_hex};
use crate::private_file;

/// The length of the admin token, in random bytes.
const TOKEN_BYTES: usize = 32;

/// Why a data directory cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum DataDirError {
    /// Another server has locked it.
    #[error("another server is using {0}")]
    Locked(PathBuf),
    /// It could not be created, read or written.
    #[error("the data directory {path} cannot be used")]
    Io {
        /// The directory.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
}

/// A locked data directory.
#[derive(Debug)]
pub struct DataDir {
    path: PathBuf,
    lock: File,
}

impl DataDir {
    /// Locks a directory, and creates it if it is missing.
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

    /// A value that only the process with the lock has; none if the platform has none.
    pub fn instance(&self) -> Option<String> {
        self.lock.metadata().ok().and_then(|locked| restow_store::instance(&locked))
    }

    /// The path of a file in it.
    pub fn file(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }
}

/// Creates a private directory; an existing one is left as it is.
pub fn create(path: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(path)?;
    // Fails here, and not later, for a file or an inaccessible directory.
    fs::read_dir(path).map(drop)
}

/// The certificate authority and the admin token. Several servers on one store share them.
#[derive(Debug)]
pub struct Credentials {
    /// The authority that signs serving certificates.
    pub authority: CertificateAuthority,
    /// The bearer token of the user `admin`, who may do everything.
    pub admin_token: String,
}

impl Credentials {
    /// Opens the credentials in a directory, and creates them if they are missing.
    pub fn open(dir: &Path, now: Timestamp) -> Result<Self, TlsError> {
        create(dir)?;
        let authority = CertificateAuthority::open(dir, now)?;
        let token = private_file::read_or_make(&dir.join("admin.token"), || random_hex(TOKEN_BYTES))?;
        Ok(Self { authority, admin_token: token.trim().to_owned() })
    }

    /// Credentials that exist only in memory.
    pub fn ephemeral(now: Timestamp) -> Result<Self, TlsError> {
        Ok(Self { authority: CertificateAuthority::ephemeral(now)?, admin_token: random_hex(TOKEN_BYTES)? })
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn a_data_directory_has_one_server_at_a_time() {
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
    fn a_path_that_is_no_directory_is_an_error() {
        let parent = tempfile::tempdir().unwrap();
        let file = parent.path().join("file");
        fs::write(&file, "").unwrap();
        assert!(matches!(DataDir::open(&file), Err(DataDirError::Io { .. })));
        assert!(matches!(DataDir::open(&file.join("below")), Err(DataDirError::Io { .. })));
    }

    #[test]
    fn credentials_survive_a_restart() {
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
