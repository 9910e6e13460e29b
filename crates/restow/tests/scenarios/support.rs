//! Clusters, many objects created quickly, and the restow binary.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};
use std::sync::OnceLock;
use std::time::Duration;

use futures::{StreamExt as _, stream};
use http::Request;
use restow_lab::{Assets, Cluster, ClusterSpec, suite};
use serde_json::{Value, json};
use tempfile::TempDir;

/// The restow binary.
const RESTOW: &str = env!("CARGO_BIN_EXE_restow");
/// How many requests are under way when objects are made.
const AT_ONCE: usize = 32;

/// The lab's programs, or the end of a test that is loudly not run.
macro_rules! lab {
    () => {
        match restow_lab::assets::or_skip(std::any::type_name_of_val(&|| ())) {
            Some(assets) => assets,
            None => return,
        }
    };
}
pub(crate) use lab;

/// One stock cluster that all tests share which change nothing but their own resources.
pub(crate) fn shared() -> Option<&'static Cluster> {
    static SHARED: OnceLock<Option<Cluster>> = OnceLock::new();
    SHARED.get_or_init(|| suite::start_shared("scenarios on the shared cluster", ClusterSpec::new())).as_ref()
}

/// Starts a cluster of a test's own.
pub(crate) async fn cluster(assets: &Assets, spec: ClusterSpec) -> Cluster {
    Cluster::start(assets, spec).await.expect("a cluster")
}

/// Where a scenario runs.
#[derive(Clone)]
pub(crate) enum Lab {
    /// On kube-apiserver and etcd.
    Real(Assets),
    /// On the embedded API server.
    Embedded,
}

impl Lab {
    /// The real control plane; none where it cannot be built, which is said for the test.
    pub(crate) fn real(test: &str) -> Option<Self> {
        restow_lab::assets::or_skip(test).map(Self::Real)
    }

    /// The embedded server, which every machine has.
    pub(crate) fn embedded(_: &str) -> Option<Self> {
        Some(Self::Embedded)
    }

    /// One stock cluster that all scenarios share which change nothing but their own resources.
    pub(crate) fn shared(&self) -> &'static Cluster {
        static EMBEDDED: OnceLock<Cluster> = OnceLock::new();
        match self {
            Self::Real(_) => shared().expect("the lab was found"),
            Self::Embedded => {
                EMBEDDED.get_or_init(|| suite::start_shared_embedded(Path::new(RESTOW), ClusterSpec::new()))
            }
        }
    }

    /// What an agreement of its API servers rests on: only the embedded server registers its storage versions unasked.
    pub(crate) fn agreement(&self) -> &'static str {
        match self {
            Self::Real(_) => "direct",
            Self::Embedded => "storageversion",
        }
    }

    /// How many objects to work on: all of them on the real one, a tenth on the embedded one, to save time.
    pub(crate) fn objects(&self, all: usize) -> usize {
        match self {
            Self::Real(_) => all,
            Self::Embedded => all / 10,
        }
    }

    /// Starts a cluster of a scenario's own.
    pub(crate) async fn cluster(&self, spec: ClusterSpec) -> Cluster {
        match self {
            Self::Real(assets) => cluster(assets, spec).await,
            Self::Embedded => Cluster::start_embedded(Path::new(RESTOW), spec).await.expect("a server"),
        }
    }
}

/// A custom resource of a test's own: `<plural>.<plural>.example.com` with versions v1 and v2.
pub(crate) struct Widgets {
    pub(crate) plural: &'static str,
}

impl Widgets {
    pub(crate) fn group(&self) -> String {
        format!("{}.example.com", self.plural)
    }

    /// Its full name, as restow takes it.
    pub(crate) fn name(&self) -> String {
        format!("{}.{}", self.plural, self.group())
    }

    /// The prefix of its objects' keys in the store.
    pub(crate) fn prefix(&self) -> String {
        format!("/registry/{}/{}/", self.group(), self.plural)
    }

    /// The path of its list, or of one object.
    pub(crate) fn path(&self, version: &str, object: &str) -> String {
        let slash = if object.is_empty() { "" } else { "/" };
        format!("/apis/{}/{version}/namespaces/default/{}{slash}{object}", self.group(), self.plural)
    }

