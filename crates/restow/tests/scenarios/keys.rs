//! Key rotation on two API servers, one of which lags behind.
//!
//! Only on a real kube-apiserver: it needs two API servers.

use std::collections::BTreeSet;

use restow_lab::{Cluster, ClusterSpec, Encryption};
use serde_json::{Value, json};

use crate::controller::{Controller, STATES, is, migrations, prepared};
use crate::support::{cluster, create_all, lab, name, send, try_send, wait};

#[tokio::test]
async fn secrets_are_migrated_when_all_servers_use_the_new_key() {
    const MANY: usize = 100;
    let assets = lab!();
    let (first, second) = (Encryption::aescbc(&["key1"]), Encryption::aescbc(&["key2", "key1"]));
    let cluster = cluster(&assets, ClusterSpec::new().servers(2).encryption(first.clone())).await;
    let (client, restow) = prepared(&cluster).await;
    let secret = |index| json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name(index)}, "data": {"key": "dmFsdWU="}});
    create_all(&client, "/api/v1/namespaces/default/secrets", 0..MANY, secret).await;
    let urls = [cluster.url(0), cluster.url(1)];
    let args = [
        "--resources",
        "secrets",
        "--poll-interval",
        "1s",
        "--api-server",
        &urls[0],
        "--api-server",
        &urls[1],
    ];
    let _controller = Controller::start(&restow, &args).await;
    let state =
        async || try_send(&client, "GET", &format!("{STATES}/secrets"), None).await.unwrap_or_default();
    let settled = async |encryption: &Encryption| {
        let status = &state().await["status"];
        status["persistedEncryptionConfigHashes"] == json!([encryption.hash()])
            && status["currentEncryptionConfigHash"] == json!(encryption.hash())
    };
    wait("the first key to be known", || settled(&first)).await;
    let before: Vec<Value> = migrations(&client, "secrets").await;
    assert_eq!(before.len(), 1, "{before:#?}");
    assert_eq!(keys(&cluster).await, BTreeSet::from(["key1".to_owned()]));
    let revision = async || {
        send(&client, "GET", "/api/v1/namespaces/default/secrets/w-00000", None).await["metadata"]["resourceVersion"].clone()
    };
    let untouched = revision().await;

    // A run of a user's own proves the same, as long as the key is the same.
    let flags = ["--api-server", &urls[0], "--api-server", &urls[1]];
    restow.run(&[&["migrate", "secrets", "--encrypted", "secrets"], &flags[..]].concat()).await.expect(0);
    let plan = async || {
        let ran = restow.run(&[&["plan", "secrets", "-o", "json"], &flags[..]].concat()).await.expect(0);
        let line = ran.report()[0].clone();
        (line["needed"].as_str().unwrap().to_owned(), line["reason"].as_str().unwrap().to_owned())
    };
    let settled_state = ("no".to_owned(), "its StorageState is settled".to_owned());
    assert_eq!(plan().await, settled_state);

    // One server has the new key, the other one lags: nothing starts.
    cluster.set_encryption(0, &second).unwrap();
    cluster.wait_for_encryption(0, &second).await.unwrap();
    wait("the difference to be seen", || async {
        state().await["status"]["currentEncryptionConfigHash"] == "Unknown"
    })
    .await;
    let (needed, reason) = plan().await;
    assert!(needed == "maybe" && reason.starts_with("verified on 20"), "{reason}");
    assert!(reason.ends_with("has taken up another encryption configuration since"), "{reason}");
    let both = state().await["status"]["persistedEncryptionConfigHashes"].clone();
    assert!(both.as_array().unwrap().contains(&json!(second.hash())), "{both}");
    assert!(both.as_array().unwrap().contains(&json!(first.hash())), "{both}");
    let unfinished = migrations(&client, "secrets").await.iter().filter(|one| !is(one, "Succeeded")).count();
    assert_eq!((unfinished, revision().await), (0, untouched.clone()));

    // The other one follows.
    cluster.set_encryption(1, &second).unwrap();
    cluster.wait_for_encryption(1, &second).await.unwrap();
    wait("the second key to be settled", || settled(&second)).await;
    assert_eq!(keys(&cluster).await, BTreeSet::from(["key2".to_owned()]));
    assert_eq!(plan().await, settled_state);
    assert_ne!(revision().await, untouched);
    let after = migrations(&client, "secrets").await;
    assert_eq!(after.len(), 1, "{after:#?}");
    assert_eq!(after[0]["spec"]["encryptionConfigHash"], json!(second.hash()));
    assert_eq!(after[0]["status"]["progress"]["rewritten"], json!(MANY));
}

/// The keys all Secrets are stored under.
pub(crate) async fn keys(cluster: &Cluster) -> BTreeSet<String> {
    let mut keys = BTreeSet::new();
    let each = |_: &str, bytes: &[u8]| {
        let head = String::from_utf8_lossy(&bytes[..40.min(bytes.len())]).into_owned();
        keys.insert(head.split(':').nth(4).unwrap_or_default().to_owned());
    };
    cluster.store().for_each("/registry/secrets/", each).await.unwrap();
    keys
}
