//! Errors as Kubernetes reports them: a `Status` with the messages of kube-apiserver.

pub(crate) mod cause;
mod error;
pub(crate) mod golang;
mod kinds;

pub(crate) use cause::{Cause, CauseKind, MOST_CAUSES};
pub(crate) use error::{Details, GroupKind, Reason, StatusError};
pub(crate) use kinds::DeniedAccess;

#[cfg(test)]
mod tests;
