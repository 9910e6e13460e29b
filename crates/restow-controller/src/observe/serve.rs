//! What is served over HTTP: whether the process lives and is ready, and its metrics.

use std::convert::Infallible;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderValue, Method, Request, Response, StatusCode, header};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::observe::health::Health;
use crate::observe::metrics::{self, Metrics};

/// How many connections there are at once; more wait to be accepted.
const AT_ONCE: usize = 32;
/// How long one connection may take from its first byte to its last.
const PATIENCE: Duration = Duration::from_secs(10);
/// How much of a request is held; the least that hyper can.
const BUFFER: usize = 8 * 1024;
/// How long to wait when no connection can be accepted, for want of file descriptors.
const AFTER_AN_ERROR: Duration = Duration::from_millis(100);

const TEXT: &str = "text/plain; charset=utf-8";

/// Serves `/healthz`, `/readyz` and `/metrics` until told to stop; requests under way are answered first.
///
/// A connection serves one request and has a time to do so, so that there are no idle or slow ones to pile up.
pub async fn serve(
    listener: TcpListener,
    health: Arc<Health>,
    metrics: Arc<Metrics>,
    stop: CancellationToken,
) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            () = stop.cancelled() => break,
            Some(_) = connections.join_next() => {}
            accepted = listener.accept(), if connections.len() < AT_ONCE => match accepted {
                Ok((stream, _)) => {
                    let (health, metrics) = (Arc::clone(&health), Arc::clone(&metrics));
                    connections.spawn(connection(stream, health, metrics, stop.clone()));
                }
                Err(error) => {
                    tracing::warn!("accepting a connection: {error}");
                    tokio::time::sleep(AFTER_AN_ERROR).await;
                }
            },
        }
    }
    drop(listener);
    while connections.join_next().await.is_some() {}
}

async fn connection(stream: TcpStream, health: Arc<Health>, metrics: Arc<Metrics>, stop: CancellationToken) {
    let service = service_fn(|request: Request<Incoming>| {
        let response = answer(request.method(), request.uri().path(), &health, &metrics);
        async { Ok::<_, Infallible>(response) }
    });
    let connection = http1::Builder::new()
        .keep_alive(false)
        .max_buf_size(BUFFER)
        .serve_connection(TokioIo::new(stream), service);
    let mut connection = pin!(connection);
    let served = tokio::time::timeout(PATIENCE, async {
        tokio::select! {
            served = connection.as_mut() => return served,
            () = stop.cancelled() => {}
        }
        connection.as_mut().graceful_shutdown();
        connection.await
    });
    match served.await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => tracing::debug!("serving a connection: {error}"),
        Err(_) => tracing::debug!("a connection was closed after {PATIENCE:?}"),
    }
}

fn answer(method: &Method, path: &str, health: &Health, metrics: &Metrics) -> Response<Full<Bytes>> {
    let read = [Method::GET, Method::HEAD].contains(method);
    match path {
        "/healthz" | "/readyz" | "/metrics" if !read => {
            let mut response = text(StatusCode::METHOD_NOT_ALLOWED, "only GET is served here\n");
            response.headers_mut().insert(header::ALLOW, HeaderValue::from_static("GET, HEAD"));
            response
        }
        "/healthz" => state(health.alive()),
        "/readyz" => state(health.is_ready()),
        "/metrics" => {
            let mut response = text(StatusCode::OK, metrics.encode());
            let content_type = HeaderValue::from_static(metrics::CONTENT_TYPE);
            response.headers_mut().insert(header::CONTENT_TYPE, content_type);
            response
        }
        _ => text(StatusCode::NOT_FOUND, "there are /healthz, /readyz and /metrics\n"),
    }
}

fn state(well: Result<(), String>) -> Response<Full<Bytes>> {
    match well {
        Ok(()) => text(StatusCode::OK, "ok"),
        Err(why) => text(StatusCode::INTERNAL_SERVER_ERROR, why + "\n"),
    }
}

fn text(status: StatusCode, body: impl Into<Bytes>) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(body.into()));
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(TEXT));
    response
}
