//! Update: preconditions, immutable fields, resourceVersion and generation.

use serde_json::{Value, json};

use crate::subject::Subject;

scenarios![
    an_update_that_changes_nothing_writes_nothing,
    an_update_of_an_old_resource_version_is_a_conflict,
    an_update_without_a_resource_version_overwrites,
    invalid_updates_are_refused,
    an_update_cannot_change_server_set_fields,
    a_changed_spec_is_a_new_generation,
    an_update_of_a_missing_configmap_creates_none,
    an_update_changes_the_resource_version_and_no_other_metadata,
    an_immutable_configmap_cannot_change,
];

async fn an_update_changes_the_resource_version_and_no_other_metadata(subject: &Subject) {
    let place = subject.namespace("update-moves").await;
    let made = place.post("configmaps", json!({"metadata": {"name": "a"}, "data": {"k": "1"}})).await.ok();
    let mut object = made.body.clone();
    object["data"] = json!({"k": "2"});
    let updated = place.put("configmaps/a", object.clone()).await;
    assert_eq!(updated.code(), 200);
    assert!(updated.revision() > made.revision());
    let mut now = updated.body.clone();
    for field in ["resourceVersion", "managedFields"] {
        now["metadata"][field] = object["metadata"][field].clone();
    }
    assert_eq!(now, object);
}

async fn an_update_that_changes_nothing_writes_nothing(subject: &Subject) {
    let place = subject.namespace("update-nothing").await;
    let made = place.post("configmaps", json!({"metadata": {"name": "a"}, "data": {"k": "1"}})).await.ok();
    let updated = place.put("configmaps/a", made.body.clone()).await.ok();
    assert_eq!(updated.resource_version(), made.resource_version());
    assert_eq!(place.get("configmaps/a").await.body, made.body);
}

async fn an_update_of_an_old_resource_version_is_a_conflict(subject: &Subject) {
    let place = subject.namespace("update-conflict").await;
    let made = place.post("configmaps", json!({"metadata": {"name": "a"}})).await.ok();
    place.merge("configmaps/a", json!({"data": {"k": "other"}})).await.ok();
    let late = place.put("configmaps/a", made.body).await;
    assert_eq!(
        late.line(),
        "409 Conflict: Operation cannot be fulfilled on configmaps \"a\": the object has been modified; please \
         apply your changes to the latest version and try again"
    );
    assert_eq!(late["details"], json!({"name": "a", "kind": "configmaps"}));
    assert_eq!(place.get("configmaps/a").await["data"], json!({"k": "other"}));
}

async fn an_update_without_a_resource_version_overwrites(subject: &Subject) {
    let place = subject.namespace("update-wins").await;
    let made = place.post("configmaps", json!({"metadata": {"name": "a"}, "data": {"k": "1"}})).await.ok();
    let updated =
        place.put("configmaps/a", json!({"metadata": {"name": "a"}, "data": {"n": "2"}})).await.ok();
    assert_eq!((&updated["data"], updated.uid()), (&json!({"n": "2"}), made.uid()));
    assert_eq!(updated["metadata"]["creationTimestamp"], made["metadata"]["creationTimestamp"]);
}

async fn invalid_updates_are_refused(subject: &Subject) {
    let place = subject.namespace("update-refuses").await;
    place.post("configmaps", json!({"metadata": {"name": "a"}})).await.ok();
    let other_uid = json!({"metadata": {"name": "a", "uid": "11111111-1111-1111-1111-111111111111"}});
    place
        .table(&[
            (
                "PUT",
                "configmaps/a",
                json!({"metadata": {"name": "b"}}),
                "400 BadRequest: the name of the object (b) does not match the name on the URL (a)",
            ),
            (
                "PUT",
                "configmaps/a",
                json!({"metadata": {"name": "a", "namespace": "elsewhere"}}),
                "400 BadRequest: the namespace of the provided object does not match the namespace sent on the request",
            ),
            (
                "PUT",
                "configmaps/a",
                json!({"metadata": {}}),
                "400 BadRequest: *",
            ),
            (
                "PUT",
                "configmaps/a",
                other_uid,
                "409 Conflict: *",
            ),
        ])
        .await;
}

