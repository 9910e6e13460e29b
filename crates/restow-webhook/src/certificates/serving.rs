//! The certificate that a replica serves. It is swapped while connections are open; these keep theirs.

use std::fmt;
use std::sync::Arc;

use arc_swap::ArcSwapOption;
use jiff::Timestamp;
use secrecy::ExposeSecret as _;
use tokio_rustls::rustls::pki_types::PrivateKeyDer;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::server::{ClientHello, ResolvesServerCert};
use tokio_rustls::rustls::sign::CertifiedKey;

use super::issue::LeafPem;
use super::rotation::AuthorityId;
use super::secret::ContentError;
use super::x509::{certificates, facts, fingerprint, provider};

/// Why a replica cannot serve.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotServing {
    /// No certificate was read yet.
    #[error("no certificate was read yet")]
    None,
    /// The certificate has expired.
    #[error("the certificate expired at {0}, and no new one could be read")]
    Expired(Timestamp),
}

struct Served {
    id: AuthorityId,
    not_after: Timestamp,
    key: Arc<CertifiedKey>,
}

/// The certificate that is served now.
#[derive(Default)]
pub struct ServingCertificate(ArcSwapOption<Served>);

impl fmt::Debug for ServingCertificate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServingCertificate").field("id", &self.id()).finish()
    }
}

impl ResolvesServerCert for ServingCertificate {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        self.0.load().as_ref().map(|served| Arc::clone(&served.key))
    }
}

impl ServingCertificate {
    /// Whether a certificate is served that is valid now.
    ///
    /// # Errors
    /// When it is not: such a replica is not ready.
    pub fn check(&self, now: Timestamp) -> Result<(), NotServing> {
        match self.not_after() {
            None => Err(NotServing::None),
            Some(not_after) if not_after <= now => Err(NotServing::Expired(not_after)),
            Some(_) => Ok(()),
        }
    }

    /// The end of its validity.
    pub fn not_after(&self) -> Option<Timestamp> {
        self.0.load().as_ref().map(|served| served.not_after)
    }

    /// The fingerprint of the leaf.
    pub fn id(&self) -> Option<AuthorityId> {
        self.0.load().as_ref().map(|served| served.id.clone())
    }

    /// Serves another leaf from now on. Returns whether it is another one.
    pub(crate) fn swap(&self, leaf: &LeafPem) -> Result<bool, ContentError> {
        let broken = |error| ContentError::Certificates("tls.crt", error);
        let chain = certificates(leaf.chain.as_bytes()).map_err(broken)?;
        let first = chain.first().ok_or(ContentError::Missing("tls.crt"))?;
        let (id, not_after) = (fingerprint(first), facts(first).map_err(broken)?.not_after);
        if self.id().as_ref() == Some(&id) {
            return Ok(false);
        }
        let key = PrivateKeyDer::from_pem_slice(leaf.key.expose_secret().as_bytes())
            .map_err(|error| ContentError::Certificates("tls.key", error.into()))?;
        let key = CertifiedKey::from_der(chain, key, &provider()).map_err(ContentError::NotItsKey)?;
        self.0.store(Some(Arc::new(Served { id, not_after, key: Arc::new(key) })));
        Ok(true)
    }
}
