//! Requests about one object: each has a timeout, and each write has what was read as its precondition.

use std::time::Duration;

use kube::api::{DeleteParams, ObjectMeta, Preconditions};

/// The usual timeout of one request.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);

/// Why a request failed. It may be retried.
#[derive(Debug, thiserror::Error)]
pub enum ObjectError {
    /// The object has changed since it was read.
    #[error("another client wrote it at the same time")]
    Conflict,
    /// The object, or its API, does not exist.
    #[error("it does not exist")]
    NotFound,
    /// The server did not answer in time; the request may have been carried out.
    #[error("no answer within {} s", .0.as_secs_f64())]
    Timeout(Duration),
    /// The object has no uid or resourceVersion, so a write would have no precondition.
    #[error("the API server returned it without a uid or resourceVersion")]
    NoPreconditions,
    /// The answer is something else than the object, from a proxy for example.
    #[error("the answer is not the requested object")]
    NotTheObject,
    /// Another process may be running under the same id.
    #[error("{0} holds it")]
    Held(String),
    /// The server refused the request, or it could not be reached.
    #[error("{}", in_words(.0))]
    Other(kube::Error),
}

/// An error of a request in plain words: what the API server says, else the error and its causes.
pub fn in_words(error: &kube::Error) -> String {
    match error {
        kube::Error::Api(status) if status.message.is_empty() => {
            format!("the API server answered with code {}", status.code)
        }
        kube::Error::Api(status) => status.message.clone(),
        other => {
            let causes = std::iter::successors(std::error::Error::source(other), |cause| cause.source());
            // Some errors repeat their cause.
            causes.map(ToString::to_string).fold(other.to_string(), |text, cause| {
                if text.ends_with(&cause) { text } else { format!("{text}: {cause}") }
            })
        }
    }
}

/// Sends a request with the usual timeout, and classifies the error.
pub async fn ask<T>(request: impl Future<Output = kube::Result<T>>) -> Result<T, ObjectError> {
    ask_within(REQUEST_TIMEOUT, request).await
}

/// Sends a request with a timeout, and classifies the error.
pub(crate) async fn ask_within<T>(
    timeout: Duration,
    request: impl Future<Output = kube::Result<T>>,
) -> Result<T, ObjectError> {
    match tokio::time::timeout(timeout, request).await {
        Err(_) => Err(ObjectError::Timeout(timeout)),
        Ok(Err(kube::Error::Api(status))) if status.code == 409 => Err(ObjectError::Conflict),
        Ok(Err(kube::Error::Api(status))) if status.code == 404 => Err(ObjectError::NotFound),
        Ok(result) => result.map_err(ObjectError::Other),
    }
}

/// Like [`ask`], for an object that may not exist. `Api::get_opt` returns an error for a 404 without a Status, which is
/// the answer for an API that is not served.
pub async fn find<T>(request: impl Future<Output = kube::Result<T>>) -> Result<Option<T>, ObjectError> {
    match ask(request).await {
        Err(ObjectError::NotFound) => Ok(None),
        found => found.map(Some),
    }
}

/// Deletes the object only if it is exactly as it was read.
pub fn delete_as_read(metadata: &ObjectMeta) -> Result<DeleteParams, ObjectError> {
    let (uid, resource_version) = as_read(metadata)?;
    let preconditions =
        Preconditions { uid: Some(uid.to_owned()), resource_version: Some(resource_version.to_owned()) };
    Ok(DeleteParams { preconditions: Some(preconditions), ..DeleteParams::default() })
}

/// The uid and resourceVersion as the precondition of a write; without them nothing is written.
pub fn as_read(metadata: &ObjectMeta) -> Result<(&str, &str), ObjectError> {
    metadata.uid.as_deref().zip(metadata.resource_version.as_deref()).ok_or(ObjectError::NoPreconditions)
}
