//! An operator whose webhook converts: what is written to the CRD, in which order, and when nothing is written.

use std::time::Duration;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use restow_convert::{Converter, Convertible, Error};
use restow_core::rewrite::pace::Preset;
use restow_lease::Stop;
use restow_migrate::cluster::{Cluster, Trust};
use restow_operator::{Crds, Replica, Webhook};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::{Bench, NAME};

const CRDS: &str = "/registry/apiextensions.k8s.io/customresourcedefinitions/";

/// `spec.size` is called `spec.length` in v2; sizes that are no numbers are refused.
struct Renamed;

impl Convertible for Renamed {
    fn convert(&self, mut object: Value, version: &str) -> Result<Value, Error> {
        let (from, to) = if version == "v1" { ("length", "size") } else { ("size", "length") };
        if let Some(spec) = object["spec"].as_object_mut()
            && let Some(size) = spec.remove(from)
        {
            if !size.is_number() {
                return Err(Error::NotAnObject("its size is not a number"));
            }
            spec.insert(to.to_owned(), size);
        }
        object["apiVersion"] = json!(format!("example.com/{version}"));
        Ok(object)
    }
}

fn definition(versions: &[&str], storage: &str) -> CustomResourceDefinition {
    let version = |name: &&str| {
        let field = if *name == "v1" { "size" } else { "length" };
        let any = json!({"x-kubernetes-preserve-unknown-fields": true});
        let schema = json!({"type": "object", "properties": {
            "spec": {"type": "object", "properties": {field: any}},
        }});
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

/// A release of the operator that runs.
struct Release {
    address: u16,
    stop: CancellationToken,
    tasks: [JoinHandle<()>; 2],
}

impl Release {
    fn prepare(
        bench: &Bench,
        listener: &TcpListener,
        definition: CustomResourceDefinition,
    ) -> (Crds, Replica) {
        let client = bench.server.client();
        let cluster = Cluster::over("https://one", Trust::Single, move |_| client.clone());
        let versions: Vec<String> =
            definition.spec.versions.iter().map(|version| version.name.clone()).collect();
        let converter = Converter::new("example.com", "Widget", versions, Renamed);
        let url = format!("https://127.0.0.1:{}", listener.local_addr().unwrap().port());
        let webhook = Webhook::url(&url, "default", "widgets").unwrap();
        let webhook = webhook.convert(converter).check_every(Duration::from_millis(200));
        Crds::in_cluster(cluster, [definition]).pace(Preset::Fast).webhook(webhook).unwrap()
    }

    /// Runs it on a listener; it leads if there is a `Stop` for that.
    async fn start(bench: &Bench, definition: CustomResourceDefinition, leads: bool) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().port();
        let (crds, replica) = Self::prepare(bench, &listener, definition);
        let stop = CancellationToken::new();
        let leading = Stop::from(stop.clone());
        let serve = replica.run(listener, stop.clone());
        let lead = async move {
            if leads {
                crds.run(&leading).await;
            }
        };
        Self { address, stop, tasks: [tokio::spawn(async { serve.await.unwrap() }), tokio::spawn(lead)] }
    }

    async fn end(self) {
        self.stop.cancel();
        for task in self.tasks {
            task.await.unwrap();
        }
    }
}

/// Every state that the CRD was stored in.
fn history(bench: &Bench) -> Vec<Value> {
    let changes = bench.store.changes_after(0, &format!("{CRDS}{NAME}"), Duration::ZERO).changes;
    let states = changes.into_iter().filter_map(|change| change.now);
    states.map(|entry| serde_json::from_slice(&entry.value).unwrap()).collect()
}

fn storage(crd: &Value) -> &str {
    let versions = crd["spec"]["versions"].as_array().unwrap();
    versions.iter().find(|version| version["storage"] == true).unwrap()["name"].as_str().unwrap()
}

fn count(crd: &Value) -> usize {
    crd["spec"]["versions"].as_array().unwrap().len()
}

async fn crd(bench: &Bench) -> Value {
    let api: kube::Api<CustomResourceDefinition> = kube::Api::all(bench.server.client());
    json!(api.get_opt(NAME).await.unwrap())
}

/// Waits for something to become true, for five minutes at most: a machine that runs other tests too is slow.
pub(crate) async fn wait<F: Future<Output = bool>>(what: &str, mut is_true: impl FnMut() -> F) {
    for _ in 0..6000 {
        if is_true().await {
            return;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("timed out waiting for {what}");
}

#[tokio::test(flavor = "multi_thread")]
async fn new_versions_come_with_their_conversion_and_the_storage_version_later() {
    let bench = Bench::start().await;
    let first = Release::start(&bench, definition(&["v1"], "v1"), true).await;
    wait("the CRD", || async { crd(&bench).await["status"]["storedVersions"] == json!(["v1"]) }).await;
    assert_eq!(crd(&bench).await["spec"]["conversion"]["strategy"], "None", "there is nothing to convert");
    first.end().await;
    bench.create_with(3, |number| json!({"size": number})).await;

    let second = Release::start(&bench, definition(&["v1", "v2"], "v2"), true).await;
    wait("the storage version", || async { storage(&crd(&bench).await) == "v2" }).await;
    for state in history(&bench) {
        let is_converted = state["spec"]["conversion"]["strategy"] == "Webhook";
        assert!(count(&state) == 1 || is_converted, "two versions without a conversion: {state:#}");
    }
    let both = history(&bench).into_iter().find(|state| count(state) == 2).unwrap();
    assert_eq!(storage(&both), "v1", "no server stores v2 before all of them know it");
    for number in 0..3 {
        assert_eq!(bench.get("v1", number).await["spec"], json!({"size": number}));
        assert_eq!(bench.get("v2", number).await["spec"], json!({"length": number}));
    }
    // The next release without v2 must not run: v2 may be stored.
    second.end().await;
    let back = Release::start(&bench, definition(&["v1"], "v1"), true).await;
    wait("the old release to say why it is not ready", || async {
        bench.readiness(back.address).await.contains("has v2, which this release cannot convert")
    })
    .await;
    assert_eq!(count(&crd(&bench).await), 2, "the old release drops nothing");
    back.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn replicas_of_an_older_release_are_waited_for() {
    let bench = Bench::start().await;
    let first = Release::start(&bench, definition(&["v1"], "v1"), true).await;
    wait("the CRD", || async { crd(&bench).await["status"]["storedVersions"] == json!(["v1"]) }).await;
    bench.create_with(1, |_| json!({"size": 1})).await;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let newer = definition(&["v1", "v2"], "v2");
    let (crds, replica) = Release::prepare(&bench, &listener, newer.clone());
    let stop = CancellationToken::new();
    let serving = tokio::spawn(replica.run(listener, stop.clone()));
    wait("both replicas", || async { bench.leases().await == 2 }).await;
    let leading = Stop::from(stop.clone());
    let refused = crds.register(&newer, &leading).await.unwrap_err().to_string();
    assert!(refused.contains("NotServed") && refused.contains("another release"), "{refused}");
    assert_eq!(count(&crd(&bench).await), 1, "the first release could not convert v2");
    first.end().await;
    crds.register(&newer, &leading).await.unwrap();
    assert_eq!(storage(&crd(&bench).await), "v2");
    stop.cancel();
    serving.await.unwrap().unwrap();
    assert_eq!(bench.leases().await, 0, "every replica has left");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_object_that_would_not_survive_keeps_the_crd_as_it_is() {
    let bench = Bench::start().await;
    let first = Release::start(&bench, definition(&["v1"], "v1"), true).await;
    wait("the CRD", || async { crd(&bench).await["status"]["storedVersions"] == json!(["v1"]) }).await;
    first.end().await;
    bench.create_with(2, |number| json!({"size": if number == 0 { json!(1) } else { json!("many") }})).await;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (crds, replica) = Release::prepare(&bench, &listener, definition(&["v1", "v2"], "v2"));
    let stop = CancellationToken::new();
    let serving = tokio::spawn(replica.run(listener, stop.clone()));
    wait("a certificate", || async { bench.bundle().await.is_some() }).await;
    let before = crd(&bench).await;
    let refused = crds.register(&definition(&["v1", "v2"], "v2"), &Stop::from(stop.clone())).await;
    let refused = refused.unwrap_err().to_string();
    assert!(refused.contains("ObjectsWouldChange") && refused.contains("default/w-1"), "{refused}");
    assert_eq!(crd(&bench).await, before);
    stop.cancel();
    serving.await.unwrap().unwrap();
}
