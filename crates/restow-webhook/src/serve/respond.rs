//! Responses, and why a request gets no other one.

use bytes::Bytes;
use http::{HeaderValue, Response, StatusCode, header};
use tokio::sync::OwnedSemaphorePermit;

use super::answer_body::{AnswerBody, AnyBody};

/// Why a request is refused before it reaches a converter or handler.
#[derive(Debug, thiserror::Error)]
pub(super) enum Refusal {
    #[error("there is nothing at this path; ConversionReviews go to /convert/GROUP/KIND or /convert")]
    NotFound,
    #[error("only {0} is allowed here")]
    Method(&'static str),
    #[error("the body is longer than {0} bytes")]
    TooLarge(usize),
    #[error("compressed bodies are not supported")]
    Compressed,
    #[error("the body did not arrive in time")]
    SlowBody,
    #[error("the body could not be read: {0}")]
    Broken(hyper::Error),
    #[error("{0}")]
    Malformed(String),
    #[error("too many requests at the same time; try again")]
    Busy,
    #[error("the handler panicked")]
    Panicked,
    #[error("the handler took too long")]
    TimedOut,
}

impl Refusal {
    fn status(&self) -> StatusCode {
        match self {
            Self::NotFound => StatusCode::NOT_FOUND,
            Self::Method(_) => StatusCode::METHOD_NOT_ALLOWED,
            Self::TooLarge(_) => StatusCode::PAYLOAD_TOO_LARGE,
            Self::Compressed => StatusCode::UNSUPPORTED_MEDIA_TYPE,
            Self::SlowBody => StatusCode::REQUEST_TIMEOUT,
            Self::Broken(_) | Self::Malformed(_) => StatusCode::BAD_REQUEST,
            Self::Busy => StatusCode::TOO_MANY_REQUESTS,
            Self::Panicked => StatusCode::INTERNAL_SERVER_ERROR,
            Self::TimedOut => StatusCode::GATEWAY_TIMEOUT,
        }
    }

    /// The response that tells the client.
    pub(super) fn response(&self) -> Response<AnyBody> {
        let mut response = text(self.status(), format!("{self}\n"));
        let headers = response.headers_mut();
        match self {
            // API servers try again after this many seconds.
            Self::Busy => drop(headers.insert(header::RETRY_AFTER, HeaderValue::from_static("1"))),
            Self::Method(allowed) => drop(headers.insert(header::ALLOW, HeaderValue::from_static(allowed))),
            // The rest of the body is not read.
            Self::TooLarge(_) | Self::SlowBody => {
                headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
            }
            _ => {}
        }
        response
    }
}

/// A response of plain text.
pub(super) fn text(status: StatusCode, text: impl Into<Bytes>) -> Response<AnyBody> {
    typed(status, "text/plain; charset=utf-8", [text.into()], None)
}

/// A response of any type.
pub(super) fn typed(
    status: StatusCode,
    content_type: &'static str,
    body: impl IntoIterator<Item = Bytes>,
    counted: Option<OwnedSemaphorePermit>,
) -> Response<AnyBody> {
    let mut response = Response::new(AnswerBody::boxed(body, counted));
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
    response
}
