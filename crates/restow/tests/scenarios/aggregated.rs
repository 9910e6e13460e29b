//! APIs of an aggregated API server: Kubernetes' own example, which stores flunders as v1alpha1 JSON.
//!
//! Only on a real kube-apiserver: the embedded server has no aggregation layer.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use restow_core::resource::hash::storage_version_hash;
use restow_core::resource::name::GroupVersion;
use restow_lab::{Action, Cluster, ClusterSpec, Observer, Part, Recorder, Seen, assets};
use serde_json::{Value, json};
use tokio::sync::Notify;

use crate::support::{Restow, cluster, contents, create_all, name, send, try_send, wait};

const FLUNDERS: &str = "flunders.wardle.example.com";
const PATH: &str = "/apis/wardle.example.com/v1beta1/namespaces/default/flunders";
const PREFIX: &str = "/registry/wardle.example.com/wardle.example.com/flunders/default/";
const STORAGE_VERSIONS: &str = "/apis/internal.apiserver.k8s.io/v1alpha1/storageversions";

async fn make_flunders(client: &kube::Client, count: usize) {
    let flunder = |index| {
        json!({
            "apiVersion": "wardle.example.com/v1beta1", "kind": "Flunder", "metadata": {"name": name(index)},
            "spec": {"referenceType": "Fischer", "fischerReference": format!("fischer-{index}")},
        })
    };
    create_all(client, PATH, 0..count, flunder).await;
}

/// Stores some of them as v1beta1, as an older or newer server would have.
async fn store_in_other_version(cluster: &Cluster, range: std::ops::Range<usize>) {
    for index in range {
        let key = format!("{PREFIX}{}", name(index));
        let mut object: Value =
            serde_json::from_slice(&cluster.etcd().get(&key).await.unwrap().unwrap()).unwrap();
        assert_eq!(
            object["spec"],
            json!({"referenceType": "Fischer", "reference": format!("fischer-{index}")})
        );
        object["apiVersion"] = json!("wardle.example.com/v1beta1");
        object["spec"] = json!({"referenceType": "Fischer", "fischerReference": format!("fischer-{index}")});
        cluster.etcd().put(&key, object.to_string().as_bytes()).await.unwrap();
    }
}

/// How many are stored in which version.
async fn stored_as(cluster: &Cluster) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    let count = |_: &str, bytes: &[u8]| {
        let object: Value = serde_json::from_slice(bytes).unwrap();
        let version = object["apiVersion"].as_str().unwrap().rsplit('/').next().unwrap().to_owned();
        *counts.entry(version).or_default() += 1;
    };
    cluster.etcd().for_each(PREFIX, count).await.unwrap();
    counts
}

/// Everything about them but where a rewrite shows.
async fn values(client: &kube::Client) -> BTreeMap<String, Value> {
    contents(client, PATH).await.into_iter().map(|(name, (_, object))| (name, object)).collect()
}

fn counts(counts: &[(&str, usize)]) -> BTreeMap<String, usize> {
    counts.iter().map(|(version, count)| ((*version).to_owned(), *count)).collect()
}

