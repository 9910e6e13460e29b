//! Encryption at rest: objects are stored encrypted, and an empty patch encrypts them with the new key.

use k8s_openapi::api::core::v1::Secret;
use kube::Api;
use kube::api::{ListParams, ObjectMeta, Patch, PatchParams, PostParams};
use restow_apiserver::{Server, ServerSettings};
use restow_store::Store as _;
use restow_store::encryption::Transformers;
use serde_json::json;

use crate::memory::Memory;

const KEYS: [(&str, &str); 2] = [
    ("key1", "MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE="),
    ("key2", "MTEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE="),
];

pub(crate) fn transformers(order: [usize; 2]) -> Transformers {
    let keys: Vec<_> = order.iter().map(|at| json!({"name": KEYS[*at].0, "secret": KEYS[*at].1})).collect();
    let file = json!({
        "apiVersion": "apiserver.config.k8s.io/v1", "kind": "EncryptionConfiguration",
        "resources": [{"resources": ["secrets"], "providers": [{"secretbox": {"keys": keys}}, {"identity": {}}]}],
    });
    Transformers::parse(file.to_string().as_bytes()).unwrap()
}

#[tokio::test]
async fn an_empty_patch_re_encrypts_with_the_new_key() {
    let store = Memory::new();
    let settings = ServerSettings {
        encryption: Some(transformers([0, 1]).into()),
        ..ServerSettings::new(store.clone())
    };
    let server = Server::start(settings).await.unwrap();
    let secrets = Api::<Secret>::namespaced(server.client(), "default");
    let secret = Secret {
        metadata: ObjectMeta { name: Some("a".to_owned()), ..ObjectMeta::default() },
        string_data: Some([("password".to_owned(), "hidden".to_owned())].into()),
        ..Secret::default()
    };
    let made = secrets.create(&PostParams::default(), &secret).await.unwrap();
    let stored = || async { store.get("/registry/secrets/default/a").await.unwrap().entry.unwrap().value };
    assert!(stored().await.starts_with(b"k8s:enc:secretbox:v1:key1:"));
    let nothing = Patch::Merge(json!({"metadata": {"uid": made.metadata.uid}}));
    let same = secrets.patch("a", &PatchParams::default(), &nothing).await.unwrap();
    assert_eq!(same.metadata.resource_version, made.metadata.resource_version);
    server.set_encryption(transformers([1, 0]).into());
    let other = secrets.patch("a", &PatchParams::default(), &nothing).await.unwrap();
    assert_ne!(other.metadata.resource_version, made.metadata.resource_version);
    assert!(stored().await.starts_with(b"k8s:enc:secretbox:v1:key2:"));
    let listed = secrets.list(&ListParams::default()).await.unwrap();
    assert_eq!(listed.items[0].data.as_ref().unwrap()["password"].0, b"hidden");
    server.stop().await;
}
