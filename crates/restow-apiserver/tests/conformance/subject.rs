//! The servers under test, and plain requests to them.

use std::sync::{Arc, OnceLock};

use http::{Method, Request};
use http_body_util::BodyExt as _;
use kube::client::Body;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use restow_apiserver::{Network, Server, ServerSettings, User};
use restow_lab::{Cluster, ClusterSpec, suite};
use restow_store::file::{self, FileStore};
use serde_json::{Value, json};

use crate::answer::Answer;
use crate::watching::Watching;

/// The user of a request.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Caller {
    /// The administrator.
    Admin,
    /// An authenticated user without permissions.
    Alice,
    /// A user with an unknown token.
    Stranger,
    /// A user without a token.
    Anonymous,
}

/// The kubeconfigs of the administrator and of alice.
#[derive(Clone)]
struct Kubeconfigs {
    admin: String,
    alice: String,
}

/// A server under test.
pub(crate) struct Subject {
    clients: Vec<(Caller, Client)>,
    kubeconfig: String,
}

impl Subject {
    /// The real kube-apiserver, shared by all scenarios; none without a lab.
    pub(crate) async fn real() -> Option<Self> {
        static SHARED: OnceLock<Option<Cluster>> = OnceLock::new();
        let start = || {
            let spec = ClusterSpec::new()
                .storage_version_api()
                .controller_manager(&["garbage-collector-controller", "namespace-controller"]);
            suite::start_shared("the conformance suite on kube-apiserver", spec)
        };
        Some(Self::of(SHARED.get_or_init(start).as_ref()?).await)
    }

    /// The first server of a cluster.
    pub(crate) async fn of(cluster: &Cluster) -> Self {
        let text = |user| std::fs::read_to_string(cluster.kubeconfig(0, user)).unwrap();
        Self::at(Kubeconfigs { admin: text("admin"), alice: text("alice") }).await
    }

    /// The embedded server, shared by all scenarios, on its own runtime. It is always available.
    pub(crate) async fn embedded() -> Option<Self> {
        static SHARED: OnceLock<Kubeconfigs> = OnceLock::new();
        let start = || {
            let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
            let runtime = runtime.unwrap();
            let (server, _, kubeconfigs) = runtime.block_on(start());
            // They live as long as the test process.
            std::mem::forget((runtime, server));
            kubeconfigs
        };
        let kubeconfigs = SHARED.get_or_init(|| std::thread::spawn(start).join().unwrap());
        Some(Self::at(kubeconfigs.clone()).await)
    }

    /// A separate embedded server for one scenario, and its store.
    pub(crate) async fn own_embedded() -> (Self, Server, Arc<FileStore>) {
        let (server, store, kubeconfigs) = start().await;
        (Self::at(kubeconfigs).await, server, store)
    }

    /// A server, given its kubeconfigs.
    async fn at(kubeconfigs: Kubeconfigs) -> Self {
        let mut clients = Vec::new();
        for (caller, text, token) in [
            (Caller::Admin, &kubeconfigs.admin, None),
            (Caller::Alice, &kubeconfigs.alice, None),
            (Caller::Stranger, &kubeconfigs.alice, Some(Some("nonsense".to_owned()))),
            (Caller::Anonymous, &kubeconfigs.alice, Some(None)),
        ] {
            let mut file = Kubeconfig::from_yaml(text).unwrap();
            if let Some(token) = token {
                file.auth_infos[0].auth_info.as_mut().unwrap().token = token.map(Into::into);
            }
            let mut config =
                Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await.unwrap();
            config.default_retry = false;
            clients.push((caller, Client::try_from(config).unwrap()));
        }
        Self { clients, kubeconfig: kubeconfigs.admin }
    }

    /// A client of the administrator.
    pub(crate) fn client(&self) -> Client {
        self.client_of(Caller::Admin)
    }

    fn client_of(&self, caller: Caller) -> Client {
        self.clients.iter().find(|(other, _)| *other == caller).unwrap().1.clone()
    }

    /// The kubeconfig of the administrator.
    pub(crate) fn kubeconfig(&self) -> &str {
        &self.kubeconfig
    }

    /// Creates a namespace for a scenario.
    pub(crate) async fn namespace(&self, name: &str) -> Place<'_> {
        let place = self.place(name);
        place.post("/api/v1/namespaces", json!({"metadata": {"name": name}})).await.ok();
        place
    }

    /// A namespace that may not exist.
    pub(crate) fn place(&self, namespace: &str) -> Place<'_> {
        Place { subject: self, namespace: namespace.to_owned(), group_version: "v1".to_owned() }
    }

    async fn send(&self, call: ApiRequest) -> http::Response<Body> {
        let client = self.client_of(call.by);
        let mut request = Request::builder().method(call.method).uri(&call.path);
        for (name, value) in call.headers {
            request = request.header(name, value);
        }
        client.send(request.body(Body::from(call.body)).unwrap()).await.unwrap()
    }
}

/// Starts an embedded server.
async fn start() -> (Server, Arc<FileStore>, Kubeconfigs) {
    let dir = tempfile::tempdir().unwrap();
    let store = Arc::new(FileStore::open(dir.path(), file::FileSettings::default()).unwrap());
    // The store keeps its file open, and nothing is left behind when the process ends.
    drop(dir);
    let mut network = Network::ephemeral().await.unwrap();
    network.tokens.insert("token-of-alice", User::known("alice", [""; 0]));
    let settings = ServerSettings { network: Some(network), ..ServerSettings::new(store.clone()) };
    let server = Server::start(settings).await.unwrap();
    let connection = server.connection_info().unwrap();
    let alice = connection.kubeconfig_of("alice", "token-of-alice");
    let kubeconfigs = Kubeconfigs { admin: connection.kubeconfig(), alice };
    (server, store, kubeconfigs)
}