async fn an_update_cannot_change_server_set_fields(subject: &Subject) {
    let place = subject.namespace("update-cannot").await;
    let made = place.post("configmaps", json!({"metadata": {"name": "a"}})).await.ok();
    let mut object = made.body.clone();
    object["metadata"]["creationTimestamp"] = json!("2001-01-01T00:00:00Z");
    object["metadata"]["selfLink"] = json!("/mine");
    assert_eq!(place.put("configmaps/a", object.clone()).await.ok()["metadata"], made["metadata"]);
    object["metadata"]["deletionTimestamp"] = json!("2001-01-01T00:00:00Z");
    object["metadata"]["deletionGracePeriodSeconds"] = json!(30);
    assert_eq!(
        place.put("configmaps/a", object).await.line(),
        "422 Invalid: ConfigMap \"a\" is invalid: [metadata.deletionTimestamp: Invalid value: \
         \"2001-01-01T00:00:00Z\": field is immutable, metadata.deletionGracePeriodSeconds: Invalid value: 30: \
         field is immutable]"
    );
    let mut unset = made.body.clone();
    unset["metadata"]["creationTimestamp"] = Value::Null;
    unset["metadata"]["uid"] = Value::Null;
    assert_eq!(place.put("configmaps/a", unset).await.ok()["metadata"], made["metadata"]);
}

async fn a_changed_spec_is_a_new_generation(subject: &Subject) {
    let place = subject.namespace("update-generation").await.of("apps/v1");
    let template = json!({
        "metadata": {"labels": {"a": "b"}},
        "spec": {"containers": [{"name": "c", "image": "i"}]},
    });
    let spec = json!({"replicas": 1, "selector": {"matchLabels": {"a": "b"}}, "template": template});
    let made = place.post("deployments", json!({"metadata": {"name": "a"}, "spec": spec})).await.ok();
    assert_eq!(made.generation(), Some(1));
    let scaled = place.merge("deployments/a", json!({"spec": {"replicas": 2}})).await.ok();
    assert_eq!(scaled.generation(), Some(2));
    let labelled = place.merge("deployments/a", json!({"metadata": {"labels": {"x": "y"}}})).await.ok();
    assert_eq!(labelled.generation(), Some(2));
    let forced = place.merge("deployments/a", json!({"metadata": {"generation": 9}})).await.ok();
    assert_eq!(forced.generation(), Some(2));
    assert_eq!(forced.resource_version(), labelled.resource_version());
}

async fn an_update_of_a_missing_configmap_creates_none(subject: &Subject) {
    let place = subject.namespace("update-none").await;
    place
        .table(&[
            (
                "PUT",
                "configmaps/none",
                json!({"metadata": {"name": "none"}}),
                r#"404 NotFound: configmaps "none" not found"#,
            ),
            (
                "PUT",
                "configmaps/none",
                json!({"metadata": {"name": "none", "resourceVersion": "1"}}),
                r#"404 NotFound: configmaps "none" not found"#,
            ),
        ])
        .await;
    // Some resources are created by an update, such as a Lease.
    let leases = place.of("coordination.k8s.io/v1");
    let answer = leases.put("leases/none", json!({"metadata": {"name": "none"}})).await;
    assert_eq!(answer.code(), 201, "{}", answer.line());
}

async fn an_immutable_configmap_cannot_change(subject: &Subject) {
    let place = subject.namespace("update-immutable").await;
    let body = json!({"metadata": {"name": "a"}, "data": {"k": "1"}, "immutable": true});
    place.post("configmaps", body).await.ok();
    let answer = place.merge("configmaps/a", json!({"data": {"k": "2"}})).await;
    assert_eq!(answer.reason(), "422 Invalid");
    place.merge("configmaps/a", json!({"metadata": {"labels": {"k": "2"}}})).await.ok();
}
