//! A StorageState that may have missed a change is forgotten, even if a server is silent at that moment.
//!
//! Only on a real kube-apiserver: it needs two API servers, and reads etcd.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use restow_core::resource::hash::storage_version_hash;
use restow_core::resource::name::GroupVersion;
use restow_lab::{Action, ClusterSpec, Encryption, Part};
use serde_json::{Value, json};

use crate::controller::{Controller, STATES, is, migrations, prepared, state};
use crate::keys::keys;
use crate::support::{Restow, cluster, create_all, lab, name, patch, send, try_send, wait};
use crate::traffic::{Traffic, status};

const CLASSES: &str = "deviceclasses.resource.k8s.io";
const PATH: &str = "/apis/resource.k8s.io/v1/deviceclasses";

#[tokio::test]
async fn a_stale_state_is_forgotten_even_if_a_server_is_silent() {
    const MANY: usize = 20;
    let assets = lab!();
    let cluster = cluster(&assets, ClusterSpec::new().servers(2)).await;
    let (client, restow) = prepared(&cluster).await;
    let class = |index| {
        json!({"apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass",
               "metadata": {"name": name(index)}, "spec": {}})
    };
    create_all(&client, PATH, 0..MANY, class).await;
    let hash = storage_version_hash(&GroupVersion::new("resource.k8s.io", "v1"), "DeviceClass");
    let versions = [(hash.as_str(), "v1")];
    let settled = Some(("v1".to_owned(), "v1".to_owned()));
    let urls = [cluster.url(0), cluster.url(1)];
    let args =
        ["--resources", CLASSES, "--poll-interval", "1s", "--api-server", &urls[0], "--api-server", &urls[1]];
    let controller = Controller::start(&restow, &args).await;
    wait("the state to be settled", || async { state(&client, CLASSES, &versions).await == settled }).await;
    controller.kill().await;

    // While nobody watches, the second server stores objects in another version, and then in the first one again.
    let second = Part::ApiServer(1);
    let older = |flags: &mut restow_lab::Flags| {
        flags.set("emulated-version", "1.34");
    };
    cluster.restart_with(second, older).await.unwrap();
    create_all(&cluster.client(1).unwrap(), PATH, MANY..2 * MANY, class).await;
    let newer = |flags: &mut restow_lab::Flags| {
        flags.remove("emulated-version");
    };
    cluster.restart_with(second, newer).await.unwrap();
    assert_eq!(stored(&cluster).await, (MANY, MANY));

    // The next controller comes so late that it cannot know, and one server is silent at its first look.
    let past = json!({"status": {"lastHeartbeatTime": "2020-01-01T00:00:00Z"}});
    patch(&client, &format!("{STATES}/{CLASSES}/status"), &past).await;
    cluster.kill(second).unwrap();
    let controller = Controller::start(&restow, &args).await;
    wait("a look that one server is silent at", || async {
        controller.get("/metrics").await.contains("\nrestow_disagreeing_resources 1")
    })
    .await;
    cluster.restart(second).await.unwrap();
    wait("everything to be stored in one version", || async { stored(&cluster).await == (2 * MANY, 0) })
        .await;
    wait("the state to be settled again", || async { state(&client, CLASSES, &versions).await == settled })
        .await;
    let done = migrations(&client, CLASSES).await;
    assert_eq!(done.len(), 1, "{done:#?}");
    assert!(is(&done[0], "Succeeded"), "{done:#?}");
}

/// How many are stored in the new version, and how many in the old one.
async fn stored(cluster: &restow_lab::Cluster) -> (usize, usize) {
    let (mut new, mut old) = (0, 0);
    let each = |_: &str, bytes: &[u8]| {
        let head = String::from_utf8_lossy(&bytes[..60.min(bytes.len())]).into_owned();
        if head.contains("v1beta2") { old += 1 } else { new += 1 }
    };
    cluster.etcd().for_each("/registry/deviceclasses/", each).await.unwrap();
    (new, old)
}