/// A namespace of a server, and the group and version of resources.
#[derive(Clone)]
pub(crate) struct Place<'a> {
    subject: &'a Subject,
    namespace: String,
    group_version: String,
}

impl Place<'_> {
    /// The same namespace, for resources of another group and version.
    pub(crate) fn of(&self, group_version: &str) -> Self {
        Self { group_version: group_version.to_owned(), ..self.clone() }
    }

    /// The full path: unchanged if it starts with a slash, otherwise within the namespace.
    fn path(&self, path: &str) -> String {
        if path.starts_with('/') {
            return path.to_owned();
        }
        let root = if self.group_version == "v1" { "api" } else { "apis" };
        format!("/{root}/{}/namespaces/{}/{path}", self.group_version, self.namespace)
    }

    /// Sends a request and reads the response.
    pub(crate) async fn send(&self, mut call: ApiRequest) -> Answer {
        call.path = self.path(&call.path);
        let asked = format!("{} {}", call.method, call.path);
        let (head, body) = self.subject.send(call).await.into_parts();
        Answer::new(asked, head, &body.collect().await.unwrap().to_bytes())
    }

    /// Creates ConfigMaps of these names, and returns the resourceVersion of the last one.
    pub(crate) async fn make(&self, names: &[&str]) -> String {
        let mut version = String::new();
        for name in names {
            version =
                self.post("configmaps", json!({"metadata": {"name": name}})).await.ok().resource_version();
        }
        version
    }

    /// Starts a watch, which must succeed.
    pub(crate) async fn watch(&self, path: &str) -> Watching {
        self.watch_with(ApiRequest::get(path)).await
    }

    /// Starts a watch with headers.
    pub(crate) async fn watch_with(&self, mut call: ApiRequest) -> Watching {
        call.path = self.path(&call.path);
        let response = self.subject.send(call).await;
        assert_eq!(response.status(), 200);
        Watching::new(response.into_body())
    }

    pub(crate) async fn get(&self, path: &str) -> Answer {
        self.send(ApiRequest::get(path)).await
    }

    pub(crate) async fn post(&self, path: &str, body: Value) -> Answer {
        self.send(ApiRequest::new("POST", path).json(&body)).await
    }

    pub(crate) async fn put(&self, path: &str, body: Value) -> Answer {
        self.send(ApiRequest::new("PUT", path).json(&body)).await
    }

    pub(crate) async fn merge(&self, path: &str, body: Value) -> Answer {
        self.send(ApiRequest::new("MERGE", path).json(&body)).await
    }

    pub(crate) async fn delete(&self, path: &str) -> Answer {
        self.send(ApiRequest::new("DELETE", path)).await
    }

    /// Sends the requests of a table in order, and reports all unexpected responses together. An expected line that ends
    /// with a star matches any rest.
    pub(crate) async fn table(&self, rows: &[(&str, &str, Value, &str)]) {
        let mut wrong = Vec::new();
        for (verb, path, body, expected) in rows {
            let call = ApiRequest::new(verb, path);
            let call = if body.is_null() { call } else { call.json(body) };
            let answer = self.send(call).await.line();
            let as_expected =
                expected.strip_suffix('*').map_or(answer == *expected, |start| answer.starts_with(start));
            if !as_expected {
                wrong.push(format!("{verb} {path} {body}\n  expected {expected}\n  answered {answer}"));
            }
        }
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    }
}

pub(crate) struct ApiRequest {
    method: Method,
    path: String,
    headers: Vec<(&'static str, String)>,
    body: Vec<u8>,
    by: Caller,
}

impl ApiRequest {
    /// A request by its method; patches are named by their types: MERGE, JSON, STRATEGIC and APPLY.
    pub(crate) fn new(verb: &str, path: &str) -> Self {
        let kind = match verb {
            "MERGE" => "application/merge-patch+json",
            "JSON" => "application/json-patch+json",
            "STRATEGIC" => "application/strategic-merge-patch+json",
            "APPLY" => "application/apply-patch+yaml",
            _ => "application/json",
        };
        let method = if kind == "application/json" { verb } else { "PATCH" };
        Self {
            method: method.parse().unwrap(),
            path: path.to_owned(),
            headers: vec![("content-type", kind.to_owned())],
            body: Vec::new(),
            by: Caller::Admin,
        }
    }

    pub(crate) fn get(path: &str) -> Self {
        Self { headers: Vec::new(), ..Self::new("GET", path) }
    }

    /// Sets a header.
    pub(crate) fn header(mut self, name: &'static str, value: &str) -> Self {
        self.headers.retain(|(other, _)| *other != name);
        self.headers.push((name, value.to_owned()));
        self
    }

    /// Sets a JSON body.
    pub(crate) fn json(self, body: &Value) -> Self {
        self.body(body.to_string())
    }

    /// Sets the body.
    pub(crate) fn body(self, body: impl Into<Vec<u8>>) -> Self {
        Self { body: body.into(), ..self }
    }

    /// Sets the user, which is the administrator by default.
    pub(crate) fn by(self, caller: Caller) -> Self {
        Self { by: caller, ..self }
    }
}
