//! Encryption at rest is compatible with a real kube-apiserver.

use k8s_openapi::api::{
    apps::v1::Deployment,
    core::v1::{ConfigMap, Secret, ServiceAccount},
};
use kube::{
    Api, Resource,
    api::PostParams,
    core::{ApiResource, DynamicObject},
};
use restow_lab::{Cluster, ClusterSpec, Encryption, assets};
use restow_store::encryption::Transformers;
use serde_json::{Value, json};

const KEY16: &str = "MDEyMzQ1Njc4OWFiY2RlZg==";
const KEY24: &str = "MDEyMzQ1Njc4OWFiY2RlZmdoaWprbG1u";
const KEY32: &str = "MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE=";

/// A configuration with every provider and key size. Each rule has two keys, in this or in reverse order.
fn configuration(turned: bool) -> String {
    let rule = |resources: &str, provider: &str, first: &str, second: &str| {
        let mut keys =
            [format!("{{ name: a, secret: {first} }}"), format!("{{ name: b, secret: {second} }}")];
        if turned {
            keys.reverse();
        }
        let keys = keys.join(", ");
        format!(
            "- resources: [{resources}]\n  providers: [{{ {provider}: {{ keys: [{keys}] }} }}, {{ identity: {{}} }}]\n"
        )
    };
    let other32 = "YWJjZGVmZ2hpamtsbW5vcHFyc3R1dnd4eXphYmNkZWY=";
    [
        "apiVersion: apiserver.config.k8s.io/v1\nkind: EncryptionConfiguration\nresources:\n".to_owned(),
        rule("secrets", "aescbc", KEY32, KEY16),
        rule("configmaps", "aesgcm", KEY32, KEY16),
        rule("serviceaccounts", "secretbox", KEY32, other32),
        rule("'*.apps'", "aesgcm", KEY24, KEY32),
    ]
    .concat()
}

fn api<K: Resource<DynamicType = ()>>(cluster: &Cluster) -> (Api<DynamicObject>, ApiResource) {
    let resource = ApiResource::erase::<K>(&());
    (Api::namespaced_with(cluster.client(0).unwrap(), "default", &resource), resource)
}

async fn shown(api: &Api<DynamicObject>) -> Value {
    let mut object = serde_json::to_value(api.get("encrypted").await.unwrap()).unwrap();
    object["metadata"]["resourceVersion"] = Value::Null;
    object
}

/// Decrypts what the server encrypted, and lets the server decrypt values under each key and in plain text.
async fn both_ways<K: Resource<DynamicType = ()>>(cluster: &Cluster, content: Value) {
    let (api, resource) = api::<K>(cluster);
    let mut object = content;
    object["apiVersion"] = json!(resource.api_version);
    object["kind"] = json!(resource.kind);
    object["metadata"] = json!({ "name": "encrypted" });
    api.create(&PostParams::default(), &serde_json::from_value(object).unwrap()).await.unwrap();
    let expected = shown(&api).await;

    let path = format!("/registry/{}/default/encrypted", resource.plural);
    let stored = cluster.etcd().get(&path).await.unwrap().unwrap();
    assert!(stored.starts_with(b"k8s:enc:"), "{path} is stored in plain text");
    let (own, turned) =
        [false, true].map(|turned| Transformers::parse(configuration(turned).as_bytes()).unwrap()).into();
    let of = |transformers: &Transformers| transformers.of(&resource.group, &resource.plural).clone();
    let decrypted = of(&own).decrypt(&path, stored.clone().into()).unwrap();
    assert!(!decrypted.stale && decrypted.plain.starts_with(b"k8s\0"), "{path}");
    assert!(of(&turned).decrypt(&path, stored.into()).unwrap().stale, "{path}");

    for transformer in [of(&own), of(&turned), of(&Transformers::default())] {
        let encrypted = transformer.encrypt(&path, decrypted.plain.clone()).unwrap();
        cluster.etcd().put(&path, &encrypted).await.unwrap();
        assert_eq!(shown(&api).await, expected, "{path} with {transformer:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kube_apiserver_and_restow_decrypt_each_others_values() {
    let Some(assets) = assets::or_skip("a_real_server_and_this_read_one_another") else { return };
    let encryption = Encryption::from_yaml(&configuration(false));
    let own = Transformers::parse(configuration(false).as_bytes()).unwrap();
    assert_eq!(own.hash(), encryption.hash());
    let cluster = Cluster::start(&assets, ClusterSpec::new().encryption(encryption.clone())).await.unwrap();
    cluster.wait_for_encryption(0, &encryption).await.unwrap();

    both_ways::<Secret>(&cluster, json!({ "stringData": { "key": "value" } })).await;
    both_ways::<ConfigMap>(&cluster, json!({ "data": { "key": "value" } })).await;
    both_ways::<ServiceAccount>(&cluster, json!({})).await;
    let template = json!({
        "metadata": { "labels": { "app": "a" } },
        "spec": { "containers": [{ "name": "a", "image": "a" }] },
    });
    let deployment =
        json!({ "spec": { "selector": { "matchLabels": { "app": "a" } }, "template": template } });
    both_ways::<Deployment>(&cluster, deployment).await;
}
