//! Custom resources: defined, served, changed and deleted.

use std::time::Duration;

use k8s_openapi::api::apiserverinternal::v1alpha1::StorageVersion;
use kube::{Api, Client};
use restow_apiserver::{Server, ServerSettings};
use restow_store::Store as _;
use serde_json::{Value, json};

use crate::basics::{code, read};
use crate::memory::Memory;

pub(crate) const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
pub(crate) const WIDGETS: &str = "/apis/example.com/v1/namespaces/default/widgets";

/// A definition with two versions, one of which is the storage version.
pub(crate) fn definition(stored: &str) -> Value {
    let version = |name: &str| {
        json!({
            "name": name, "served": true, "storage": name == stored, "subresources": {"status": {}},
            "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}},
        })
    };
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "widgets.example.com"},
        "spec": {
            "group": "example.com", "scope": "Namespaced",
            "names": {"plural": "widgets", "kind": "Widget", "shortNames": ["wd"]},
            "versions": [version("v1"), version("v2")],
        },
    })
}

/// Sends a request with a body, and returns the response as JSON.
pub(crate) async fn send(server: &Server, method: &str, path: &str, body: &Value) -> kube::Result<Value> {
    send_by(&server.client(), method, path, body).await
}

/// Sends a request with a given client.
pub(crate) async fn send_by(client: &Client, method: &str, path: &str, body: &Value) -> kube::Result<Value> {
    let kind = if method == "PATCH" { "application/merge-patch+json" } else { "application/json" };
    let request = http::Request::builder().method(method).uri(path).header("content-type", kind);
    client.request(request.body(body.to_string().into_bytes()).unwrap()).await
}

/// Waits until a condition holds.
pub(crate) async fn until<F: Future<Output = bool>>(what: &str, so: impl Fn() -> F) {
    restow_lab::suite::wait(Duration::from_secs(20), what, so).await;
}

async fn is_established(server: &Server) -> bool {
    let found = read(server, &format!("{DEFINITIONS}/widgets.example.com")).await;
    let conditions = found["status"]["conditions"].as_array().cloned().unwrap_or_default();
    conditions.iter().any(|condition| condition["type"] == "Established" && condition["status"] == "True")
}

pub(crate) async fn defined(server: &Server, stored: &str) {
    send(server, "POST", DEFINITIONS, &definition(stored)).await.unwrap();
    until("established", || is_established(server)).await;
}

pub(crate) fn widget(name: &str) -> Value {
    json!({"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": name}, "spec": {"size": 1}})
}

async fn stored(store: &Memory, name: &str) -> Value {
    let key = format!("/registry/example.com/widgets/default/{name}");
    serde_json::from_slice(&store.get(&key).await.unwrap().entry.unwrap().value).unwrap()
}

#[tokio::test]
async fn a_defined_resource_is_served() {
    let store = Memory::new();
    let server = Server::start(ServerSettings::new(store.clone())).await.unwrap();
    defined(&server, "v1").await;
    let group = read(&server, "/apis/example.com").await;
    assert_eq!(group["preferredVersion"]["version"], "v2");
    let resources = read(&server, "/apis/example.com/v1").await;
    assert_eq!(resources["resources"][0]["storageVersionHash"], "gIwvi5rymmg=");
    let made = send(&server, "POST", WIDGETS, &widget("a")).await.unwrap();
    assert_eq!(made["metadata"]["generation"], 1);
    assert_eq!(stored(&store, "a").await["apiVersion"], "example.com/v1");
    let other = read(&server, "/apis/example.com/v2/namespaces/default/widgets/a").await;
    assert_eq!(other["apiVersion"], "example.com/v2");
    let versions = Api::<StorageVersion>::all(server.client()).get("example.com.widgets").await.unwrap();
    let common = versions.status.unwrap().common_encoding_version;
    assert_eq!(common.as_deref(), Some("example.com/v1"));
    server.stop().await;
}

