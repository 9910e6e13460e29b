//! KMS v2: a plugin rotates its key, and no configuration changes.
//!
//! Only on a real kube-apiserver: the embedded server has no KMS providers.

use restow_lab::{Action, Cluster, ClusterSpec, Encryption, KmsPlugin, Seen};
use serde_json::{Value, json};

use crate::controller::{Controller, STATES, is, migrations, prepared};
use crate::support::{Restow, cluster, create_all, lab, name, send, try_send, wait};
use crate::traffic::Traffic;

const MANY: usize = 30;

#[tokio::test]
async fn secrets_are_migrated_when_the_api_server_uses_the_new_kms_key() {
    let assets = lab!();
    let plugin = KmsPlugin::start("key-one").unwrap();
    let encryption = plugin.encryption();
    let cluster = cluster(&assets, ClusterSpec::new().encryption(encryption.clone())).await;
    let (client, restow) = prepared(&cluster).await;
    let secret = |index| json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name(index)}, "data": {"key": "dmFsdWU="}});
    create_all(&client, "/api/v1/namespaces/default/secrets", 0..MANY, secret).await;
    let args = ["--resources", "secrets", "--poll-interval", "1s"];
    let controller = Controller::start(&restow, &args).await;
    let state = async || {
        let state = try_send(&client, "GET", &format!("{STATES}/secrets"), None).await;
        state.unwrap_or_default()["status"].clone()
    };
    let settled = async |key: &str| {
        let status = state().await;
        status["persistedEncryptionConfigHashes"] == json!([identity(&encryption, key)])
            && status["currentEncryptionConfigHash"] == json!(identity(&encryption, key))
    };
    wait("the first key to be settled", || settled("key-one")).await;
    assert_eq!(stored(&cluster).await, (MANY, 0));

    // The plugin names a key that it does not use yet. The API server is not ready then, and calls objects under the
    // former key current; nobody may take them for rewritten.
    let ready = async || {
        let request = http::Request::get("/readyz").body(Vec::new()).unwrap();
        client.request_text(request).await.is_ok()
    };
    plugin.name_only("key-two");
    wait("the API server to see that it cannot use the key", || async { !ready().await }).await;
    let ran = restow.migrate("secrets", &["--encrypted", "secrets", "--timeout", "5s"]).await;
    assert_ne!(ran.code, 0, "{ran:#?}");
    assert_eq!(stored(&cluster).await, (MANY, 0));
    assert!(!settled("key-two").await);

    // Now it uses it.
    plugin.rotate("key-two");
    wait("the API server to use the key", ready).await;
    wait("the second key to be settled", || settled("key-two")).await;
    assert_eq!(stored(&cluster).await, (0, MANY));
    let report = restow.migrate("secrets", &["--encrypted", "secrets"]).await.expect(0).resource();
    assert_eq!(report["encryption"]["configHash"], json!(identity(&encryption, "key-two")), "{report:#}");
    assert_eq!((&report["verified"], &report["notChecked"]), (&json!(true), &Value::Null), "{report:#}");
    let secret = send(&client, "GET", "/api/v1/namespaces/default/secrets/w-00000", None).await;
    assert_eq!(secret["data"]["key"], json!("dmFsdWU="));

    // A key that the API server has not heard of yet is not passed over: it asks for it once a minute, and when it is
    // asked whether it is ready, at most every 20 seconds.
    controller.kill().await;
    let asked = plugin.asked();
    wait("the API server to ask for the key", || async {
        ready().await;
        plugin.asked() > asked
    })
    .await;
    plugin.rotate("key-one");
    let ran = restow.migrate("secrets", &["--encrypted", "secrets"]).await;
    assert_eq!(ran.code == 0, stored(&cluster).await == (MANY, 0), "{ran:#?}");
}

/// A KMS v1 plugin does not report which key it uses, and may change it at any time. All that shows one in an API server's
/// metrics is added to them here.
#[tokio::test]
async fn an_unknown_key_is_not_reported_as_verified() {
    let assets = lab!();
    let encryption = Encryption::aescbc(&["key1"]);
    let cluster = cluster(&assets, ClusterSpec::new().encryption(encryption)).await;
    let (client, _) = prepared(&cluster).await;
    let rule = |seen: &Seen, _| match seen.path == "/metrics" {
        true => Action::Change(Box::new(|metrics| {
            let line = "apiserver_envelope_encryption_dek_cache_inter_arrival_time_seconds_count{transformation_type=\"to_storage\"} 1\n";
            [line.as_bytes(), &metrics].concat().into()
        })),
        false => Action::Forward,
    };
    let (recorder, _) = Traffic::record(&cluster, rule).await;
    let restow = Restow::with_kubeconfig(recorder.kubeconfig().to_owned());
    let secret = |index| json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name(index)}});
    create_all(&client, "/api/v1/namespaces/default/secrets", 0..5, secret).await;

    let untold = "a KMS v1 plugin does not report which key it uses";
    let report = restow.migrate("secrets", &[]).await.expect(4).resource();
    assert_eq!(report["verified"], false, "{report:#}");
    assert!(report["notChecked"][0].as_str().unwrap().contains(untold), "{report:#}");
    // Nothing says that these are encrypted: their storage version is proven, and nothing is said to be known of a key.
    let report = restow.migrate("configmaps", &[]).await.expect(0).resource();
    assert_eq!(report["verified"], true, "{report:#}");
    assert!(report["notChecked"][0].as_str().unwrap().contains(untold), "{report:#}");

    let args = ["--resources", "secrets", "--poll-interval", "1s"];
    let _controller = Controller::start(&restow, &args).await;
    let failed = async || {
        let migrations = migrations(&client, "secrets").await;
        migrations.into_iter().find(|one| is(one, "Failed") || is(one, "Succeeded"))
    };
    wait("the migration to end", || async { failed().await.is_some() }).await;
    let migration = failed().await.unwrap();
    let condition = migration["status"]["conditions"].to_string();
    assert!(condition.contains("Unverified") && condition.contains(untold), "{migration:#}");
    let state = send(&client, "GET", &format!("{STATES}/secrets"), None).await;
    assert_eq!(state["status"]["persistedEncryptionConfigHashes"], json!(["Unknown"]), "{state:#}");
}

/// What restow calls the configuration while its plugin names this key.
fn identity(encryption: &Encryption, key: &str) -> String {
    format!("{}+lab:{}", encryption.hash(), &KmsPlugin::hash(key)[..16])
}

/// How many Secrets are stored under the first key, and how many under the second.
async fn stored(cluster: &Cluster) -> (usize, usize) {
    let (mut first, mut second) = (0, 0);
    let each = |_: &str, bytes: &[u8]| {
        assert!(bytes.starts_with(b"k8s:enc:kms:v2:lab:"), "{:?}", &bytes[..bytes.len().min(40)]);
        let has = |key: &[u8]| bytes.windows(key.len()).any(|window| window == key);
        first += usize::from(has(b"key-one"));
        second += usize::from(has(b"key-two"));
    };
    cluster.etcd().for_each("/registry/secrets/", each).await.unwrap();
    (first, second)
}
