//! Errors as Kubernetes reports them: a `Status` with the messages of kube-apiserver.

use std::fmt;

use serde_json::{Map, Value, json};

use super::cause::Cause;

/// A kind without a version: `Widget.example.com`, or `Secret` in the core group.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct GroupKind {
    /// The API group, empty for the core group.
    pub group: String,
    /// The kind, as in objects.
    pub kind: String,
}

impl GroupKind {
    /// Names a kind.
    pub(crate) fn new(group: impl Into<String>, kind: impl Into<String>) -> Self {
        Self { group: group.into(), kind: kind.into() }
    }
}

impl fmt::Display for GroupKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.kind)?;
        if !self.group.is_empty() {
            write!(f, ".{}", self.group)?;
        }
        Ok(())
    }
}

/// The `details` of a Status.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Details {
    /// The name of the object, or of the operation.
    pub name: String,
    /// The group of the resource or kind.
    pub group: String,
    /// The resource, or the kind: kube-apiserver puts either here.
    pub kind: String,
    /// The uid of the object.
    pub uid: String,
    /// The errors, field by field.
    pub causes: Vec<Cause>,
    /// After how many seconds a client may retry.
    pub retry_after_seconds: u32,
}

/// The `reason` of a Status.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[allow(missing_docs, reason = "the names are those of the API")]
pub(crate) enum Reason {
    #[default]
    Unknown,
    /// Nothing is served at this path. The response is plain text.
    NoPage,
    Unauthorized,
    Forbidden,
    NotFound,
    AlreadyExists,
    Conflict,
    Invalid,
    Timeout,
    TooManyRequests,
    BadRequest,
    MethodNotAllowed,
    NotAcceptable,
    RequestEntityTooLarge,
    UnsupportedMediaType,
    InternalError,
    Expired,
    ServiceUnavailable,
}

impl Reason {
    /// The reason in the API; empty if it is unknown.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Unknown | Self::NoPage => "",
            Self::Unauthorized => "Unauthorized",
            Self::Forbidden => "Forbidden",
            Self::NotFound => "NotFound",
            Self::AlreadyExists => "AlreadyExists",
            Self::Conflict => "Conflict",
            Self::Invalid => "Invalid",
            Self::Timeout => "Timeout",
            Self::TooManyRequests => "TooManyRequests",
            Self::BadRequest => "BadRequest",
            Self::MethodNotAllowed => "MethodNotAllowed",
            Self::NotAcceptable => "NotAcceptable",
            Self::RequestEntityTooLarge => "RequestEntityTooLarge",
            Self::UnsupportedMediaType => "UnsupportedMediaType",
            Self::InternalError => "InternalError",
            Self::Expired => "Expired",
            Self::ServiceUnavailable => "ServiceUnavailable",
        }
    }
}

/// A request that was refused or failed: the `Status` that answers it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub(crate) struct StatusError {
    pub(super) code: u16,
    pub(super) reason: Reason,
    pub(super) message: String,
    // Boxed to keep every Result small.
    pub(super) details: Option<Box<Details>>,
    pub(super) continue_token: Option<String>,
}

impl StatusError {
    pub(super) fn new(code: u16, reason: Reason, message: impl Into<String>) -> Self {
        Self { code, reason, message: message.into(), details: None, continue_token: None }
    }

    /// The same error with these details.
    #[must_use]
    pub(crate) fn with_details(mut self, details: Details) -> Self {
        self.details = Some(Box::new(details));
        self
    }

    /// The same error with another message.
    #[must_use]
    pub(crate) fn with_message(mut self, message: impl Into<String>) -> Self {
        self.message = message.into();
        self
    }

    /// The HTTP status code.
    pub(crate) fn code(&self) -> u16 {
        self.code
    }

    /// The reason, for programs.
    pub(crate) fn reason(&self) -> Reason {
        self.reason
    }

    /// The message, for people.
    pub(crate) fn message(&self) -> &str {
        &self.message
    }

    /// The details, if there are any.
    pub(crate) fn details(&self) -> Option<&Details> {
        self.details.as_deref()
    }

    /// The value of the header Retry-After, if it is sent.
    pub(crate) fn retry_after_seconds(&self) -> Option<u32> {
        self.details().map(|details| details.retry_after_seconds).filter(|&seconds| seconds > 0)
    }

    /// The `Status` object that answers the request.
    pub(crate) fn to_status(&self) -> Value {
        let mut metadata = Map::new();
        if let Some(token) = &self.continue_token {
            metadata.insert("continue".into(), json!(token));
        }
        let mut status = json!({
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": metadata,
            "status": "Failure",
            "code": self.code,
        });
        for (key, text) in [("message", self.message.as_str()), ("reason", self.reason.as_str())] {
            if !text.is_empty() {
                status[key] = json!(text);
            }
        }
        if let Some(details) = &self.details {
            status["details"] = details.to_value();
        }
        status
    }
}

impl Details {
    fn to_value(&self) -> Value {
        let mut details = Map::new();
        let texts = [("name", &self.name), ("group", &self.group), ("kind", &self.kind), ("uid", &self.uid)];
        for (key, text) in texts {
            if !text.is_empty() {
                details.insert(key.into(), json!(text));
            }
        }
        if !self.causes.is_empty() {
            details.insert("causes".into(), self.causes.iter().map(Cause::to_value).collect());
        }
        if self.retry_after_seconds > 0 {
            details.insert("retryAfterSeconds".into(), json!(self.retry_after_seconds));
        }
        Value::Object(details)
    }
}
