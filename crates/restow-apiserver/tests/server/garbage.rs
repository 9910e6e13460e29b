//! Garbage collection: background, foreground and orphan deletion.

use restow_apiserver::{Server, ServerSettings};
use restow_store::Store as _;
use serde_json::{Value, json};

use crate::basics::read;
use crate::definitions::{defined, send, until};
use crate::memory::Memory;

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const WIDGETS: &str = "/apis/example.com/v1/namespaces/default/widgets";

fn reference(owner: &Value, blocks: bool) -> Value {
    json!({
        "apiVersion": owner["apiVersion"], "kind": owner["kind"], "blockOwnerDeletion": blocks,
        "name": owner["metadata"]["name"], "uid": owner["metadata"]["uid"],
    })
}

async fn make(server: &Server, name: &str, owners: &[Value]) -> Value {
    let body = json!({"metadata": {"name": name, "ownerReferences": owners}});
    send(server, "POST", MAPS, &body).await.unwrap()
}

async fn delete(server: &Server, path: &str, policy: &str) -> Value {
    send(
        server,
        "DELETE",
        &format!("{path}?propagationPolicy={policy}"),
        &json!({"propagationPolicy": policy}),
    )
    .await
    .unwrap()
}

async fn is_gone(server: &Server, path: &str) -> bool {
    let request = http::Request::get(path).body(Vec::new()).unwrap();
    matches!(server.client().request::<Value>(request).await, Err(kube::Error::Api(status)) if status.code == 404)
}

async fn gone(server: &Server, name: &str) {
    let path = format!("{MAPS}/{name}");
    until(&format!("{name} is gone"), || is_gone(server, &path)).await;
}

#[tokio::test]
async fn dependents_are_deleted_after_their_owner() {
    let server = crate::basics::server().await;
    let mut owner = make(&server, "c0", &[]).await;
    for index in 1..4 {
        owner = make(&server, &format!("c{index}"), &[reference(&owner, false)]).await;
    }
    make(&server, "free", &[]).await;
    delete(&server, &format!("{MAPS}/c0"), "Background").await;
    for index in 0..4 {
        gone(&server, &format!("c{index}")).await;
    }
    read(&server, &format!("{MAPS}/free")).await;
    server.stop().await;
}

#[tokio::test]
async fn an_object_with_another_owner_is_kept() {
    let server = crate::basics::server().await;
    let first = make(&server, "first", &[]).await;
    let second = make(&server, "second", &[]).await;
    make(&server, "owned", &[reference(&first, false), reference(&second, false)]).await;
    delete(&server, &format!("{MAPS}/first"), "Background").await;
    until("one owner is left", || async {
        let owned = read(&server, &format!("{MAPS}/owned")).await;
        owned["metadata"]["ownerReferences"] == json!([reference(&second, false)])
    })
    .await;
    delete(&server, &format!("{MAPS}/second"), "Background").await;
    gone(&server, "owned").await;
    server.stop().await;
}

#[tokio::test]
async fn owners_that_never_existed_count_as_gone() {
    let server = crate::basics::server().await;
    let owner = make(&server, "owner", &[]).await;
    let mut other = reference(&owner, false);
    other["uid"] = json!("another-uid");
    make(&server, "of-another", &[other.clone()]).await;
    other["name"] = json!("nobody");
    make(&server, "of-nobody", &[other.clone()]).await;
    other["kind"] = json!("Unheard");
    make(&server, "of-unknown", &[other]).await;
    make(&server, "of-owner", &[reference(&owner, false)]).await;
    gone(&server, "of-another").await;
    gone(&server, "of-nobody").await;
    // Whether an owner of an unknown kind exists is not known.
    for name in ["of-unknown", "of-owner"] {
        read(&server, &format!("{MAPS}/{name}")).await;
    }
    server.stop().await;
}

#[tokio::test]
async fn foreground_deletion_removes_the_owner_last() {
    let server = crate::basics::server().await;
    let owner = make(&server, "owner", &[]).await;
    let slow = json!({"metadata": {
        "name": "slow", "ownerReferences": [reference(&owner, true)], "finalizers": ["x.example/f"],
    }});
    let slow_path = format!("{MAPS}/slow");
    let made = send(&server, "POST", MAPS, &slow).await.unwrap();
    make(&server, "below", &[reference(&made, true)]).await;
    make(&server, "loose", &[reference(&owner, false)]).await;
    let deleted = delete(&server, &format!("{MAPS}/owner"), "Foreground").await;
    assert_eq!(deleted["metadata"]["finalizers"], json!(["foregroundDeletion"]));
    gone(&server, "below").await;
    gone(&server, "loose").await;
    until("only its own finalizer holds it", || async {
        let found = read(&server, &slow_path).await;
        found["metadata"]["deletionTimestamp"].is_string()
            && found["metadata"]["finalizers"] == json!(["x.example/f"])
    })
    .await;
    read(&server, &format!("{MAPS}/owner")).await;
    send(&server, "PATCH", &slow_path, &json!({"metadata": {"finalizers": null}})).await.unwrap();
    gone(&server, "slow").await;
    gone(&server, "owner").await;
    server.stop().await;
}

#[tokio::test]
async fn owners_in_a_cycle_are_deleted() {
    let server = crate::basics::server().await;
    let first = make(&server, "first", &[]).await;
    let second = make(&server, "second", &[reference(&first, true)]).await;
    let owners = json!({"metadata": {"ownerReferences": [reference(&second, true)]}});
    send(&server, "PATCH", &format!("{MAPS}/first"), &owners).await.unwrap();
    delete(&server, &format!("{MAPS}/first"), "Foreground").await;
    gone(&server, "first").await;
    gone(&server, "second").await;
    server.stop().await;
}

