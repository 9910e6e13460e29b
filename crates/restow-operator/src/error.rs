//! Why CRDs are not registered or migrated.

use restow_lease::ObjectError;
use restow_migrate::client::RequestError;
use restow_migrate::cluster::AgreementError;
use restow_migrate::migration::MigrationError;
use restow_migrate::prune::PruneError;
use restow_webhook::certificates::CertificateError;
use restow_webhook::registration::{Closed, SurveyError};

use crate::registration::RegistrationError;

/// Why a CRD was not registered, or its objects were not migrated.
#[derive(Debug, thiserror::Error)]
pub enum CrdsError {
    /// The CRD in the cluster must not be changed so.
    #[error(transparent)]
    Registration(#[from] RegistrationError),
    /// The CRD could not be read or written.
    #[error("could not read or write the CRD")]
    Crd(#[from] ObjectError),
    /// Other clients kept changing the CRD at the same time.
    #[error("other clients kept changing the CRD at the same time")]
    Contended,
    /// The certificates of the webhook are not known.
    #[error("it is not known which certificates the CRD shall trust")]
    Certificates(#[from] CertificateError),
    /// The webhook must not be called yet.
    #[error("the CRD is not changed yet ({}): {_0}", .0.gate)]
    Closed(#[from] Closed),
    /// The live objects could not be tried.
    #[error("could not try the conversion on the live objects")]
    Survey(#[source] SurveyError),
    /// The API servers do not agree.
    #[error("the storage version is not changed yet")]
    Agreement(#[from] AgreementError),
    /// The cluster could not be read.
    #[error("could not read which resources the cluster has")]
    Request(#[from] RequestError),
    /// The resource is not served, or cannot be migrated.
    #[error("{0}")]
    NotServed(String),
    /// The migration ended early.
    #[error("could not migrate the objects")]
    Migration(#[from] MigrationError),
    /// A complete run that proves nothing.
    #[error("the run does not prove that all objects are rewritten: {0}")]
    Unproven(String),
    /// storedVersions could not be changed.
    #[error("could not reduce status.storedVersions")]
    Prune(#[from] PruneError),
    /// The operator no longer leads, or ends.
    #[error("stopped")]
    Stopped,
}

/// An error and its causes.
pub(crate) fn causes(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(error.source(), |cause| cause.source());
    causes.fold(error.to_string(), |message, cause| format!("{message}: {cause}"))
}
