//! Runs the server: it registers, serves, and drains before it deletes its Lease.

use std::collections::BTreeSet;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use http::Request;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use hyper_util::server::graceful::{GracefulShutdown, Watcher};
use restow_core::protocol::storage_version::{InvalidVersions, Versions};
use restow_core::resource::inventory::Origin;
use restow_lease::Election;
use restow_lease::Stop;
use restow_lease::election::identity;
use restow_storageversion::{Collector, Gate, Identity, Participation, Resource, Scope, Unregistered};
use restow_store::Store;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::certificate::Certificate;
use crate::delegation::Delegation;
use crate::handler::Handler;
use crate::ship::{GROUP, Version, resource};
use crate::ships::Ships;
use crate::tls::{self, Tls, TlsError};

/// The kind of server in its identity Lease.
pub const COMPONENT: &str = "fleet-apiserver";
/// How long to wait for requests in flight at the end.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(30);
/// How long a TLS handshake may take.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
/// How often entries of servers that are gone are collected.
const COLLECT_EVERY: Duration = Duration::from_secs(10);

/// How the server is reached, and where it stores.
pub struct ServerSettings {
    /// Its identity among the replicas, with a client for the kube-apiserver.
    pub identity: Identity,
    /// The store of its objects.
    pub store: Arc<dyn Store>,
    /// The storage version.
    pub storage: Version,
    /// The serving certificate.
    pub certificate: Certificate,
}

/// Why the server ended.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// Its versions are invalid.
    #[error(transparent)]
    Versions(#[from] InvalidVersions),
    /// TLS could not be set up.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// It cannot register.
    #[error("cannot register the storage version")]
    Unregistered(#[from] Unregistered),
}

/// Serves until it is told to stop.
///
/// Then it accepts no more connections, waits for requests in flight, and deletes its identity Lease last: other servers
/// rely on it that a server without a Lease no longer writes.
pub async fn serve(
    settings: ServerSettings,
    listener: TcpListener,
    stop: CancellationToken,
) -> Result<(), ServeError> {
    let ServerSettings { identity, store, storage, certificate } = settings;
    let client = identity.client.clone();
    let gate = Gate::closed(vec![stored_as(storage)?], |_| Origin::BuiltIn);
    let Some(tls) = Stop::from(stop.clone()).unless(tls::load(&client, &certificate)).await else {
        return Ok(());
    };
    let tls = tls?;
    let handler = Handler {
        ships: Ships::new(store, storage, gate.clone()),
        storage,
        gate: gate.clone(),
        delegation: Delegation::new(client.clone()),
        stop: stop.clone(),
    };
    let collector = collector(&identity);
    let election = election(&identity);
    let leave = CancellationToken::new();
    let leaves = Stop::from(leave.clone());
    let participation = Participation { identity, client: client.clone(), gate, has_custom: false };

    let serves = async {
        tokio::select! {
            () = accept(listener, &tls, &handler, &stop) => {}
            () = tls::follow(&client, &certificate, &tls) => {}
        }
        leave.cancel();
    };
    let takes_part = async {
        let end = participation.run(&leaves).await;
        // A server that cannot register does not serve.
        stop.cancel();
        end
    };
    let ((), end, ()) = tokio::join!(serves, takes_part, collector.run(&election, &stop));
    Ok(end?)
}

/// The registration of the ships.
fn stored_as(storage: Version) -> Result<Resource, InvalidVersions> {
    let all = Version::ALL.map(Version::group_version);
    Ok(Resource { name: resource(), versions: Versions::new(&storage.group_version(), &all, &all)? })
}

/// Replicas collect the entries of each other, and no other StorageVersions.
fn collector(own: &Identity) -> Collector {
    Collector {
        client: own.client.clone(),
        id: own.id.clone(),
        scope: Scope::Groups(BTreeSet::from([GROUP.to_owned()])),
        component: own.component.clone(),
        every: COLLECT_EVERY,
    }
}

fn election(own: &Identity) -> Election {
    Election {
        client: own.client.clone(),
        namespace: restow_lease::identity::NAMESPACE.to_owned(),
        name: format!("{COMPONENT}-collector"),
        identity: identity(),
        duration: Duration::from_secs(15),
        renew_every: Duration::from_secs(5),
    }
}

/// Accepts connections until it is told to stop, and waits for requests in flight.
async fn accept(
    listener: TcpListener,
    tls: &watch::Sender<Arc<Tls>>,
    handler: &Handler,
    stop: &CancellationToken,
) {
    let connections = GracefulShutdown::new();
    loop {
        let accepted = tokio::select! {
            () = stop.cancelled() => break,
            accepted = listener.accept() => accepted,
        };
        match accepted {
            Ok((stream, _)) => {
                let tls = Arc::clone(&tls.borrow());
                tokio::spawn(connection(stream, tls, handler.clone(), connections.watcher()));
            }
            // For example too many open files: other connections have to close first.
            Err(error) => {
                tracing::warn!("cannot accept a connection: {error}");
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
    }
    drop(listener);
    if tokio::time::timeout(DRAIN_TIMEOUT, connections.shutdown()).await.is_err() {
        tracing::warn!("some requests did not end in {DRAIN_TIMEOUT:?}");
    }
}

async fn connection(stream: TcpStream, tls: Arc<Tls>, handler: Handler, connections: Watcher) {
    let handshake = tokio::time::timeout(HANDSHAKE_TIMEOUT, tls.acceptor.accept(stream));
    let Ok(Ok(stream)) = handshake.await else { return };
    let shown = stream.get_ref().1.peer_certificates().and_then(<[_]>::first);
    let is_front_proxy =
        shown.is_some_and(|shown| tls.front_proxy.as_ref().is_some_and(|front_proxy| front_proxy.has(shown)));
    let handler = Arc::new(handler);
    let service = service_fn(move |request: Request<Incoming>| {
        let (tls, handler) = (Arc::clone(&tls), Arc::clone(&handler));
        async move {
            let front_proxy = tls.front_proxy.as_ref().filter(|_| is_front_proxy);
            Ok::<_, Infallible>(handler.answer(front_proxy, request).await)
        }
    });
    let mut builder = Builder::new(TokioExecutor::new());
    builder.http1().timer(TokioTimer::new());
    let served = connections.watch(builder.serve_connection(TokioIo::new(stream), service)).await;
    if let Err(error) = served {
        tracing::debug!("a connection failed: {error}");
    }
}
