//! Starts, serves and stops a server.

mod bootstrap;
pub mod data_dir;
pub(crate) mod handler;
pub(crate) mod kubeconfig;
pub(crate) mod network;
pub(crate) mod service;

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use arc_swap::ArcSwapOption;
use restow_core::protocol::request::ResourcePath;
use restow_core::protocol::storage_version::InvalidVersions;
use restow_core::resource::inventory::Origin;
use restow_lease::Stop;
use restow_lease::election::{self, Election};
use restow_lease::identity::NAMESPACE;
use restow_storageversion::registration::Resource as Registration;
use restow_storageversion::{Collector, Gate, Identity, Participation, Scope};
use restow_store::encryption::Transformers;
use restow_store::{Store, StoreError};
use tokio::task::JoinHandle;
use tokio_util::sync::{CancellationToken, DropGuard};
use tower::Layer as _;

use crate::auth::access::Access;
use crate::controllers;
use crate::controllers::definitions::DefinitionController;
use crate::registry::served::Registry;
use crate::registry::webhook::Webhooks;
use crate::server::bootstrap::bootstrap;
use crate::server::network::{ConnectionInfo, Network, NetworkError};
use crate::server::service::{Handlers, client};
use crate::verbs::api::Api;
use crate::verbs::document_cache::DocumentCache;
use crate::verbs::store_health::StoreHealth;
use crate::verbs::workers::Workers;

/// The component name: like a kube-apiserver, it registers every built-in resource.
const COMPONENT: &str = "kube-apiserver";
/// How often leftovers of absent servers are collected, besides whenever a server leaves.
const COLLECTED: Duration = Duration::from_secs(60);
const START_TIMEOUT: Duration = Duration::from_secs(90);

/// What a server stores in, who it is among others, and how it serves.
pub struct ServerSettings {
    /// The store of objects.
    pub store: Arc<dyn Store>,
    /// The id of the server among those on the same store. No two running servers may share it.
    pub server_id: String,
    /// Something that no other running process has, so that a restarted server takes over its identity at once. The default
    /// is the store's.
    pub instance: Option<String>,
    /// The encryption at rest; none for plain text.
    pub encryption: Option<Arc<Transformers>>,
    /// The network; none for a server that only its own process uses.
    pub network: Option<Network>,
}

impl ServerSettings {
    /// A server without a network.
    pub fn new(store: Arc<dyn Store>) -> Self {
        let server_id = "apiserver-restow".to_owned();
        Self { store, server_id, instance: None, encryption: None, network: None }
    }
}

