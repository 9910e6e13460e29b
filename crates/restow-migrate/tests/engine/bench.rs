//! An embedded API server with widgets, behind a client that may answer in its place.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use http::{Request, Response};
use kube::Client;
use kube::client::Body;
use restow_apiserver::{Server, ServerSettings};
use restow_core::agreement::encryption::KeyRequirement;
use restow_core::resource::inventory::Resource;
use restow_core::resource::inventory::find;
use restow_core::rewrite::outcome::Outcome;
use restow_core::rewrite::pace::Preset;
use restow_core::rewrite::progress::{Progress, Quarantined};
use restow_lease::Stop;
use restow_migrate::client::Throttle;
use restow_migrate::cluster::{Cluster, Trust};
use restow_migrate::list::Waiting;
use restow_migrate::migration::{self, Journal, ListMode, Migration, Observer};
use restow_migrate::rewrite::WriteOptions;
use restow_store::file::{self, FileStore};
use restow_store::{Range, Store as _, Write, Written};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio_util::sync::CancellationToken;

/// The name of the resource that is migrated.
pub(crate) const WIDGETS: &str = "widgets.example.com";
const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
pub(crate) const LIST: &str = "/apis/example.com/v1/namespaces/default/widgets";
const STORED: &str = "/registry/example.com/widgets/";
/// How many objects are in a page.
const PAGE: u32 = 4;

/// A server and its store.
pub(crate) struct Bench {
    pub(crate) server: Server,
    pub(crate) store: Arc<FileStore>,
    _dir: TempDir,
}

impl Bench {
    /// A server with this many widgets that are stored as v1, while v2 is the storage version.
    pub(crate) async fn outdated(objects: usize) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let store = Arc::new(FileStore::open(dir.path(), file::FileSettings::default()).unwrap());
        let server = Server::start(ServerSettings::new(store.clone())).await.unwrap();
        let bench = Self { server, store, _dir: dir };
        bench.send("POST", DEFINITIONS, &definition("v1")).await.unwrap();
        wait("the definition is served", || async {
            bench.get("/apis/example.com/v1").await.is_some() && bench.get(LIST).await.is_some()
        })
        .await;
        for at in 0..objects {
            let widget =
                json!({"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": name(at)}});
            bench.send("POST", LIST, &widget).await.unwrap();
        }
        let before = bench.hash().await;
        bench.store_as("v2").await;
        wait("discovery shows the storage version", || async { bench.hash().await != before }).await;
        bench
    }

    /// Sets the storage version.
    pub(crate) async fn store_as(&self, version: &str) {
        let flip = json!({"spec": {"versions": definition(version)["spec"]["versions"]}});
        self.send("PATCH", &format!("{DEFINITIONS}/{WIDGETS}"), &flip).await.unwrap();
    }

    /// The current CustomResourceDefinition.
    pub(crate) async fn definition(&self) -> Value {
        self.get(&format!("{DEFINITIONS}/{WIDGETS}")).await.unwrap()
    }

    async fn hash(&self) -> Value {
        let found = self.get("/apis/example.com/v1").await.unwrap();
        found["resources"][0]["storageVersionHash"].clone()
    }

    pub(crate) async fn get(&self, path: &str) -> Option<Value> {
        self.server.client().request(Request::get(path).body(Vec::new()).unwrap()).await.ok()
    }

    /// Sends a request with a body.
    pub(crate) async fn send(&self, method: &str, path: &str, body: &Value) -> kube::Result<Value> {
        let kind = if method == "PATCH" { "application/merge-patch+json" } else { "application/json" };
        let request = Request::builder().method(method).uri(path).header("content-type", kind);
        self.server.client().request(request.body(body.to_string().into_bytes()).unwrap()).await
    }

    /// The version of each widget's stored bytes.
    pub(crate) async fn stored(&self) -> BTreeMap<String, String> {
        let range = Range { prefix: STORED.to_owned(), start: None, limit: 0, revision: None };
        let entries = self.store.list(range).await.unwrap().entries;
        let version = |entry: &restow_store::Entry| {
            let object: Value = serde_json::from_slice(&entry.value).unwrap();
            let name = object["metadata"]["name"].as_str().unwrap().to_owned();
            (name, object["apiVersion"].as_str().unwrap().trim_start_matches("example.com/").to_owned())
        };
        entries.iter().map(version).collect()
    }

    /// The number of widgets stored in each version.
    pub(crate) async fn counts(&self) -> BTreeMap<String, usize> {
        let mut counts = BTreeMap::new();
        for version in self.stored().await.into_values() {
            *counts.entry(version).or_default() += 1;
        }
        counts
    }

    /// The cluster as the engine reaches it; `answer` may answer in the server's place.
    pub(crate) fn cluster(
        &self,
        answer: impl Fn(&Request<Body>) -> Option<Response<Body>> + Clone + Send + Sync + 'static,
    ) -> Cluster {
        self.cluster_after(|_| std::future::ready(()), answer)
    }

    /// The same cluster; `first` is completed before each request is answered.
    pub(crate) fn cluster_after<F: Future<Output = ()> + Send + 'static>(
        &self,
        first: impl Fn(&Request<Body>) -> F + Clone + Send + Sync + 'static,
        answer: impl Fn(&Request<Body>) -> Option<Response<Body>> + Clone + Send + Sync + 'static,
    ) -> Cluster {
        let inner = self.server.client();
        Cluster::over("https://one", Trust::Single, move |_| {
            let (inner, first, answer) = (inner.clone(), first.clone(), answer.clone());
            let service = tower::service_fn(move |request: Request<Body>| {
                let (inner, first, answer) = (inner.clone(), first(&request), answer(&request));
                async move {
                    first.await;
                    match answer {
                        Some(answer) => Ok(answer),
                        None => inner.send(request).await,
                    }
                }
            });
            Client::new(service, "default")
        })
    }

    /// The cluster without wrong answers.
    pub(crate) fn honest(&self) -> Cluster {
        self.cluster(|_| None)
    }
}