#[tokio::test]
async fn aggregated_resources_are_rewritten_only_under_agreement() {
    let Some(assets) = assets::aggregated_or_skip("aggregated resources") else { return };
    let cluster = cluster(&assets, ClusterSpec::new().aggregated().storage_version_api()).await;
    let client = cluster.client(0).unwrap();
    make_flunders(&client, 30).await;
    assert_eq!(stored_as(&cluster).await, counts(&[("v1alpha1", 30)]));
    store_in_other_version(&cluster, 10..17).await;
    assert_eq!(stored_as(&cluster).await, counts(&[("v1alpha1", 23), ("v1beta1", 7)]));
    let (before, writes) = (values(&client).await, cluster.etcd().writes(PREFIX).await.unwrap());
    let restow = Restow::new(&cluster);

    let plan = restow.run(&["plan", "flunders", "-o", "json"]).await.expect(0).report();
    let hash = storage_version_hash(&GroupVersion::new("wardle.example.com", "v1alpha1"), "Flunder");
    assert_eq!(plan[0]["resource"], FLUNDERS);
    assert_eq!(plan[0]["servedBy"], "aggregated");
    assert_eq!(plan[0]["storageVersion"], "v1alpha1");
    assert_eq!(plan[0]["storageVersionHash"], hash.as_str());
    assert_eq!((&plan[0]["objects"], &plan[0]["migratable"]), (&json!(30), &json!(true)));

    // Even where kube-apiserver serves StorageVersions, the aggregated server registers none: the library computes
    // them, but only kube-apiserver starts what writes them. And kube-apiservers, however many are named or sampled,
    // only pass the question on to whichever replica they are connected to.
    let path = format!("{STORAGE_VERSIONS}/wardle.example.com.flunders");
    let registered = try_send(&client, "GET", &path, None).await;
    assert!(matches!(registered, Err(kube::Error::Api(status)) if status.code == 404));
    let url = cluster.url(0);
    for trust in [&[][..], &["--api-server", &url], &["--sample-servers", "1s"]] {
        let ran = restow.migrate("flunders", trust).await.expect(4);
        let why = ran.resource()["error"].as_str().unwrap().to_owned();
        assert!(why.contains("aggregated API server that shows no StorageVersion"), "{why}");
        assert!(why.contains("--assume-single-server"), "{why}");
    }
    assert_eq!(cluster.etcd().writes(PREFIX).await.unwrap(), writes, "nothing was written");

    for (rewritten, current) in [(7, 23), (0, 30)] {
        let ran = restow.migrate("flunders", &["--assume-single-server"]).await.expect(0).resource();
        assert_eq!((&ran["rewritten"], &ran["current"]), (&json!(rewritten), &json!(current)), "{ran}");
        assert_eq!((&ran["listed"], &ran["verified"]), (&json!(30), &json!(true)), "{ran}");
        assert_eq!(
            (&ran["storageVersion"], &ran["agreement"]),
            (&json!("v1alpha1"), &json!("assumed")),
            "{ran}"
        );
        assert_eq!(stored_as(&cluster).await, counts(&[("v1alpha1", 30)]));
    }
    let written = cluster.etcd().writes(PREFIX).await.unwrap();
    for (key, before) in writes {
        let index: usize = key.rsplit('-').next().unwrap().parse().unwrap();
        assert_eq!(written[&key] - before, u64::from((10..17).contains(&index)), "{key}");
    }
    assert_eq!(values(&client).await, before);

    // One that does register is believed, and needs no word of the user's.
    register(&client, &["v1alpha1"]).await;
    let ran = restow.migrate("flunders", &[]).await.expect(0).resource();
    assert_eq!((&ran["agreement"], &ran["verified"]), (&json!("storageversion"), &json!(true)), "{ran}");
    register(&client, &["v1alpha1", "v1beta1"]).await;
    let ran = restow.migrate("flunders", &[]).await.expect(4).resource();
    let why = ran["error"].as_str().unwrap();
    assert!(why.contains("replica-1 stores wardle.example.com/v1beta1"), "{why}");
}

/// Registers the versions that so many replicas of the aggregated server store flunders in.
async fn register(client: &kube::Client, versions: &[&str]) {
    let name = "wardle.example.com.flunders";
    let path = format!("{STORAGE_VERSIONS}/{name}");
    let mut object = match try_send(client, "GET", &path, None).await {
        Ok(object) => object,
        Err(_) => {
            let object = json!({
                "apiVersion": "internal.apiserver.k8s.io/v1alpha1", "kind": "StorageVersion",
                "metadata": {"name": name}, "spec": {},
            });
            send(client, "POST", STORAGE_VERSIONS, Some(&object)).await
        }
    };
    let entry = |(index, version): (usize, &&str)| {
        let decodable = ["wardle.example.com/v1alpha1", "wardle.example.com/v1beta1"];
        json!({
            "apiServerID": format!("replica-{index}"),
            "encodingVersion": format!("wardle.example.com/{version}"), "decodableVersions": decodable,
        })
    };
    let entries: Vec<Value> = versions.iter().enumerate().map(entry).collect();
    object["status"] = json!({"storageVersions": entries});
    if let [one] = versions {
        object["status"]["commonEncodingVersion"] = json!(format!("wardle.example.com/{one}"));
    }
    send(client, "PUT", &format!("{path}/status"), Some(&object)).await;
}

