//! Errors as Kubernetes reports them: a `Status` in the words of kube-apiserver.

pub(crate) mod cause;
mod error;
pub(crate) mod golang;
mod kinds;

pub(crate) use cause::{Cause, CauseKind, MOST_CAUSES};
pub(crate) use error::{Details, Failure, GroupKind, Reason};
pub(crate) use kinds::Attempt;

#[cfg(test)]
mod tests;