#[tokio::test]
async fn an_empty_patch_stores_the_new_storage_version() {
    let store = Memory::new();
    let server = Server::start(ServerSettings::new(store.clone())).await.unwrap();
    defined(&server, "v1").await;
    let made = send(&server, "POST", WIDGETS, &widget("a")).await.unwrap();
    let path = format!("{DEFINITIONS}/widgets.example.com");
    let flip = json!({"spec": {"versions": definition("v2")["spec"]["versions"]}});
    let flipped = send(&server, "PATCH", &path, &flip).await.unwrap();
    assert_eq!(flipped["status"]["storedVersions"], json!(["v1", "v2"]));
    let hash = || async {
        read(&server, "/apis/example.com/v1").await["resources"][0]["storageVersionHash"] != "gIwvi5rymmg="
    };
    until("the new hash", hash).await;
    let nothing = json!({"metadata": {"uid": made["metadata"]["uid"]}});
    let path = format!("{WIDGETS}/a");
    let patched = send(&server, "PATCH", &path, &nothing).await.unwrap();
    assert_ne!(patched["metadata"]["resourceVersion"], made["metadata"]["resourceVersion"]);
    assert_eq!(stored(&store, "a").await["apiVersion"], "example.com/v2");
    let again = send(&server, "PATCH", &path, &nothing).await.unwrap();
    assert_eq!(again["metadata"]["resourceVersion"], patched["metadata"]["resourceVersion"]);
    server.stop().await;
}

#[tokio::test]
async fn the_status_subresource_is_separate() {
    let server = crate::basics::server().await;
    defined(&server, "v1").await;
    let mut sent = widget("a");
    sent["status"] = json!({"ready": true});
    let made = send(&server, "POST", WIDGETS, &sent).await.unwrap();
    assert_eq!(made.get("status"), None);
    let path = format!("{WIDGETS}/a");
    let status = json!({"spec": {"size": 2}, "status": {"ready": true}});
    let patched = send(&server, "PATCH", &format!("{path}/status"), &status).await.unwrap();
    assert_eq!((&patched["spec"]["size"], &patched["status"]["ready"]), (&json!(1), &json!(true)));
    assert_eq!(patched["metadata"]["generation"], 1);
    let patched = send(&server, "PATCH", &path, &json!({"spec": {"size": 3}, "status": null})).await.unwrap();
    assert_eq!((&patched["metadata"]["generation"], &patched["status"]["ready"]), (&json!(2), &json!(true)));
    server.stop().await;
}

#[tokio::test]
async fn deleting_a_definition_deletes_its_objects() {
    let store = Memory::new();
    let server = Server::start(ServerSettings::new(store.clone())).await.unwrap();
    defined(&server, "v1").await;
    send(&server, "POST", WIDGETS, &widget("a")).await.unwrap();
    let path = format!("{DEFINITIONS}/widgets.example.com");
    send(&server, "DELETE", &path, &json!({})).await.unwrap();
    until("the definition is gone", || async {
        let request = http::Request::get(&path).body(Vec::new()).unwrap();
        server.client().request::<Value>(request).await.is_err()
    })
    .await;
    assert_eq!(store.get("/registry/example.com/widgets/default/a").await.unwrap().entry, None);
    until("the resource is gone", || async {
        let request = http::Request::get(WIDGETS).body(Vec::new()).unwrap();
        server.client().request::<Value>(request).await.is_err()
    })
    .await;
    server.stop().await;
}

/// Creates a widget that the store blocks, and drops the request.
async fn held_up(server: &Server, store: &Memory) {
    store.hold(&["/registry/example.com/widgets/"]);
    let late = widget("late");
    tokio::select! {
        answered = send(server, "POST", WIDGETS, &late) => panic!("{answered:?}"),
        () = store.holds() => {}
    }
}

