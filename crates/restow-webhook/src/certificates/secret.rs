//! The Secret that all replicas share: what is kept in it, and whether it is restow's.
//!
//! It has the keys of a Secret of the type `kubernetes.io/tls` (`tls.crt`, `tls.key`), `ca.crt` with all authorities that
//! clients shall trust, and `authorities.json` with the authorities' roles and keys. A Secret without restow's label belongs to
//! somebody else, cert-manager for example: it is read and never written.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use kube::api::ObjectMeta;
use secrecy::zeroize::{Zeroize as _, Zeroizing};
use secrecy::{ExposeSecret as _, SecretString};
use serde::{Deserialize, Serialize};

use super::issue::{AuthorityPem, LeafPem};
use super::rotation::{Authority, AuthorityId, Kept, Leaf, Role};
use super::x509::{X509Error, certificates, facts, fingerprint, verifies};

/// The annotation by which a user asks for a new authority; it is removed when the rotation begins.
pub const ROTATE: &str = "restow.dev/rotate";
/// The type of Secrets with a certificate.
const TLS: &str = "kubernetes.io/tls";
const CHAIN: &str = "tls.crt";
const KEY: &str = "tls.key";
const BUNDLE: &str = "ca.crt";
const AUTHORITIES: &str = "authorities.json";

/// The certificates that restow keeps.
pub type Certificates = Kept<AuthorityPem, LeafPem>;

