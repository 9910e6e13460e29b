//! The serving certificate: read from files, or created if there are none.

use std::fs::{self, OpenOptions};
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use anyhow::{Context as _, Result};
use rcgen::{CertificateParams, DnType, KeyPair};
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};

/// A certificate and its key.
pub struct Certificate {
    pem: String,
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
}

impl Certificate {
    /// Reads `tls.crt` and `tls.key` from a folder. If there are none, it creates and stores a certificate for these names.
    pub fn load_or_create(dir: &Path, names: &[&str]) -> Result<Self> {
        let (certificate, key) = (dir.join("tls.crt"), dir.join("tls.key"));
        if !certificate.exists() {
            let (made, made_key) = make(names)?;
            fs::create_dir_all(dir).context("creating the folder for certificates")?;
            let file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&key);
            file.and_then(|mut file| file.write_all(made_key.as_bytes())).context("writing the key")?;
            fs::write(&certificate, made).context("writing the certificate")?;
        }
        let read =
            |path: &Path| fs::read_to_string(path).with_context(|| format!("reading {}", path.display()));
        Self::from_pem(read(&certificate)?, &read(&key)?)
    }

    /// Creates a certificate without storing it.
    pub fn create(names: &[&str]) -> Result<Self> {
        let (pem, key) = make(names)?;
        Self::from_pem(pem, &key)
    }

    fn from_pem(pem: String, key: &str) -> Result<Self> {
        let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem.as_bytes()).collect();
        Ok(Self {
            chain: chain.context("reading the certificate")?,
            key: PrivateKeyDer::from_pem_slice(key.as_bytes()).context("reading the key")?,
            pem,
        })
    }

    /// The certificate in PEM, for clients to trust.
    pub fn pem(&self) -> &str {
        &self.pem
    }

    /// The certificate in DER.
    pub fn der(&self) -> &[u8] {
        self.chain.first().map(|first| &**first).unwrap_or_default()
    }

    pub(crate) fn chain_and_key(&self) -> (Vec<CertificateDer<'static>>, PrivateKeyDer<'static>) {
        (self.chain.clone(), self.key.clone_key())
    }
}

fn make(names: &[&str]) -> Result<(String, String)> {
    let mut params = CertificateParams::new(names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>())?;
    params.distinguished_name.push(DnType::CommonName, names.first().copied().unwrap_or_default());
    let key = KeyPair::generate()?;
    let certificate = params.self_signed(&key)?;
    Ok((certificate.pem(), key.serialize_pem()))
}
