//! The built-in kinds: each can be created, listed, watched, patched and deleted; and special rules of some.

use serde_json::{Value, json};

use crate::subject::{Place, Subject};

scenarios![
    every_namespaced_kind_can_be_created_updated_and_deleted,
    every_cluster_scoped_kind_can_be_created_updated_and_deleted,
    events_are_the_same_in_both_groups,
    a_new_pod_is_pending,
    the_role_of_a_binding_cannot_change,
    the_type_of_a_secret_cannot_change,
];

/// Creates, reads, lists, patches, watches and deletes one object.
async fn lives(place: &Place<'_>, path: &str, kind: &str, body: Value) {
    let list = place.get(path).await.ok();
    assert_eq!(list["kind"], format!("{kind}List"), "{path}");
    let from = list.resource_version();
    let and = if path.contains('?') { '&' } else { '?' };
    let mut watching =
        place.watch(&format!("{path}{and}watch=true&resourceVersion={from}&labelSelector=lives%3Dyes")).await;
    let mut object = body;
    object["metadata"] = json!({"name": "lives", "labels": {"lives": "yes"}});
    let made = place.post(path, object).await.ok();
    assert_eq!(made["kind"], kind, "{path}");
    let one = format!("{path}/lives");
    assert_eq!(place.get(&one).await.ok().uid(), made.uid(), "{path}");
    let listed = place.get(&format!("{path}?labelSelector=lives%3Dyes")).await.ok();
    assert_eq!(listed.names(), "lives", "{path}");
    let patched = place.merge(&one, json!({"metadata": {"annotations": {"a": "b"}}})).await.ok();
    assert_ne!(patched.resource_version(), made.resource_version(), "{path}");
    let unchanged = place.merge(&one, json!({})).await.ok();
    // kube-apiserver writes the status of a FlowSchema by itself.
    assert!(unchanged.body == patched.body || kind == "FlowSchema", "{path}");
    place.delete(&format!("{one}?gracePeriodSeconds=0")).await.ok();
    assert_eq!(place.get(&one).await.code(), 404, "{path}");
    assert_eq!(watching.take(2).await, ["ADDED lives", "MODIFIED lives"], "{path}");
    while watching.next().await != "DELETED lives" {}
}

fn deployment() -> Value {
    let pod = json!({"containers": [{"name": "c", "image": "i"}]});
    let template = json!({"metadata": {"labels": {"a": "b"}}, "spec": pod});
    json!({"spec": {"selector": {"matchLabels": {"a": "b"}}, "template": template}})
}

async fn every_namespaced_kind_can_be_created_updated_and_deleted(subject: &Subject) {
    let place = subject.namespace("builtins-namespaced").await;
    let about = json!({"kind": "ConfigMap", "name": "x", "namespace": "builtins-namespaced"});
    let role = json!({"kind": "Role", "name": "x", "apiGroup": "rbac.authorization.k8s.io"});
    for (group_version, resource, kind, body) in [
        ("v1", "configmaps", "ConfigMap", json!({"data": {"k": "v"}})),
        ("v1", "secrets", "Secret", json!({"data": {"k": "dg=="}})),
        ("v1", "serviceaccounts", "ServiceAccount", json!({})),
        (
            "v1",
            "events",
            "Event",
            json!({"involvedObject": about, "reason": "R", "message": "m", "type": "Normal"}),
        ),
        ("v1", "pods", "Pod", json!({"spec": {"containers": [{"name": "c", "image": "i"}]}})),
        ("apps/v1", "deployments", "Deployment", deployment()),
        ("coordination.k8s.io/v1", "leases", "Lease", json!({"spec": {"holderIdentity": "me"}})),
        ("rbac.authorization.k8s.io/v1", "roles", "Role", json!({"rules": []})),
        (
            "rbac.authorization.k8s.io/v1",
            "rolebindings",
            "RoleBinding",
            json!({"roleRef": role, "subjects": []}),
        ),
    ] {
        lives(&place.of(group_version), resource, kind, body).await;
    }
}