/// Why the content of a Secret cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ContentError {
    /// A key of the Secret is missing.
    #[error("it has no {0}")]
    Missing(&'static str),
    /// A key of the Secret has something else than PEM text.
    #[error("its {0} is not text")]
    NotText(&'static str),
    /// Certificates cannot be read.
    #[error("its {0} cannot be used")]
    Certificates(&'static str, #[source] X509Error),
    /// The list of authorities cannot be read.
    #[error("its {AUTHORITIES} cannot be read")]
    Authorities(#[from] serde_json::Error),
    /// No authority, or more than one, signs.
    #[error("its {AUTHORITIES} must have exactly one signing authority, and has {0}")]
    NotOneSigning(usize),
    /// The leaf is not signed by the authority that signs.
    #[error("its {CHAIN} is not signed by its signing authority")]
    NotSigned,
    /// The key does not belong to the certificate.
    #[error("its {KEY} is no key for its {CHAIN}")]
    NotItsKey(#[source] tokio_rustls::rustls::Error),
}

/// What a Secret is.
#[derive(Debug)]
pub(super) enum Found {
    /// It is restow's, and complete.
    Own(Box<Certificates>),
    /// It is restow's, and cannot be used.
    Damaged(ContentError),
    /// It is somebody else's.
    Foreign(Box<ForeignCertificate>),
}

/// The certificate of a Secret that somebody else manages.
#[derive(Clone, Debug)]
pub(super) struct ForeignCertificate {
    /// The chain and its key.
    pub(super) leaf: LeafPem,
    /// The authorities that clients shall trust, as PEM, if the Secret says so.
    pub(super) bundle: Option<String>,
    /// Whether restow made it, and it has lost restow's label since.
    pub(super) unlabelled: bool,
}

/// An authority as it is stored.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct StoredAuthority {
    id: AuthorityId,
    role: Role,
    #[serde(skip_serializing_if = "Option::is_none")]
    leaves_until: Option<Timestamp>,
    certificate: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    key: Option<String>,
}

impl Drop for StoredAuthority {
    fn drop(&mut self) {
        self.key.zeroize();
    }
}

/// Whether a Secret is restow's.
pub(crate) fn is_own(secret: &Secret) -> bool {
    let labels = secret.metadata.labels.as_ref();
    labels.and_then(|labels| labels.get(restow_api::MANAGED_BY)).is_some_and(|by| by == restow_api::MANAGER)
}

/// Whether a user asks for a new authority.
pub(crate) fn rotation_requested(secret: &Secret) -> bool {
    secret.metadata.annotations.as_ref().is_some_and(|annotations| annotations.contains_key(ROTATE))
}

/// Reads a Secret.
///
/// # Errors
/// When somebody else manages it, and it has no certificate that could be served.
pub(super) fn read(secret: &Secret, foreign: bool) -> Result<Found, ContentError> {
    if foreign || !is_own(secret) {
        return read_foreign(secret).map(|certificate| Found::Foreign(Box::new(certificate)));
    }
    Ok(read_own(secret).map_or_else(Found::Damaged, |kept| Found::Own(Box::new(kept))))
}

fn text(secret: &Secret, key: &'static str) -> Result<Option<String>, ContentError> {
    let Some(ByteString(bytes)) = secret.data.as_ref().and_then(|data| data.get(key)) else {
        return Ok(None);
    };
    let text = std::str::from_utf8(bytes).map_err(|_| ContentError::NotText(key))?;
    Ok(Some(text.to_owned()).filter(|text| !text.is_empty()))
}

fn required(secret: &Secret, key: &'static str) -> Result<String, ContentError> {
    text(secret, key)?.ok_or(ContentError::Missing(key))
}

fn leaf_pem(secret: &Secret) -> Result<LeafPem, ContentError> {
    let chain = required(secret, CHAIN)?;
    let leaf = LeafPem { chain, key: SecretString::from(required(secret, KEY)?) };
    certificates(leaf.chain.as_bytes()).map_err(|error| ContentError::Certificates(CHAIN, error))?;
    Ok(leaf)
}

fn read_foreign(secret: &Secret) -> Result<ForeignCertificate, ContentError> {
    let unlabelled = secret.data.as_ref().is_some_and(|data| data.contains_key(AUTHORITIES));
    Ok(ForeignCertificate { leaf: leaf_pem(secret)?, bundle: text(secret, BUNDLE)?, unlabelled })
}

fn read_own(secret: &Secret) -> Result<Certificates, ContentError> {
    let stored = Zeroizing::new(required(secret, AUTHORITIES)?);
    let stored: Vec<StoredAuthority> = serde_json::from_str(&stored)?;
    let authorities = stored.into_iter().map(authority).collect::<Result<Vec<_>, _>>()?;
    let signing: Vec<_> = authorities.iter().filter(|one| one.role == Role::Signing).collect();
    let [signing] = signing[..] else { return Err(ContentError::NotOneSigning(signing.len())) };
    let pem = leaf_pem(secret)?;
    let broken = |error| ContentError::Certificates(CHAIN, error);
    let chain = certificates(pem.chain.as_bytes()).map_err(broken)?;
    let known = facts(chain.first().ok_or(ContentError::Missing(CHAIN))?).map_err(broken)?;
    // At a moment of its validity: an expired leaf is signed all the same.
    let name = known.names.first().map(String::as_str).unwrap_or_default();
    if !verifies(signing.material.certificate.as_bytes(), &chain, name, known.not_after) {
        return Err(ContentError::NotSigned);
    }
    let leaf =
        Leaf { signed_by: signing.id.clone(), not_after: known.not_after, names: known.names, material: pem };
    Ok(Kept { authorities, leaf })
}

fn authority(mut stored: StoredAuthority) -> Result<Authority<AuthorityPem>, ContentError> {
    let broken = |error| ContentError::Certificates(AUTHORITIES, error);
    let parsed = certificates(stored.certificate.as_bytes()).map_err(broken)?;
    let certificate = parsed.first().ok_or(ContentError::Missing(AUTHORITIES))?;
    let key = stored.key.take().map(SecretString::from);
    Ok(Authority {
        id: fingerprint(certificate),
        not_after: facts(certificate).map_err(broken)?.not_after,
        role: stored.role,
        leaves_until: stored.leaves_until,
        material: AuthorityPem { certificate: std::mem::take(&mut stored.certificate), key },
    })
}

/// The authorities that clients shall trust, as PEM.
pub(crate) fn bundle(kept: &Certificates) -> String {
    kept.authorities.iter().map(|authority| authority.material.certificate.as_str()).collect()
}

/// What CRDs shall trust.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bundle {
    /// The authorities, as PEM.
    pub pem: String,
    /// Their fingerprints.
    pub authorities: BTreeSet<AuthorityId>,
    /// Whether somebody else manages the Secret: former authorities are not in it.
    pub foreign: bool,
}

/// What CRDs shall trust, by the Secret.
pub(super) fn trusted(found: &Found) -> Result<Bundle, ContentError> {
    let pem = match found {
        Found::Own(kept) => bundle(kept),
        Found::Foreign(foreign) => foreign.bundle.clone().ok_or(ContentError::Missing(BUNDLE))?,
        Found::Damaged(_) => return Err(ContentError::Missing(AUTHORITIES)),
    };
    let all = certificates(pem.as_bytes()).map_err(|error| ContentError::Certificates(BUNDLE, error))?;
    let foreign = matches!(found, Found::Foreign(_));
    Ok(Bundle { pem, authorities: all.iter().map(fingerprint).collect(), foreign })
}

/// A new Secret with certificates.
pub(crate) fn create(namespace: &str, name: &str, kept: &Certificates) -> Result<Secret, serde_json::Error> {
    let label = (restow_api::MANAGED_BY.to_owned(), restow_api::MANAGER.to_owned());
    let metadata = ObjectMeta {
        namespace: Some(namespace.to_owned()),
        name: Some(name.to_owned()),
        labels: Some(BTreeMap::from([label])),
        ..ObjectMeta::default()
    };
    let mut secret = Secret { metadata, type_: Some(TLS.to_owned()), ..Secret::default() };
    fill(&mut secret, kept)?;
    Ok(secret)
}

/// Puts certificates into a Secret as it was read. Everything else in it stays.
pub(crate) fn fill(secret: &mut Secret, kept: &Certificates) -> Result<(), serde_json::Error> {
    let stored = kept.authorities.iter().map(|authority| StoredAuthority {
        id: authority.id.clone(),
        role: authority.role,
        leaves_until: authority.leaves_until,
        certificate: authority.material.certificate.clone(),
        key: authority.material.key.as_ref().map(|key| key.expose_secret().to_owned()),
    });
    let authorities = serde_json::to_vec(&stored.collect::<Vec<_>>())?;
    let data = secret.data.get_or_insert_default();
    for (key, value) in [
        (CHAIN, kept.leaf.material.chain.clone().into_bytes()),
        (KEY, kept.leaf.material.key.expose_secret().as_bytes().to_vec()),
        (BUNDLE, bundle(kept).into_bytes()),
        (AUTHORITIES, authorities),
    ] {
        if let Some(mut former) = data.insert(key.to_owned(), ByteString(value)) {
            former.0.zeroize();
        }
    }
    Ok(())
}

/// Overwrites what a Secret says, which is in memory in plain text otherwise.
pub(crate) fn erase(mut secret: Secret) {
    secret.data.iter_mut().flatten().for_each(|(_, value)| value.0.zeroize());
}

#[cfg(test)]
mod tests;
