//! Makes authorities and leaves.

use std::collections::BTreeSet;
use std::fmt;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, date_time_ymd,
};
use secrecy::{ExposeSecret as _, SecretString};

use super::rotation::{AuthorityId, Mint};
use super::x509::fingerprint;

/// Why a certificate could not be made.
#[derive(Debug, thiserror::Error)]
pub enum IssueError {
    /// A key or certificate could not be made or read.
    #[error("could not make or read a key or certificate")]
    Certificate(#[from] rcgen::Error),
    /// The key of the authority is gone, so it cannot sign.
    #[error("the key of the certificate authority is not in the Secret")]
    NoKey,
}

/// The certificate of an authority, and its key as long as it is needed, both as PEM.
#[derive(Clone)]
pub struct AuthorityPem {
    /// The certificate.
    pub certificate: String,
    /// The key; a retired authority has none.
    pub key: Option<SecretString>,
}

/// A leaf's certificate chain and its key, both as PEM.
#[derive(Clone)]
pub struct LeafPem {
    /// The certificates, the leaf first.
    pub chain: String,
    /// The key.
    pub key: SecretString,
}

impl fmt::Debug for AuthorityPem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AuthorityPem").field("has_key", &self.key.is_some()).finish_non_exhaustive()
    }
}

impl fmt::Debug for LeafPem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LeafPem").finish_non_exhaustive()
    }
}

/// All certificates are valid since then, the start of 2020. One that was made by a replica whose clock is ahead would
/// otherwise not be valid yet for API servers, and every replica would serve it.
const LONG_AGO: Timestamp = Timestamp::constant(1_577_836_800, 0);

/// Makes certificates with ECDSA keys on P-256.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Issuing {
    /// How long ago the validity of a certificate begins at least, because clocks differ.
    pub(crate) skew: Duration,
}

impl Mint for Issuing {
    type Authority = AuthorityPem;
    type Leaf = LeafPem;
    type Error = IssueError;

    fn authority(
        &mut self,
        now: Timestamp,
        not_after: Timestamp,
    ) -> Result<(AuthorityId, AuthorityPem), IssueError> {
        let key = KeyPair::generate()?;
        let mut params = self.valid(CertificateParams::default(), now, not_after);
        // Each has a name of its own, so that no client takes one for the other.
        let name = format!("restow webhook CA {:016x}", restow_clock::random());
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
        let certificate = params.self_signed(&key)?;
        let pem = AuthorityPem { certificate: certificate.pem(), key: Some(key.serialize_pem().into()) };
        Ok((fingerprint(certificate.der()), pem))
    }

    fn leaf(
        &mut self,
        by: &AuthorityPem,
        names: &BTreeSet<String>,
        now: Timestamp,
        not_after: Timestamp,
    ) -> Result<LeafPem, IssueError> {
        let authority_key = by.key.as_ref().ok_or(IssueError::NoKey)?;
        let authority_key = KeyPair::from_pem(authority_key.expose_secret())?;
        let issuer = Issuer::from_ca_cert_pem(&by.certificate, authority_key)?;
        let params = CertificateParams::new(names.iter().cloned().collect::<Vec<_>>())?;
        let mut params = self.valid(params, now, not_after);
        params.distinguished_name.push(DnType::CommonName, "restow webhook");
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        params.use_authority_key_identifier_extension = true;
        let key = KeyPair::generate()?;
        let certificate = params.signed_by(&key, &issuer)?;
        Ok(LeafPem { chain: certificate.pem(), key: key.serialize_pem().into() })
    }

    fn retire(&mut self, authority: &mut AuthorityPem) {
        authority.key = None;
    }
}

impl Issuing {
    fn valid(
        &self,
        mut params: CertificateParams,
        now: Timestamp,
        not_after: Timestamp,
    ) -> CertificateParams {
        let skew = SignedDuration::try_from(self.skew).unwrap_or_default();
        let begin = now.checked_sub(skew).unwrap_or(now).min(LONG_AGO);
        let date = |moment: Timestamp| {
            let seconds = u64::try_from(moment.as_second()).unwrap_or_default();
            date_time_ymd(1970, 1, 1) + Duration::from_secs(seconds)
        };
        params.not_before = date(begin);
        params.not_after = date(not_after);
        params
    }
}

#[cfg(test)]
mod tests {
    use super::super::x509::{certificates, verifies};
    use super::*;

    #[test]
    fn what_a_replica_with_a_wrong_clock_makes_is_valid_for_the_others() {
        let now = Timestamp::constant(1_800_000_000, 0);
        let days = |days: i64| SignedDuration::from_hours(24 * days);
        let mut issuing = Issuing { skew: Duration::from_secs(3600) };
        for ahead in [0, 25, 400] {
            let clock = now + days(ahead);
            let (_, authority) = issuing.authority(clock, clock + days(365)).unwrap();
            let names = BTreeSet::from(["webhook.example.com".to_owned()]);
            let leaf = issuing.leaf(&authority, &names, clock, clock + days(30)).unwrap();
            let chain = certificates(leaf.chain.as_bytes()).unwrap();
            let verified = verifies(authority.certificate.as_bytes(), &chain, "webhook.example.com", now);
            assert!(verified, "{ahead} days ahead");
        }
    }
}
