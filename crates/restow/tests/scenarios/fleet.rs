//! Runs the example of an aggregated API server behind a real kube-apiserver.
//!
//! Its replicas run in the test's own process, each with a listener, an identity and clients of its own.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use aggregated_apiserver::certificate::Certificate;
use aggregated_apiserver::manifests::{NAMES, manifests};
use aggregated_apiserver::server::{COMPONENT, ServeError, ServerSettings, serve};
use aggregated_apiserver::ship::{GROUP, Version};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use restow_core::resource::hash::storage_version_hash;
use restow_lab::{Assets, Cluster, ClusterSpec};
use restow_storageversion::Identity;
use restow_store::etcd::{EtcdSettings, EtcdStore};
use restow_store::file::{FileSettings, FileStore};
use restow_store::{Entry, Range, Store};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::support::{cluster, contents, create_all, name, send, try_send, wait};

pub(crate) const SHIPS: &str = "ships.fleet.example.com";
const STORAGE_VERSION: &str =
    "/apis/internal.apiserver.k8s.io/v1alpha1/storageversions/fleet.example.com.ships";
pub(crate) const FRONT: &str = "front";
pub(crate) const BACK: &str = "back";

pub(crate) fn path(version: &str) -> String {
    format!("/apis/{GROUP}/{version}/namespaces/default/ships")
}

/// A cluster with the API registered at one address, and a store that all replicas share.
pub(crate) struct Fleet {
    pub(crate) cluster: Cluster,
    store: Backing,
    // Kept through restarts, so that nobody else gets the port.
    front: std::net::TcpListener,
    certificate: TempDir,
    _data: TempDir,
}

/// Where ships are kept.
enum Backing {
    /// In a file, which is one server's.
    File(Arc<dyn Store>),
    /// In the cluster's etcd, which replicas share.
    Etcd,
}

/// One replica of the example.
pub(crate) struct Replica {
    pub(crate) address: SocketAddr,
    stop: CancellationToken,
    life: JoinHandle<Result<(), ServeError>>,
}

impl Replica {
    /// Ends it as a rolling update would.
    pub(crate) async fn stop(self) {
        self.stop.cancel();
        tokio::time::timeout(Duration::from_secs(60), self.life).await.unwrap().unwrap().unwrap();
    }
}

impl Fleet {
    /// Keeps ships in a file.
    pub(crate) async fn on_file(assets: &Assets) -> Self {
        let data = tempfile::tempdir().unwrap();
        let store = FileStore::open(data.path(), FileSettings::default()).unwrap();
        Self::new(assets, Backing::File(Arc::new(store)), data).await
    }

    /// Keeps ships in the cluster's etcd.
    pub(crate) async fn on_etcd(assets: &Assets) -> Self {
        Self::new(assets, Backing::Etcd, tempfile::tempdir().unwrap()).await
    }

    /// A cluster whose user `fleet` may do what the example's permissions say, and no more.
    async fn new(assets: &Assets, store: Backing, data: TempDir) -> Self {
        let spec = ClusterSpec::new().front_proxy().storage_version_api().user("fleet", &[]);
        let fleet = Self {
            cluster: cluster(assets, spec).await,
            store,
            front: std::net::TcpListener::bind("127.0.0.1:0").unwrap(),
            certificate: tempfile::tempdir().unwrap(),
            _data: data,
        };
        fleet.permit().await;
        let port = fleet.front.local_addr().unwrap().port();
        let client = fleet.client();
        for object in manifests(port, fleet.certificate().pem())["items"].as_array().unwrap() {
            let all = match object["kind"].as_str().unwrap() {
                "Service" => "/api/v1/namespaces/default/services",
                _ => "/apis/apiregistration.k8s.io/v1/apiservices",
            };
            send(&client, "POST", all, Some(object)).await;
        }
        fleet
    }

    async fn permit(&self) {
        let client = self.client();
        let file = include_str!("../../../../examples/aggregated-apiserver/permissions.yaml");
        let permissions: Value = serde_saphyr::from_str(file).unwrap();
        for object in permissions["items"].as_array().unwrap() {
            let kind = object["kind"].as_str().unwrap().to_lowercase();
            let namespace = object["metadata"]["namespace"].as_str();
            let namespace = namespace.map(|name| format!("namespaces/{name}/")).unwrap_or_default();
            let all = format!("/apis/rbac.authorization.k8s.io/v1/{namespace}{kind}s");
            send(&client, "POST", &all, Some(object)).await;
        }
    }

    pub(crate) fn client(&self) -> Client {
        self.cluster.client(0).unwrap()
    }

    pub(crate) fn certificate(&self) -> Certificate {
        Certificate::load_or_create(self.certificate.path(), &NAMES).unwrap()
    }

    fn store(&self) -> Arc<dyn Store> {
        match &self.store {
            Backing::File(store) => Arc::clone(store),
            Backing::Etcd => {
                Arc::new(EtcdStore::new(&EtcdSettings::new([self.cluster.etcd().url()])).unwrap())
            }
        }
    }

