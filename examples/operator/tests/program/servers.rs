//! A control plane, real or embedded, with a user that has no permissions yet.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use restow_apiserver::{Network, Server, ServerSettings, User};
use restow_lab::{Cluster, ClusterSpec, assets, suite};
use restow_store::memory::MemoryStore;
use serde_json::Value;
use tempfile::TempDir;

use crate::pages::PREFIX;

/// The user that the program runs as.
pub(crate) const USER: &str = "page-operator";

/// Where a test runs.
pub(crate) enum Bench {
    Real(Box<Cluster>),
    Embedded { server: Box<Server>, store: Arc<MemoryStore>, dir: TempDir },
}

impl Bench {
    /// A real control plane; none where it cannot be built, which is said for the test.
    pub(crate) async fn real(test: &str) -> Option<Self> {
        let assets = assets::or_skip(test)?;
        let spec = ClusterSpec::new().user(USER, &[]);
        Some(Self::Real(Box::new(Cluster::start(&assets, spec).await.unwrap())))
    }

    /// The embedded API server, in this process, with a port for others.
    pub(crate) async fn embedded() -> Self {
        let store = Arc::new(MemoryStore::default());
        let mut network = Network::ephemeral().await.unwrap();
        network.tokens.insert("a-token", User::known(USER, [] as [&str; 0]));
        let settings = ServerSettings { network: Some(network), ..ServerSettings::new(store.clone()) };
        let server = Box::new(Server::start(settings).await.unwrap());
        let dir = tempfile::tempdir().unwrap();
        let text = server.connection_info().unwrap().kubeconfig_of(USER, "a-token");
        std::fs::write(dir.path().join("kubeconfig"), text).unwrap();
        Self::Embedded { server, store, dir }
    }

    /// A client of the admin.
    pub(crate) fn client(&self) -> kube::Client {
        match self {
            Self::Real(cluster) => cluster.client(0).unwrap(),
            Self::Embedded { server, .. } => server.client(),
        }
    }

    /// The kubeconfig of the user.
    #[allow(dead_code)] // the rules need no user
    pub(crate) fn kubeconfig(&self) -> PathBuf {
        match self {
            Self::Real(cluster) => cluster.kubeconfig(0, USER),
            Self::Embedded { dir, .. } => dir.path().join("kubeconfig"),
        }
    }

    /// All pages as they are stored.
    pub(crate) async fn stored(&self) -> Vec<Value> {
        let mut pages = Vec::new();
        match self {
            Self::Real(cluster) => {
                let read = |_: &str, bytes: &[u8]| pages.push(serde_json::from_slice(bytes).unwrap());
                cluster.store().for_each(PREFIX, read).await.unwrap();
            }
            Self::Embedded { store, .. } => {
                let entries = store.below(PREFIX);
                pages.extend(
                    entries.iter().map(|entry| serde_json::from_slice::<Value>(&entry.value).unwrap()),
                );
            }
        }
        pages
    }
}

/// Waits for something to become true. It gives up late, because a machine that runs other tests too is slow.
pub(crate) async fn wait<F: Future<Output = bool>>(what: &str, is_true: impl FnMut() -> F) {
    suite::wait(Duration::from_secs(300), what, is_true).await;
}
