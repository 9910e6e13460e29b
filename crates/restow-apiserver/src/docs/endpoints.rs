//! Dispatches non-resource requests: discovery, OpenAPI, health, version and metrics.

use http::{Method, Response};

use crate::docs::discovery;
use crate::docs::health;
use crate::docs::openapi;
use crate::http::body::Body;
use crate::http::request_info::RequestInfo;
use crate::http::status::StatusError;
use crate::verbs::api::Api;

/// Answers a non-resource request.
pub(crate) async fn answer(
    api: &Api,
    head: &http::request::Parts,
    info: &RequestInfo,
) -> Result<Response<Body>, StatusError> {
    let segments = info.segments();
    if !matches!(info.method, Method::GET | Method::HEAD) {
        return Err(if known(api, &segments) {
            StatusError::method_not_allowed()
        } else {
            StatusError::no_page()
        });
    }
    if let Some(response) = health::answer(api, info).await {
        return Ok(response);
    }
    if let ["openapi", ..] = segments[..] {
        return openapi::answer(api, head, info);
    }
    discovery::answer(api, head, &segments)
}

fn known(api: &Api, segments: &[&str]) -> bool {
    let served = api.registry.served();
    match segments {
        ["" | "api" | "apis" | "version" | "openapi" | "healthz" | "livez" | "readyz" | "metrics", ..]
            if segments.len() == 1 =>
        {
            true
        }
        ["api", version] => served.has_version("", version),
        ["apis", group, version] => served.has_version(group, version),
        _ => false,
    }
}