async fn every_cluster_scoped_kind_can_be_created_updated_and_deleted(subject: &Subject) {
    let place = subject.place("none");
    let role = json!({"kind": "ClusterRole", "name": "x", "apiGroup": "rbac.authorization.k8s.io"});
    let flow = json!({"priorityLevelConfiguration": {"name": "exempt"}, "matchingPrecedence": 9000});
    for (path, kind, body) in [
        ("/apis/rbac.authorization.k8s.io/v1/clusterroles", "ClusterRole", json!({"rules": []})),
        (
            "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
            "ClusterRoleBinding",
            json!({"roleRef": role}),
        ),
        ("/apis/flowcontrol.apiserver.k8s.io/v1/flowschemas", "FlowSchema", json!({"spec": flow})),
    ] {
        lives(&place, path, kind, body).await;
    }
    let path = "/apis/apiregistration.k8s.io/v1/apiservices";
    let spec = json!({"group": "absent.example", "version": "v1", "groupPriorityMinimum": 1, "versionPriority": 1,
        "service": {"namespace": "default", "name": "x", "port": 443}, "insecureSkipTLSVerify": true});
    place.post(path, json!({"metadata": {"name": "v1.absent.example"}, "spec": spec})).await.ok();
    assert_eq!(place.get(&format!("{path}/v1.absent.example")).await.ok()["spec"]["version"], "v1");
    place.delete(&format!("{path}/v1.absent.example")).await.ok();
}

async fn events_are_the_same_in_both_groups(subject: &Subject) {
    let place = subject.namespace("builtins-events").await;
    let about = json!({"kind": "ConfigMap", "name": "x", "namespace": "builtins-events"});
    let event = json!({"metadata": {"name": "e"}, "involvedObject": about, "reason": "R", "message": "m"});
    let made = place.post("events", event).await.ok();
    let other = place.of("events.k8s.io/v1").get("events/e").await.ok();
    assert_eq!((other["apiVersion"].as_str(), other.uid()), (Some("events.k8s.io/v1"), made.uid()));
    assert_eq!(other.resource_version(), made.resource_version());
    assert_eq!((&other["regarding"]["name"], &other["note"]), (&json!("x"), &json!("m")));
    place.of("events.k8s.io/v1").delete("events/e").await.ok();
    assert_eq!(place.get("events/e").await.code(), 404);
}

async fn a_new_pod_is_pending(subject: &Subject) {
    let place = subject.namespace("builtins-pod").await;
    let spec = json!({"containers": [{"name": "c", "image": "i"}]});
    let made = place.post("pods", json!({"metadata": {"name": "a"}, "spec": spec})).await.ok();
    assert_eq!(made["status"]["phase"], "Pending");
    let running = place.merge("pods/a/status", json!({"status": {"phase": "Running"}})).await.ok();
    assert_eq!(running["status"]["phase"], "Running");
    assert_eq!(place.delete("pods/a?gracePeriodSeconds=0").await.code(), 200);
    assert_eq!(place.get("pods/a").await.code(), 404);
}

async fn the_role_of_a_binding_cannot_change(subject: &Subject) {
    let place = subject.namespace("builtins-binding").await.of("rbac.authorization.k8s.io/v1");
    let role = |name: &str| json!({"kind": "Role", "name": name, "apiGroup": "rbac.authorization.k8s.io"});
    let binding = json!({"metadata": {"name": "a"}, "roleRef": role("one"), "subjects": []});
    place.post("rolebindings", binding).await.ok();
    let answer = place.merge("rolebindings/a", json!({"roleRef": role("two")})).await;
    assert_eq!(answer.reason(), "422 Invalid", "{}", answer.line());
    assert!(answer["message"].as_str().unwrap().ends_with("cannot change roleRef"), "{}", answer.line());
}

async fn the_type_of_a_secret_cannot_change(subject: &Subject) {
    let place = subject.namespace("builtins-secret").await;
    place.post("secrets", json!({"metadata": {"name": "a"}, "type": "example.com/one"})).await.ok();
    let answer = place.merge("secrets/a", json!({"type": "example.com/two"})).await;
    assert_eq!(
        answer.line(),
        "422 Invalid: Secret \"a\" is invalid: type: Invalid value: \"example.com/two\": field is immutable"
    );
}
