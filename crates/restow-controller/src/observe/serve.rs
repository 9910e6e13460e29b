//! The HTTP endpoints of a controller process: `/healthz`, `/readyz` and `/metrics`.
//!
//! hyper-util's `GracefulShutdown` is not used: connections are counted, so a `JoinSet` holds them anyway.

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

/// The most concurrent connections; more wait to be accepted.
const MAX_CONNECTIONS: usize = 32;
/// The timeout of one connection, from its first byte to its last.
const CONNECTION_TIMEOUT: Duration = Duration::from_secs(10);
/// The read buffer of a connection, in bytes; the smallest that hyper allows.
const BUFFER_SIZE: usize = 8 * 1024;
/// How long to wait after a connection could not be accepted, for want of file descriptors.
const ACCEPT_RETRY_DELAY: Duration = Duration::from_millis(100);

const TEXT: &str = "text/plain; charset=utf-8";

/// Serves `/healthz`, `/readyz` and `/metrics` until `stop` is cancelled; requests in flight are answered first.
///
/// A connection serves one request and has a timeout, so that idle or slow connections do not pile up.
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
            accepted = listener.accept(), if connections.len() < MAX_CONNECTIONS => match accepted {
                Ok((stream, _)) => {
                    let (health, metrics) = (Arc::clone(&health), Arc::clone(&metrics));
                    connections.spawn(connection(stream, health, metrics, stop.clone()));
                }
                Err(error) => {
                    tracing::warn!("could not accept a connection: {error}");
                    tokio::time::sleep(ACCEPT_RETRY_DELAY).await;
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
        .max_buf_size(BUFFER_SIZE)
        .serve_connection(TokioIo::new(stream), service);
    let mut connection = pin!(connection);
    let served = tokio::time::timeout(CONNECTION_TIMEOUT, async {
        tokio::select! {
            served = connection.as_mut() => return served,
            () = stop.cancelled() => {}
        }
        connection.as_mut().graceful_shutdown();
        connection.await
    });
    match served.await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => tracing::debug!("a connection failed: {error}"),
        Err(_) => tracing::debug!("closed a connection after {} s", CONNECTION_TIMEOUT.as_secs()),
    }
}

fn answer(method: &Method, path: &str, health: &Health, metrics: &Metrics) -> Response<Full<Bytes>> {
    let read = [Method::GET, Method::HEAD].contains(method);
    match path {
        "/healthz" | "/readyz" | "/metrics" if !read => {
            let mut response = text(StatusCode::METHOD_NOT_ALLOWED, "only GET and HEAD are supported\n");
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
        _ => text(StatusCode::NOT_FOUND, "not found; this server has /healthz, /readyz and /metrics\n"),
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