    fn crd(&self, versions: &[(&str, bool, bool)]) -> Value {
        let schema =
            json!({"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}});
        let versions: Vec<Value> = versions
            .iter()
            .map(|(name, served, storage)| json!({"name": name, "served": served, "storage": storage, "schema": schema}))
            .collect();
        json!({
            "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {"name": self.name()},
            "spec": {
                "group": self.group(), "scope": "Namespaced",
                "names": {"plural": self.plural, "singular": self.plural, "kind": "Widget"},
                "versions": versions,
            },
        })
    }

    /// Defines it, stored as v1, and waits until it is served.
    pub(crate) async fn define(&self, client: &kube::Client) {
        let crd = self.crd(&[("v1", true, true), ("v2", true, false)]);
        send(client, "POST", CRDS, Some(&crd)).await;
        wait("the definition to be served", || async {
            let ready = try_send(client, "GET", &self.path("v1", ""), None).await;
            let found = document(client, &format!("/apis/{}/v1", self.group())).await;
            ready.is_ok() && found.is_some()
        })
        .await;
    }

    /// Makes another version the storage version; returns when discovery shows it.
    pub(crate) async fn store_as(&self, client: &kube::Client, version: &str) {
        self.set_versions(client, &[("v1", true, version == "v1"), ("v2", true, version == "v2")]).await;
        let hash = restow_core::resource::hash::storage_version_hash(
            &restow_core::resource::name::GroupVersion::new(self.group(), version),
            "Widget",
        );
        wait("discovery to show the storage version", || async {
            let found = document(client, &format!("/apis/{}/{version}", self.group())).await;
            found.is_some_and(|found| found["resources"][0]["storageVersionHash"] == hash.as_str())
        })
        .await;
    }

    /// Sets the versions: name, served, storage.
    pub(crate) async fn set_versions(&self, client: &kube::Client, versions: &[(&str, bool, bool)]) {
        let spec = json!({"spec": {"versions": self.crd(versions)["spec"]["versions"]}});
        patch(client, &format!("{CRDS}/{}", self.name()), &spec).await;
    }

    /// `status.storedVersions` now.
    pub(crate) async fn stored_versions(&self, client: &kube::Client) -> Value {
        send(client, "GET", &format!("{CRDS}/{}", self.name()), None).await["status"]["storedVersions"]
            .clone()
    }

    /// Makes objects `w-00000` and so on, of about a KiB each, through v1.
    pub(crate) async fn create(&self, client: &kube::Client, count: usize) {
        self.create_range(client, 0..count).await;
    }

    pub(crate) async fn create_range(&self, client: &kube::Client, range: std::ops::Range<usize>) {
        let path = self.path("v1", "");
        let group = self.group();
        let object = |index: usize| {
            json!({
                "apiVersion": format!("{group}/v1"), "kind": "Widget",
                "metadata": {"name": name(index), "labels": {"number": index.to_string()}},
                "spec": {"size": index, "padding": "x".repeat(900)},
            })
        };
        create_all(client, &path, range, object).await;
    }

    /// Everything stored, by key: the apiVersion its bytes say.
    pub(crate) async fn stored_as(&self, cluster: &Cluster) -> BTreeMap<String, usize> {
        let mut counts = BTreeMap::new();
        let count = |_: &str, bytes: &[u8]| {
            let object: Value = serde_json::from_slice(bytes).unwrap();
            *counts.entry(object["apiVersion"].as_str().unwrap().to_owned()).or_default() += 1;
        };
        cluster.store().for_each(&self.prefix(), count).await.unwrap();
        counts
    }
}

/// The path of all definitions.
pub(crate) const CRDS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";

/// The name of the object of a number.
pub(crate) fn name(index: usize) -> String {
    format!("w-{index:05}")
}

/// Makes many objects quickly.
pub(crate) async fn create_all(
    client: &kube::Client,
    path: &str,
    range: std::ops::Range<usize>,
    object: impl Fn(usize) -> Value,
) {
    let post = |index| {
        let body = object(index);
        async move { send(client, "POST", path, Some(&body)).await }
    };
    stream::iter(range).map(post).buffer_unordered(AT_ONCE).for_each(|_| async {}).await;
}

/// Sends a request that must succeed.
pub(crate) async fn send(client: &kube::Client, method: &str, path: &str, body: Option<&Value>) -> Value {
    try_send(client, method, path, body).await.unwrap_or_else(|error| panic!("{method} {path}: {error}"))
}

/// Sends a request.
pub(crate) async fn try_send(
    client: &kube::Client,
    method: &str,
    path: &str,
    body: Option<&Value>,
) -> Result<Value, kube::Error> {
    let content_type = if method == "PATCH" { "application/merge-patch+json" } else { "application/json" };
    let body = body.map(|body| body.to_string().into_bytes()).unwrap_or_default();
    let request =
        Request::builder().method(method).uri(path).header("Content-Type", content_type).body(body).unwrap();
    client.request(request).await
}

/// A merge patch that must succeed.
pub(crate) async fn patch(client: &kube::Client, path: &str, body: &Value) -> Value {
    send(client, "PATCH", path, Some(body)).await
}

async fn document(client: &kube::Client, path: &str) -> Option<Value> {
    try_send(client, "GET", path, None).await.ok()
}

/// Waits for something to become true. It gives up late, because a machine that runs other tests and builds too is slow.
pub(crate) async fn wait<F: Future<Output = bool>>(what: &str, is_true: impl FnMut() -> F) {
    suite::wait(Duration::from_secs(300), what, is_true).await;
}

/// The restow binary, with a state directory of its own.
pub(crate) struct Restow {
    kubeconfig: PathBuf,
    pub(crate) state: TempDir,
}

/// What a run of restow gave.
#[derive(Debug)]
pub(crate) struct Ran {
    pub(crate) code: i32,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Ran {
    /// The JSON report.
    pub(crate) fn report(&self) -> Value {
        serde_json::from_str(&self.stdout).unwrap_or_else(|error| panic!("no report ({error}): {self:#?}"))
    }

    /// The report of the one resource.
    pub(crate) fn resource(&self) -> Value {
        self.report()["resources"][0].clone()
    }

    /// Fails unless it ended with this exit code.
    #[track_caller]
    pub(crate) fn expect(self, code: i32) -> Self {
        assert_eq!(self.code, code, "{self:#?}");
        self
    }
}

impl From<Output> for Ran {
    fn from(output: Output) -> Self {
        Self {
            code: output.status.code().unwrap_or(-1),
            stdout: String::from_utf8(output.stdout).unwrap(),
            stderr: String::from_utf8(output.stderr).unwrap(),
        }
    }
}

impl Restow {
    /// As admin, at the first server.
    pub(crate) fn new(cluster: &Cluster) -> Self {
        Self::with_kubeconfig(cluster.kubeconfig(0, "admin"))
    }

    pub(crate) fn with_kubeconfig(kubeconfig: PathBuf) -> Self {
        Self { kubeconfig, state: tempfile::tempdir().unwrap() }
    }

    /// A command line, ready to be started.
    pub(crate) fn command(&self, args: &[&str]) -> tokio::process::Command {
        let mut command = tokio::process::Command::new(RESTOW);
        command.args(args).env("KUBECONFIG", &self.kubeconfig).env("XDG_STATE_HOME", self.state.path());
        command.env_remove("RESTOW_LOG").stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command.kill_on_drop(true);
        command
    }

    /// Runs it to its end.
    pub(crate) async fn run(&self, args: &[&str]) -> Ran {
        self.command(args).output().await.unwrap().into()
    }

    /// `restow migrate … -o json`.
    pub(crate) async fn migrate(&self, resource: &str, more: &[&str]) -> Ran {
        let mut args = vec!["migrate", resource, "-o", "json"];
        args.extend(more);
        self.run(&args).await
    }
}

/// uid, resourceVersion, generation and the rest of every object, with what a rewrite may change taken out.
pub(crate) async fn contents(client: &kube::Client, path: &str) -> BTreeMap<String, (String, Value)> {
    let mut all = BTreeMap::new();
    let mut next = String::new();
    loop {
        let page = send(client, "GET", &format!("{path}?limit=1000&continue={next}"), None).await;
        for mut object in page["items"].as_array().cloned().unwrap_or_default() {
            let meta = object["metadata"].as_object_mut().unwrap();
            let name = meta["name"].as_str().unwrap().to_owned();
            let version = meta.remove("resourceVersion").unwrap();
            all.insert(name, (version.as_str().unwrap().to_owned(), object));
        }
        next = page["metadata"]["continue"].as_str().unwrap_or_default().to_owned();
        if next.is_empty() {
            return all;
        }
    }
}