/// Stores a widget in v1 past the server.
pub(crate) async fn store_in_v1(store: &FileStore, name: &str) {
    let key = format!("{STORED}default/{name}");
    let entry = store.get(&key).await.unwrap().entry.unwrap();
    let mut object: Value = serde_json::from_slice(&entry.value).unwrap();
    object["apiVersion"] = json!("example.com/v1");
    let value = Some(object.to_string().into_bytes().into());
    let written = store.write(Write { key, expected: entry.mod_revision, value }).await.unwrap();
    assert!(matches!(written, Written::Done { .. }), "{written:?}");
}

async fn wait<F: Future<Output = bool>>(what: &str, is_true: impl FnMut() -> F) {
    restow_lab::suite::wait(Duration::from_secs(20), what, is_true).await;
}

/// The name of a widget by number.
pub(crate) fn name(at: usize) -> String {
    format!("w-{at:02}")
}

/// An API server's error.
pub(crate) fn refusal(code: u16, reason: &str, message: &str) -> Response<Body> {
    let status = json!({
        "apiVersion": "v1", "kind": "Status", "status": "Failure", "code": code, "reason": reason,
        "message": message,
    });
    let response = Response::builder().status(code).header("content-type", "application/json");
    response.body(Body::from(status.to_string().into_bytes())).unwrap()
}

fn definition(stored: &str) -> Value {
    let version = |name: &str| {
        json!({
            "name": name, "served": true, "storage": name == stored,
            "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}},
        })
    };
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": WIDGETS},
        "spec": {
            "group": "example.com", "scope": "Namespaced",
            "names": {"plural": "widgets", "singular": "widget", "kind": "Widget"},
            "versions": [version("v1"), version("v2")],
        },
    })
}

/// Saves the progress in memory, and can fail after a number of pages.
#[derive(Default)]
pub(crate) struct Kept {
    pub(crate) pages: Vec<Progress>,
    pub(crate) left: Vec<Quarantined>,
    pub(crate) fails_after: Option<usize>,
}

impl Journal for Kept {
    async fn save(&mut self, progress: &Progress, left: &[Quarantined]) -> io::Result<()> {
        if self.fails_after.is_some_and(|pages| self.pages.len() >= pages) {
            return Err(io::Error::other("the disk is full"));
        }
        self.pages.push(progress.clone());
        self.left.extend_from_slice(left);
        Ok(())
    }
}

struct Silent;

impl Waiting for Silent {
    fn waiting(&self, _: &str, _: Duration) {}
}

impl Observer for Silent {
    fn settling(&self, _: Duration) {}
    fn pass(&self, _: &Progress) {}
    fn decided(&self, _: &Outcome) {}
    fn page(&self, _: &Progress) {}
}

/// The widgets in the engine's inventory.
pub(crate) async fn widgets(cluster: &Cluster) -> Resource {
    let inventory = cluster.inventory(false).await.unwrap();
    find(&inventory.resources, WIDGETS).unwrap().clone()
}

/// Starts or resumes a migration that lists in chunks, and runs it to its end.
pub(crate) async fn migrate(
    cluster: &Cluster,
    resource: &Resource,
    from: Option<Progress>,
    journal: &mut Kept,
) -> Result<Progress, migration::MigrationError> {
    migrate_with(ListMode::Chunked, cluster, resource, from, journal).await
}

/// Starts or resumes a migration, and runs it to its end.
pub(crate) async fn migrate_with(
    list: ListMode,
    cluster: &Cluster,
    resource: &Resource,
    from: Option<Progress>,
    journal: &mut Kept,
) -> Result<Progress, migration::MigrationError> {
    let settings = migration::MigrationSettings {
        page_size: PAGE,
        list,
        verify: true,
        write_options: WriteOptions::default(),
        encrypted: KeyRequirement::default(),
    };
    let throttle = Throttle::new(Preset::Fast.bounds());
    let stop = Stop::from(CancellationToken::new());
    let observer = &Silent;
    let migration = Migration { cluster, resource, settings, throttle: &throttle, observer, stop: &stop };
    let mut progress = match from {
        Some(progress) => progress,
        None => migration.begin().await?,
    };
    migration.run(&mut progress, journal).await.map(|()| progress)
}
