//! Deleting a definition deletes its objects, and no others.

use bytes::Bytes;
use restow_apiserver::{Server, ServerSettings};
use restow_store::Store as _;
use serde_json::{Value, json};

use crate::basics::read;
use crate::definitions::{DEFINITIONS, WIDGETS, defined, definition, send, until, widget};
use crate::memory::Memory;

const KEYS: &str = "/registry/apiextensions.k8s.io/customresourcedefinitions/";
const KEY: &str = "/registry/apiextensions.k8s.io/customresourcedefinitions/widgets.example.com";
const OBJECT: &str = "/registry/example.com/widgets/default/a";

async fn start(store: &std::sync::Arc<Memory>) -> Server {
    Server::start(ServerSettings::new(store.clone())).await.unwrap()
}

async fn is_stored(store: &Memory, key: &str) -> bool {
    store.get(key).await.unwrap().entry.is_some()
}

fn bytes(object: &Value) -> Option<Bytes> {
    Some(Bytes::from(object.to_string()))
}

/// The definition as stored by a server that could not write its status.
fn without_status(uid: &str) -> Value {
    let mut object = definition("v1");
    object["metadata"]["uid"] = json!(uid);
    object["metadata"]["finalizers"] = json!(["customresourcecleanup.apiextensions.k8s.io"]);
    object
}

#[tokio::test]
async fn deleting_a_definition_without_status_deletes_its_objects() {
    let store = Memory::new();
    let server = start(&store).await;
    store.refuse_changes(Some(KEYS));
    send(&server, "POST", DEFINITIONS, &definition("v1")).await.unwrap();
    until("widgets are served", || async { send(&server, "POST", WIDGETS, &widget("a")).await.is_ok() })
        .await;
    let path = format!("{DEFINITIONS}/widgets.example.com");
    assert_eq!(read(&server, &path).await["status"].get("conditions"), None);
    store.refuse_changes(None);
    send(&server, "DELETE", &path, &json!({})).await.unwrap();
    until("the definition is gone", || async { !is_stored(&store, KEY).await }).await;
    assert!(!is_stored(&store, OBJECT).await, "an object outlives its definition");
    server.stop().await;
}

#[tokio::test]
async fn a_failed_status_update_is_retried() {
    let store = Memory::new();
    let server = start(&store).await;
    store.refuse_changes(Some(KEYS));
    send(&server, "POST", DEFINITIONS, &definition("v1")).await.unwrap();
    until("widgets are served", || async { send(&server, "POST", WIDGETS, &widget("a")).await.is_ok() })
        .await;
    store.refuse_changes(None);
    let path = format!("{DEFINITIONS}/widgets.example.com");
    until("it has a status", || async { read(&server, &path).await["status"]["conditions"].is_array() })
        .await;
    server.stop().await;
}

#[tokio::test]
async fn a_server_that_starts_deletes_the_objects_of_a_definition_that_never_had_a_status() {
    let store = Memory::new();
    let mut going = without_status("00000000-0000-4000-8000-000000000000");
    going["metadata"]["deletionTimestamp"] = json!("2026-11-16T00:00:00Z");
    store.force(KEY, bytes(&going));
    store.force(OBJECT, bytes(&widget("a")));
    let server = start(&store).await;
    until("the definition is gone", || async { !is_stored(&store, KEY).await }).await;
    assert!(!is_stored(&store, OBJECT).await, "an object outlives its definition");
    server.stop().await;
}

/// A server that has started to delete a definition and is blocked at its object.
async fn deleting(store: &std::sync::Arc<Memory>) -> Server {
    let server = start(store).await;
    defined(&server, "v1").await;
    send(&server, "POST", WIDGETS, &widget("a")).await.unwrap();
    store.hold(&["/registry/example.com/widgets/"]);
    send(&server, "DELETE", &format!("{DEFINITIONS}/widgets.example.com"), &json!({})).await.unwrap();
    store.holds().await;
    server
}

#[tokio::test]
async fn other_definitions_are_served_while_the_objects_of_one_are_deleted() {
    let store = Memory::new();
    let server = deleting(&store).await;
    let mut other = definition("v1");
    other["metadata"]["name"] = json!("gadgets.example.com");
    other["spec"]["names"] = json!({"plural": "gadgets", "kind": "Gadget"});
    send(&server, "POST", DEFINITIONS, &other).await.unwrap();
    let gadget = json!({"apiVersion": "example.com/v1", "kind": "Gadget", "metadata": {"name": "a"}});
    let path = WIDGETS.replace("widgets", "gadgets");
    until("gadgets are served", || async { send(&server, "POST", &path, &gadget).await.is_ok() }).await;
    assert!(is_stored(&store, OBJECT).await);
    store.hold(&[]);
    until("the definition is gone", || async { !is_stored(&store, KEY).await }).await;
    assert!(!is_stored(&store, OBJECT).await);
    server.stop().await;
}

