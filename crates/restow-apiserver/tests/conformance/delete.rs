//! Delete and deletecollection: responses, preconditions, grace periods.

use serde_json::{Value, json};

use crate::subject::{ApiRequest, Subject};

scenarios![
    deleting_an_object_returns_a_status,
    a_delete_that_waits_returns_the_object,
    delete_preconditions_are_checked,
    a_collection_is_deleted_by_selector,
    a_recreated_object_has_a_new_uid,
    delete_options_may_be_in_the_query,
    invalid_delete_options_are_refused,
];

async fn deleting_an_object_returns_a_status(subject: &Subject) {
    let place = subject.namespace("delete-status").await;
    let made = place.post("configmaps", json!({"metadata": {"name": "a"}})).await.ok();
    let deleted = place.delete("configmaps/a").await;
    let expected = json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success",
        "details": {"name": "a", "kind": "configmaps", "uid": made.uid()},
    });
    assert_eq!((deleted.code(), &deleted.body), (200, &expected));
    assert_eq!(place.get("configmaps/a").await.code(), 404);
    assert_eq!(place.delete("configmaps/a").await.line(), r#"404 NotFound: configmaps "a" not found"#);
}

async fn a_delete_that_waits_returns_the_object(subject: &Subject) {
    let place = subject.namespace("delete-object").await;
    let body = json!({"metadata": {"name": "a", "finalizers": ["x.example/f"]}});
    let made = place.post("configmaps", body).await.ok();
    let deleted = place.delete("configmaps/a").await;
    assert_eq!(deleted.code(), 200);
    assert_eq!((&deleted["kind"], deleted.uid()), (&json!("ConfigMap"), made.uid()));
    assert!(deleted["metadata"]["deletionTimestamp"].is_string());
    assert_eq!(deleted["metadata"]["deletionGracePeriodSeconds"], 0);
    assert_ne!(deleted.resource_version(), made.resource_version());
    // A second time changes nothing.
    let again = place.delete("configmaps/a").await.ok();
    assert_eq!(again.body, deleted.body);
    let gone = place.merge("configmaps/a", json!({"metadata": {"finalizers": null}})).await.ok();
    assert_eq!(gone["metadata"]["finalizers"], Value::Null);
    assert_eq!(place.get("configmaps/a").await.code(), 404);
}

async fn delete_preconditions_are_checked(subject: &Subject) {
    let place = subject.namespace("delete-preconditions").await;
    let made = place.post("configmaps", json!({"metadata": {"name": "a"}})).await.ok();
    let (uid, version) = (made.uid(), made.resource_version());
    let conditions = |uid: Option<&str>, version: Option<&str>| {
        json!({"kind": "DeleteOptions", "apiVersion": "v1",
            "preconditions": {"uid": uid, "resourceVersion": version}})
    };
    let other = "11111111-1111-1111-1111-111111111111";
    let wrong_uid = format!(
        "409 Conflict: Operation cannot be fulfilled on ConfigMap \"a\": the UID in the precondition ({other}) does \
         not match the UID in record ({uid}). The object might have been deleted and then recreated"
    );
    let wrong_version = format!(
        "409 Conflict: Operation cannot be fulfilled on ConfigMap \"a\": the ResourceVersion in the precondition (1) \
         does not match the ResourceVersion in record ({version}). The object might have been modified"
    );
    place
        .table(&[
            ("DELETE", "configmaps/a", conditions(Some(other), None), &wrong_uid),
            ("DELETE", "configmaps/a", conditions(None, Some("1")), &wrong_version),
            ("DELETE", "configmaps/a", conditions(Some(&uid), Some("1")), &wrong_version),
            ("GET", "configmaps/a", Value::Null, "200"),
            ("DELETE", "configmaps/a", conditions(Some(&uid), Some(&version)), "200"),
            (
                "DELETE",
                "configmaps/a",
                conditions(Some(&uid), None),
                r#"404 NotFound: configmaps "a" not found"#,
            ),
        ])
        .await;
}

async fn invalid_delete_options_are_refused(subject: &Subject) {
    let place = subject.namespace("delete-options").await;
    place.post("configmaps", json!({"metadata": {"name": "a"}})).await.ok();
    for (options, expected) in [
        (json!({"propagationPolicy": "Nonsense"}), "422 Invalid"),
        (json!({"propagationPolicy": "Orphan", "orphanDependents": true}), "422 Invalid"),
        (json!({"gracePeriodSeconds": "soon"}), "400 BadRequest"),
        (json!({"dryRun": ["Some"]}), "422 Invalid"),
        (json!({"kind": "Status", "apiVersion": "v1"}), "400 BadRequest"),
    ] {
        let answer = place.send(ApiRequest::new("DELETE", "configmaps/a").json(&options)).await;
        assert_eq!(answer.reason(), expected, "{options}: {}", answer.line());
    }
    assert_eq!(place.get("configmaps/a").await.code(), 200);
}

async fn a_collection_is_deleted_by_selector(subject: &Subject) {
    let place = subject.namespace("delete-collection").await;
    for (name, label) in [("a", "x"), ("b", "y"), ("c", "x"), ("d", "y")] {
        let object = json!({"metadata": {"name": name, "labels": {"l": label}}});
        place.post("configmaps", object).await.ok();
    }
    let deleted = place.delete("configmaps?labelSelector=l%3Dx").await;
    assert_eq!((deleted.code(), deleted.names().as_str()), (200, "a c"));
    assert_eq!(deleted["kind"], "ConfigMapList");
    assert_eq!(place.get("configmaps").await.names(), "b d");
    assert_eq!(place.delete("configmaps?fieldSelector=metadata.name%3Dd").await.ok().names(), "d");
    assert_eq!(place.delete("configmaps").await.ok().names(), "b");
    assert_eq!(place.get("configmaps").await.names(), "");
    assert_eq!(place.delete("configmaps").await.ok().names(), "");
}

async fn a_recreated_object_has_a_new_uid(subject: &Subject) {
    let place = subject.namespace("delete-again").await;
    let first = place.post("configmaps", json!({"metadata": {"name": "a"}})).await.ok();
    place.delete("configmaps/a").await.ok();
    let second = place.post("configmaps", json!({"metadata": {"name": "a"}})).await.ok();
    assert_ne!(first.uid(), second.uid());
    assert!(second.revision() > first.revision());
    let known = json!({"metadata": {"uid": first.uid(), "resourceVersion": first.resource_version()}});
    let answer = place.merge("configmaps/a", known).await;
    assert_eq!(answer.reason(), "409 Conflict", "{}", answer.line());
}

async fn delete_options_may_be_in_the_query(subject: &Subject) {
    let place = subject.namespace("delete-query").await;
    for name in ["a", "b"] {
        place.post("configmaps", json!({"metadata": {"name": name}})).await.ok();
    }
    place
        .table(&[
            ("DELETE", "configmaps/a?dryRun=All", Value::Null, "200"),
            ("GET", "configmaps/a", Value::Null, "200"),
            ("DELETE", "configmaps/a?propagationPolicy=Background&gracePeriodSeconds=0", Value::Null, "200"),
            ("GET", "configmaps/a", Value::Null, r#"404 NotFound: configmaps "a" not found"#),
        ])
        .await;
}
