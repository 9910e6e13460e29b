//! An aggregated API server that registers its storage versions is found, migrated under agreement, and verified.
//!
//! Only on a real kube-apiserver: the embedded server has no aggregation layer.

use std::collections::BTreeMap;

use aggregated_apiserver::ship::{GROUP, Version};
use restow_core::resource::hash::storage_version_hash;
use restow_lab::{Action, ClusterSpec, Seen};
use serde_json::json;

use crate::controller::{Controller, MIGRATIONS, define, is, migrations, prepared, state};
use crate::fleet::{BACK, FRONT, Fleet, SHIPS};
use crate::support::{Restow, Widgets, cluster, lab, patch, send, try_send, wait};
use crate::traffic::{self, Traffic};

fn counts(version: &str, port: &str, count: usize) -> BTreeMap<String, usize> {
    [(format!("{GROUP}/{version} {port}"), count)].into()
}

#[tokio::test(flavor = "multi_thread")]
async fn an_upgraded_registering_server_is_migrated_once_its_replicas_agree() {
    const MANY: usize = 40;
    let assets = lab!();
    let fleet = Fleet::on_etcd(&assets).await;
    let restow = Restow::new(&fleet.cluster);
    let front = fleet.start(FRONT, Version::V1).await;
    fleet.serves(Version::V1).await;
    fleet.make_ships(MANY).await;
    assert_eq!(fleet.stored_as().await, counts("v1", "port", MANY));
    let before = fleet.values().await;

    let plan = restow.run(&["plan", SHIPS, "-o", "json"]).await.expect(0).report();
    assert_eq!((&plan[0]["resource"], &plan[0]["servedBy"]), (&json!(SHIPS), &json!("aggregated")));
    assert_eq!((&plan[0]["storageVersion"], &plan[0]["objects"]), (&json!("v1"), &json!(MANY)));
    let ran = restow.migrate(SHIPS, &[]).await.expect(0).resource();
    assert_eq!((&ran["rewritten"], &ran["current"]), (&json!(0), &json!(MANY)), "{ran}");
    assert_eq!((&ran["agreement"], &ran["verified"]), (&json!("storageversion"), &json!(true)), "{ran}");

    // A second replica on the same store, upgraded first: they disagree, and nothing is written.
    let back = fleet.start(BACK, Version::V2).await;
    fleet.wait_registered("back=v2 front=v1").await;
    let written = fleet.written().await;
    let ran = restow.migrate(SHIPS, &[]).await.expect(4).resource();
    let why = ran["error"].as_str().unwrap();
    assert!(why.contains("the API servers disagree"), "{why}");
    assert!(why.contains("fleet-apiserver-back stores fleet.example.com/v2"), "{why}");
    assert_eq!(fleet.written().await, written, "something was written without agreement");

    // The upgrade of the first ends it.
    front.stop().await;
    let front = fleet.start(FRONT, Version::V2).await;
    fleet.wait_registered("back=v2 front=v2").await;
    fleet.serves(Version::V2).await;
    assert_eq!(fleet.stored_as().await, counts("v1", "port", MANY), "only a write rewrites");
    for (rewritten, current) in [(MANY, 0), (0, MANY)] {
        let ran = restow.migrate(SHIPS, &[]).await.expect(0).resource();
        assert_eq!((&ran["rewritten"], &ran["current"]), (&json!(rewritten), &json!(current)), "{ran}");
        assert_eq!((&ran["storageVersion"], &ran["verified"]), (&json!("v2"), &json!(true)), "{ran}");
        assert_eq!(ran["agreement"], "storageversion", "{ran}");
        assert_eq!(fleet.stored_as().await, counts("v2", "homePort", MANY));
    }
    let writes = fleet.cluster.etcd().writes(&format!("/registry/{GROUP}/ships/")).await.unwrap();
    assert!(
        writes.len() == MANY && writes.values().all(|writes| *writes == 2),
        "made, and rewritten once: {writes:?}"
    );
    assert_eq!(fleet.values().await, before);

    // One that has gone is forgotten by the others.
    back.stop().await;
    fleet.wait_registered("front=v2").await;
    front.stop().await;
    let leases = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/fleet-apiserver-front";
    assert!(try_send(&fleet.client(), "GET", leases, None).await.is_err(), "it has not left");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_controller_follows_an_upgrade_of_a_registering_server() {
    const MANY: usize = 30;
    let assets = lab!();
    let fleet = Fleet::on_file(&assets).await;
    let (client, restow) = prepared(&fleet.cluster).await;
    let front = fleet.start(FRONT, Version::V1).await;
    fleet.serves(Version::V1).await;
    fleet.make_ships(MANY).await;
    let hash = |version: Version| storage_version_hash(&version.group_version(), "Ship");
    let (v1, v2) = (hash(Version::V1), hash(Version::V2));
    let names = [(v1.as_str(), "v1"), (v2.as_str(), "v2")];
    let args = ["--resources", SHIPS, "--poll-interval", "2s", "--page-size", "10"];
    let _controller = Controller::start(&restow, &args).await;
    let settled = |version: &'static str| {
        let (client, names) = (&client, &names);
        move || async move { state(client, SHIPS, names).await == Some((version.to_owned(), version.to_owned())) }
    };
    wait("the state to be settled on v1", settled("v1")).await;

    front.stop().await;
    let _front = fleet.start(FRONT, Version::V2).await;
    wait("the state to be settled on v2", settled("v2")).await;
    assert_eq!(fleet.stored_as().await, counts("v2", "homePort", MANY));
    let done = migrations(&client, SHIPS).await;
    assert_eq!(done.len(), 1, "{done:#?}");
    assert!(is(&done[0], "Succeeded"), "{done:#?}");
    let progress = &done[0]["status"]["progress"];
    assert_eq!((&progress["rewritten"], &progress["verified"]), (&json!(MANY), &json!(true)), "{done:#?}");
    assert_eq!(progress["agreement"], "storageversion");
}

