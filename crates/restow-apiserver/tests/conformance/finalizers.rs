//! Finalizers: an object is deleted when the last one is removed.

use serde_json::{Value, json};

use crate::subject::Subject;

scenarios![
    an_object_with_finalizers_waits_for_all_of_them,
    a_terminating_object_gets_no_new_finalizers,
    a_finalizer_needs_a_name_with_a_domain,
    a_watch_reports_a_deletion_delayed_by_finalizers,
    an_update_that_drops_the_last_finalizer_deletes,
    a_terminating_custom_resource_has_a_new_generation,
];

async fn an_object_with_finalizers_waits_for_all_of_them(subject: &Subject) {
    let place = subject.namespace("finalizers-all").await;
    let body = json!({"metadata": {"name": "a", "finalizers": ["x.example/one", "x.example/two"]}});
    place.post("configmaps", body).await.ok();
    place.delete("configmaps/a").await.ok();
    let dying = place.get("configmaps/a").await.ok();
    assert!(dying["metadata"]["deletionTimestamp"].is_string());
    // It can still be written.
    place.merge("configmaps/a", json!({"data": {"k": "v"}})).await.ok();
    place.merge("configmaps/a", json!({"metadata": {"finalizers": ["x.example/two"]}})).await.ok();
    assert_eq!(place.get("configmaps/a").await.code(), 200);
    place.merge("configmaps/a", json!({"metadata": {"finalizers": []}})).await.ok();
    assert_eq!(place.get("configmaps/a").await.code(), 404);
}

async fn a_terminating_object_gets_no_new_finalizers(subject: &Subject) {
    let place = subject.namespace("finalizers-new").await;
    let body = json!({"metadata": {"name": "a", "finalizers": ["x.example/one"]}});
    place.post("configmaps", body).await.ok();
    place.delete("configmaps/a").await.ok();
    let more = json!({"metadata": {"finalizers": ["x.example/one", "x.example/two"]}});
    let answer = place.merge("configmaps/a", more).await;
    assert_eq!(
        answer.line(),
        "422 Invalid: ConfigMap \"a\" is invalid: metadata.finalizers: Forbidden: no new finalizers can be added if \
         the object is being deleted, found new finalizers []string{\"x.example/two\"}"
    );
    let cause = json!({
        "reason": "FieldValueForbidden", "field": "metadata.finalizers",
        "message": "Forbidden: no new finalizers can be added if the object is being deleted, found new finalizers []string{\"x.example/two\"}",
    });
    assert_eq!(answer["details"]["causes"][0], cause);
    // A deletion cannot be undone.
    let revived = place.merge("configmaps/a", json!({"metadata": {"deletionTimestamp": null}})).await.ok();
    assert!(revived["metadata"]["deletionTimestamp"].is_string());
}

async fn a_finalizer_needs_a_name_with_a_domain(subject: &Subject) {
    let place = subject.namespace("finalizers-names").await;
    for (finalizer, expected) in [("x.example/f", "201 -"), ("Bad Name", "422 Invalid"), ("", "422 Invalid")]
    {
        let body = json!({"metadata": {"generateName": "a-", "finalizers": [finalizer]}});
        let answer = place.post("configmaps?dryRun=All", body).await;
        assert_eq!(answer.reason(), expected, "{finalizer:?}: {}", answer.line());
    }
}

async fn a_watch_reports_a_deletion_delayed_by_finalizers(subject: &Subject) {
    let place = subject.namespace("finalizers-watch").await;
    let body = json!({"metadata": {"name": "a", "finalizers": ["x.example/one"]}});
    let made = place.post("configmaps", body).await.ok();
    let mut watching =
        place.watch(&format!("configmaps?watch=true&resourceVersion={}", made.resource_version())).await;
    place.delete("configmaps/a").await.ok();
    place.merge("configmaps/a", json!({"metadata": {"finalizers": null}})).await.ok();
    let dying = watching.event().await.unwrap();
    assert_eq!(dying["type"], "MODIFIED");
    assert!(dying["object"]["metadata"]["deletionTimestamp"].is_string());
    assert_eq!(watching.next().await, "DELETED a");
}

async fn an_update_that_drops_the_last_finalizer_deletes(subject: &Subject) {
    let place = subject.namespace("finalizers-update").await;
    let body = json!({"metadata": {"name": "a", "finalizers": ["x.example/one"]}});
    place.post("configmaps", body).await.ok();
    let mut dying = place.delete("configmaps/a").await.ok().body;
    dying["metadata"]["finalizers"] = Value::Null;
    let last = place.put("configmaps/a", dying.clone()).await;
    assert_eq!((last.code(), &last["metadata"]["name"]), (200, &json!("a")));
    assert_eq!(place.put("configmaps/a", dying).await.code(), 404);
}

async fn a_terminating_custom_resource_has_a_new_generation(subject: &Subject) {
    let group = "dying.example";
    let place = crate::definition::define(subject, group, |_| ()).await;
    let mut object = crate::definition::widget(group, "a", json!({}));
    object["metadata"]["finalizers"] = json!(["x.example/one"]);
    place.post("widgets", object).await.ok();
    assert_eq!(place.delete("widgets/a").await.ok().generation(), Some(2));
    place.merge("widgets/a", json!({"metadata": {"finalizers": null}})).await.ok();
    assert_eq!(place.get("widgets/a").await.code(), 404);
}
