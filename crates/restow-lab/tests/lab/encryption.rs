//! A key rotation under a running server.

use std::collections::BTreeMap;

use k8s_openapi::{ByteString, api::core::v1::Secret};
use kube::{Api, api::ObjectMeta};
use restow_lab::{Cluster, ClusterSpec, Encryption, assets};

async fn stored_secret(cluster: &Cluster, name: &str) -> Vec<u8> {
    let secret = Secret {
        metadata: ObjectMeta { name: Some(name.to_owned()), ..Default::default() },
        data: Some(BTreeMap::from([("a".to_owned(), ByteString(b"canary".to_vec()))])),
        ..Default::default()
    };
    let secrets: Api<Secret> = Api::default_namespaced(cluster.client(0).unwrap());
    secrets.create(&Default::default(), &secret).await.unwrap();
    cluster.etcd().get(&format!("/registry/secrets/default/{name}")).await.unwrap().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_new_key_is_taken_up() {
    let Some(assets) = assets::or_skip("a_new_key_is_taken_up") else { return };
    let first = Encryption::aescbc(&["key1"]);
    let cluster = Cluster::start(&assets, ClusterSpec::new().encryption(first.clone())).await.unwrap();
    cluster.wait_for_encryption(0, &first).await.unwrap();
    assert!(stored_secret(&cluster, "one").await.starts_with(b"k8s:enc:aescbc:v1:key1:"));

    let second = Encryption::aescbc(&["key2", "key1"]);
    cluster.set_encryption_all(&second).unwrap();
    cluster.wait_for_encryption(0, &second).await.unwrap();
    assert!(stored_secret(&cluster, "two").await.starts_with(b"k8s:enc:aescbc:v1:key2:"));
}