/// A create that was admitted before the deletion of its definition does not outlive the definition.
#[tokio::test]
async fn deleting_a_definition_waits_for_creates_in_flight_and_deletes_their_objects() {
    let store = Memory::new();
    let server = Server::start(ServerSettings::new(store.clone())).await.unwrap();
    defined(&server, "v1").await;
    held_up(&server, &store).await;
    let path = format!("{DEFINITIONS}/widgets.example.com");
    send(&server, "DELETE", &path, &json!({})).await.unwrap();
    let gone = async || {
        let request = http::Request::get(&path).body(Vec::new()).unwrap();
        server.client().request::<Value>(request).await.is_err()
    };
    let early =
        tokio::time::timeout(Duration::from_millis(300), until("the definition is gone", &gone)).await;
    assert!(early.is_err(), "the definition went before a create of its objects had ended");
    store.hold(&[]);
    until("the definition is gone", gone).await;
    assert_eq!(store.get("/registry/example.com/widgets/default/late").await.unwrap().entry, None);
    server.stop().await;
}

#[tokio::test]
async fn two_servers_on_one_store_follow_each_other() {
    let store = Memory::new();
    let first = Server::start(ServerSettings::new(store.clone())).await.unwrap();
    let settings =
        ServerSettings { server_id: "apiserver-other".to_owned(), ..ServerSettings::new(store.clone()) };
    let second = Server::start(settings).await.unwrap();
    defined(&first, "v1").await;
    until("the other serves it", || async { send(&second, "POST", WIDGETS, &widget("a")).await.is_ok() })
        .await;
    let versions = Api::<StorageVersion>::all(first.client());
    until("both are registered", || async {
        let found = versions.get("example.com.widgets").await.unwrap();
        found.status.unwrap().storage_versions.unwrap_or_default().len() == 2
    })
    .await;
    assert_eq!(code(send(&first, "POST", WIDGETS, &widget("a")).await), 409);
    second.stop().await;
    first.stop().await;
}

#[tokio::test]
async fn objects_are_validated_against_their_schema() {
    let server = crate::basics::server().await;
    let mut sent = definition("v1");
    let schema = json!({
        "type": "object", "properties": {"spec": {"type": "object", "properties": {
            "size": {"type": "integer", "minimum": 1}, "color": {"type": "string", "default": "blue"},
        }}},
    });
    for version in sent["spec"]["versions"].as_array_mut().unwrap() {
        version["schema"]["openAPIV3Schema"] = schema.clone();
    }
    send(&server, "POST", DEFINITIONS, &sent).await.unwrap();
    until("established", || is_established(&server)).await;
    let mut sent = widget("a");
    sent["spec"]["unknown"] = json!(true);
    let strict = format!("{WIDGETS}?fieldValidation=Strict");
    assert_eq!(code(send(&server, "POST", &strict, &sent).await), 400);
    let made = send(&server, "POST", WIDGETS, &sent).await.unwrap();
    assert_eq!(made["spec"], json!({"size": 1, "color": "blue"}));
    let path = format!("{WIDGETS}/a");
    assert_eq!(code(send(&server, "PATCH", &path, &json!({"spec": {"size": 0}})).await), 422);
    server.stop().await;
}

#[tokio::test]
async fn an_invalid_definition_is_refused() {
    let server = crate::basics::server().await;
    let mut sent = definition("v3");
    assert_eq!(code(send(&server, "POST", DEFINITIONS, &sent).await), 422);
    sent = definition("v1");
    sent["metadata"]["name"] = json!("other");
    assert_eq!(code(send(&server, "POST", DEFINITIONS, &sent).await), 422);
    server.stop().await;
}

