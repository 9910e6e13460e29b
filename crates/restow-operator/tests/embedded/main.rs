//! An operator's CRDs on the embedded API server. The tests look at the stored bytes.
#![allow(clippy::unwrap_used, clippy::panic, missing_docs)]

use std::sync::Arc;

use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::Api;
use kube::api::{ApiResource, DynamicObject, GroupVersionKind, ListParams, PostParams};
use prometheus_client::registry::Registry;
use restow_apiserver::{Server, ServerSettings};
use restow_core::rewrite::pace::Preset;
use restow_lease::Stop;
use restow_migrate::cluster::{Cluster, Trust};
use restow_operator::{Crds, CrdsError, Outcome, RegistrationError};
use restow_store::memory::MemoryStore;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, RootCertStore};
use tokio_util::sync::CancellationToken;

mod webhook;

const NAME: &str = "widgets.example.com";

fn definition(versions: &[&str], storage: &str) -> CustomResourceDefinition {
    let version = |name: &&str| {
        let schema = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
        json!({"name": name, "served": true, "storage": *name == storage, "schema": {"openAPIV3Schema": schema}})
    };
    serde_json::from_value(json!({
        "metadata": {"name": NAME},
        "spec": {
            "group": "example.com", "scope": "Namespaced",
            "names": {"plural": "widgets", "singular": "widget", "kind": "Widget", "listKind": "WidgetList"},
            "versions": versions.iter().map(version).collect::<Vec<_>>(),
        },
    }))
    .unwrap()
}

struct Bench {
    server: Server,
    store: Arc<MemoryStore>,
}

impl Bench {
    async fn start() -> Self {
        let store = Arc::new(MemoryStore::default());
        let server = Server::start(ServerSettings::new(store.clone())).await.unwrap();
        Self { server, store }
    }

    fn crds(&self, definition: CustomResourceDefinition) -> Crds {
        let client = self.server.client();
        let cluster = Cluster::over("https://one", Trust::Single, move |_| client.clone());
        Crds::in_cluster(cluster, [definition]).pace(Preset::Fast)
    }

    fn widgets(&self, version: &str) -> (Api<DynamicObject>, ApiResource) {
        let kind = ApiResource::from_gvk(&GroupVersionKind::gvk("example.com", version, "Widget"));
        (Api::namespaced_with(self.server.client(), "default", &kind), kind)
    }

    async fn create(&self, count: usize) {
        self.create_with(count, |_| json!({})).await;
    }

    /// Creates widgets through v1, each with a spec.
    async fn create_with(&self, count: usize, spec: impl Fn(usize) -> Value) {
        let (api, kind) = self.widgets("v1");
        // Its handlers follow the definition.
        webhook::wait("widgets to be served", || async { api.list(&ListParams::default()).await.is_ok() })
            .await;
        for number in 0..count {
            let widget =
                DynamicObject::new(&format!("w-{number}"), &kind).data(json!({"spec": spec(number)}));
            api.create(&PostParams::default(), &widget).await.unwrap();
        }
    }

    async fn get(&self, version: &str, number: usize) -> Value {
        json!(self.widgets(version).0.get(&format!("w-{number}")).await.unwrap())
    }

    /// How many replicas of webhooks there are.
    async fn leases(&self) -> usize {
        let leases: Api<Lease> = Api::namespaced(self.server.client(), "default");
        leases.list(&ListParams::default().labels("restow.dev/webhook=widgets")).await.unwrap().items.len()
    }

    async fn bundle(&self) -> Option<Vec<u8>> {
        let secrets: Api<Secret> = Api::namespaced(self.server.client(), "default");
        secrets.get_opt("widgets-certificates").await.unwrap()?.data?.remove("ca.crt").map(|pem| pem.0)
    }

