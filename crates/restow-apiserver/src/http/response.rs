//! Responses in JSON, in plain text, and of errors.

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Response, StatusCode, header};
use serde_json::Value;

use crate::http::body::Body;
use crate::http::json;
use crate::http::status::{Reason, StatusError};

const JSON: HeaderValue = HeaderValue::from_static("application/json");
const TEXT: HeaderValue = HeaderValue::from_static("text/plain; charset=utf-8");

/// The name of a created object: an extension of the response, for the audit event.
#[derive(Clone, Debug)]
pub(crate) struct CreatedName(pub String);

/// A header as text; empty if it is missing.
pub(crate) fn text(headers: &HeaderMap, name: header::HeaderName) -> &str {
    headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default()
}

pub(crate) fn json_response(document: &Value) -> Response<Body> {
    let mut response = Response::new(Body::from(json::encode(document)));
    response.headers_mut().insert(header::CONTENT_TYPE, JSON);
    response
}

/// A response in plain text.
pub(crate) fn plain(code: StatusCode, text: String) -> Response<Body> {
    let mut response = Response::new(Body::from(Bytes::from(text)));
    *response.status_mut() = code;
    let media = HeaderValue::from_static("text/plain; charset=utf-8");
    response.headers_mut().insert(header::CONTENT_TYPE, media);
    response
}

/// The response to a request that failed.
pub(crate) fn error_response(failure: &StatusError) -> Response<Body> {
    let (body, media) = match failure.reason() {
        Reason::NoPage => (format!("{failure}\n").into(), TEXT),
        _ => (json::encode(&failure.to_status()), JSON),
    };
    let mut response = Response::new(Body::from(body));
    *response.status_mut() =
        StatusCode::from_u16(failure.code()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    response.headers_mut().insert(header::CONTENT_TYPE, media);
    if let Some(seconds) = failure.retry_after_seconds() {
        response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(seconds));
    }
    response
}
