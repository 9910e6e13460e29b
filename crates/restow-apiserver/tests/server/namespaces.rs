//! Deleting namespaces: they are emptied first.

use restow_apiserver::{Server, ServerSettings};
use restow_store::{Range, Store as _};
use serde_json::{Value, json};

use crate::basics::read;
use crate::definitions::{defined, send, until};
use crate::memory::Memory;

const NAMESPACES: &str = "/api/v1/namespaces";

async fn make(server: &Server, path: &str, metadata: Value) -> Value {
    send(server, "POST", path, &json!({ "metadata": metadata })).await.unwrap()
}

async fn is_gone(server: &Server, path: &str) -> bool {
    let request = http::Request::get(path).body(Vec::new()).unwrap();
    matches!(server.client().request::<Value>(request).await, Err(kube::Error::Api(status)) if status.code == 404)
}

#[tokio::test]
async fn deleting_a_namespace_deletes_its_objects() {
    let store = Memory::new();
    let server = Server::start(ServerSettings::new(store.clone())).await.unwrap();
    defined(&server, "v1").await;
    make(&server, NAMESPACES, json!({"name": "x"})).await;
    make(&server, NAMESPACES, json!({"name": "xx"})).await;
    for path in ["/api/v1/namespaces/x/configmaps", "/api/v1/namespaces/x/secrets"] {
        make(&server, path, json!({"name": "a"})).await;
    }
    make(&server, "/api/v1/namespaces/xx/configmaps", json!({"name": "a"})).await;
    let widget = json!({"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "a"}});
    send(&server, "POST", "/apis/example.com/v1/namespaces/x/widgets", &widget).await.unwrap();

    let deleted = send(&server, "DELETE", "/api/v1/namespaces/x", &json!({})).await.unwrap();
    assert_eq!(deleted["status"]["phase"], "Terminating");
    until("the namespace is gone", || is_gone(&server, "/api/v1/namespaces/x")).await;
    let range = Range { prefix: "/registry/".to_owned(), start: None, limit: 0, revision: None };
    let entries = store.list(range).await.unwrap().entries;
    let left: Vec<&str> =
        entries.iter().map(|entry| entry.key.as_str()).filter(|key| key.contains("/x/")).collect();
    assert_eq!(left, Vec::<&str>::new());
    read(&server, "/api/v1/namespaces/xx/configmaps/a").await;
    make(&server, NAMESPACES, json!({"name": "x"})).await;
    server.stop().await;
}

#[tokio::test]
async fn a_namespace_waits_for_finalizers_of_its_objects() {
    let server = crate::basics::server().await;
    make(&server, NAMESPACES, json!({"name": "x"})).await;
    let held = "/api/v1/namespaces/x/configmaps/held";
    let metadata = json!({"name": "held", "finalizers": ["x.example/f"]});
    make(&server, "/api/v1/namespaces/x/configmaps", metadata).await;
    send(&server, "DELETE", "/api/v1/namespaces/x", &json!({})).await.unwrap();
    until("its content is going", || async {
        read(&server, held).await["metadata"]["deletionTimestamp"].is_string()
    })
    .await;
    assert!(!is_gone(&server, "/api/v1/namespaces/x").await);
    send(&server, "PATCH", held, &json!({"metadata": {"finalizers": null}})).await.unwrap();
    until("the namespace is gone", || is_gone(&server, "/api/v1/namespaces/x")).await;
    server.stop().await;
}

#[tokio::test]
async fn a_namespace_left_terminating_by_a_stopped_server_is_deleted() {
    let store = Memory::new();
    let first = Server::start(ServerSettings::new(store.clone())).await.unwrap();
    make(&first, NAMESPACES, json!({"name": "x"})).await;
    let held = "/api/v1/namespaces/x/configmaps/held";
    let metadata = json!({"name": "held", "finalizers": ["x.example/f"]});
    make(&first, "/api/v1/namespaces/x/configmaps", metadata).await;
    send(&first, "DELETE", "/api/v1/namespaces/x", &json!({})).await.unwrap();
    first.stop().await;

    let second = Server::start(ServerSettings::new(store.clone())).await.unwrap();
    until("its content is going", || async {
        read(&second, held).await["metadata"]["deletionTimestamp"].is_string()
    })
    .await;
    send(&second, "PATCH", held, &json!({"metadata": {"finalizers": null}})).await.unwrap();
    until("the namespace is gone", || is_gone(&second, "/api/v1/namespaces/x")).await;
    second.stop().await;
}

#[tokio::test]
async fn a_slow_create_is_not_stored_in_a_deleted_namespace() {
    let store = Memory::new();
    let server = Server::start(ServerSettings::new(store.clone())).await.unwrap();
    make(&server, NAMESPACES, json!({"name": "x"})).await;
    let slow = |name: &'static str| {
        let (client, body) = (server.client(), json!({"metadata": {"name": name}}));
        tokio::spawn(async move {
            let request = http::Request::post("/api/v1/namespaces/x/configmaps");
            let request =
                request.header("content-type", "application/json").body(body.to_string().into_bytes());
            client.request::<Value>(request.unwrap()).await
        })
    };
    store.hold(&["/registry/configmaps/x/"]);
    let late = slow("late");
    store.holds().await;
    send(&server, "DELETE", "/api/v1/namespaces/x", &json!({})).await.unwrap();
    until("the namespace is gone", || is_gone(&server, "/api/v1/namespaces/x")).await;
    store.hold(&[]);
    let refused = late.await.unwrap();
    assert!(matches!(&refused, Err(kube::Error::Api(status)) if status.code == 404), "{refused:?}");
    assert_eq!(store.get("/registry/configmaps/x/late").await.unwrap().entry, None);

    // A namespace that has only changed still admits creates.
    make(&server, NAMESPACES, json!({"name": "x"})).await;
    store.hold(&["/registry/configmaps/x/"]);
    let kept = slow("kept");
    store.holds().await;
    let change = json!({"metadata": {"labels": {"a": "b"}}});
    send(&server, "PATCH", "/api/v1/namespaces/x", &change).await.unwrap();
    store.hold(&[]);
    kept.await.unwrap().unwrap();
    server.stop().await;
}

#[tokio::test]
async fn a_namespace_has_a_default_service_account() {
    let server = crate::basics::server().await;
    let path = |namespace: &str| format!("/api/v1/namespaces/{namespace}/serviceaccounts/default");
    make(&server, NAMESPACES, json!({"name": "x"})).await;
    for namespace in ["default", "kube-system", "x"] {
        until("the account exists", || async { !is_gone(&server, &path(namespace)).await }).await;
    }
    let first = read(&server, &path("x")).await;
    send(&server, "DELETE", &path("x"), &json!({})).await.unwrap();
    until("the account was created again", || async {
        let found = send(&server, "GET", &path("x"), &json!({})).await;
        found.is_ok_and(|found| found["metadata"]["uid"] != first["metadata"]["uid"])
    })
    .await;
    send(&server, "DELETE", "/api/v1/namespaces/x", &json!({})).await.unwrap();
    until("the namespace is gone", || is_gone(&server, "/api/v1/namespaces/x")).await;
    server.stop().await;
}

/// Stops serving all versions of widgets, which stay stored.
pub(crate) async fn serve_none(server: &Server) {
    let path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/widgets.example.com";
    let mut definition = read(server, path).await;
    for version in definition["spec"]["versions"].as_array_mut().unwrap() {
        version["served"] = json!(false);
    }
    send(server, "PUT", path, &definition).await.unwrap();
    let widgets = "/apis/example.com/v1/namespaces/default/widgets";
    until("no version is served", || is_gone(server, widgets)).await;
}

#[tokio::test]
async fn deleting_a_namespace_deletes_objects_that_are_not_served() {
    let store = Memory::new();
    let server = Server::start(ServerSettings::new(store.clone())).await.unwrap();
    defined(&server, "v1").await;
    make(&server, NAMESPACES, json!({"name": "x"})).await;
    let widget = json!({"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "a"}});
    send(&server, "POST", "/apis/example.com/v1/namespaces/x/widgets", &widget).await.unwrap();
    serve_none(&server).await;
    send(&server, "DELETE", "/api/v1/namespaces/x", &json!({})).await.unwrap();
    until("the namespace is gone", || is_gone(&server, "/api/v1/namespaces/x")).await;
    assert_eq!(store.get("/registry/example.com/widgets/x/a").await.unwrap().entry, None);
    server.stop().await;
}
