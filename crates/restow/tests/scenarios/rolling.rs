//! Two API servers in a rolling upgrade: no migration starts before they agree.
//!
//! Only on a real kube-apiserver: it needs two API servers that emulate different releases.

use restow_core::resource::hash::storage_version_hash;
use restow_core::resource::name::GroupVersion;
use restow_lab::{ClusterSpec, Part, ServerSpec};
use serde_json::json;

use crate::controller::{
    Controller, MIGRATIONS, STATES, ask_for, is, migration, migrations, prepared, state,
};
use crate::support::{cluster, create_all, lab, name, patch, send, wait};

const CLASSES: &str = "deviceclasses.resource.k8s.io";
const STORED: &str = "/registry/deviceclasses/";

#[tokio::test]
async fn nothing_starts_before_two_servers_agree_by_storage_versions() {
    upgrade(true).await;
}

#[tokio::test]
async fn nothing_starts_before_two_servers_agree_by_discovery() {
    upgrade(false).await;
}

async fn upgrade(with_api: bool) {
    const MANY: usize = 50;
    let assets = lab!();
    let spec = ClusterSpec::new().servers(2).server(1, ServerSpec::new().emulated_version("1.34"));
    let cluster = cluster(&assets, if with_api { spec.storage_version_api() } else { spec }).await;
    let (client, restow) = prepared(&cluster).await;
    // Through the old server, so that they are stored as the old version.
    let class = |index| {
        json!({"apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass",
               "metadata": {"name": name(index)}, "spec": {}})
    };
    let old = cluster.client(1).unwrap();
    create_all(&old, "/apis/resource.k8s.io/v1/deviceclasses", 0..MANY, class).await;
    let hash = |version| storage_version_hash(&GroupVersion::new("resource.k8s.io", version), "DeviceClass");
    let (new_hash, old_hash) = (hash("v1"), hash("v1beta2"));
    let versions = [(new_hash.as_str(), "v1"), (old_hash.as_str(), "v1beta2")];
    let urls = [cluster.url(0), cluster.url(1)];
    let mut args = vec!["--resources", CLASSES, "--poll-interval", "1s", "--page-size", "10"];
    if !with_api {
        args.extend(["--api-server", &urls[0], "--api-server", &urls[1]]);
    }
    let _controller = Controller::start(&restow, &args).await;

    // They disagree: all hashes are listed, and nothing starts.
    wait("the disagreement to be written down", || async {
        let now = state(&client, CLASSES, &versions).await;
        now.is_some_and(|(persisted, current)| {
            let mut listed: Vec<&str> = persisted.split(' ').collect();
            listed.sort_unstable();
            listed == ["Unknown", "v1", "v1beta2"] && current == "Unknown"
        })
    })
    .await;
    assert!(migrations(&client, CLASSES).await.is_empty());
    ask_for(&client, "by-hand", CLASSES).await;
    wait("a migration made by hand to say what it waits for", || async {
        let waits = migration(&client, "by-hand").await["status"]["conditions"][0].clone();
        waits["reason"] == "WaitingForAgreement"
            && waits["message"].as_str().is_some_and(|message| message.contains("the API servers disagree"))
    })
    .await;
    let revisions = || async {
        let list = send(&client, "GET", "/apis/resource.k8s.io/v1/deviceclasses", None).await;
        let versions = list["items"].as_array().unwrap().iter();
        versions.map(|item| item["metadata"]["resourceVersion"].clone()).collect::<Vec<_>>()
    };
    let before = revisions().await;
    // It is asked about once more, at least, and writes nothing.
    let heartbeat = async || {
        send(&client, "GET", &format!("{STATES}/{CLASSES}"), None).await["status"]["lastHeartbeatTime"]
            .clone()
    };
    let last = heartbeat().await;
    wait("another look", || async { heartbeat().await != last }).await;
    assert_eq!(revisions().await, before, "something was written without agreement");

    // It would begin at the same moment as the one that is counted below.
    patch(&client, &format!("{MIGRATIONS}/by-hand"), &json!({"spec": {"suspend": true}})).await;

    // The upgrade ends: one migration, verified, and what was unknown is known.
    cluster
        .restart_with(Part::ApiServer(1), |flags| {
            flags.remove("emulated-version");
        })
        .await
        .unwrap();
    wait("the state to be settled", || async {
        state(&client, CLASSES, &versions).await == Some(("v1".to_owned(), "v1".to_owned()))
    })
    .await;
    let done = migrations(&client, CLASSES).await;
    assert_eq!(done.len(), 1, "{done:#?}");
    assert!(is(&done[0], "Succeeded"), "{done:#?}");
    let progress = &done[0]["status"]["progress"];
    assert_eq!((&progress["rewritten"], &progress["verified"]), (&json!(MANY), &json!(true)));
    assert_eq!(progress["agreement"], if with_api { "storageversion" } else { "direct" });
    let mut stored = Vec::new();
    cluster.etcd().for_each(STORED, |_, bytes| stored.push(is_v1(bytes))).await.unwrap();
    assert_eq!((stored.len(), stored.iter().all(|new| *new)), (MANY, true));
}

/// Whether stored bytes name the new version: `k8s\0`, then a TypeMeta.
fn is_v1(bytes: &[u8]) -> bool {
    let head = String::from_utf8_lossy(&bytes[..60.min(bytes.len())]).into_owned();
    head.contains("resource.k8s.io/v1") && !head.contains("v1beta2")
}
