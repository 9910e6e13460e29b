//! Accepts connections, serves TLS and HTTP on them within limits, and drains them at the end.
//!
//! A connection without requests is closed, and a response that its client does not read is dropped, so that no client
//! can hold resources for ever. hyper-util's `GracefulShutdown` is not used: connections are also closed when they are
//! idle or evicted, and they are counted.

mod activity;
mod connections;
mod peers;
mod stall_guard;

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

use crate::http::tls::{ServingCertificate, TlsError};

use activity::Activity;
use connections::Connections;
use peers::{PeerConnection, Peers};
use stall_guard::StallGuard;

/// The number of open connections. More wait to be accepted.
const AT_ONCE: usize = 1024;
/// One in so many connections is kept free: when fewer are left, each new connection closes an idle unauthenticated one.
/// Otherwise a few peers could keep everybody else out with requests that need no authentication.
const KEPT_FREE: usize = 16;
/// How often an idle unauthenticated connection is closed while there is no free one.
const EVICT_EVERY: Duration = Duration::from_millis(100);
/// How long an evicted connection may take to shut down.
const EVICTION: Duration = Duration::from_secs(1);
/// How many connections one peer may have. More are closed.
const PER_PEER: usize = AT_ONCE / 2;
/// How many connections may be in their TLS handshake, the most expensive part before authentication.
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
/// How often the serving certificate is renewed. It is valid for a year.
const RENEW_EVERY: Duration = Duration::from_secs(30 * 24 * 3600);

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
pub(crate) struct Peer(pub SocketAddr);

/// An extension of the response to an authenticated request: its connection is not evicted.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Authenticated;

/// Limits on connections.
#[derive(Clone, Copy, Debug)]
struct ConnectionLimits {
    /// Open connections.
    at_once: usize,
    /// Open connections of each peer.
    per_peer: usize,
    /// How long the server waits for clients.
    timeouts: ClientTimeouts,
}

/// How long the server waits for clients.
#[derive(Clone, Copy, Debug)]
struct ClientTimeouts {
    /// For the first request on a connection.
    first: Duration,
    /// For the next one.
    next: Duration,
    /// For a client to continue reading a response.
    reading: Duration,
}

/// Serves until `stop` is cancelled. Requests in flight are then answered, within a grace period.
pub async fn serve<S, B>(
    listener: TcpListener,
    serving: Arc<ServingCertificate>,
    service: S,
    stop: CancellationToken,
) -> Result<(), TlsError>
where
    S: Service<Request<Incoming>, Response = Response<B>, Error = Infallible> + Clone + Send + Sync + 'static,
    S::Future: Send,
    B: Body<Data: Send, Error: Into<Box<dyn Error + Send + Sync>>> + Send + Unpin + 'static,
{
    let timeouts = ClientTimeouts { first: CLIENT_TIMEOUT, next: IDLE, reading: STALLED };
    serve_with(
        listener,
        serving,
        service,
        stop,
        ConnectionLimits { at_once: AT_ONCE, per_peer: PER_PEER, timeouts },
    )
    .await
}

async fn serve_with<S, B>(
    listener: TcpListener,
    serving: Arc<ServingCertificate>,
    service: S,
    stop: CancellationToken,
    limits: ConnectionLimits,
) -> Result<(), TlsError>
where
    S: Service<Request<Incoming>, Response = Response<B>, Error = Infallible> + Clone + Send + Sync + 'static,
    S::Future: Send,
    B: Body<Data: Send, Error: Into<Box<dyn Error + Send + Sync>>> + Send + Unpin + 'static,
{
    let acceptor = serving.acceptor()?;
    let handshakes = Arc::new(Semaphore::new(HANDSHAKES));
    let peers = Peers::new(limits.per_peer);
    let open = Connections::default();
    let mut connections = JoinSet::new();
    let mut eviction = tokio::time::interval(EVICT_EVERY);
    eviction.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut renewal = tokio::time::interval_at(restow_clock::Instant::now() + RENEW_EVERY, RENEW_EVERY);
    loop {
        let room = connections.len() < limits.at_once;
        tokio::select! {
            () = stop.cancelled() => break,
            _ = renewal.tick() => if let Err(error) = serving.renew(restow_clock::now()) {
                tracing::warn!("could not renew the serving certificate; keeping the current one: {error}");
            },
            Some(_) = connections.join_next() => {}
            _ = eviction.tick(), if !room => open.evict(),
            accepted = accept(&listener, &handshakes), if room => if let Some((stream, peer, permit)) = accepted {
                let Some(counted) = peers.enter(peer.ip()) else {
                    tracing::debug!(%peer, "closed a connection: the peer already has {}", limits.per_peer);
                    continue;
                };
                let (acceptor, service, stop) = (acceptor.clone(), service.clone(), stop.clone());
                let client = (peer, counted, open.clone());
                connections.spawn(connection(stream, client, acceptor, permit, service, stop, limits.timeouts));
                if connections.len() + (limits.at_once / KEPT_FREE).max(1) > limits.at_once {
                    open.evict();
                }
            },
        }
    }
    drop(listener);
    let drained = tokio::time::timeout(GRACE, async { while connections.join_next().await.is_some() {} });
    if drained.await.is_err() {
        tracing::warn!(connections = connections.len(), "closed connections before their requests had ended");
    }
    Ok(())
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
    timeouts: ClientTimeouts,
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
    let idle = activity.idle(timeouts.first, timeouts.next);
    let registered = open.enter(activity.clone());
    let service = service_fn(move |mut request: Request<Incoming>| {
        request.extensions_mut().insert(Peer(peer));
        let (busy, activity) = (activity.begin(), activity.clone());
        let answered = service.clone().oneshot(request);
        async move {
            let Ok(response) = answered.await;
            if response.extensions().get::<Authenticated>().is_some() {
                activity.authenticated();
            }
            Ok::<_, Infallible>(response.map(|body| StallGuard::new(body, busy, timeouts.reading)))
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
