//! Accepts connections, serves TLS and HTTP on them within limits, and drains them at the end.
//!
//! A connection without requests is closed, and a response that its client does not read is dropped, so that no client
//! can hold resources for ever. hyper-util's `GracefulShutdown` is not used: connections are also closed when they are
//! idle or evicted, and they are counted.

use std::convert::Infallible;
use std::error::Error;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use http::{Request, Response};
use hyper::body::{Body, Incoming};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinSet;
use tokio::time::MissedTickBehavior;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;
use tower::{Service, ServiceExt as _};

use crate::activity::Activity;
use crate::connections::Connections;
use crate::peers::{PeerConnection, Peers};
use crate::stall_guard::StallGuard;

/// The number of open connections. More wait to be accepted.
const AT_ONCE: usize = 1024;
/// One in so many connections is kept free: when fewer are left, each new connection closes an idle one of an unknown
/// client. Otherwise a few peers could keep everybody else out with requests that anybody may send.
const KEPT_FREE: usize = 16;
/// How often an idle connection of an unknown client is closed while there is no free one.
const EVICT_EVERY: Duration = Duration::from_millis(100);
/// How long an evicted connection may take to shut down.
const EVICTION: Duration = Duration::from_secs(1);
/// How many connections one peer may have. More are closed.
const PER_PEER: usize = AT_ONCE / 2;
/// How many connections may be in their TLS handshake, the most expensive part of an unknown client.
const HANDSHAKES: usize = 64;
/// The timeout of a TLS handshake, and of the head of a request.
const CLIENT_TIMEOUT: Duration = Duration::from_secs(10);
/// How long a connection without requests stays open, as in kube-apiserver for HTTP/2.
const IDLE: Duration = Duration::from_secs(90);
/// How long a client may leave a response unread before it is dropped.
const STALLED: Duration = Duration::from_secs(60);
/// How long requests in flight may take during shutdown.
const GRACE: Duration = Duration::from_secs(10);
/// The pause after a failed accept, which is usually a lack of file descriptors.
const AFTER_AN_ERROR: Duration = Duration::from_millis(100);

/// Concurrent HTTP/2 streams of one connection, as in kube-apiserver.
const STREAMS: u32 = 100;
/// The HTTP/2 flow control window of one stream.
const STREAM_WINDOW: u32 = 256 * 1024;
/// The HTTP/2 flow control window of one connection.
const CONNECTION_WINDOW: u32 = 4 * 1024 * 1024;
/// The largest head of a request.
const HEAD: u32 = 64 * 1024;
/// How many streams may be reset before they are accepted: the limit against rapid resets.
const RESETS: usize = 20;
/// How often a silent HTTP/2 peer is pinged.
const PING_EVERY: Duration = Duration::from_secs(30);

/// The address of the client: an extension of each request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peer(pub SocketAddr);

/// An extension of the response to a client that is known, such as an authenticated one: its connection is not evicted.
#[derive(Clone, Copy, Debug)]
pub struct Known;

/// Limits on connections, and how long the server waits for clients.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// Open connections. More wait to be accepted.
    pub at_once: usize,
    /// Open connections of each peer. More are closed.
    pub per_peer: usize,
    /// How long a connection may take to its first request.
    pub first: Duration,
    /// How long a connection stays open without another request.
    pub idle: Duration,
    /// How long a client may leave a response unread before it is dropped.
    pub stalled: Duration,
    /// How long requests in flight may take during shutdown.
    pub grace: Duration,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            at_once: AT_ONCE,
            per_peer: PER_PEER,
            first: CLIENT_TIMEOUT,
            idle: IDLE,
            stalled: STALLED,
            grace: GRACE,
        }
    }
}

/// Serves until `stop` is cancelled. Requests in flight are then answered, within the grace period.
pub async fn serve<S, B>(
    listener: TcpListener,
    acceptor: TlsAcceptor,
    service: S,
    stop: CancellationToken,
    settings: Settings,
) where
    S: Service<Request<Incoming>, Response = Response<B>, Error = Infallible> + Clone + Send + Sync + 'static,
    S::Future: Send,
    B: Body<Data: Send, Error: Into<Box<dyn Error + Send + Sync>>> + Send + Unpin + 'static,
{
    let handshakes = Arc::new(Semaphore::new(HANDSHAKES));
    let peers = Peers::new(settings.per_peer);
    let open = Connections::default();
    let mut connections = JoinSet::new();
    let mut eviction = tokio::time::interval(EVICT_EVERY);
    eviction.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        let room = connections.len() < settings.at_once;
        tokio::select! {
            () = stop.cancelled() => break,
            Some(_) = connections.join_next() => {}
            _ = eviction.tick(), if !room => open.evict(),
            accepted = accept(&listener, &handshakes), if room => if let Some((stream, peer, permit)) = accepted {
                let Some(counted) = peers.enter(peer.ip()) else {
                    tracing::debug!(%peer, "closed a connection: the peer already has {}", settings.per_peer);
                    continue;
                };
                let (acceptor, service, stop) = (acceptor.clone(), service.clone(), stop.clone());
                let client = (peer, counted, open.clone());
                connections.spawn(connection(stream, client, acceptor, permit, service, stop, settings));
                if connections.len() + (settings.at_once / KEPT_FREE).max(1) > settings.at_once {
                    open.evict();
                }
            },
        }
    }
    drop(listener);
    let drained = async { while connections.join_next().await.is_some() {} };
    if tokio::time::timeout(settings.grace, drained).await.is_err() {
        tracing::warn!(connections = connections.len(), "closed connections before their requests had ended");
    }
}