/// kube-apiserver evaluates every rule; this server says which ones it does not.
#[tokio::test]
async fn a_validation_rule_that_is_not_enforced_causes_a_warning() {
    let server = crate::basics::server().await;
    let mut sent = definition("v1");
    let own = format!("{DEFINITIONS}/widgets.example.com");
    for (method, path, media, rule, is_enforced) in [
        ("POST", DEFINITIONS, "application/json", "self == oldSelf", true),
        ("PATCH", &own, "application/merge-patch+json", "self.matches('a')", false),
    ] {
        let schema = &mut sent["spec"]["versions"][0]["schema"]["openAPIV3Schema"];
        schema["x-kubernetes-validations"] = json!([{ "rule": rule }]);
        let request = http::Request::builder().method(method).uri(path).header("content-type", media);
        let request = request.body(kube::client::Body::from(sent.to_string().into_bytes())).unwrap();
        let response = server.client().send(request).await.unwrap();
        assert!(response.status().is_success(), "{rule}: {}", response.status());
        let warning = response.headers().get("warning").map(|warning| warning.to_str().unwrap());
        assert_eq!(warning.is_some_and(|warning| warning.contains(rule)), !is_enforced, "{warning:?}");
    }
    server.stop().await;
}

/// A client that leaves does not release the write permit before the object is stored.
#[tokio::test]
async fn a_storage_version_change_waits_for_abandoned_writes() {
    let store = Memory::new();
    let server = Server::start(ServerSettings::new(store.clone())).await.unwrap();
    defined(&server, "v1").await;
    held_up(&server, &store).await;
    let versions = json!({"spec": {"versions": definition("v2")["spec"]["versions"]}});
    send(&server, "PATCH", &format!("{DEFINITIONS}/widgets.example.com"), &versions).await.unwrap();
    let registered = async || {
        let objects = Api::<StorageVersion>::all(server.client());
        let status = objects.get("example.com.widgets").await.unwrap().status;
        status.and_then(|status| status.common_encoding_version)
    };
    assert_eq!(registered().await.as_deref(), Some("example.com/v1"));
    store.hold(&[]);
    until("v2 to be registered", || async { registered().await.as_deref() == Some("example.com/v2") }).await;
    assert_eq!(stored(&store, "late").await["apiVersion"], "example.com/v1");
    server.stop().await;
}

#[tokio::test]
async fn a_deleted_registration_is_restored() {
    let store = Memory::new();
    let server = Server::start(ServerSettings::new(store.clone())).await.unwrap();
    defined(&server, "v1").await;
    send(&server, "POST", WIDGETS, &widget("a")).await.unwrap();
    let objects = Api::<StorageVersion>::all(server.client());
    for name in ["example.com.widgets", "core.configmaps"] {
        let uid = objects.get(name).await.unwrap().metadata.uid;
        objects.delete(name, &Default::default()).await.unwrap();
        until("it is registered again", || async {
            let found = objects.get_opt(name).await.unwrap();
            found.is_some_and(|found| {
                let entries = found.status.and_then(|status| status.storage_versions).unwrap_or_default();
                found.metadata.uid != uid
                    && entries.iter().any(|entry| entry.api_server_id == "apiserver-restow")
            })
        })
        .await;
    }
    send(&server, "POST", WIDGETS, &widget("b")).await.unwrap();
    server.stop().await;
}

#[tokio::test]
async fn a_restarted_server_removes_registrations_it_no_longer_serves() {
    let store = Memory::new();
    let key = "/registry/storageversions/gone.example.widgets";
    let left = r#"{
        "apiVersion": "internal.apiserver.k8s.io/v1alpha1", "kind": "StorageVersion",
        "metadata": {"name": "gone.example.widgets", "uid": "00000000-0000-4000-8000-000000000000"}, "spec": {},
        "status": {
            "commonEncodingVersion": "gone.example/v1",
            "storageVersions": [{
                "apiServerID": "apiserver-restow", "encodingVersion": "gone.example/v1",
                "decodableVersions": ["gone.example/v1"]
            }]
        }
    }"#;
    store.put(key, left).await;
    let server = Server::start(ServerSettings::new(store.clone())).await.unwrap();
    until("it is registered no more", || async { store.get(key).await.unwrap().entry.is_none() }).await;
    server.stop().await;
}
