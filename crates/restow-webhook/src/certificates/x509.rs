//! What a certificate says, and whether a client that trusts a bundle accepts it.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;

use jiff::Timestamp;
use sha2::{Digest as _, Sha256};
use tokio_rustls::rustls::client::WebPkiServerVerifier;
use tokio_rustls::rustls::client::danger::ServerCertVerifier as _;
use tokio_rustls::rustls::crypto::{CryptoProvider, ring};
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use tokio_rustls::rustls::{self, RootCertStore};
use x509_parser::extensions::GeneralName;

use super::rotation::AuthorityId;

/// Why certificates could not be read.
#[derive(Debug, thiserror::Error)]
pub enum X509Error {
    /// The text is not PEM.
    #[error("it is not PEM with certificates")]
    Pem(#[from] rustls::pki_types::pem::Error),
    /// The text has no certificate.
    #[error("it has no certificate")]
    Empty,
    /// A certificate cannot be parsed.
    #[error("a certificate in it cannot be parsed")]
    Parse(#[from] x509_parser::nom::Err<x509_parser::error::X509Error>),
}

/// What matters about a certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Facts {
    /// The end of its validity.
    pub(crate) not_after: Timestamp,
    /// The DNS names and IP addresses that it is valid for.
    pub(crate) names: BTreeSet<String>,
}

/// The certificates in a PEM text.
pub(crate) fn certificates(pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, X509Error> {
    let all = CertificateDer::pem_slice_iter(pem).collect::<Result<Vec<_>, _>>()?;
    if all.is_empty() {
        return Err(X509Error::Empty);
    }
    Ok(all)
}

/// The fingerprint of a certificate.
pub(crate) fn fingerprint(certificate: &CertificateDer<'_>) -> AuthorityId {
    let digest = Sha256::digest(certificate);
    AuthorityId(digest.iter().map(|byte| format!("{byte:02x}")).collect())
}

/// The fingerprints of the certificates in a PEM text; none for a text that cannot be read, which nobody can trust.
pub fn fingerprints(pem: &[u8]) -> BTreeSet<AuthorityId> {
    certificates(pem).unwrap_or_default().iter().map(fingerprint).collect()
}

/// The end of a certificate in PEM.
const END: &str = "-----END CERTIFICATE-----";

/// The certificates in a PEM text that are valid for longer, each with its own text.
pub(crate) fn unexpired(pem: &str, now: Timestamp) -> Vec<(AuthorityId, String)> {
    let blocks = pem.split_inclusive(END).filter_map(|block| {
        let parsed = certificates(block.as_bytes()).ok()?;
        let certificate = parsed.first().filter(|one| facts(one).is_ok_and(|facts| facts.not_after > now))?;
        Some((fingerprint(certificate), format!("{}\n", block.trim())))
    });
    blocks.collect()
}

/// Reads a certificate.
pub(crate) fn facts(certificate: &CertificateDer<'_>) -> Result<Facts, X509Error> {
    let (_, parsed) = x509_parser::parse_x509_certificate(certificate)?;
    let not_after = Timestamp::from_second(parsed.validity().not_after.timestamp()).unwrap_or(Timestamp::MAX);
    let alternatives = parsed.subject_alternative_name().ok().flatten();
    let names = alternatives.iter().flat_map(|names| &names.value.general_names).filter_map(name).collect();
    Ok(Facts { not_after, names })
}

fn name(name: &GeneralName<'_>) -> Option<String> {
    match name {
        GeneralName::DNSName(name) => Some((*name).to_owned()),
        GeneralName::IPAddress(bytes) => match bytes.len() {
            4 => <[u8; 4]>::try_from(*bytes).ok().map(|bytes| IpAddr::from(bytes).to_string()),
            16 => <[u8; 16]>::try_from(*bytes).ok().map(|bytes| IpAddr::from(bytes).to_string()),
            _ => None,
        },
        _ => None,
    }
}

/// The crypto provider of all TLS here.
pub(crate) fn provider() -> Arc<CryptoProvider> {
    Arc::new(ring::default_provider())
}

/// The authorities of a bundle, as a client trusts them.
pub(crate) fn roots(bundle: &[u8]) -> Result<RootCertStore, X509Error> {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(certificates(bundle)?);
    Ok(roots)
}

/// Whether a client that trusts the bundle accepts a chain, its leaf first, under a name.
pub(crate) fn verifies(bundle: &[u8], chain: &[CertificateDer<'_>], name: &str, now: Timestamp) -> bool {
    let Some((leaf, intermediates)) = chain.split_first() else { return false };
    let (Ok(roots), Ok(name)) = (roots(bundle), ServerName::try_from(name)) else { return false };
    let Ok(verifier) = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider()).build()
    else {
        return false;
    };
    let seconds = u64::try_from(now.as_second()).unwrap_or_default();
    let now = UnixTime::since_unix_epoch(std::time::Duration::from_secs(seconds));
    verifier.verify_server_cert(leaf, intermediates, &name, &[], now).is_ok()
}