#[tokio::test]
async fn resources_of_an_unavailable_aggregated_server_are_kept() {
    let Some(assets) = assets::aggregated_or_skip("an aggregated API server that is down") else { return };
    let cluster = cluster(&assets, ClusterSpec::new().aggregated()).await;
    make_flunders(&cluster.client(0).unwrap(), 3).await;
    let restow = Restow::new(&cluster);
    let all = ["migrate", "--all", "--assume-single-server", "-o", "json"];
    let ran = restow.run(&all).await.expect(0).report();
    assert_eq!(ran["succeeded"], true);
    let known = names(&ran);
    assert!(known.iter().any(|name| name == FLUNDERS), "{known:?}");

    cluster.kill(Part::Aggregated).unwrap();
    let plan = restow.run(&["plan"]).await.expect(0);
    assert!(plan.stdout.contains("configmaps"), "{plan:#?}");
    for version in ["v1alpha1", "v1beta1"] {
        let warning = format!("warning: wardle.example.com/{version}: cannot query its API server");
        assert!(plan.stderr.contains(&warning), "{plan:#?}");
    }
    // What is not there to be seen may have to be migrated.
    let plan = restow.run(&["plan", "--needed"]).await.expect(1);
    assert!(plan.stderr.contains("warning: not everything could be checked"), "{plan:#?}");
    restow.run(&["plan", "configmaps", "--needed"]).await.expect(0);

    // Not the user's mistake, so not exit code 2.
    for name in ["flunders", FLUNDERS] {
        let ran = restow.migrate(name, &["--assume-single-server"]).await.expect(1);
        assert!(!ran.stderr.contains("has no resource"), "{ran:#?}");
        assert!(ran.stderr.contains("wardle.example.com/v1beta1"), "{ran:#?}");
        assert!(ran.stderr.contains("cannot query its API server"), "{ran:#?}");
    }
    // A group that is not there at all has nothing to do with it.
    let ran = restow.migrate("flunders.example.com", &["--assume-single-server"]).await.expect(2);
    assert!(ran.stderr.contains("has no resource"), "{ran:#?}");

    let ran = restow.run(&all).await.expect(1);
    assert!(ran.stderr.contains("warning: skipped wardle.example.com/v1beta1"), "{ran:#?}");
    let report = ran.report();
    assert_eq!(report["succeeded"], false);
    let left: Vec<&Value> =
        report["unavailable"].as_array().unwrap().iter().map(|left| &left["groupVersion"]).collect();
    assert_eq!(left, ["wardle.example.com/v1beta1", "wardle.example.com/v1alpha1"]);
    let rest: Vec<String> =
        known.iter().filter(|name| !name.ends_with("wardle.example.com")).cloned().collect();
    assert_eq!(names(&report), rest, "everything else was migrated");
    assert!(report["resources"].as_array().unwrap().iter().all(|resource| resource["verified"] == true));

    cluster.restart(Part::Aggregated).await.unwrap();
    let ran = restow.migrate("flunders", &["--assume-single-server"]).await.expect(0).resource();
    assert_eq!((&ran["current"], &ran["verified"]), (&json!(3), &json!(true)), "{ran}");
}

fn names(report: &Value) -> Vec<String> {
    let name = |resource: &Value| resource["resource"].as_str().unwrap().to_owned();
    report["resources"].as_array().unwrap().iter().map(name).collect()
}

/// Holds writes after the first so many, until it is told to go on; and stands in for a readiness probe.
#[derive(Default)]
struct Gate {
    free: usize,
    writes: AtomicUsize,
    reached: Notify,
    go_on: Arc<Notify>,
    unready: AtomicBool,
}

impl Observer for Gate {
    fn request(&self, request: &Seen) -> Action {
        if self.unready.load(Ordering::SeqCst) {
            return Action::reply(503, "service unavailable");
        }
        if request.method != "PATCH" || self.writes.fetch_add(1, Ordering::SeqCst) < self.free {
            return Action::Forward;
        }
        self.reached.notify_one();
        let go_on = Arc::clone(&self.go_on);
        Action::Wait(Box::pin(async move {
            go_on.notified().await;
            go_on.notify_one();
        }))
    }
}

#[tokio::test]
async fn an_outage_of_the_aggregated_server_is_waited_out() {
    let Some(assets) = assets::aggregated_or_skip("an outage of an aggregated API server") else { return };
    let cluster = cluster(&assets, ClusterSpec::new().aggregated()).await;
    let client = cluster.client(0).unwrap();
    make_flunders(&client, 60).await;
    store_in_other_version(&cluster, 0..60).await;
    let before = values(&client).await;
    let gate = Arc::new(Gate { free: 25, ..Gate::default() });
    let recorder = Recorder::start(&cluster, 0, "admin", Arc::clone(&gate)).await.unwrap();
    let restow = Restow::with_kubeconfig(recorder.kubeconfig().to_owned());

    let flags = ["--assume-single-server", "--page-size", "10"];
    let outage = async {
        gate.reached.notified().await;
        cluster.kill(Part::Aggregated).unwrap();
        gate.go_on.notify_one();
        // The writes it held have been answered and are sent again.
        let held = gate.writes.load(Ordering::SeqCst);
        wait("writes to be tried again", || async { gate.writes.load(Ordering::SeqCst) > held }).await;
        // Until it has read the front proxy's CA, a server that comes up takes everyone for anonymous and answers
        // 403. A Service keeps requests from a pod that is not ready; the lab's does not.
        gate.unready.store(true, Ordering::SeqCst);
        cluster.restart(Part::Aggregated).await.unwrap();
        gate.unready.store(false, Ordering::SeqCst);
    };
    let (ran, ()) = tokio::join!(restow.migrate("flunders", &flags), outage);
    let ran = ran.expect(0).resource();
    assert_eq!(
        (&ran["listed"], &ran["gone"], &ran["verified"]),
        (&json!(60), &json!(0), &json!(true)),
        "{ran}"
    );
    // A write whose answer was lost in the outage shows as a conflict when it is sent again.
    let decided = ran["rewritten"].as_u64().unwrap() + ran["conflicted"].as_u64().unwrap();
    assert_eq!(decided, 60, "{ran}");
    assert_eq!(stored_as(&cluster).await, counts(&[("v1alpha1", 60)]));
    assert_eq!(values(&client).await, before);
}