    /// What a replica says about its readiness to who trusts the authorities in the Secret.
    async fn readiness(&self, port: u16) -> String {
        let mut roots = RootCertStore::empty();
        for authority in CertificateDer::pem_slice_iter(&self.bundle().await.unwrap()) {
            roots.add(authority.unwrap()).unwrap();
        }
        let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        let stream = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
        let host = ServerName::try_from("127.0.0.1").unwrap();
        let Ok(mut stream) = TlsConnector::from(Arc::new(config)).connect(host, stream).await else {
            return String::new();
        };
        let request = "GET /readyz HTTP/1.1\r\nHost: operator\r\nConnection: close\r\n\r\n";
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = Vec::new();
        drop(stream.read_to_end(&mut answer).await);
        String::from_utf8_lossy(&answer).into_owned()
    }

    /// The versions in which widgets are stored.
    fn stored(&self) -> Vec<String> {
        let entries = self.store.below("/registry/example.com/widgets/");
        let version = |bytes: &[u8]| {
            let object: Value = serde_json::from_slice(bytes).unwrap();
            object["apiVersion"].as_str().unwrap().trim_start_matches("example.com/").to_owned()
        };
        entries.iter().map(|entry| version(&entry.value)).collect()
    }

    async fn stored_versions(&self) -> Vec<String> {
        let api: Api<CustomResourceDefinition> = Api::all(self.server.client());
        api.get(NAME).await.unwrap().status.unwrap().stored_versions.unwrap()
    }
}

#[tokio::test]
async fn a_new_storage_version_is_registered_migrated_verified_and_pruned() {
    let bench = Bench::start().await;
    let stop = Stop::from(CancellationToken::new());
    // The first release of the operator.
    bench.crds(definition(&["v1"], "v1")).run(&stop).await;
    bench.create(5).await;
    assert_eq!(bench.stored(), ["v1"; 5]);
    // The second one.
    let crds = bench.crds(definition(&["v1", "v2"], "v2"));
    let mut registry = Registry::default();
    crds.metrics().register(&mut registry);
    crds.run(&stop).await;
    assert_eq!(bench.stored(), ["v2"; 5]);
    assert_eq!(bench.stored_versions().await, ["v2"]);
    let mut metrics = String::new();
    prometheus_client::encoding::text::encode(&mut metrics, &registry).unwrap();
    for expected in [
        "restow_objects_total{resource=\"widgets.example.com\",outcome=\"rewritten\"} 5",
        "restow_migrations_total{resource=\"widgets.example.com\",result=\"succeeded\"} 1",
        "restow_remaining_objects{resource=\"widgets.example.com\"} 0",
    ] {
        assert!(metrics.contains(expected), "{expected}: {metrics}");
    }
    // Started again, it finds nothing to do.
    let again = crds.migrate(&definition(&["v1", "v2"], "v2"), &stop).await.unwrap();
    assert_eq!(again, Outcome::Current { version: "v2".to_owned() });
}

#[tokio::test]
async fn a_version_that_is_still_stored_is_not_dropped() {
    let bench = Bench::start().await;
    let stop = Stop::from(CancellationToken::new());
    bench.crds(definition(&["v1"], "v1")).run(&stop).await;
    bench.create(1).await;
    let newer = definition(&["v2"], "v2");
    let refused = bench.crds(newer.clone()).register(&newer, &stop).await.unwrap_err();
    assert!(matches!(refused, CrdsError::Registration(RegistrationError::StillStored { .. })), "{refused}");
    assert_eq!(
        (bench.stored(), bench.stored_versions().await),
        (vec!["v1".to_owned()], vec!["v1".to_owned()])
    );
}

#[tokio::test]
async fn nothing_is_written_by_an_operator_that_does_not_lead() {
    let bench = Bench::start().await;
    let over = CancellationToken::new();
    over.cancel();
    bench.crds(definition(&["v1"], "v1")).run(&Stop::from(over)).await;
    let api: Api<CustomResourceDefinition> = Api::all(bench.server.client());
    assert!(api.get_opt(NAME).await.unwrap().is_none());
}