    /// The identity of a replica that reaches the cluster through a kubeconfig.
    pub(crate) async fn identity(&self, id: &str, kubeconfig: PathBuf) -> Identity {
        let client = Client::try_from(config(kubeconfig).await).unwrap();
        let mut identity = Identity::new(client, COMPONENT, &format!("fleet-apiserver-{id}"));
        identity.renew_every = Duration::from_secs(1);
        identity
    }

    /// Starts a replica: the one called `front` where the API is registered, others beside it.
    pub(crate) async fn start(&self, id: &str, storage: Version) -> Replica {
        let identity = self.identity(id, self.cluster.kubeconfig(0, "fleet")).await;
        self.start_as(identity, storage).await
    }

    pub(crate) async fn start_as(&self, identity: Identity, storage: Version) -> Replica {
        let listener = if identity.id.ends_with(FRONT) {
            let listener = self.front.try_clone().unwrap();
            listener.set_nonblocking(true).unwrap();
            TcpListener::from_std(listener).unwrap()
        } else {
            TcpListener::bind("127.0.0.1:0").await.unwrap()
        };
        let address = listener.local_addr().unwrap();
        let settings =
            ServerSettings { identity, store: self.store(), storage, certificate: self.certificate() };
        let stop = CancellationToken::new();
        let life = tokio::spawn(serve(settings, listener, stop.clone()));
        Replica { address, stop, life }
    }

    /// Waits until ships can be written through the kube-apiserver, stored in this version.
    pub(crate) async fn serves(&self, storage: Version) {
        let client = self.client();
        let hash = storage_version_hash(&storage.group_version(), "Ship");
        let probe = json!({
            "apiVersion": format!("{GROUP}/v1"), "kind": "Ship", "metadata": {"name": "probe"}, "spec": {},
        });
        wait("ships to be served", || async {
            let found = try_send(&client, "GET", &format!("/apis/{GROUP}/v1"), None).await;
            found.is_ok_and(|found| found["resources"][0]["storageVersionHash"] == hash.as_str())
                && try_send(&client, "POST", &format!("{}?dryRun=All", path("v1")), Some(&probe))
                    .await
                    .is_ok()
                && try_send(&client, "GET", &path("v2"), None).await.is_ok()
        })
        .await;
    }

    pub(crate) async fn make_ships(&self, count: usize) {
        let ship = |index| {
            json!({
                "apiVersion": format!("{GROUP}/v1"), "kind": "Ship", "metadata": {"name": name(index)},
                "spec": {"port": format!("port-{index}"), "tons": index},
            })
        };
        create_all(&self.client(), &path("v1"), 0..count, ship).await;
    }

    /// The revision at which each was last written.
    pub(crate) async fn written(&self) -> BTreeMap<String, u64> {
        self.stored().await.into_iter().map(|entry| (entry.key, entry.mod_revision)).collect()
    }

    async fn stored(&self) -> Vec<Entry> {
        let prefix = format!("/registry/{GROUP}/ships/");
        let range = Range { prefix, start: None, limit: 0, revision: None };
        self.store().list(range).await.unwrap().entries
    }

    /// How many are stored in which version, and under which name their port.
    pub(crate) async fn stored_as(&self) -> BTreeMap<String, usize> {
        let mut counts = BTreeMap::new();
        for entry in self.stored().await {
            let object: Value = serde_json::from_slice(&entry.value).unwrap();
            let port = if object["spec"]["port"].is_string() { "port" } else { "homePort" };
            assert!(object["spec"][port].is_string(), "{object}");
            *counts.entry(format!("{} {port}", object["apiVersion"].as_str().unwrap())).or_default() += 1;
        }
        counts
    }

    /// Everything about ships, through v1, but where a rewrite shows.
    pub(crate) async fn values(&self) -> BTreeMap<String, Value> {
        let all = contents(&self.client(), &path("v1")).await;
        all.into_iter().map(|(name, (_, object))| (name, object)).collect()
    }

    /// What is registered, as `back=v1 front=v2`.
    async fn registered(&self) -> String {
        let Ok(object) = try_send(&self.client(), "GET", STORAGE_VERSION, None).await else {
            return String::new();
        };
        let short = |text: &Value| text.as_str().unwrap().rsplit(['-', '/']).next().unwrap().to_owned();
        let entries = object["status"]["storageVersions"].as_array().cloned().unwrap_or_default();
        let mut entries: Vec<String> = entries
            .iter()
            .map(|entry| format!("{}={}", short(&entry["apiServerID"]), short(&entry["encodingVersion"])))
            .collect();
        entries.sort();
        entries.join(" ")
    }

    pub(crate) async fn wait_registered(&self, expected: &str) {
        wait(expected, || async { self.registered().await == expected }).await;
    }
}

/// A client's configuration from a file, without retries of its own.
pub(crate) async fn config(kubeconfig: PathBuf) -> Config {
    let file = Kubeconfig::read_from(kubeconfig).unwrap();
    let mut config = Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await.unwrap();
    config.default_retry = false;
    config
}
