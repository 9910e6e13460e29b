//! A cluster upgrade with two releases of Kubernetes: the API servers are replaced one at a time while the controller runs.
//!
//! VolumeAttributesClasses are stored as v1beta1 by 1.35 and as v1 by 1.36.
//!
//! Only on a real kube-apiserver: it needs two releases of Kubernetes.

use std::collections::BTreeMap;

use restow_core::resource::hash::storage_version_hash;
use restow_core::resource::name::GroupVersion;
use restow_lab::{Cluster, ClusterSpec, Part, ServerSpec, assets};
use serde_json::json;

use crate::controller::{Controller, STATES, is, migrations, prepared, state};
use crate::support::{Widgets, cluster, contents, create_all, name, send, wait};

const CLASSES: &str = "volumeattributesclasses.storage.k8s.io";
const PATH: &str = "/apis/storage.k8s.io/v1/volumeattributesclasses";
const STORED: &str = "/registry/volumeattributesclasses/";
const WIDGETS: Widgets = Widgets { plural: "upgradewidgets" };

#[tokio::test]
async fn every_object_is_readable_after_a_rolling_upgrade() {
    const MANY: usize = 40;
    let test = std::any::type_name_of_val(&|| ());
    let Some((assets, former)) = assets::former_or_skip(test) else { return };
    let old = || ServerSpec::new().program(&former);
    let cluster = cluster(&assets, ClusterSpec::new().server(0, old()).server(1, old())).await;
    let (client, restow) = prepared(&cluster).await;
    assert!(release(&cluster, 0).await.starts_with("v1.35."));
    create_all(&client, PATH, 0..MANY, class).await;
    WIDGETS.define(&client).await;
    WIDGETS.create(&client, MANY).await;
    assert_eq!(stored_as(&cluster).await, [("storage.k8s.io/v1beta1".to_owned(), MANY)].into());

    let (new_hash, old_hash) = (hash("v1"), hash("v1beta1"));
    let versions = [(new_hash.as_str(), "v1"), (old_hash.as_str(), "v1beta1")];
    let urls = [cluster.url(0), cluster.url(1)];
    let widgets = WIDGETS.name();
    let args =
        ["--resources", CLASSES, "--resources", &widgets, "--poll-interval", "1s", "--page-size", "10"];
    let args = [&args[..], &["--api-server", &urls[0], "--api-server", &urls[1]]].concat();
    let _controller = Controller::start(&restow, &args).await;
    let settled = async |version: &str| {
        state(&client, CLASSES, &versions).await == Some((version.to_owned(), version.to_owned()))
    };
    wait("what 1.35 stores to be known", || settled("v1beta1")).await;

    // One server is new. What each of them writes stands in another version, and both read it.
    cluster.upgrade(Part::ApiServer(1), &assets.kube_apiserver).await.unwrap();
    assert!(release(&cluster, 1).await.starts_with("v1.36."));
    wait("the disagreement to be written down", || async {
        state(&client, CLASSES, &versions).await.is_some_and(|(persisted, current)| {
            current == "Unknown"
                && ["v1", "v1beta1"].iter().all(|one| persisted.split(' ').any(|it| it == *one))
        })
    })
    .await;
    let new = cluster.client(1).unwrap();
    create_all(&new, PATH, MANY..2 * MANY, class).await;
    let mixed = [("storage.k8s.io/v1beta1".to_owned(), MANY), ("storage.k8s.io/v1".to_owned(), MANY)].into();
    assert_eq!(stored_as(&cluster).await, mixed);
    let (before, widgets_before) =
        (contents(&client, PATH).await, contents(&client, &WIDGETS.path("v1", "")).await);
    assert_eq!(contents(&new, PATH).await, before);
    assert_eq!(before.len(), 2 * MANY);

    // The two agree on the custom resource, whose storage version changes meanwhile: that one is migrated.
    WIDGETS.store_as(&client, "v2").await;
    let group = WIDGETS.group();
    wait("the custom resources to be rewritten", || async {
        WIDGETS.stored_as(&cluster).await == [(format!("{group}/v2"), MANY)].into()
    })
    .await;
    // The classes were looked at in that time and left alone.
    let heartbeat = async || {
        send(&client, "GET", &format!("{STATES}/{CLASSES}"), None).await["status"]["lastHeartbeatTime"]
            .clone()
    };
    let last = heartbeat().await;
    wait("another look", || async { heartbeat().await != last }).await;
    assert_eq!(stored_as(&cluster).await, mixed, "something was rewritten without agreement");
    assert_eq!(contents(&client, PATH).await, before, "something was written without agreement");

    // The last old server is gone: everything is rewritten, verified, and readable without it.
    cluster.upgrade(Part::ApiServer(0), &assets.kube_apiserver).await.unwrap();
    wait("what 1.36 stores to be settled", || settled("v1")).await;
    let done = migrations(&client, CLASSES).await;
    assert_eq!(done.len(), 1, "{done:#?}");
    assert!(is(&done[0], "Succeeded"), "{done:#?}");
    let progress = &done[0]["status"]["progress"];
    assert_eq!((&progress["rewritten"], &progress["verified"]), (&json!(MANY), &json!(true)));
    assert_eq!(stored_as(&cluster).await, [("storage.k8s.io/v1".to_owned(), 2 * MANY)].into());
    for server in 0..2 {
        assert!(release(&cluster, server).await.starts_with("v1.36."));
        let client = cluster.client(server).unwrap();
        assert_eq!(values(contents(&client, PATH).await), values(before.clone()));
        let widgets = contents(&client, &WIDGETS.path("v1", "")).await;
        assert_eq!(values(widgets), values(widgets_before.clone()));
    }
}

fn class(index: usize) -> serde_json::Value {
    json!({
        "apiVersion": "storage.k8s.io/v1", "kind": "VolumeAttributesClass",
        "metadata": {"name": name(index)},
        "driverName": "csi.example.com", "parameters": {"iops": index.to_string()},
    })
}

fn hash(version: &str) -> String {
    storage_version_hash(&GroupVersion::new("storage.k8s.io", version), "VolumeAttributesClass")
}

/// The release that a server says it is.
async fn release(cluster: &Cluster, server: usize) -> String {
    let version = send(&cluster.client(server).unwrap(), "GET", "/version", None).await;
    version["gitVersion"].as_str().unwrap().to_owned()
}

/// How many classes stand in etcd in which version: `k8s\0`, then a TypeMeta whose first field is the apiVersion.
async fn stored_as(cluster: &Cluster) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    let count = |_: &str, bytes: &[u8]| {
        assert_eq!((&bytes[..5], bytes[6]), (&b"k8s\0\n"[..], b'\n'));
        let version = &bytes[8..][..usize::from(bytes[7])];
        *counts.entry(String::from_utf8(version.to_vec()).unwrap()).or_default() += 1;
    };
    cluster.etcd().for_each(STORED, count).await.unwrap();
    counts
}

/// The objects without where a rewrite shows.
fn values(contents: BTreeMap<String, (String, serde_json::Value)>) -> BTreeMap<String, serde_json::Value> {
    contents.into_iter().map(|(name, (_, object))| (name, object)).collect()
}
