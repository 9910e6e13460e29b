//! Namespaces: creation, and emptying before deletion.

use serde_json::{Value, json};

use crate::definition::{define, wait, widget};
use crate::subject::Subject;

scenarios![
    default_namespaces_exist,
    namespace_names_are_labels,
    deleting_a_namespace_deletes_its_objects,
    creates_in_a_terminating_namespace_are_refused,
    a_namespace_waits_for_finalizers,
    deleting_a_namespace_deletes_its_custom_resources,
];

async fn deleting_a_namespace_deletes_its_objects(subject: &Subject) {
    let place = subject.namespace("namespace-goes").await;
    for kind in ["configmaps", "secrets", "serviceaccounts"] {
        place.post(kind, json!({"metadata": {"name": "a"}})).await.ok();
    }
    let path = "/api/v1/namespaces/namespace-goes";
    let deleted = place.delete(path).await.ok();
    assert_eq!((&deleted["kind"], &deleted["status"]["phase"]), (&json!("Namespace"), &json!("Terminating")));
    assert!(deleted["metadata"]["deletionTimestamp"].is_string());
    wait("the namespace to go", || async { place.get(path).await.code() == 404 }).await;
    for kind in ["configmaps", "secrets", "serviceaccounts"] {
        assert_eq!(place.get(kind).await.ok().names(), "", "{kind}");
    }
    subject.namespace("namespace-goes").await;
    assert_eq!(place.get("configmaps/a").await.code(), 404);
}

async fn creates_in_a_terminating_namespace_are_refused(subject: &Subject) {
    let place = subject.namespace("namespace-dying").await;
    let held = json!({"metadata": {"name": "held", "finalizers": ["x.example/f"]}});
    place.post("configmaps", held).await.ok();
    let path = "/api/v1/namespaces/namespace-dying";
    place.delete(path).await.ok();
    let answer = place.post("configmaps", json!({"metadata": {"name": "new"}})).await;
    assert_eq!(
        answer.line(),
        "403 Forbidden: configmaps \"new\" is forbidden: unable to create new content in namespace namespace-dying \
         because it is being terminated"
    );
    let cause = json!({
        "reason": "NamespaceTerminating", "field": "metadata.namespace",
        "message": "namespace namespace-dying is being terminated",
    });
    assert_eq!(answer["details"]["causes"], json!([cause]));
    // Existing objects can still be written.
    wait("the held one to be dying", || async {
        place.get("configmaps/held").await.ok()["metadata"]["deletionTimestamp"].is_string()
    })
    .await;
    place.merge("configmaps/held", json!({"data": {"k": "v"}})).await.ok();
    place.merge("configmaps/held", json!({"metadata": {"finalizers": null}})).await.ok();
    wait("the namespace to go", || async { place.get(path).await.code() == 404 }).await;
}

async fn a_namespace_waits_for_finalizers(subject: &Subject) {
    let place = subject.namespace("namespace-finalize").await;
    let path = "/api/v1/namespaces/namespace-finalize";
    place.merge(path, json!({"metadata": {"finalizers": ["x.example/f"]}})).await.ok();
    place.delete(path).await.ok();
    wait("its content to be done with", || async {
        place.get(path).await.ok()["spec"]["finalizers"] == Value::Null
    })
    .await;
    assert_eq!(place.get(path).await.ok()["status"]["phase"], "Terminating");
    place.merge(path, json!({"metadata": {"finalizers": null}})).await.ok();
    wait("the namespace to go", || async { place.get(path).await.code() == 404 }).await;
}

async fn default_namespaces_exist(subject: &Subject) {
    let place = subject.place("none");
    for name in ["default", "kube-system", "kube-public", "kube-node-lease"] {
        let namespace = place.get(&format!("/api/v1/namespaces/{name}")).await.ok();
        assert_eq!(namespace["status"]["phase"], "Active", "{name}");
    }
    for name in ["default", "kube-system", "kube-public"] {
        let answer = place.delete(&format!("/api/v1/namespaces/{name}")).await;
        assert_eq!(
            answer.line(),
            format!("403 Forbidden: namespaces \"{name}\" is forbidden: this namespace may not be deleted")
        );
    }
}

async fn namespace_names_are_labels(subject: &Subject) {
    let place = subject.place("none");
    for name in ["a.b", "-a", "A", &"a".repeat(64)] {
        let answer = place.post("/api/v1/namespaces", json!({"metadata": {"name": name}})).await;
        assert_eq!(answer.reason(), "422 Invalid", "{name}: {}", answer.line());
    }
}

async fn deleting_a_namespace_deletes_its_custom_resources(subject: &Subject) {
    let group = "inside.example";
    let place = define(subject, group, |_| ()).await;
    place.post("widgets", widget(group, "a", json!({}))).await.ok();
    let path = "/api/v1/namespaces/inside-example";
    place.delete(path).await.ok();
    wait("the namespace to go", || async { place.get(path).await.code() == 404 }).await;
    assert_eq!(place.get("widgets").await.ok().names(), "");
}
