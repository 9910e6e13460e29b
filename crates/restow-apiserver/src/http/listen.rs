//! Connections: taken on in bounded number, spoken to in TLS and HTTP within bounds, and drained at the end.
//!
//! A connection that sends no request is closed, and an answer that nobody reads is dropped: whoever may connect can
//! keep neither from others for ever.

mod activity;
mod attended;
mod occupants;
mod peers;

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

use crate::http::tls::{Serving, TlsError};

use activity::Activity;
use attended::Attended;
use occupants::Occupants;
use peers::{Counted, Peers};

/// How many connections there are at once; more wait to be accepted.
const AT_ONCE: usize = 1024;
/// The last of these places are kept free, one in so many: an idle connection that nobody has authenticated on is closed
/// for each new one. Else a few peers could keep everybody else out with requests that anybody may send.
const KEPT_FREE: usize = 16;
/// How often such a connection is closed while all places are taken.
const EVICT_EVERY: Duration = Duration::from_millis(100);
/// How long a connection that is closed for another one may take to end.
const EVICTION: Duration = Duration::from_secs(1);
/// How many of them one peer may have; more are closed.
const PER_PEER: usize = AT_ONCE / 2;
/// How many of them may be in their handshake, which costs the most and shows nothing of who it is.
const HANDSHAKES: usize = 64;
/// How long a handshake may take, and the head of a request.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long a connection without a request stays open; kube-apiserver keeps one of HTTP/2 as long.
const IDLE: Duration = Duration::from_secs(90);
/// How long a client may leave an answer unread before it is dropped.
const STALLED: Duration = Duration::from_secs(60);
/// How long requests under way have at the end.
const GRACE: Duration = Duration::from_secs(10);
/// How long to wait when no connection can be accepted, for want of file descriptors.
const AFTER_AN_ERROR: Duration = Duration::from_millis(100);
/// How often the certificate is made anew; it is good for a year.
const RENEW_EVERY: Duration = Duration::from_secs(30 * 24 * 3600);

/// Requests under way on one connection, as kube-apiserver has it.
const STREAMS: u32 = 100;
/// What one request may send ahead of being read.
const STREAM_WINDOW: u32 = 256 * 1024;
/// What all requests of one connection may.
const CONNECTION_WINDOW: u32 = 4 * 1024 * 1024;
/// How large the head of a request may be.
const HEAD: u32 = 64 * 1024;
/// How many requests may be taken back before they are looked at: what makes rapid resets cheap to refuse.
const RESETS: usize = 20;
/// When a silent HTTP/2 peer is asked whether it is there.
const PING_EVERY: Duration = Duration::from_secs(30);

/// Who is at the other end of a request's connection: an extension of each request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Peer(pub SocketAddr);

/// An extension of the answer to a request that was authenticated: its connection is not closed for others.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Authenticated;

/// What clients may have.
#[derive(Clone, Copy, Debug)]
struct Bounds {
    /// So many connections in all.
    at_once: usize,
    /// So many connections for each peer.
    per_peer: usize,
    /// How long clients are waited for.
    patience: Patience,
}

/// How long clients are waited for.
#[derive(Clone, Copy, Debug)]
struct Patience {
    /// For the first request of a connection.
    first: Duration,
    /// For the next one.
    next: Duration,
    /// For an answer to be read on.
    reading: Duration,
}

/// Serves until told to stop; requests under way are answered first, for as long as that may take.
pub async fn serve<S, B>(
    listener: TcpListener,
    serving: Arc<Serving>,
    service: S,
    stop: CancellationToken,
) -> Result<(), TlsError>
where
    S: Service<Request<Incoming>, Response = Response<B>, Error = Infallible> + Clone + Send + Sync + 'static,
    S::Future: Send,
    B: Body<Data: Send, Error: Into<Box<dyn Error + Send + Sync>>> + Send + Unpin + 'static,
{
    let patience = Patience { first: PATIENCE, next: IDLE, reading: STALLED };
    serve_with(listener, serving, service, stop, Bounds { at_once: AT_ONCE, per_peer: PER_PEER, patience })
        .await
}