/// Another server was faster, and the resource was defined again meanwhile.
#[tokio::test]
async fn objects_of_a_new_definition_are_not_deleted_with_the_old_one() {
    let store = Memory::new();
    let server = deleting(&store).await;
    store.force(OBJECT, None);
    store.force(KEY, None);
    store.force(KEY, bytes(&without_status("00000000-0000-4000-8000-000000000001")));
    store.force(OBJECT, bytes(&widget("a")));
    store.hold(&[]);
    until("widgets are served", || async { send(&server, "POST", WIDGETS, &widget("b")).await.is_ok() })
        .await;
    assert!(is_stored(&store, OBJECT).await, "an object of the new definition is deleted");
    server.stop().await;
}

/// The other server admits a create before the deletion begins, and stores its object after the definition is deleted.
#[tokio::test]
async fn a_create_on_another_server_does_not_outlive_its_definition() {
    let store = Memory::new();
    let first = start(&store).await;
    let settings =
        ServerSettings { server_id: "apiserver-other".to_owned(), ..ServerSettings::new(store.clone()) };
    let second = Server::start(settings).await.unwrap();
    defined(&first, "v1").await;
    until("the other serves it", || async { send(&second, "POST", WIDGETS, &widget("b")).await.is_ok() })
        .await;
    send(&second, "DELETE", &format!("{WIDGETS}/b"), &json!({})).await.unwrap();
    store.hold(&["/registry/example.com/widgets/"]);
    let late = widget("a");
    let creating = send(&second, "POST", WIDGETS, &late);
    let deleting = async {
        store.holds().await;
        send(&first, "DELETE", &format!("{DEFINITIONS}/widgets.example.com"), &json!({})).await.unwrap();
        until("the definition is gone", || async { !is_stored(&store, KEY).await }).await;
        store.hold(&[]);
    };
    let (created, ()) = tokio::join!(creating, deleting);
    let Err(kube::Error::Api(status)) = created else { panic!("{created:?}") };
    assert!([404, 405].contains(&status.code), "{status:?}");
    assert!(!is_stored(&store, OBJECT).await, "an object outlives its definition");
    second.stop().await;
    first.stop().await;
}

/// The permission to create definitions gives no access to the server's own resources.
#[tokio::test]
async fn a_definition_does_not_replace_a_built_in_resource() {
    const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases";
    let store = Memory::new();
    let server = start(&store).await;
    let mut overlap = definition("v2");
    overlap["metadata"] = json!({
        "name": "leases.coordination.k8s.io", "annotations": {"api-approved.kubernetes.io": "unapproved, a test"},
    });
    overlap["spec"]["group"] = json!("coordination.k8s.io");
    overlap["spec"]["names"] = json!({"plural": "leases", "kind": "Lease"});
    send(&server, "POST", DEFINITIONS, &overlap).await.unwrap();
    let path = format!("{DEFINITIONS}/leases.coordination.k8s.io");
    until("it has a status", || async { read(&server, &path).await["status"]["conditions"].is_array() })
        .await;
    let lease = format!("{LEASES}/apiserver-restow");
    assert!(read(&server, &lease).await["spec"]["holderIdentity"].is_string());
    let version = "/apis/internal.apiserver.k8s.io/v1alpha1/storageversions/coordination.k8s.io.leases";
    assert_eq!(read(&server, version).await["status"]["commonEncodingVersion"], "coordination.k8s.io/v1");
    let uid = read(&server, version).await["metadata"]["uid"].clone();
    send(&server, "DELETE", version, &json!({})).await.unwrap();
    until("it is registered again", || async {
        let again = send(&server, "GET", version, &json!({})).await;
        again.is_ok_and(|again| {
            again["metadata"]["uid"] != uid
                && again["status"]["commonEncodingVersion"] == "coordination.k8s.io/v1"
        })
    })
    .await;
    send(&server, "DELETE", &path, &json!({})).await.unwrap();
    let key = format!("{KEYS}leases.coordination.k8s.io");
    until("the definition is gone", || async { !is_stored(&store, &key).await }).await;
    read(&server, &lease).await;
    server.stop().await;
}
