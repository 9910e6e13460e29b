//! Errors as Kubernetes shows them: a Status.

use http::{HeaderValue, StatusCode, header};
use restow_store::StoreError;
use serde_json::{Value, json};

use crate::answer::{Answer, json_answer};
use crate::ship::{GROUP, RESOURCE, Undecodable};

/// Why a request failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct ApiError {
    code: StatusCode,
    reason: &'static str,
    message: String,
    /// The Retry-After, in seconds.
    retry_after: Option<u16>,
    /// A continue token for a list whose token has expired.
    next: Option<String>,
}

impl ApiError {
    fn new(code: StatusCode, reason: &'static str, message: impl Into<String>) -> Self {
        Self { code, reason, message: message.into(), retry_after: None, next: None }
    }

    /// The object does not exist.
    pub fn not_found(name: &str) -> Self {
        Self::new(StatusCode::NOT_FOUND, "NotFound", format!("{RESOURCE}.{GROUP} {name:?} not found"))
    }

    /// Nothing is served under this path.
    pub fn no_such_path() -> Self {
        let message = "the server could not find the requested resource";
        Self::new(StatusCode::NOT_FOUND, "NotFound", message)
    }

    /// The object exists already.
    pub fn exists(name: &str) -> Self {
        let message = format!("{RESOURCE}.{GROUP} {name:?} already exists");
        Self::new(StatusCode::CONFLICT, "AlreadyExists", message)
    }

    /// The object has changed.
    pub fn conflict(name: &str, why: &str) -> Self {
        let message = format!("Operation cannot be fulfilled on {RESOURCE}.{GROUP} {name:?}: {why}");
        Self::new(StatusCode::CONFLICT, "Conflict", message)
    }

    /// The request is malformed.
    pub fn bad_request(why: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "BadRequest", why)
    }

    /// The object is invalid.
    pub fn invalid(why: impl Into<String>) -> Self {
        Self::new(StatusCode::UNPROCESSABLE_ENTITY, "Invalid", why)
    }

    /// The sender is not authenticated.
    pub fn unauthorized() -> Self {
        Self::new(StatusCode::UNAUTHORIZED, "Unauthorized", "Unauthorized")
    }

    /// The user may not do that.
    pub fn forbidden(user: &str, verb: &str) -> Self {
        let message = format!(
            "{RESOURCE}.{GROUP} is forbidden: User {user:?} cannot {verb} resource {RESOURCE:?} in API group {GROUP:?}"
        );
        Self::new(StatusCode::FORBIDDEN, "Forbidden", message)
    }

    /// The method is not supported.
    pub fn method_not_allowed() -> Self {
        let message = "the server does not allow this method on the requested resource";
        Self::new(StatusCode::METHOD_NOT_ALLOWED, "MethodNotAllowed", message)
    }

    /// The media type of the body is not supported.
    pub fn unsupported_media_type(wanted: &str) -> Self {
        let message = format!(
            "the body of the request was in an unknown format - accepted media types include: {wanted}"
        );
        Self::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "UnsupportedMediaType", message)
    }

    /// The body is too large.
    pub fn too_large(limit: usize) -> Self {
        let message = format!("Request entity is too large: limit is {limit}");
        Self::new(StatusCode::PAYLOAD_TOO_LARGE, "RequestEntityTooLarge", message)
    }

    /// It cannot be done now; the client may retry.
    pub fn unavailable(why: impl Into<String>) -> Self {
        let failure = Self::new(StatusCode::SERVICE_UNAVAILABLE, "ServiceUnavailable", why);
        Self { retry_after: Some(1), ..failure }
    }

    /// The request timed out.
    pub fn timeout() -> Self {
        Self::new(
            StatusCode::GATEWAY_TIMEOUT,
            "Timeout",
            "the request timed out; it may still be carried out",
        )
    }

    /// An error of the server.
    pub fn internal(why: impl std::fmt::Display) -> Self {
        let message = format!("Internal error occurred: {why}");
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, "InternalError", message)
    }

    /// Adds a continue token with which an expired list may go on.
    pub fn with_next(mut self, next: impl FnOnce() -> String) -> Self {
        if self.code == StatusCode::GONE {
            self.next = Some(next());
        }
        self
    }

    /// The Status object.
    pub fn status(&self) -> Value {
        let mut status = json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
            "message": self.message, "reason": self.reason, "code": self.code.as_u16(),
        });
        if let Some(seconds) = self.retry_after {
            status["details"] = json!({"retryAfterSeconds": seconds});
        }
        if let Some(next) = &self.next {
            status["metadata"]["continue"] = json!(next);
        }
        status
    }
}

impl From<ApiError> for Answer {
    fn from(failure: ApiError) -> Self {
        let mut answer = json_answer(failure.code, &failure.status());
        if let Some(seconds) = failure.retry_after {
            answer.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(seconds));
        }
        answer
    }
}

impl From<StoreError> for ApiError {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::Compacted { .. } | StoreError::Missed(_) => {
                Self::new(StatusCode::GONE, "Expired", error.to_string())
            }
            StoreError::Future { .. } => Self::new(StatusCode::GATEWAY_TIMEOUT, "Timeout", error.to_string()),
            StoreError::Unavailable(_) => Self::unavailable(error.to_string()),
            StoreError::Damaged(_) => Self::internal(error),
        }
    }
}

impl From<Undecodable> for ApiError {
    fn from(error: Undecodable) -> Self {
        Self::bad_request(error.to_string())
    }
}
