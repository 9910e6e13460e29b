//! managedFields.

use serde_json::{Value, json};

use crate::subject::{ApiRequest, Subject};

scenarios![
    a_write_that_changes_nothing_keeps_managed_fields,
    each_manager_owns_the_fields_it_wrote,
    managed_fields_can_be_cleared,
    the_status_has_separate_managed_fields,
];

/// The managers of an object: name, operation and subresource.
fn managers(object: &Value) -> Vec<String> {
    let entries = object["metadata"]["managedFields"].as_array().cloned().unwrap_or_default();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    entries
        .iter()
        .map(|entry| {
            assert_eq!(entry["fieldsType"], "FieldsV1");
            let summary = format!(
                "{} {} {}",
                text(&entry["manager"]),
                text(&entry["operation"]),
                text(&entry["subresource"])
            );
            summary.trim_end().to_owned()
        })
        .collect()
}

async fn each_manager_owns_the_fields_it_wrote(subject: &Subject) {
    let place = subject.namespace("managed-owns").await;
    let body = json!({"metadata": {"name": "a", "labels": {"l": "1"}}, "data": {"k": "v"}});
    let made = place.post("configmaps?fieldManager=one", body).await.ok();
    assert_eq!(managers(&made.body), ["one Update"]);
    let entry = &made["metadata"]["managedFields"][0];
    assert_eq!(entry["apiVersion"], "v1");
    assert!(entry["time"].is_string());
    let fields = json!({
        "f:data": {".": {}, "f:k": {}},
        "f:metadata": {"f:labels": {".": {}, "f:l": {}}},
    });
    assert_eq!(entry["fieldsV1"], fields);
    let patched = place.merge("configmaps/a?fieldManager=two", json!({"data": {"n": "w"}})).await.ok();
    assert_eq!(managers(&patched.body), ["one Update", "two Update"]);
    assert_eq!(patched["metadata"]["managedFields"][1]["fieldsV1"], json!({"f:data": {"f:n": {}}}));
    let body = json!({"metadata": {"name": "b"}});
    let call = ApiRequest::new("POST", "configmaps").header("user-agent", "some-agent/1.0 (x)").json(&body);
    let made = place.send(call).await.ok();
    assert_eq!(managers(&made.body), Vec::<String>::new());
}

async fn a_write_that_changes_nothing_keeps_managed_fields(subject: &Subject) {
    let place = subject.namespace("managed-keeps").await;
    let body = json!({"metadata": {"name": "a"}, "data": {"k": "v"}});
    let made = place.post("configmaps?fieldManager=one", body).await.ok();
    let patched = place.merge("configmaps/a?fieldManager=two", json!({"data": {"k": "v"}})).await.ok();
    assert_eq!(patched.body, made.body);
    let mut same = made.body.clone();
    same["metadata"]["managedFields"] = Value::Null;
    let updated = place.put("configmaps/a?fieldManager=two", same).await.ok();
    assert_eq!(updated.body, made.body);
}

async fn managed_fields_can_be_cleared(subject: &Subject) {
    let place = subject.namespace("managed-cleared").await;
    let body = json!({"metadata": {"name": "a"}, "data": {"k": "v"}});
    place.post("configmaps?fieldManager=one", body).await.ok();
    let cleared = place.merge("configmaps/a", json!({"metadata": {"managedFields": [{}]}})).await.ok();
    assert_eq!(cleared["metadata"]["managedFields"], Value::Null);
}

async fn the_status_has_separate_managed_fields(subject: &Subject) {
    let group = "managed.example";
    let place = crate::definition::define(subject, group, |_| ()).await;
    let object = crate::definition::widget(group, "a", json!({"size": 1}));
    place.post("widgets?fieldManager=one", object).await.ok();
    let patch = json!({"status": {"phase": "done"}});
    let written = place.merge("widgets/a/status?fieldManager=two", patch).await.ok();
    assert_eq!(managers(&written.body), ["one Update", "two Update status"]);
    let entries = &written["metadata"]["managedFields"];
    assert_eq!(entries[1]["fieldsV1"], json!({"f:status": {".": {}, "f:phase": {}}}));
    assert_eq!(entries[0]["apiVersion"], "managed.example/v1");
}