/// Why a server did not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The store could not be read.
    #[error("could not read the store")]
    Store(#[from] StoreError),
    /// A built-in resource could not be registered.
    #[error("could not register a built-in resource")]
    Versions(#[from] InvalidVersions),
    /// The network could not be set up.
    #[error(transparent)]
    Network(#[from] NetworkError),
    /// The server was not ready in time.
    #[error(
        "the server {0} was not ready within {START_TIMEOUT:?}: the store cannot be written, or another server has the same id"
    )]
    Late(String),
    /// The default objects could not be created.
    #[error("could not create the default objects")]
    Bootstrap(#[source] kube::Error),
}

/// A running server.
pub struct Server {
    api: Arc<Api>,
    client: kube::Client,
    connection: Option<ConnectionInfo>,
    serving: CancellationToken,
    taking_part: CancellationToken,
    tasks: Vec<JoinHandle<()>>,
    participation: JoinHandle<()>,
    _ends: [DropGuard; 2],
}

impl Server {
    /// Starts a server, and waits until it is ready.
    pub async fn start(settings: ServerSettings) -> Result<Self, StartError> {
        let (serving, taking_part) = (CancellationToken::new(), CancellationToken::new());
        // All tasks end when the server, or its start, ends.
        let ends = [serving.clone().drop_guard(), taking_part.clone().drop_guard()];
        let (store, mut network) = (settings.store, settings.network);
        let instance = settings.instance.or_else(|| store.instance());
        let encryption = Arc::new(ArcSwapOption::new(settings.encryption));
        let access = match &mut network {
            Some(network) => network.access(&store, &encryption, serving.clone()).await?,
            None => Access::default(),
        };
        let access = Arc::new(access);
        let registry = Arc::new(Registry::default());
        let gate = gate(&registry)?;
        let api = Arc::new(Api {
            access: Arc::clone(&access),
            store,
            registry,
            gate: gate.clone(),
            converter: Arc::new(Webhooks::default()),
            encryption,
            encryption_reloaded: AtomicI64::new(0),
            store_health: StoreHealth::default(),
            server_id: settings.server_id.clone(),
            started: restow_clock::now().as_second(),
            workers: Workers::default(),
            documents: DocumentCache::default(),
            stopped: serving.clone(),
        });
        let handlers = Handlers::new(&api);
        let loopback = client(gate.loopback_layer().layer(handlers.clone()));
        // The identity Lease is created before the gate opens, so it is written around the gate.
        let connection =
            network.as_ref().map(Network::connection_info).transpose().map_err(NetworkError::from)?;
        let identity = Identity {
            instance,
            address: connection.as_ref().map(|connection| connection.address().to_string()),
            ..Identity::new(client(handlers.clone()), COMPONENT, &settings.server_id)
        };
        let (collector, election) = collecting(&identity, &loopback);
        let participation =
            Participation { identity, client: loopback.clone(), gate: gate.clone(), has_custom: true };
        let stop = Stop::from(taking_part.clone());
        let kept = Arc::clone(&api);
        let participation = tokio::spawn(async move {
            if let Err(error) = participation.run(&stop).await {
                tracing::error!("no longer taking part in the StorageVersion protocol: {error}");
            }
            // Kept until here: the Lease is released through the handlers.
            drop(kept);
        });
        let stop = Stop::from(serving.clone());
        let mut definitions = DefinitionController::new(Arc::clone(&api), loopback.clone(), stop);
        // Before the first request: a defined resource must not be answered with 404.
        let loaded = definitions.load().await?;
        let mut tasks = vec![tokio::spawn(definitions.run(loaded))];
        let (stop, ready) = (serving.clone(), gate.readiness());
        tasks.push(tokio::spawn(async move {
            if stop.run_until_cancelled(ready.ready()).await.is_some() {
                collector.run(&election, &stop).await;
            }
        }));
        tasks.extend(controllers::start(&api, &loopback, &Stop::from(serving.clone())));
        if let Some(network) = network {
            tasks.push(network.serve(access, gate.layer().layer(handlers), serving.clone())?);
        }
        let server = Self {
            api,
            client: loopback,
            connection,
            serving,
            taking_part,
            tasks,
            participation,
            _ends: ends,
        };
        server.become_ready().await?;
        Ok(server)
    }

    async fn become_ready(&self) -> Result<(), StartError> {
        let ready = self.api.gate.readiness();
        tokio::time::timeout(START_TIMEOUT, ready.ready())
            .await
            .map_err(|_| StartError::Late(self.api.server_id.clone()))?;
        bootstrap(&self.client).await.map_err(StartError::Bootstrap)
    }

    /// Replaces the encryption configuration.
    pub fn set_encryption(&self, transformers: Arc<Transformers>) {
        self.api.encryption.store(Some(transformers));
        self.api.encryption_reloaded.store(restow_clock::now().as_second(), Ordering::Relaxed);
    }

    /// A client with all permissions, inside this process.
    pub fn client(&self) -> kube::Client {
        self.client.clone()
    }

    /// How other processes connect; none without a network.
    pub fn connection_info(&self) -> Option<&ConnectionInfo> {
        self.connection.as_ref()
    }

    /// Stops, as dropping it does, and waits for the end: no new requests are accepted, watches end, requests in flight are
    /// answered, and the identity Lease is released.
    pub async fn stop(self) {
        self.serving.cancel();
        for task in self.tasks {
            let _ = task.await;
        }
        self.taking_part.cancel();
        let _ = self.participation.await;
    }
}

/// Collects leftovers of absent servers on the same store.
fn collecting(identity: &Identity, loopback: &kube::Client) -> (Collector, Election) {
    let collector = Collector {
        client: loopback.clone(),
        id: identity.id.clone(),
        scope: Scope::All,
        component: identity.component.clone(),
        every: COLLECTED,
    };
    let election = Election {
        client: loopback.clone(),
        namespace: NAMESPACE.to_owned(),
        name: "storage-version-collector".to_owned(),
        identity: election::identity(),
        duration: Duration::from_secs(15),
        renew_every: Duration::from_secs(5),
    };
    (collector, election)
}

fn gate(registry: &Arc<Registry>) -> Result<Gate, InvalidVersions> {
    let mut resources = Vec::new();
    for resource in registry.served().built_in.iter() {
        let versions = resource.registered()?;
        resources.push(Registration { name: resource.name.clone(), versions });
    }
    let registry = Arc::clone(registry);
    let origin = move |target: &ResourcePath| {
        let found = registry.find(&target.group, &target.version, &target.resource);
        match found {
            Some(resource) if resource.custom().is_some() => Origin::Custom,
            _ => Origin::BuiltIn,
        }
    };
    Ok(Gate::closed(resources, origin))
}
