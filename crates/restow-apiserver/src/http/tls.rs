//! The server's own certificate authority, and the certificate it serves with.
//!
//! Only the authority's key is kept. Its certificate is signed anew at each start, under the same name and key, so a
//! kubeconfig of an earlier start goes on to be good. The key of the serving certificate never leaves the process.

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
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::{CryptoProvider, ring};
use tokio_rustls::rustls::pki_types::PrivateKeyDer;
use tokio_rustls::rustls::server::{ClientHello, ResolvesServerCert};
use tokio_rustls::rustls::sign::CertifiedKey;

use crate::private_file;

/// The file of the authority's key.
const KEY_FILE: &str = "ca.key";
/// The file of its certificate, for people.
const CERTIFICATE_FILE: &str = "ca.crt";
/// The authority's name, which is part of what a client trusts: it stays as it is.
const NAME: &str = "restow apiserver CA";
/// For how many days the authority's certificate is good.
const AUTHORITY_DAYS: i64 = 3650;
/// For how many days a serving certificate is good; it is made anew long before.
const SERVING_DAYS: i64 = 365;
/// The names every server answers to.
const NAMES: [&str; 6] =
    ["localhost", "127.0.0.1", "::1", "kubernetes", "kubernetes.default", "kubernetes.default.svc"];

/// Why there is no certificate.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A file cannot be read or written.
    #[error("the key of the certificate authority cannot be read or written")]
    File(#[from] io::Error),
    /// A key or certificate cannot be read or made.
    #[error("a key or certificate cannot be read or made")]
    Certificate(#[from] rcgen::Error),
    /// It cannot be served with.
    #[error("the certificate cannot be served with")]
    Serving(#[from] tokio_rustls::rustls::Error),
}

/// The authority that signs serving certificates.
pub struct Authority(CertifiedIssuer<'static, KeyPair>);

impl fmt::Debug for Authority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Authority").finish_non_exhaustive()
    }
}

impl Authority {
    /// The authority whose key is in a directory; the key is made if there is none.
    pub fn open(dir: &Path, now: Timestamp) -> Result<Self, TlsError> {
        let make = || Ok::<_, TlsError>(KeyPair::generate()?.serialize_pem());
        let key = private_file::read_or_make(&dir.join(KEY_FILE), make)?;
        let authority = Self::with_key(KeyPair::from_pem(&key)?, now)?;
        private_file::replace(&dir.join(CERTIFICATE_FILE), authority.pem().as_bytes())?;
        Ok(authority)
    }

    /// An authority that is gone when the process is.
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

    /// The authority's certificate.
    pub fn pem(&self) -> String {
        self.0.pem()
    }

    /// The same, as bytes.
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

/// Good from yesterday, because clocks differ, for so many days.
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

/// What a server serves with: a certificate that can be made anew while it serves.
#[derive(Debug)]
pub struct Serving {
    authority: Authority,
    names: Vec<String>,
    current: Arc<Current>,
}

#[derive(Debug)]
struct Current(ArcSwap<CertifiedKey>);

impl ResolvesServerCert for Current {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.0.load_full())
    }
}

impl Serving {
    /// A certificate for the names every server has, and more.
    pub fn new(
        authority: Authority,
        more_names: impl IntoIterator<Item = String>,
        now: Timestamp,
    ) -> Result<Self, TlsError> {
        let mut names: Vec<String> = NAMES.map(str::to_owned).into();
        for name in more_names {
            if !names.contains(&name) {
                names.push(name);
            }
        }
        let current = Arc::new(Current(ArcSwap::from_pointee(authority.issue(&names, now)?)));
        Ok(Self { authority, names, current })
    }

    /// The authority.
    pub fn authority(&self) -> &Authority {
        &self.authority
    }

    /// Makes the certificate anew; connections that are open keep theirs.
    pub fn renew(&self, now: Timestamp) -> Result<(), TlsError> {
        self.current.0.store(Arc::new(self.authority.issue(&self.names, now)?));
        Ok(())
    }

    /// Takes connections on, for HTTP/2 and HTTP/1.1.
    pub fn acceptor(&self) -> Result<TlsAcceptor, TlsError> {
        let resolver: Arc<dyn ResolvesServerCert> = Arc::clone(&self.current) as _;
        let mut config = ServerConfig::builder_with_provider(Arc::new(provider()))
            .with_safe_default_protocol_versions()?
            .with_no_client_auth()
            .with_cert_resolver(resolver);
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        Ok(TlsAcceptor::from(Arc::new(config)))
    }
}

/// So many random bytes in small hexadecimal digits, good enough for a token.
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

    /// A handshake in memory: the protocol that was agreed on, or why not.
    async fn handshake(serving: &Serving, ca: Vec<u8>, name: &str) -> Result<Vec<u8>, String> {
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
        let authority = Authority::ephemeral(now()).unwrap();
        let ca = authority.der();
        let serving =
            Serving::new(authority, ["10.0.0.7".to_owned(), "localhost".to_owned()], now()).unwrap();
        for name in ["localhost", "127.0.0.1", "::1", "10.0.0.7", "kubernetes.default.svc"] {
            assert_eq!(handshake(&serving, ca.clone(), name).await.unwrap(), b"h2", "{name}");
        }
        assert!(handshake(&serving, ca.clone(), "example.com").await.is_err());
        serving.renew(now()).unwrap();
        assert!(handshake(&serving, ca, "localhost").await.is_ok(), "after it was renewed");
        let other = Authority::ephemeral(now()).unwrap().der();
        assert!(handshake(&serving, other, "localhost").await.is_err(), "another authority");
    }

    #[tokio::test]
    async fn an_authority_stays_the_same_through_starts() {
        let dir = tempfile::tempdir().unwrap();
        let first = Authority::open(dir.path(), now()).unwrap();
        let again = Authority::open(dir.path(), now() + jiff::SignedDuration::from_hours(72)).unwrap();
        let serving = Serving::new(again, [], now()).unwrap();
        assert!(handshake(&serving, first.der(), "localhost").await.is_ok());
        let kept = std::fs::read_to_string(dir.path().join(CERTIFICATE_FILE)).unwrap();
        assert_eq!(kept, serving.authority().pem());
    }

    #[tokio::test]
    async fn an_old_certificate_is_refused() {
        let old = now() - jiff::SignedDuration::from_hours(24 * (SERVING_DAYS + 2));
        let authority = Authority::ephemeral(now()).unwrap();
        let ca = authority.der();
        let serving = Serving::new(authority, [], old).unwrap();
        assert!(handshake(&serving, ca.clone(), "localhost").await.is_err());
        serving.renew(now()).unwrap();
        assert!(handshake(&serving, ca, "localhost").await.is_ok());
    }

    #[test]
    fn keys_that_cannot_be_read_are_told() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join(KEY_FILE), "no key").unwrap();
        assert!(matches!(Authority::open(dir.path(), now()), Err(TlsError::Certificate(_))));
        assert!(matches!(Authority::open(&dir.path().join("none"), now()), Err(TlsError::File(_))));
    }

    #[test]
    fn random_texts_differ() {
        let (one, two) = (random_hex(32).unwrap(), random_hex(32).unwrap());
        assert_eq!((one.len(), one == two), (64, false));
    }
}