/// The next connection, and its permit for a handshake.
async fn accept(
    listener: &TcpListener,
    handshakes: &Arc<Semaphore>,
) -> Option<(TcpStream, SocketAddr, OwnedSemaphorePermit)> {
    let permit = Arc::clone(handshakes).acquire_owned().await.ok()?;
    match listener.accept().await {
        Ok((stream, peer)) => Some((stream, peer, permit)),
        Err(error) => {
            tracing::warn!("could not accept a connection: {error}");
            tokio::time::sleep(AFTER_AN_ERROR).await;
            None
        }
    }
}

async fn connection<S, B>(
    stream: TcpStream,
    (peer, _counted, open): (SocketAddr, PeerConnection, Connections),
    acceptor: TlsAcceptor,
    permit: OwnedSemaphorePermit,
    service: S,
    stop: CancellationToken,
    settings: Settings,
) where
    S: Service<Request<Incoming>, Response = Response<B>, Error = Infallible> + Clone + Send + Sync + 'static,
    S::Future: Send,
    B: Body<Data: Send, Error: Into<Box<dyn Error + Send + Sync>>> + Send + Unpin + 'static,
{
    // Small responses are sent at once.
    let _ = stream.set_nodelay(true);
    let handshake = tokio::time::timeout(CLIENT_TIMEOUT, acceptor.accept(stream));
    let stream = match stop.run_until_cancelled(handshake).await {
        Some(Ok(Ok(stream))) => stream,
        Some(Ok(Err(error))) => return tracing::debug!(%peer, "the TLS handshake failed: {error}"),
        Some(Err(_)) => {
            return tracing::debug!(%peer, "the TLS handshake took longer than {CLIENT_TIMEOUT:?}");
        }
        None => return,
    };
    drop(permit);
    let activity = Activity::default();
    let idle = activity.idle(settings.first, settings.idle);
    let registered = open.enter(activity.clone());
    let service = service_fn(move |mut request: Request<Incoming>| {
        request.extensions_mut().insert(Peer(peer));
        let (busy, activity) = (activity.begin(), activity.clone());
        let answered = service.clone().oneshot(request);
        async move {
            let Ok(response) = answered.await;
            if response.extensions().get::<Known>().is_some() {
                activity.known();
            }
            Ok::<_, Infallible>(response.map(|body| StallGuard::new(body, busy, settings.stalled)))
        }
    });
    let builder = http();
    let mut connection = pin!(builder.serve_connection(TokioIo::new(stream), service));
    let served = tokio::select! {
        served = connection.as_mut() => served,
        () = stop.cancelled() => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
        () = registered.evicted() => {
            connection.as_mut().graceful_shutdown();
            match tokio::time::timeout(EVICTION, connection).await {
                Ok(served) => served,
                Err(_) => return tracing::debug!(%peer, "closed an idle connection to accept another one"),
            }
        }
        () = idle => {
            connection.as_mut().graceful_shutdown();
            match tokio::time::timeout(CLIENT_TIMEOUT, connection).await {
                Ok(served) => served,
                Err(_) => return tracing::debug!(%peer, "closed an idle connection"),
            }
        }
    };
    if let Err(error) = served {
        tracing::debug!(%peer, "the connection failed: {error}");
    }
}

fn http() -> auto::Builder<TokioExecutor> {
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(CLIENT_TIMEOUT)
        .max_buf_size(2 * HEAD as usize);
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(STREAMS)
        .initial_stream_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .max_header_list_size(HEAD)
        .max_pending_accept_reset_streams(RESETS)
        .keep_alive_interval(PING_EVERY)
        .keep_alive_timeout(CLIENT_TIMEOUT);
    builder
}

#[cfg(test)]
mod tests;
