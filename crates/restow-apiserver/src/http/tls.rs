//! The server's own certificate authority, and the certificate it serves with.
//!
//! Only the key of the authority is stored. Its certificate is signed again at each start, with the same name and key, so
//! that existing kubeconfigs stay valid. The key of the serving certificate never leaves the process.

use std::fmt;
use std::io;
use std::path::Path;
use std::sync::Arc;

use arc_swap::ArcSwap;
use jiff::{Timestamp, ToSpan as _, tz::TimeZone};
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa, KeyPair,
    KeyUsagePurpose, date_time_ymd,
};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::crypto::{CryptoProvider, ring};
use tokio_rustls::rustls::pki_types::PrivateKeyDer;
use tokio_rustls::rustls::server::{ClientHello, ResolvesServerCert};
use tokio_rustls::rustls::sign::CertifiedKey;

use crate::private_file;

/// The file of the authority's key.
const KEY_FILE: &str = "ca.key";
/// The file of its certificate, for users.
const CERTIFICATE_FILE: &str = "ca.crt";
/// The name of the authority. It must not change: clients trust name and key.
const NAME: &str = "restow apiserver CA";
/// How many days the certificate of the authority is valid.
const AUTHORITY_DAYS: i64 = 3650;
/// How many days a serving certificate is valid. It is renewed long before.
const SERVING_DAYS: i64 = 365;
/// The names in every serving certificate.
const NAMES: [&str; 6] =
    ["localhost", "127.0.0.1", "::1", "kubernetes", "kubernetes.default", "kubernetes.default.svc"];

/// Why a certificate could not be created.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A file could not be read or written.
    #[error("could not read or write the key of the certificate authority")]
    File(#[from] io::Error),
    /// A key or certificate could not be read or created.
    #[error("could not read or create a key or certificate")]
    Certificate(#[from] rcgen::Error),
    /// TLS could not be set up with the certificate.
    #[error("the certificate cannot be used to serve")]
    Rustls(#[from] tokio_rustls::rustls::Error),
}

/// The authority that signs serving certificates.
pub struct CertificateAuthority(CertifiedIssuer<'static, KeyPair>);

impl fmt::Debug for CertificateAuthority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Authority").finish_non_exhaustive()
    }
}

impl CertificateAuthority {
    /// Opens the authority in a directory, and creates its key if it is missing.
    pub fn open(dir: &Path, now: Timestamp) -> Result<Self, TlsError> {
        let make = || Ok::<_, TlsError>(KeyPair::generate()?.serialize_pem());
        let key = private_file::read_or_make(&dir.join(KEY_FILE), make)?;
        let authority = Self::with_key(KeyPair::from_pem(&key)?, now)?;
        private_file::replace(&dir.join(CERTIFICATE_FILE), authority.pem().as_bytes())?;
        Ok(authority)
    }

    /// An authority that exists only in memory.
    pub fn ephemeral(now: Timestamp) -> Result<Self, TlsError> {
        Self::with_key(KeyPair::generate()?, now)
    }

    fn with_key(key: KeyPair, now: Timestamp) -> Result<Self, TlsError> {
        let mut params = dated(CertificateParams::default(), now, AUTHORITY_DAYS);
        params.distinguished_name.push(DnType::CommonName, NAME);
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
        Ok(Self(CertifiedIssuer::self_signed(params, key)?))
    }

    /// The certificate of the authority, as PEM.
    pub fn pem(&self) -> String {
        self.0.pem()
    }

    /// The certificate of the authority, as DER.
    pub fn der(&self) -> Vec<u8> {
        self.0.der().to_vec()
    }

    fn issue(&self, names: &[String], now: Timestamp) -> Result<CertifiedKey, TlsError> {
        let mut params = dated(CertificateParams::new(names)?, now, SERVING_DAYS);
        params.distinguished_name.push(DnType::CommonName, "restow apiserver");
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        params.use_authority_key_identifier_extension = true;
        let key = KeyPair::generate()?;
        let certificate = params.signed_by(&key, &self.0)?;
        let key =
            PrivateKeyDer::try_from(key.serialize_der()).map_err(|_| rcgen::Error::CouldNotParseKeyPair)?;
        Ok(CertifiedKey::from_der(vec![certificate.der().clone()], key, &provider())?)
    }
}

/// Sets the validity: from yesterday, because clocks differ, for so many days.
fn dated(mut params: CertificateParams, now: Timestamp, days: i64) -> CertificateParams {
    let day = |offset: i64| {
        let date = now.to_zoned(TimeZone::UTC).date().saturating_add(offset.days());
        let part = |number: i8| u8::try_from(number).unwrap_or(1);
        date_time_ymd(date.year().into(), part(date.month()), part(date.day()))
    };
    params.not_before = day(-1);
    params.not_after = day(days);
    params
}

fn provider() -> CryptoProvider {
    ring::default_provider()
}

/// The serving certificate, which can be renewed while it is used.
#[derive(Debug)]
pub struct ServingCertificate {
    authority: CertificateAuthority,
    names: Vec<String>,
    current: Arc<CurrentCertificate>,
}

#[derive(Debug)]
struct CurrentCertificate(ArcSwap<CertifiedKey>);

impl ResolvesServerCert for CurrentCertificate {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.0.load_full())
    }
}