#[tokio::test]
async fn a_resource_without_a_hash_is_migrated_by_its_storage_version_object() {
    const MANY: usize = 20;
    let assets = lab!();
    let cluster = cluster(&assets, ClusterSpec::new().storage_version_api()).await;
    let (client, restow) = (cluster.client(0).unwrap(), Restow::new(&cluster));
    let widgets = Widgets { plural: "hidden" };
    widgets.define(&client).await;
    widgets.create(&client, MANY).await;
    // It is stored in a version that is not served, so that no discovery document has a hash.
    widgets.set_versions(&client, &[("v1", true, false), ("v2", false, true)]).await;
    wait("discovery to hide the storage version", || async {
        let found = send(&client, "GET", &format!("/apis/{}/v1", widgets.group()), None).await;
        found["resources"][0]["storageVersionHash"].as_str().unwrap_or_default().is_empty()
    })
    .await;
    let ran = restow.migrate(&widgets.name(), &[]).await;
    assert_ne!(ran.code, 0, "{ran:#?}");

    // Its API server registers what it stores.
    let leases = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases";
    let leases = send(&client, "GET", leases, None).await["items"].as_array().cloned().unwrap();
    let of_server = |lease: &&serde_json::Value| {
        lease["metadata"]["labels"]["apiserver.kubernetes.io/identity"] == "kube-apiserver"
    };
    let server = leases.iter().find(of_server).unwrap()["metadata"]["name"].clone();
    let all = "/apis/internal.apiserver.k8s.io/v1alpha1/storageversions";
    let name = format!("{}.{}", widgets.group(), widgets.plural);
    let object = json!({"apiVersion": "internal.apiserver.k8s.io/v1alpha1", "kind": "StorageVersion",
        "metadata": {"name": name}, "spec": {}});
    send(&client, "POST", all, Some(&object)).await;
    let version = format!("{}/v2", widgets.group());
    let status = json!({"status": {"commonEncodingVersion": version, "storageVersions": [
        {"apiServerID": server, "encodingVersion": version, "decodableVersions": [version]}]}});
    patch(&client, &format!("{all}/{name}/status"), &status).await;

    // Who may not list StorageVersions is told so, and a controller waits for the right.
    let rule = move |seen: &Seen, _| match seen.path == all && seen.method == http::Method::GET {
        true => traffic::status(403, "Forbidden", "storageversions are secret"),
        false => Action::Forward,
    };
    let (recorder, _) = Traffic::record(&cluster, rule).await;
    let forbidden = Restow::with_kubeconfig(recorder.kubeconfig().to_owned());
    let rule = r#"resources: ["storageversions"], verbs: ["list"]"#;
    let ran = forbidden.migrate(&widgets.name(), &[]).await.expect(1);
    assert!(ran.stderr.contains(rule), "{ran:#?}");
    define(&client).await;
    let migration = json!({"apiVersion": "migration.k8s.io/v1alpha1", "kind": "StorageVersionMigration",
        "metadata": {"name": "hidden"}, "spec": {"resource": {"group": widgets.group(), "version": "v1",
        "resource": widgets.plural}}});
    send(&client, "POST", MIGRATIONS, Some(&migration)).await;
    let _controller = Controller::start(&forbidden, &["--controllers", "migrator"]).await;
    let told = async || send(&client, "GET", &format!("{MIGRATIONS}/hidden"), None).await["status"].clone();
    wait("a condition that names the rule", || async {
        told().await.to_string().contains("storageversions")
    })
    .await;
    let status = told().await;
    assert!(!is(&json!({"status": status}), "Failed"), "{status:#}");

    // A server that the user tells apart is asked itself, and does not show how it stores the resource.
    let ran = restow.migrate(&widgets.name(), &["--assume-single-server"]).await.expect(2);
    assert!(ran.stderr.contains("set served: true for v2"), "{ran:#?}");
    let report = restow.migrate(&widgets.name(), &[]).await.expect(0).resource();
    assert_eq!((&report["agreement"], &report["storageVersion"]), (&json!("storageversion"), &json!("v2")));
    assert_eq!(widgets.stored_as(&cluster).await, BTreeMap::from([(version, MANY)]), "{report:#}");
}
