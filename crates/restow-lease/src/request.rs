//! Requests about one object: a bounded wait for the answer, and conditions on what was read.

use std::time::Duration;

use kube::api::{DeleteParams, ObjectMeta, Preconditions};

/// How long one answer is waited for.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Why a request was not carried out. It may be tried again.
#[derive(Debug, thiserror::Error)]
pub enum RequestError {
    /// The object is not what it was when it was read.
    #[error("another client wrote it at the same time")]
    Conflict,
    /// The object does not exist.
    #[error("it does not exist")]
    NotFound,
    /// Nobody answered.
    #[error("no answer within {} s", TIMEOUT.as_secs())]
    Timeout,
    /// The server did not say what a write could be conditioned on.
    #[error("the API server returned it without a uid or resourceVersion")]
    NoPreconditions,
    /// Another process may be running under the same id.
    #[error("{0} holds it")]
    Held(String),
    /// Anything else.
    #[error(transparent)]
    Other(kube::Error),
}

/// Waits for an answer, and classifies the error.
pub async fn ask<T>(request: impl Future<Output = kube::Result<T>>) -> Result<T, RequestError> {
    match tokio::time::timeout(TIMEOUT, request).await {
        Err(_) => Err(RequestError::Timeout),
        Ok(Err(kube::Error::Api(status))) if status.code == 409 => Err(RequestError::Conflict),
        Ok(Err(kube::Error::Api(status))) if status.code == 404 => Err(RequestError::NotFound),
        Ok(result) => result.map_err(RequestError::Other),
    }
}

/// The same for an object that may not exist. `Api::get_opt` takes a 404 without a Status for an error, and the path of
/// an API that is not served answers that.
pub async fn find<T>(request: impl Future<Output = kube::Result<T>>) -> Result<Option<T>, RequestError> {
    match ask(request).await {
        Err(RequestError::NotFound) => Ok(None),
        found => found.map(Some),
    }
}

/// A delete of the object exactly as it was read.
pub fn delete_as_read(metadata: &ObjectMeta) -> Result<DeleteParams, RequestError> {
    let (uid, resource_version) = as_read(metadata)?;
    let preconditions =
        Preconditions { uid: Some(uid.to_owned()), resource_version: Some(resource_version.to_owned()) };
    Ok(DeleteParams { preconditions: Some(preconditions), ..DeleteParams::default() })
}

/// The uid and resourceVersion that a write is conditioned on; without them nothing is written.
pub fn as_read(metadata: &ObjectMeta) -> Result<(&str, &str), RequestError> {
    metadata.uid.as_deref().zip(metadata.resource_version.as_deref()).ok_or(RequestError::NoPreconditions)
}
