//! Every object is rewritten once, and a second run finds nothing to do.

use std::collections::BTreeMap;

use restow_lab::{ClusterSpec, Encryption, Part, ServerSpec};
use serde_json::json;

use crate::support::{Lab, Restow, Widgets, contents, create_all, name};

scenarios! {
    custom_resources_are_rewritten_after_a_storage_version_change,
    secrets_are_rewritten_after_a_key_rotation,
    ; real:
    // It emulates an older Kubernetes.
    a_built_in_resource_is_rewritten_after_a_storage_version_change,
}

const MANY: usize = 10_000;

async fn custom_resources_are_rewritten_after_a_storage_version_change(lab: Lab) {
    let many = lab.objects(MANY);
    let cluster = lab.shared();
    let client = cluster.client(0).unwrap();
    let widgets = Widgets { plural: "flips" };
    widgets.define(&client).await;
    widgets.create(&client, many).await;
    widgets.store_as(&client, "v2").await;
    let before = contents(&client, &widgets.path("v2", "")).await;

    let restow = Restow::new(cluster);
    let first = restow.migrate(&widgets.name(), &["--pace", "fast"]).await.expect(0).resource();
    assert_eq!(first["rewritten"], many);
    assert_eq!(first["listed"], many);
    assert_eq!(first["verified"], true);
    assert_eq!(first["storageVersion"], "v2");
    assert_eq!(first["agreement"], lab.agreement());
    assert_eq!(first["quarantined"], json!([]));
    let stored = widgets.stored_as(cluster).await;
    assert_eq!(stored, BTreeMap::from([(format!("{}/v2", widgets.group()), many)]));

    let after = contents(&client, &widgets.path("v2", "")).await;
    let unchanged =
        before.iter().zip(&after).all(|(before, after)| before.0 == after.0 && before.1.1 == after.1.1);
    assert!(unchanged && before.len() == after.len(), "a rewrite changed what an object says");

    let second = restow
        .migrate(&widgets.name(), &["--pace", "fast", "--list", "streaming"])
        .await
        .expect(0)
        .resource();
    assert_eq!((&second["rewritten"], &second["current"]), (&json!(0), &json!(many)));
    let again = contents(&client, &widgets.path("v2", "")).await;
    assert!(after == again, "a resourceVersion moved in a run that had nothing to do");
}

async fn secrets_are_rewritten_after_a_key_rotation(lab: Lab) {
    let many = lab.objects(MANY);
    let spec = ClusterSpec::new().encryption(Encryption::aescbc(&["key1"]));
    let cluster = lab.cluster(spec).await;
    let client = cluster.client(0).unwrap();
    let secret = |index| {
        json!({
            "apiVersion": "v1", "kind": "Secret",
            "metadata": {"name": name(index)}, "stringData": {"password": "x".repeat(500)},
        })
    };
    create_all(&client, "/api/v1/namespaces/default/secrets", 0..many, secret).await;
    cluster.set_encryption_all(&Encryption::aescbc(&["key2", "key1"])).unwrap();
    cluster.restart(Part::ApiServer(0)).await.unwrap();

    let restow = Restow::new(&cluster);
    let first = restow.migrate("secrets", &["--pace", "fast"]).await.expect(0).resource();
    assert_eq!((&first["rewritten"], &first["verified"]), (&json!(many), &json!(true)));
    let mut keys: BTreeMap<String, usize> = BTreeMap::new();
    let count = |_: &str, bytes: &[u8]| {
        let prefix: Vec<&[u8]> = bytes.splitn(6, |byte| *byte == b':').take(5).collect();
        *keys.entry(String::from_utf8(prefix.join(&b':')).unwrap()).or_default() += 1;
    };
    cluster.store().for_each("/registry/secrets/", count).await.unwrap();
    assert_eq!(keys, BTreeMap::from([("k8s:enc:aescbc:v1:key2".to_owned(), many)]));

    let after = contents(&client, "/api/v1/namespaces/default/secrets").await;
    let second = restow.migrate("secrets", &["--pace", "fast"]).await.expect(0).resource();
    assert_eq!((&second["rewritten"], &second["current"]), (&json!(0), &json!(many)));
    assert!(after == contents(&client, "/api/v1/namespaces/default/secrets").await);
}

async fn a_built_in_resource_is_rewritten_after_a_storage_version_change(lab: Lab) {
    let spec = ClusterSpec::new().server(0, ServerSpec::new().emulated_version("1.34"));
    let cluster = lab.cluster(spec).await;
    let client = cluster.client(0).unwrap();
    let class = |index| json!({"apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass", "metadata": {"name": name(index)}, "spec": {}});
    create_all(&client, "/apis/resource.k8s.io/v1/deviceclasses", 0..MANY, class).await;
    let stored_as = async || {
        let mut counts: BTreeMap<bool, usize> = BTreeMap::new();
        let old = b"resource.k8s.io/v1beta2";
        let count = |_: &str, bytes: &[u8]| {
            *counts.entry(bytes.windows(old.len()).any(|window| window == old)).or_default() += 1;
        };
        cluster.store().for_each("/registry/deviceclasses/", count).await.unwrap();
        counts
    };
    assert_eq!(stored_as().await, BTreeMap::from([(true, MANY)]));
    cluster
        .restart_with(Part::ApiServer(0), |flags| {
            flags.remove("emulated-version");
        })
        .await
        .unwrap();

    let restow = Restow::new(&cluster);
    let first = restow.migrate("deviceclasses", &["--pace", "fast"]).await.expect(0).resource();
    assert_eq!((&first["rewritten"], &first["verified"]), (&json!(MANY), &json!(true)));
    assert_eq!(first["storageVersion"], "v1");
    assert_eq!(stored_as().await, BTreeMap::from([(false, MANY)]));
    let client = cluster.client(0).unwrap();
    let after = contents(&client, "/apis/resource.k8s.io/v1/deviceclasses").await;
    let second = restow.migrate("deviceclasses", &["--pace", "fast"]).await.expect(0).resource();
    assert_eq!((&second["rewritten"], &second["current"]), (&json!(0), &json!(MANY)));
    assert!(after == contents(&client, "/apis/resource.k8s.io/v1/deviceclasses").await);
}