#[tokio::test]
async fn orphaning_removes_owner_references() {
    let server = crate::basics::server().await;
    let owner = make(&server, "owner", &[]).await;
    for name in ["a", "b"] {
        make(&server, name, &[reference(&owner, true)]).await;
    }
    delete(&server, &format!("{MAPS}/owner"), "Orphan").await;
    gone(&server, "owner").await;
    // Collecting this shows that the collector knows of the owner's deletion.
    make(&server, "garbage", &[reference(&owner, false)]).await;
    gone(&server, "garbage").await;
    for name in ["a", "b"] {
        let orphan = read(&server, &format!("{MAPS}/{name}")).await;
        assert_eq!(orphan["metadata"].get("ownerReferences"), None);
        assert_eq!(orphan["metadata"].get("deletionTimestamp"), None);
    }
    server.stop().await;
}

#[tokio::test]
async fn custom_resources_can_be_owners_and_dependents() {
    let server = crate::basics::server().await;
    defined(&server, "v1").await;
    let widget = |name: &str, owners: Value| {
        let metadata = json!({"name": name, "ownerReferences": owners});
        json!({"apiVersion": "example.com/v1", "kind": "Widget", "metadata": metadata})
    };
    let owner = send(&server, "POST", WIDGETS, &widget("owner", json!([]))).await.unwrap();
    make(&server, "owned", &[reference(&owner, false)]).await;
    let owned = widget("owned", json!([reference(&owner, false)]));
    send(&server, "POST", WIDGETS, &owned).await.unwrap();
    delete(&server, &format!("{WIDGETS}/owner"), "Background").await;
    gone(&server, "owned").await;
    let path = format!("{WIDGETS}/owned");
    until("the widget is gone", || is_gone(&server, &path)).await;
    server.stop().await;
}

#[tokio::test]
async fn garbage_left_by_a_stopped_server_is_collected() {
    let store = Memory::new();
    let first = Server::start(ServerSettings::new(store.clone())).await.unwrap();
    let owner = make(&first, "owner", &[]).await;
    let held = json!({"metadata": {
        "name": "held", "ownerReferences": [reference(&owner, true)], "finalizers": ["x.example/f"],
    }});
    send(&first, "POST", MAPS, &held).await.unwrap();
    delete(&first, &format!("{MAPS}/owner"), "Foreground").await;
    first.stop().await;

    let second = Server::start(ServerSettings::new(store.clone())).await.unwrap();
    let path = format!("{MAPS}/held");
    until("it is being deleted", || async {
        read(&second, &path).await["metadata"]["deletionTimestamp"].is_string()
    })
    .await;
    send(&second, "PATCH", &path, &json!({"metadata": {"finalizers": null}})).await.unwrap();
    gone(&second, "owner").await;
    second.stop().await;
}

#[tokio::test]
async fn two_servers_can_collect_the_same_garbage() {
    let store = Memory::new();
    let first = Server::start(ServerSettings::new(store.clone())).await.unwrap();
    let settings =
        ServerSettings { server_id: "apiserver-other".to_owned(), ..ServerSettings::new(store.clone()) };
    let second = Server::start(settings).await.unwrap();
    let owner = make(&first, "owner", &[]).await;
    for index in 0..20 {
        make(&second, &format!("owned-{index}"), &[reference(&owner, true)]).await;
    }
    delete(&second, &format!("{MAPS}/owner"), "Foreground").await;
    gone(&first, "owner").await;
    let left = read(&first, MAPS).await;
    assert_eq!(left["items"], json!([]));
    second.stop().await;
    first.stop().await;
}

#[tokio::test]
async fn encrypted_objects_are_collected_too() {
    let encryption = Some(crate::encryption::transformers([0, 1]).into());
    let server =
        Server::start(ServerSettings { encryption, ..ServerSettings::new(Memory::new()) }).await.unwrap();
    let secrets = "/api/v1/namespaces/default/secrets";
    let owner = send(&server, "POST", secrets, &json!({"metadata": {"name": "owner"}})).await.unwrap();
    let owned = json!({"metadata": {"name": "owned", "ownerReferences": [reference(&owner, true)]}});
    send(&server, "POST", secrets, &owned).await.unwrap();
    delete(&server, &format!("{secrets}/owner"), "Foreground").await;
    for name in ["owned", "owner"] {
        let path = format!("{secrets}/{name}");
        until(name, || is_gone(&server, &path)).await;
    }
    server.stop().await;
}

#[tokio::test]
async fn owners_of_a_kind_that_is_defined_later_are_looked_up() {
    let server = crate::basics::server().await;
    let owner = json!({"apiVersion": "example.com/v1", "kind": "Widget", "name": "nobody", "uid": "u"});
    make(&server, "owned", &[owner]).await;
    defined(&server, "v1").await;
    gone(&server, "owned").await;
    server.stop().await;
}

#[tokio::test]
async fn objects_that_are_not_served_are_deleted_after_their_owner() {
    let store = Memory::new();
    let server = Server::start(ServerSettings::new(store.clone())).await.unwrap();
    defined(&server, "v1").await;
    let owner = make(&server, "owner", &[]).await;
    let metadata = json!({"name": "a", "ownerReferences": [reference(&owner, false)]});
    let widget = json!({"apiVersion": "example.com/v1", "kind": "Widget", "metadata": metadata});
    send(&server, "POST", WIDGETS, &widget).await.unwrap();
    crate::namespaces::serve_none(&server).await;
    delete(&server, &format!("{MAPS}/owner"), "Background").await;
    until("the widget is gone", || async {
        store.get("/registry/example.com/widgets/default/a").await.unwrap().entry.is_none()
    })
    .await;
    server.stop().await;
}
