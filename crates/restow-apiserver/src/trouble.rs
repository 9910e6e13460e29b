//! What can come of a request.

use std::time::Duration;

use restow_core::storage_version::NotAMember;

/// How long one answer is waited for.
const PATIENCE: Duration = Duration::from_secs(10);

/// Why something was not done; it may be tried again.
#[derive(Debug, thiserror::Error)]
pub enum Trouble {
    /// The object is not what it was when it was read.
    #[error("somebody else wrote it at the same time")]
    Conflict,
    /// The object is not there.
    #[error("it is not there")]
    NotFound,
    /// Nobody answered.
    #[error("no answer in {PATIENCE:?}")]
    Silence,
    /// The server has not said what it may be conditioned on.
    #[error("it was read without uid or resourceVersion")]
    Unconditional,
    /// The identity Lease is not to be seen.
    #[error(transparent)]
    NotAMember(#[from] NotAMember),
    /// Another process may live under the same id.
    #[error("{0} holds it")]
    Held(String),
    /// Anything else.
    #[error(transparent)]
    Request(kube::Error),
}

/// Waits for an answer, and tells apart what there is to tell.
pub(crate) async fn ask<T>(request: impl Future<Output = kube::Result<T>>) -> Result<T, Trouble> {
    match tokio::time::timeout(PATIENCE, request).await {
        Err(_) => Err(Trouble::Silence),
        Ok(Err(kube::Error::Api(status))) if status.code == 409 => Err(Trouble::Conflict),
        Ok(Err(kube::Error::Api(status))) if status.code == 404 => Err(Trouble::NotFound),
        Ok(result) => result.map_err(Trouble::Request),
    }
}

/// The same, of something that may not be there. `Api::get_opt` takes a 404 without a Status, as the path of an API
/// that is not served has it, for an error.
pub(crate) async fn find<T>(request: impl Future<Output = kube::Result<T>>) -> Result<Option<T>, Trouble> {
    match ask(request).await {
        Err(Trouble::NotFound) => Ok(None),
        found => found.map(Some),
    }
}
