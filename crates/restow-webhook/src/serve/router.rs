//! Which path leads where.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use bytes::Bytes;
use futures::FutureExt as _;
use http::header::{CONNECTION, HeaderValue};
use http::{Method, Request, Response, StatusCode, Version};
use http_body_util::Full;
use hyper::body::Incoming;
use restow_clock::Instant;
use tokio::time::timeout_at;
use tokio_util::sync::CancellationToken;
use tower::ServiceExt as _;

use super::answer_body::AnyBody;
use super::helpers::Helpers;
use super::metrics::Metrics;
use super::mounts::Mounts;
use super::request_body::RequestBodies;
use super::respond::{Refusal, text, typed};
use super::reviews::{PathKind, Reviews};
use super::settings::Settings;
use super::workers::Workers;
use crate::LiveConverters;

/// Says whether the server is ready, or why not.
pub(super) type Gate = Box<dyn Fn() -> Result<(), String> + Send + Sync>;

/// The content type that Prometheus asks for.
const METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Answers all requests.
pub(super) struct Router {
    converters: Arc<LiveConverters>,
    bodies: RequestBodies,
    reviews: Reviews,
    mounts: Mounts,
    gates: Vec<Gate>,
    metrics: Metrics,
    stop: CancellationToken,
}

/// What a path stands for.
#[derive(Debug, PartialEq)]
enum Target {
    Healthz,
    Readyz,
    Metrics,
    Convert(PathKind),
    Other,
}

fn target(path: &str) -> Target {
    match path {
        "/healthz" | "/livez" => return Target::Healthz,
        "/readyz" => return Target::Readyz,
        "/metrics" => return Target::Metrics,
        "/convert" => return Target::Convert(None),
        _ => {}
    }
    let parts = path.strip_prefix("/convert/").and_then(|rest| rest.split_once('/'));
    match parts {
        Some((group, kind)) if !group.is_empty() && !kind.is_empty() && !kind.contains('/') => {
            Target::Convert(Some((group.to_owned(), kind.to_owned())))
        }
        _ => Target::Other,
    }
}

impl Router {
    pub(super) fn new(
        converters: Arc<LiveConverters>,
        settings: Settings,
        mounts: Mounts,
        gates: Vec<Gate>,
        metrics: Metrics,
        stop: CancellationToken,
    ) -> Self {
        let bodies = RequestBodies::new(settings.limits.bytes, settings.memory, settings.body_timeout);
        let workers = Workers::new(settings.at_once, settings.abandoned);
        let helpers = Helpers::new(settings.helpers);
        let reviews = Reviews { workers, helpers, limits: settings.limits, timeout: settings.timeout };
        Self { converters, bodies, reviews, mounts, gates, metrics, stop }
    }

    /// Answers a request.
    pub(super) async fn answer(&self, request: Request<Incoming>) -> Response<AnyBody> {
        let version = request.version();
        let answered = match target(request.uri().path()) {
            Target::Healthz => Ok(self.health()),
            Target::Readyz => Ok(self.readiness()),
            Target::Metrics => {
                let text = self.metrics.text(self.reviews.workers.abandoned());
                Ok(typed(StatusCode::OK, METRICS, [text.into()], None))
            }
            Target::Convert(kind) => self.convert(request, kind).await,
            Target::Other => self.mounted(request).await,
        };
        let mut response = answered.unwrap_or_else(|refusal| {
            let response = refusal.response();
            self.metrics.refused(response.status().as_u16());
            tracing::debug!(code = response.status().as_u16(), "refused a request: {refusal}");
            response
        });
        // A client that does not know that the connection ends may send its next request while it is closed. HTTP/2 has
        // messages for that.
        if version < Version::HTTP_2 && self.stop.is_cancelled() {
            response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
        }
        response
    }

    fn health(&self) -> Response<AnyBody> {
        if self.reviews.workers.all_stuck() {
            let problem = "every thread is held by a converter that does not return; restart the process\n";
            return text(StatusCode::SERVICE_UNAVAILABLE, problem);
        }
        text(StatusCode::OK, "ok\n")
    }

    fn readiness(&self) -> Response<AnyBody> {
        if self.stop.is_cancelled() {
            return text(StatusCode::SERVICE_UNAVAILABLE, "the server is stopping\n");
        }
        match self.gates.iter().find_map(|gate| gate().err()) {
            Some(reason) => text(StatusCode::SERVICE_UNAVAILABLE, format!("{reason}\n")),
            None => text(StatusCode::OK, "ok\n"),
        }
    }

    async fn convert(
        &self,
        request: Request<Incoming>,
        kind: PathKind,
    ) -> Result<Response<AnyBody>, Refusal> {
        if request.method() != Method::POST {
            return Err(Refusal::Method("POST"));
        }
        let started = Instant::now();
        let _in_flight = self.metrics.begin();
        let (request, counted) = self.bodies.read(request).await?;
        // One set for the whole review, whatever replaces it meanwhile.
        let converters = self.converters.load();
        self.reviews.answer(request.into_body(), counted, kind, converters, &self.metrics, started).await
    }

    async fn mounted(&self, request: Request<Incoming>) -> Result<Response<AnyBody>, Refusal> {
        let handler = self.mounts.find(request.uri().path()).ok_or(Refusal::NotFound)?;
        let deadline = Instant::now() + self.reviews.timeout;
        let (request, _counted) = self.bodies.read(request).await?;
        let answered = AssertUnwindSafe(handler.oneshot(request.map(Full::<Bytes>::new))).catch_unwind();
        match timeout_at(deadline, answered).await {
            Ok(Ok(Ok(response))) => Ok(response),
            Ok(Err(_)) => Err(Refusal::Panicked),
            Err(_) => Err(Refusal::TimedOut),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_lead_where_they_should() {
        let kind = |group: &str, kind: &str| Target::Convert(Some((group.to_owned(), kind.to_owned())));
        let cases = [
            ("/healthz", Target::Healthz),
            ("/livez", Target::Healthz),
            ("/readyz", Target::Readyz),
            ("/metrics", Target::Metrics),
            ("/convert", Target::Convert(None)),
            ("/convert/example.com/Widget", kind("example.com", "Widget")),
            ("/convert/", Target::Other),
            ("/convert/example.com", Target::Other),
            ("/convert/example.com/", Target::Other),
            ("/convert//Widget", Target::Other),
            ("/convert/example.com/Widget/more", Target::Other),
            ("/converted", Target::Other),
            ("/", Target::Other),
        ];
        for (path, expected) in cases {
            assert_eq!(target(path), expected, "{path}");
        }
    }
}
