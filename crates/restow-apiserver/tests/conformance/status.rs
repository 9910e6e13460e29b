//! The status subresource.

use serde_json::{Value, json};

use crate::subject::{ApiRequest, Subject};

scenarios![
    the_status_of_a_built_in_is_written_through_its_subresource,
    the_status_of_a_namespace_is_a_subresource,
    status_is_dropped_on_create,
    an_inconsistent_storage_version_status_is_refused,
    ; real:
    // No scale subresource.
    a_deployment_has_a_scale_subresource,
];

fn deployment() -> Value {
    let pod = json!({"containers": [{"name": "c", "image": "i"}]});
    let template = json!({"metadata": {"labels": {"a": "b"}}, "spec": pod});
    json!({
        "metadata": {"name": "a"},
        "spec": {"replicas": 3, "selector": {"matchLabels": {"a": "b"}}, "template": template},
        "status": {"replicas": 7},
    })
}

async fn the_status_of_a_built_in_is_written_through_its_subresource(subject: &Subject) {
    let place = subject.namespace("status-door").await.of("apps/v1");
    let made = place.post("deployments", deployment()).await.ok();
    let ignored = place.merge("deployments/a", json!({"status": {"replicas": 1}})).await.ok();
    assert_eq!(ignored.resource_version(), made.resource_version());
    let both = json!({"spec": {"replicas": 9}, "status": {"replicas": 2, "observedGeneration": 1}});
    let written = place.merge("deployments/a/status", both).await.ok();
    assert_eq!((&written["status"]["replicas"], &written["spec"]["replicas"]), (&json!(2), &json!(3)));
    assert_eq!(written.generation(), Some(1));
    assert_ne!(written.resource_version(), made.resource_version());
    assert_eq!(place.get("deployments/a/status").await.ok().body, place.get("deployments/a").await.ok().body);
    let mut whole = written.body.clone();
    whole["spec"]["replicas"] = json!(5);
    whole["status"]["replicas"] = json!(4);
    let replaced = place.put("deployments/a", whole.clone()).await.ok();
    assert_eq!((&replaced["status"]["replicas"], &replaced["spec"]["replicas"]), (&json!(2), &json!(5)));
    assert_eq!(replaced.generation(), Some(2));
    let stale = place.put("deployments/a/status", whole).await;
    assert_eq!(stale.reason(), "409 Conflict");
    let verbs = [("DELETE", 405), ("POST", 405)];
    for (verb, code) in verbs {
        assert_eq!(place.send(ApiRequest::new(verb, "deployments/a/status")).await.code(), code, "{verb}");
    }
}

async fn the_status_of_a_namespace_is_a_subresource(subject: &Subject) {
    let place = subject.namespace("status-namespace").await;
    let path = "/api/v1/namespaces/status-namespace";
    let made = place.get(path).await.ok();
    assert_eq!(made["status"], json!({"phase": "Active"}));
    assert_eq!(made["spec"], json!({"finalizers": ["kubernetes"]}));
    assert_eq!(made["metadata"]["labels"], json!({"kubernetes.io/metadata.name": "status-namespace"}));
}

async fn status_is_dropped_on_create(subject: &Subject) {
    let place = subject.namespace("status-create").await.of("apps/v1");
    assert_eq!(place.post("deployments", deployment()).await.ok()["status"], json!({}));
}

async fn a_deployment_has_a_scale_subresource(subject: &Subject) {
    let place = subject.namespace("status-scale").await.of("apps/v1");
    place.post("deployments", deployment()).await.ok();
    let scale = place.get("deployments/a/scale").await.ok();
    assert_eq!((&scale["kind"], &scale["apiVersion"]), (&json!("Scale"), &json!("autoscaling/v1")));
    assert_eq!((&scale["spec"], &scale["status"]["selector"]), (&json!({"replicas": 3}), &json!("a=b")));
    place.merge("deployments/a/scale", json!({"spec": {"replicas": 1}})).await.ok();
    let now = place.get("deployments/a").await.ok();
    assert_eq!((&now["spec"]["replicas"], now.generation()), (&json!(1), Some(2)));
}

async fn an_inconsistent_storage_version_status_is_refused(subject: &Subject) {
    let place = subject.place("none");
    let path = "/apis/internal.apiserver.k8s.io/v1alpha1/storageversions/core.configmaps";
    let entry = |id: &str, encoding: &str, decodable: &[&str]| json!({"apiServerID": id, "encodingVersion": encoding, "decodableVersions": decodable});
    let status = |entries: &[Value], common: Value| json!({"status": {"storageVersions": entries, "commonEncodingVersion": common}});
    let (one, other) = (entry("a", "v1", &["v1", "v2"]), entry("b", "v2", &["v1", "v2"]));
    let condition = json!({"type": "T", "status": "True", "reason": "R", "message": "M"});
    for (change, expected) in [
        (status(std::slice::from_ref(&one), json!("v1")), ""),
        (status(&[one.clone(), other.clone()], Value::Null), ""),
        (status(std::slice::from_ref(&one), Value::Null), "status.commonEncodingVersion"),
        (status(std::slice::from_ref(&one), json!("v2")), "status.commonEncodingVersion"),
        (status(&[one.clone(), other], json!("v2")), "status.commonEncodingVersion"),
        (status(&[], json!("v2")), "status.commonEncodingVersion"),
        (status(&[entry("a", "v1", &["v2"])], json!("v1")), "status.storageVersions[0].decodableVersions"),
        (status(&[entry("A", "v1", &["v1"])], json!("v1")), "status.storageVersions[0].apiServerID"),
        (
            status(&[entry("a", "1", &["1", "/v1"])], json!("1")),
            "status.storageVersions[0].encodingVersion status.storageVersions[0].decodableVersions[0] \
             status.storageVersions[0].decodableVersions[1]",
        ),
        (json!({"status": {"conditions": [condition, condition]}}), "status[1].type"),
        (
            json!({"status": {"conditions": [{"type": "T", "status": "True", "reason": "", "message": ""}]}}),
            "status[0].reason status[0].message",
        ),
    ] {
        let answer = place.merge(&format!("{path}/status?dryRun=All"), change.clone()).await;
        let causes = answer["details"]["causes"].as_array().cloned().unwrap_or_default();
        let fields: Vec<&str> = causes.iter().map(|cause| cause["field"].as_str().unwrap()).collect();
        assert_eq!(fields.join(" "), expected, "{change}: {}", answer.line());
        assert_eq!(answer.code(), if expected.is_empty() { 200 } else { 422 }, "{change}: {}", answer.line());
    }
}
