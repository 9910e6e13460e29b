//! Why a round of a Conversion could not be completed.

use restow_api::Reason;
use restow_migrate::client::{RequestError, plain};

use crate::requests::code;

/// Why a round could not be completed; it is tried again.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RoundError {
    /// A request failed.
    #[error("{}", plain(.0))]
    Kube(#[from] kube::Error),
    /// A request failed.
    #[error("{}", plain(.0))]
    Request(#[from] RequestError),
    /// An answer is not of the expected form.
    #[error("unexpected answer: {0}")]
    Answer(String),
    /// The conversion webhook cannot be called, or does not answer.
    #[error("the conversion webhook cannot be called at {address}: {why}")]
    Webhook {
        /// Where it should be.
        address: String,
        /// What went wrong.
        why: String,
    },
    /// The rules cannot be used.
    #[error("the ConversionRules do not fit: {0}")]
    Rules(String),
    /// The objects could not be written in the new version, which is known before anything is changed.
    #[error("the objects may not be written in place: {0}")]
    Missing(String),
    /// The spec cannot be carried out; another try would end the same way.
    #[error("{0}")]
    Invalid(String),
    /// Another client wrote the Conversion, or this process stops: the next round reads it again.
    #[error("the Conversion has changed")]
    Changed,
}

impl RoundError {
    /// The reason that the status gives.
    pub(super) fn reason(&self) -> Reason {
        let code = match self {
            Self::Kube(error) => code(error),
            Self::Request(error) => error.code(),
            Self::Webhook { .. } => return Reason::WebhookUnavailable,
            Self::Rules(_) => return Reason::RulesInvalid,
            Self::Missing(_) => return Reason::Forbidden,
            Self::Invalid(_) => return Reason::InvalidSpec,
            Self::Answer(_) | Self::Changed => None,
        };
        if code == Some(403) { Reason::Forbidden } else { Reason::WaitingForServer }
    }
}