async fn serve_with<S, B>(
    listener: TcpListener,
    serving: Arc<Serving>,
    service: S,
    stop: CancellationToken,
    bounds: Bounds,
) -> Result<(), TlsError>
where
    S: Service<Request<Incoming>, Response = Response<B>, Error = Infallible> + Clone + Send + Sync + 'static,
    S::Future: Send,
    B: Body<Data: Send, Error: Into<Box<dyn Error + Send + Sync>>> + Send + Unpin + 'static,
{
    let acceptor = serving.acceptor()?;
    let handshakes = Arc::new(Semaphore::new(HANDSHAKES));
    let peers = Peers::new(bounds.per_peer);
    let occupants = Occupants::default();
    let mut connections = JoinSet::new();
    let mut eviction = tokio::time::interval(EVICT_EVERY);
    eviction.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut renewal = tokio::time::interval_at(restow_clock::Instant::now() + RENEW_EVERY, RENEW_EVERY);
    loop {
        let room = connections.len() < bounds.at_once;
        tokio::select! {
            () = stop.cancelled() => break,
            _ = renewal.tick() => if let Err(error) = serving.renew(restow_clock::now()) {
                tracing::warn!(%error, "the serving certificate is as it was");
            },
            Some(_) = connections.join_next() => {}
            _ = eviction.tick(), if !room => occupants.evict(),
            accepted = accept(&listener, &handshakes), if room => if let Some((stream, peer, permit)) = accepted {
                let Some(counted) = peers.enter(peer.ip()) else {
                    tracing::debug!(%peer, "closed: the peer has {} connections", bounds.per_peer);
                    continue;
                };
                let (acceptor, service, stop) = (acceptor.clone(), service.clone(), stop.clone());
                let client = (peer, counted, occupants.clone());
                connections.spawn(connection(stream, client, acceptor, permit, service, stop, bounds.patience));
                if connections.len() + (bounds.at_once / KEPT_FREE).max(1) > bounds.at_once {
                    occupants.evict();
                }
            },
        }
    }
    drop(listener);
    let drained = tokio::time::timeout(GRACE, async { while connections.join_next().await.is_some() {} });
    if drained.await.is_err() {
        tracing::warn!(connections = connections.len(), "closed before their requests had ended");
    }
    Ok(())
}

/// The next connection, and its place among the handshakes.
async fn accept(
    listener: &TcpListener,
    handshakes: &Arc<Semaphore>,
) -> Option<(TcpStream, SocketAddr, OwnedSemaphorePermit)> {
    let permit = Arc::clone(handshakes).acquire_owned().await.ok()?;
    match listener.accept().await {
        Ok((stream, peer)) => Some((stream, peer, permit)),
        Err(error) => {
            tracing::warn!("accepting a connection: {error}");
            tokio::time::sleep(AFTER_AN_ERROR).await;
            None
        }
    }
}

async fn connection<S, B>(
    stream: TcpStream,
    (peer, _counted, occupants): (SocketAddr, Counted, Occupants),
    acceptor: TlsAcceptor,
    permit: OwnedSemaphorePermit,
    service: S,
    stop: CancellationToken,
    patience: Patience,
) where
    S: Service<Request<Incoming>, Response = Response<B>, Error = Infallible> + Clone + Send + Sync + 'static,
    S::Future: Send,
    B: Body<Data: Send, Error: Into<Box<dyn Error + Send + Sync>>> + Send + Unpin + 'static,
{
    // Small answers go out at once.
    let _ = stream.set_nodelay(true);
    let handshake = tokio::time::timeout(PATIENCE, acceptor.accept(stream));
    let stream = match stop.run_until_cancelled(handshake).await {
        Some(Ok(Ok(stream))) => stream,
        Some(Ok(Err(error))) => return tracing::debug!(%peer, "handshake: {error}"),
        Some(Err(_)) => return tracing::debug!(%peer, "handshake: none in {PATIENCE:?}"),
        None => return,
    };
    drop(permit);
    let activity = Activity::default();
    let idle = activity.idle(patience.first, patience.next);
    let occupant = occupants.enter(activity.clone());
    let service = service_fn(move |mut request: Request<Incoming>| {
        request.extensions_mut().insert(Peer(peer));
        let (busy, activity) = (activity.begin(), activity.clone());
        let answered = service.clone().oneshot(request);
        async move {
            let Ok(response) = answered.await;
            if response.extensions().get::<Authenticated>().is_some() {
                activity.authenticated();
            }
            Ok::<_, Infallible>(response.map(|body| Attended::new(body, busy, patience.reading)))
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
        () = occupant.evicted() => {
            connection.as_mut().graceful_shutdown();
            match tokio::time::timeout(EVICTION, connection).await {
                Ok(served) => served,
                Err(_) => return tracing::debug!(%peer, "closed: others wait for a connection"),
            }
        }
        () = idle => {
            connection.as_mut().graceful_shutdown();
            match tokio::time::timeout(PATIENCE, connection).await {
                Ok(served) => served,
                Err(_) => return tracing::debug!(%peer, "closed: no request, and no end"),
            }
        }
    };
    if let Err(error) = served {
        tracing::debug!(%peer, "connection: {error}");
    }
}

fn http() -> auto::Builder<TokioExecutor> {
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder.http1().timer(TokioTimer::new()).header_read_timeout(PATIENCE).max_buf_size(2 * HEAD as usize);
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(STREAMS)
        .initial_stream_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .max_header_list_size(HEAD)
        .max_pending_accept_reset_streams(RESETS)
        .keep_alive_interval(PING_EVERY)
        .keep_alive_timeout(PATIENCE);
    builder
}

#[cfg(test)]
mod tests;
