//! The lab's certificate authority, the servers' certificates and the key that signs service account tokens.

use std::{fs, path::Path};

use anyhow::{Context, Result};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair, KeyUsagePurpose};

/// The names in every server's certificate.
const NAMES: [&str; 4] = ["127.0.0.1", "localhost", "kubernetes.default.svc", "wardle.default.svc"];

/// The CA of a cluster, which verifies any of its servers.
pub(crate) struct Pki {
    issuer: CertifiedIssuer<'static, KeyPair>,
}

impl Pki {
    /// Creates the CA and writes `ca.crt`, `sa.key` and `sa.pub` into `dir`.
    pub(crate) fn new(dir: &Path) -> Result<Self> {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, "restow lab");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
        let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate()?)?;
        fs::write(dir.join("ca.crt"), issuer.pem()).context("writing the lab's CA")?;
        let key = KeyPair::generate()?;
        fs::write(dir.join("sa.key"), key.serialize_pem()).context("writing the service account key")?;
        fs::write(dir.join("sa.pub"), key.public_key_pem()).context("writing the service account key")?;
        Ok(Self { issuer })
    }

    /// Writes `<name>.crt` and `<name>.key` for a server into `dir`.
    pub(crate) fn issue(&self, dir: &Path, name: &str) -> Result<()> {
        let mut params = CertificateParams::new(NAMES.map(str::to_owned))?;
        params.distinguished_name.push(DnType::CommonName, name);
        let key = KeyPair::generate()?;
        let certificate = params.signed_by(&key, &self.issuer)?;
        fs::write(dir.join(format!("{name}.crt")), certificate.pem()).context("writing a certificate")?;
        fs::write(dir.join(format!("{name}.key")), key.serialize_pem()).context("writing a key")?;
        Ok(())
    }

    /// The certificate of the CA as DER and as PEM.
    pub(crate) fn ca(&self) -> (Vec<u8>, String) {
        (self.issuer.der().to_vec(), self.issuer.pem())
    }
}
