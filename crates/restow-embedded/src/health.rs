//! How the server does: its version, whether it lives, and whether it is ready.

use std::sync::atomic::Ordering;

use http::{HeaderValue, Response, StatusCode, header};

use crate::api::Api;
use crate::body::Body;
use crate::discovery::{json_response, version};
use crate::metrics;
use crate::request::query;

/// Answers what is asked of the server itself; none if it is something else.
pub fn answer(api: &Api, head: &http::request::Parts) -> Option<Response<Body>> {
    let verbose = query(head.uri.query().unwrap_or_default()).any(|(key, _)| key == "verbose");
    match head.uri.path().trim_end_matches('/') {
        "/version" => Some(json_response(&version())),
        "/healthz" | "/livez" | "/healthz/ping" | "/livez/ping" => Some(healthy("healthz", verbose)),
        "/readyz" | "/readyz/storage-versions" => Some(ready(api, verbose)),
        "/metrics" => {
            let since = api.encrypted_since.load(Ordering::Relaxed);
            let text = metrics::text(&api.server_id, api.started, api.encryption.load().as_deref(), since);
            Some(plain(StatusCode::OK, text))
        }
        _ => None,
    }
}

fn healthy(name: &str, verbose: bool) -> Response<Body> {
    let text = if verbose { format!("[+]ping ok\n{name} check passed\n") } else { "ok".to_owned() };
    plain(StatusCode::OK, text)
}

fn ready(api: &Api, verbose: bool) -> Response<Body> {
    match api.gate.readiness().check() {
        Ok(()) if verbose => {
            plain(StatusCode::OK, "[+]ping ok\n[+]storage-versions ok\nreadyz check passed\n".to_owned())
        }
        Ok(()) => plain(StatusCode::OK, "ok".to_owned()),
        Err(why) => {
            let text = format!("[+]ping ok\n[-]storage-versions failed: {why}\nreadyz check failed\n");
            plain(StatusCode::INTERNAL_SERVER_ERROR, text)
        }
    }
}

/// An answer in plain text.
pub fn plain(code: StatusCode, text: String) -> Response<Body> {
    let mut response = Response::new(Body::from(bytes::Bytes::from(text)));
    *response.status_mut() = code;
    let media = HeaderValue::from_static("text/plain; charset=utf-8");
    response.headers_mut().insert(header::CONTENT_TYPE, media);
    response
}
