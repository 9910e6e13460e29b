//! Why a webhook could not be registered or unregistered.

use restow_lease::request::ObjectError;

use super::removal::StillNeeded;
use super::survey::SurveyError;
use crate::certificates::CertificateError;

/// Why CRDs could not be read or changed.
#[derive(Debug, thiserror::Error)]
pub enum RegistrationError {
    /// A CRD could not be read or changed.
    #[error("could not read or change the CRD {0}")]
    Crd(String, #[source] ObjectError),
    /// CRDs could not be listed.
    #[error("could not list CRDs")]
    List(#[source] ObjectError),
    /// The certificates to trust are not known.
    #[error("it is not known which certificates CRDs shall trust")]
    Certificates(#[from] CertificateError),
    /// It is not known what calls the webhook besides CRDs.
    #[error("it is not known what else calls the webhook: {0}")]
    Others(String),
    /// The live objects could not be tried.
    #[error("could not try the conversion on the objects of {0}")]
    Survey(String, #[source] SurveyError),
    /// The CRD cannot do without the webhook.
    #[error(transparent)]
    StillNeeded(#[from] StillNeeded),
    /// Another webhook converts the CRD.
    #[error("the conversion webhook of {0} was not registered by restow, so restow does not remove it")]
    Foreign(String),
    /// The CRD does not exist.
    #[error("the CRD {0} does not exist")]
    NotFound(String),
}