#[tokio::test]
async fn objects_under_a_key_used_between_two_observations_are_migrated() {
    const MANY: usize = 20;
    let assets = lab!();
    let (first, second) = (Encryption::aescbc(&["key1", "key2"]), Encryption::aescbc(&["key2", "key1"]));
    let cluster = cluster(&assets, ClusterSpec::new().encryption(first.clone())).await;
    let (client, restow) = prepared(&cluster).await;
    let secret = |index| json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name(index)}, "data": {"key": "dmFsdWU="}});
    let path = "/api/v1/namespaces/default/secrets";
    create_all(&client, path, 0..MANY, secret).await;
    let args = ["--resources", "secrets", "--poll-interval", "1s"];
    let settled = async || {
        let state = try_send(&client, "GET", &format!("{STATES}/secrets"), None).await.unwrap_or_default();
        state["status"]["persistedEncryptionConfigHashes"] == json!([first.hash()])
    };
    let controller = Controller::start(&restow, &args).await;
    wait("the first key to be settled", &settled).await;
    controller.stop().await;

    // Away for less time than makes a state stale.
    let only = |key: &str| BTreeSet::from([key.to_owned()]);
    cluster.set_encryption(0, &second).unwrap();
    cluster.wait_for_encryption(0, &second).await.unwrap();
    create_all(&client, path, MANY..2 * MANY, secret).await;
    cluster.set_encryption(0, &first).unwrap();
    cluster.wait_for_encryption(0, &first).await.unwrap();
    assert_eq!(keys(&cluster).await.len(), 2);
    let uid = async || -> Value { migrations(&client, "secrets").await[0]["metadata"]["uid"].clone() };
    let before = uid().await;
    let controller = Controller::start(&restow, &args).await;
    wait("everything to be stored under one key", || async { keys(&cluster).await == only("key1") }).await;
    wait("the first key to be settled again", &settled).await;
    let after = uid().await;
    assert_ne!(before, after);
    controller.stop().await;

    // A restart under the same configuration is no reason to write everything again.
    cluster.restart(Part::ApiServer(0)).await.unwrap();
    let heartbeat = async || {
        send(&client, "GET", &format!("{STATES}/secrets"), None).await["status"]["lastHeartbeatTime"].clone()
    };
    let last = heartbeat().await;
    let _controller = Controller::start(&restow, &args).await;
    wait("a look after the restart", || async { heartbeat().await != last }).await;
    assert_eq!((uid().await, settled().await), (after, true));
}

#[tokio::test]
async fn a_key_that_was_unreadable_does_not_count_as_unchanged() {
    const MANY: usize = 20;
    let assets = lab!();
    let (first, second) = (Encryption::aescbc(&["key1", "key2"]), Encryption::aescbc(&["key2", "key1"]));
    let cluster = cluster(&assets, ClusterSpec::new().encryption(first.clone())).await;
    let (client, _) = prepared(&cluster).await;
    let secret = |index| json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name(index)}, "data": {"key": "dmFsdWU="}});
    let path = "/api/v1/namespaces/default/secrets";
    create_all(&client, path, 0..MANY, secret).await;
    let hides = Arc::new(AtomicBool::new(false));
    let hidden = Arc::clone(&hides);
    let rule =
        move |seen: &restow_lab::Seen, _| match seen.path == "/metrics" && hidden.load(Ordering::SeqCst) {
            true => status(403, "Forbidden", "metrics are secret"),
            false => Action::Forward,
        };
    let (recorder, traffic) = Traffic::record(&cluster, rule).await;
    let restow = Restow::with_kubeconfig(recorder.kubeconfig().to_owned());
    let args = ["--resources", "secrets", "--poll-interval", "1s"];
    let state = async || {
        let state = try_send(&client, "GET", &format!("{STATES}/secrets"), None).await.unwrap_or_default();
        state["status"].clone()
    };
    let settled = async || state().await["persistedEncryptionConfigHashes"] == json!([first.hash()]);
    let controller = Controller::start(&restow, &args).await;
    wait("the first key to be settled", &settled).await;

    // Nobody may read metrics any more. Looks go on, and none of them says that nothing was missed.
    hides.store(true, Ordering::SeqCst);
    let looks = || traffic.requests().iter().filter(|request| request.path == "/metrics").count();
    let before = looks();
    wait("a look that cannot see the key", || async { looks() > before }).await;
    let (last, before) = (state().await, looks());
    wait("some looks more", || async { looks() > before + 3 }).await;
    assert_eq!(state().await["lastHeartbeatTime"], last["lastHeartbeatTime"]);
    controller.kill().await;

    // Meanwhile the key is another one for a time, and only restarts would tell.
    let server = Part::ApiServer(0);
    for (encryption, more) in [(&second, true), (&first, false)] {
        cluster.kill(server).unwrap();
        cluster.set_encryption(0, encryption).unwrap();
        cluster.restart(server).await.unwrap();
        if more {
            create_all(&client, path, MANY..2 * MANY, secret).await;
        }
    }
    assert_eq!(keys(&cluster).await.len(), 2);
    // Eleven minutes go by, as the last heartbeat has it.
    let beat: jiff::Timestamp = last["lastHeartbeatTime"].as_str().unwrap().parse().unwrap();
    let past =
        json!({"status": {"lastHeartbeatTime": (beat - jiff::SignedDuration::from_mins(11)).to_string()}});
    patch(&client, &format!("{STATES}/secrets/status"), &past).await;
    hides.store(false, Ordering::SeqCst);
    let _controller = Controller::start(&restow, &args).await;
    let only = BTreeSet::from(["key1".to_owned()]);
    wait("everything to be stored under one key", || async { keys(&cluster).await == only }).await;
    wait("the first key to be settled again", &settled).await;
}
