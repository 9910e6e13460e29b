//! The server's life: it takes part, serves, and in the end drains before it leaves.

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
use crate::door::{self, Door, DoorError};
use crate::handler::Handler;
use crate::ship::{GROUP, Version, resource};
use crate::ships::Ships;
use crate::user::Delegation;

/// The kind of server, as its identity Leases say.
pub const COMPONENT: &str = "fleet-apiserver";
/// How long connections are given to end what is under way.
const DRAINED: Duration = Duration::from_secs(30);
/// How long a client may take to shake hands.
const HANDSHAKE: Duration = Duration::from_secs(10);
/// How often is looked after servers that have gone.
const COLLECTED: Duration = Duration::from_secs(10);

/// What a server is made of.
pub struct Settings {
    /// Who it is among its replicas; its client reaches the kube-apiserver.
    pub identity: Identity,
    /// Where it keeps its objects.
    pub store: Arc<dyn Store>,
    /// The version it stores them in.
    pub storage: Version,
    /// What it shows its clients.
    pub certificate: Certificate,
}

/// Why a server has ended.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// Its versions make no sense.
    #[error(transparent)]
    Versions(#[from] InvalidVersions),
    /// It could not open.
    #[error(transparent)]
    Door(#[from] DoorError),
    /// It cannot register.
    #[error("it cannot take part in storage version migration")]
    Unregistered(#[from] Unregistered),
}

/// Serves until told to stop.
///
/// In the end it takes no more connections, waits for requests under way, and only then gives up its identity: whoever
/// finds it gone may rely on it that it writes no more.
pub async fn serve(
    settings: Settings,
    listener: TcpListener,
    stop: CancellationToken,
) -> Result<(), ServeError> {
    let Settings { identity, store, storage, certificate } = settings;
    let client = identity.client.clone();
    let gate = Gate::closed(vec![stored_as(storage)?], |_| Origin::BuiltIn);
    let Some(door) = Stop::from(stop.clone()).unless(door::open(&client, &certificate)).await else {
        return Ok(());
    };
    let door = door?;
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
            () = accept(listener, &door, &handler, &stop) => {}
            () = door::follow(&client, &certificate, &door) => {}
        }
        leave.cancel();
    };
    let takes_part = async {
        let end = participation.run(&leaves).await;
        // Without a place to register there is nothing to be served.
        stop.cancel();
        end
    };
    let ((), end, ()) = tokio::join!(serves, takes_part, collector.run(&election, &stop));
    Ok(end?)
}

/// What is registered of the ships.
fn stored_as(storage: Version) -> Result<Resource, InvalidVersions> {
    let all = Version::ALL.map(Version::group_version);
    Ok(Resource { name: resource(), versions: Versions::new(&storage.group_version(), &all, &all)? })
}

/// Replicas clear up after one another, and touch nobody else's StorageVersions.
fn collector(own: &Identity) -> Collector {
    Collector {
        client: own.client.clone(),
        id: own.id.clone(),
        scope: Scope::Groups(BTreeSet::from([GROUP.to_owned()])),
        component: own.component.clone(),
        every: COLLECTED,
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

/// Takes connections until told to stop, and waits for what is under way.
async fn accept(
    listener: TcpListener,
    door: &watch::Sender<Arc<Door>>,
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
                let door = Arc::clone(&door.borrow());
                tokio::spawn(connection(stream, door, handler.clone(), connections.watcher()));
            }
            // Too many open files, for one: others have to close first.
            Err(error) => {
                tracing::warn!("no connection: {error}");
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
    }
    drop(listener);
    if tokio::time::timeout(DRAINED, connections.shutdown()).await.is_err() {
        tracing::warn!("some requests have not ended in {DRAINED:?}");
    }
}

async fn connection(stream: TcpStream, door: Arc<Door>, handler: Handler, connections: Watcher) {
    let handshake = tokio::time::timeout(HANDSHAKE, door.acceptor.accept(stream));
    let Ok(Ok(stream)) = handshake.await else { return };
    let shown = stream.get_ref().1.peer_certificates().and_then(<[_]>::first);
    let is_front_proxy = shown
        .is_some_and(|shown| door.front_proxy.as_ref().is_some_and(|front_proxy| front_proxy.has(shown)));
    let handler = Arc::new(handler);
    let service = service_fn(move |request: Request<Incoming>| {
        let (door, handler) = (Arc::clone(&door), Arc::clone(&handler));
        async move {
            let front_proxy = door.front_proxy.as_ref().filter(|_| is_front_proxy);
            Ok::<_, Infallible>(handler.answer(front_proxy, request).await)
        }
    });
    let mut builder = Builder::new(TokioExecutor::new());
    builder.http1().timer(TokioTimer::new());
    let served = connections.watch(builder.serve_connection(TokioIo::new(stream), service)).await;
    if let Err(error) = served {
        tracing::debug!("a connection has ended: {error}");
    }
}
