//! A certificate in files that others write, such as those of a Secret that is mounted into a pod.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arc_swap::ArcSwap;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, pem};
use tokio_rustls::rustls::server::{ClientHello, ResolvesServerCert};
use tokio_rustls::rustls::sign::CertifiedKey;

/// A certificate and its key, from files. Connections that are open keep what they began with.
#[derive(Debug)]
pub struct CertificateFiles {
    certificate: PathBuf,
    key: PathBuf,
    current: ArcSwap<CertifiedKey>,
}

/// Why a certificate cannot be served.
#[derive(Debug, thiserror::Error)]
pub enum CertificateFileError {
    /// A file cannot be read.
    #[error("cannot read {}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A file is not PEM, or lacks a certificate or key.
    #[error("{} has no usable PEM", path.display())]
    NotPem {
        /// The file.
        path: PathBuf,
        /// Why.
        source: pem::Error,
    },
    /// The key is not the certificate's, or of a kind that is not supported.
    #[error("the certificate in {} cannot be served with the key in {}", certificate.display(), key.display())]
    DoNotFit {
        /// The certificate's file.
        certificate: PathBuf,
        /// The key's file.
        key: PathBuf,
        /// Why.
        source: tokio_rustls::rustls::Error,
    },
}

impl ResolvesServerCert for CertificateFiles {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.current.load_full())
    }
}

impl CertificateFiles {
    /// Reads a certificate, with its chain, and its key.
    ///
    /// # Errors
    /// When they cannot be served.
    pub fn open(
        certificate: impl Into<PathBuf>,
        key: impl Into<PathBuf>,
    ) -> Result<Self, CertificateFileError> {
        let (certificate, key) = (certificate.into(), key.into());
        let current = ArcSwap::from_pointee(load(&certificate, &key)?);
        Ok(Self { certificate, key, current })
    }

    /// Reads the files again. Returns whether the certificate is another one.
    ///
    /// # Errors
    /// When they cannot be served: then the one from before stays in use.
    pub fn reload(&self) -> Result<bool, CertificateFileError> {
        let read = load(&self.certificate, &self.key)?;
        let changed = read.cert != self.current.load().cert;
        if changed {
            self.current.store(Arc::new(read));
        }
        Ok(changed)
    }
}

fn load(certificate: &Path, key: &Path) -> Result<CertifiedKey, CertificateFileError> {
    let read = |path: &Path| {
        std::fs::read(path)
            .map_err(|source| CertificateFileError::Unreadable { path: path.to_owned(), source })
    };
    let not_pem = |path: &Path| {
        let path = path.to_owned();
        move |source| CertificateFileError::NotPem { path, source }
    };
    let chain: Vec<_> = CertificateDer::pem_slice_iter(&read(certificate)?)
        .collect::<Result<_, _>>()
        .map_err(not_pem(certificate))?;
    let private = PrivateKeyDer::from_pem_slice(&read(key)?).map_err(not_pem(key))?;
    CertifiedKey::from_der(chain, private, &ring::default_provider()).map_err(|source| {
        CertificateFileError::DoNotFit { certificate: certificate.to_owned(), key: key.to_owned(), source }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(dir: &Path, name: &str) -> (String, String) {
        let made = rcgen::generate_simple_self_signed([name.to_owned()]).unwrap();
        let (certificate, key) = (made.cert.pem(), made.signing_key.serialize_pem());
        std::fs::write(dir.join("tls.crt"), &certificate).unwrap();
        std::fs::write(dir.join("tls.key"), &key).unwrap();
        (certificate, key)
    }

    #[test]
    fn a_certificate_is_swapped_when_its_files_change_and_kept_when_they_are_broken() {
        let dir = tempfile::tempdir().unwrap();
        let (first, _) = write(dir.path(), "one");
        let files = CertificateFiles::open(dir.path().join("tls.crt"), dir.path().join("tls.key")).unwrap();
        let served = |files: &CertificateFiles| files.current.load().cert.clone();
        let before = served(&files);
        assert!(!files.reload().unwrap());
        write(dir.path(), "two");
        assert!(files.reload().unwrap());
        let second = served(&files);
        assert_ne!(before, second);
        // A key without its certificate, as in the middle of a change.
        std::fs::write(dir.path().join("tls.crt"), &first).unwrap();
        assert!(matches!(files.reload(), Err(CertificateFileError::DoNotFit { .. })));
        std::fs::write(dir.path().join("tls.crt"), "none").unwrap();
        assert!(files.reload().is_err());
        std::fs::remove_file(dir.path().join("tls.key")).unwrap();
        assert!(matches!(
            files.reload(),
            Err(CertificateFileError::DoNotFit { .. }
                | CertificateFileError::NotPem { .. }
                | CertificateFileError::Unreadable { .. })
        ));
        assert_eq!(served(&files), second);
    }
}