impl ServingCertificate {
    /// Creates a certificate for the default names and `names`.
    pub fn new(
        authority: CertificateAuthority,
        more_names: impl IntoIterator<Item = String>,
        now: Timestamp,
    ) -> Result<Self, TlsError> {
        let mut names: Vec<String> = NAMES.map(str::to_owned).into();
        for name in more_names {
            if !names.contains(&name) {
                names.push(name);
            }
        }
        let current = Arc::new(CurrentCertificate(ArcSwap::from_pointee(authority.issue(&names, now)?)));
        Ok(Self { authority, names, current })
    }

    /// The authority that signed the certificate.
    pub fn authority(&self) -> &CertificateAuthority {
        &self.authority
    }

    /// Renews the certificate. Open connections keep theirs.
    pub fn renew(&self, now: Timestamp) -> Result<(), TlsError> {
        self.current.0.store(Arc::new(self.authority.issue(&self.names, now)?));
        Ok(())
    }

    /// A TLS acceptor for HTTP/2 and HTTP/1.1.
    pub fn acceptor(&self) -> Result<TlsAcceptor, TlsError> {
        let resolver: Arc<dyn ResolvesServerCert> = Arc::clone(&self.current) as _;
        Ok(restow_listen::acceptor(resolver)?)
    }
}

/// Random bytes in lower-case hexadecimal, good enough for a token.
pub fn random_hex(bytes: usize) -> Result<String, TlsError> {
    let mut random = vec![0; bytes];
    let filled = provider().secure_random.fill(&mut random);
    filled.map_err(|_| tokio_rustls::rustls::Error::FailedToGetRandomBytes)?;
    Ok(random.iter().map(|byte| format!("{byte:02x}")).collect())
}

#[cfg(test)]
mod tests {
    use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName};
    use tokio_rustls::rustls::{ClientConfig, RootCertStore};
    use tokio_rustls::{TlsConnector, client};

    use super::*;

    fn now() -> Timestamp {
        restow_clock::now()
    }

    /// A handshake in memory: the negotiated protocol, or the error.
    async fn handshake(serving: &ServingCertificate, ca: Vec<u8>, name: &str) -> Result<Vec<u8>, String> {
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from(ca)).unwrap();
        let mut config = ClientConfig::builder_with_provider(Arc::new(provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        config.alpn_protocols = vec![b"h2".to_vec()];
        let (near, far) = tokio::io::duplex(64 * 1024);
        let name = ServerName::try_from(name.to_owned()).unwrap();
        let acceptor = serving.acceptor().unwrap();
        let connector = TlsConnector::from(Arc::new(config));
        let (accepted, connected) = tokio::join!(acceptor.accept(far), connector.connect(name, near));
        let connected: client::TlsStream<_> = connected.map_err(|error| error.to_string())?;
        accepted.map_err(|error| error.to_string())?;
        Ok(connected.get_ref().1.alpn_protocol().unwrap_or_default().to_vec())
    }

    #[tokio::test]
    async fn clients_trust_the_authority_under_all_names() {
        let authority = CertificateAuthority::ephemeral(now()).unwrap();
        let ca = authority.der();
        let serving =
            ServingCertificate::new(authority, ["10.0.0.7".to_owned(), "localhost".to_owned()], now())
                .unwrap();
        for name in ["localhost", "127.0.0.1", "::1", "10.0.0.7", "kubernetes.default.svc"] {
            assert_eq!(handshake(&serving, ca.clone(), name).await.unwrap(), b"h2", "{name}");
        }
        assert!(handshake(&serving, ca.clone(), "example.com").await.is_err());
        serving.renew(now()).unwrap();
        assert!(handshake(&serving, ca, "localhost").await.is_ok(), "after it was renewed");
        let other = CertificateAuthority::ephemeral(now()).unwrap().der();
        assert!(handshake(&serving, other, "localhost").await.is_err(), "another authority");
    }

    #[tokio::test]
    async fn the_certificate_authority_survives_a_restart() {
        let dir = tempfile::tempdir().unwrap();
        let first = CertificateAuthority::open(dir.path(), now()).unwrap();
        let again =
            CertificateAuthority::open(dir.path(), now() + jiff::SignedDuration::from_hours(72)).unwrap();
        let serving = ServingCertificate::new(again, [], now()).unwrap();
        assert!(handshake(&serving, first.der(), "localhost").await.is_ok());
        let kept = std::fs::read_to_string(dir.path().join(CERTIFICATE_FILE)).unwrap();
        assert_eq!(kept, serving.authority().pem());
    }

    #[tokio::test]
    async fn an_expired_certificate_is_refused() {
        let old = now() - jiff::SignedDuration::from_hours(24 * (SERVING_DAYS + 2));
        let authority = CertificateAuthority::ephemeral(now()).unwrap();
        let ca = authority.der();
        let serving = ServingCertificate::new(authority, [], old).unwrap();
        assert!(handshake(&serving, ca.clone(), "localhost").await.is_err());
        serving.renew(now()).unwrap();
        assert!(handshake(&serving, ca, "localhost").await.is_ok());
    }

    #[test]
    fn malformed_keys_are_errors() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join(KEY_FILE), "no key").unwrap();
        assert!(matches!(CertificateAuthority::open(dir.path(), now()), Err(TlsError::Certificate(_))));
        assert!(matches!(
            CertificateAuthority::open(&dir.path().join("none"), now()),
            Err(TlsError::File(_))
        ));
    }

    #[test]
    fn random_hex_differs_each_time() {
        let (one, two) = (random_hex(32).unwrap(), random_hex(32).unwrap());
        assert_eq!((one.len(), one == two), (64, false));
    }
}
