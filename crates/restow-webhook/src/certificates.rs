//! The certificates of a webhook: made without outside help, shared by all replicas through a Secret, and rotated without
//! a failed request.
//!
//! [`rotation`] decides, [`CertificateKeeper`] carries it out, and [`ServingCertificate`] is what a TLS server serves.

mod foreign;
mod issue;
mod keeper;
pub mod rotation;
mod secret;
mod serving;
mod trust;
mod x509;

pub use issue::{AuthorityPem, IssueError, LeafPem};
pub use keeper::{CertificateError, CertificateKeeper, CertificateSettings, read_bundle};
pub use secret::{Bundle, Certificates, ContentError, ROTATE};
pub use serving::{NotServing, ServingCertificate};
pub use trust::{CrdTrust, SharedTrust, Trust};
pub use x509::X509Error;
pub use x509::fingerprints;
pub(crate) use x509::{provider, roots, unexpired};

/// The bundles before and after the next authority is introduced.
#[cfg(test)]
pub(crate) fn two_bundles() -> (String, String) {
    use rotation::{Step, Wanted, carry_out};
    let names = std::collections::BTreeSet::from(["webhook.restow-system.svc".to_owned()]);
    let wanted = Wanted { names, ..Wanted::default() };
    let mut mint = issue::Issuing { skew: wanted.lifetimes.skew };
    let now = jiff::Timestamp::UNIX_EPOCH;
    let one = carry_out(&mut mint, Step::Create, None, &wanted, now).unwrap();
    let two = carry_out(&mut mint, Step::Introduce, one.clone(), &wanted, now).unwrap();
    (secret::bundle(&one.unwrap()), secret::bundle(&two.unwrap()))
}
