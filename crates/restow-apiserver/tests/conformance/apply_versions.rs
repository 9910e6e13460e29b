//! Server-side apply through several versions.

use serde_json::{Value, json};

use crate::apply::{apply, managed, structured};
use crate::definition::{DEFINITIONS, define, wait, widget};
use crate::subject::{ApiRequest, Subject};

scenarios![
    a_manager_may_apply_through_another_version,
    managers_of_other_versions_keep_their_fields,
    an_entry_of_a_version_that_is_gone_refuses_applies,
];

/// v2 has `length` beside the fields of v1, and not `text`.
pub(crate) fn two_versions(definition: &mut Value) {
    structured(definition);
    let mut second = definition["spec"]["versions"][0].clone();
    second["name"] = json!("v2");
    second["storage"] = json!(false);
    let properties =
        second["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"].as_object_mut().unwrap();
    properties.remove("text");
    properties.insert("length".to_owned(), json!({"type": "integer"}));
    definition["spec"]["versions"].as_array_mut().unwrap().push(second);
}

fn second(group: &str, spec: Value) -> Value {
    let mut widget = widget(group, "a", spec);
    widget["apiVersion"] = json!(format!("{group}/v2"));
    widget
}

async fn a_manager_may_apply_through_another_version(subject: &Subject) {
    let group = "applythrough.example";
    let place = define(subject, group, two_versions).await;
    let v2 = place.of(&format!("{group}/v2"));
    apply(&place, "widgets/a?fieldManager=one", &widget(group, "a", json!({"size": 1, "set": ["x"]})))
        .await
        .ok();
    let moved =
        apply(&v2, "widgets/a?fieldManager=one", &second(group, json!({"size": 1, "set": ["y"]}))).await.ok();
    assert_eq!(moved["spec"], json!({"defaulted": "d", "size": 1, "set": ["y"]}));
    assert_eq!(moved["metadata"]["managedFields"].as_array().unwrap().len(), 1);
    assert_eq!(moved["metadata"]["managedFields"][0]["apiVersion"], "applythrough.example/v2");
    let wrong = apply(&v2, "widgets/a?fieldManager=one", &widget(group, "a", json!({}))).await;
    assert_eq!(wrong.line(), "400 BadRequest: invalid object type: applythrough.example/v1, Kind=Widget");
    let gone =
        apply(&place, "widgets/a?fieldManager=one", &widget(group, "a", json!({"set": ["y"]}))).await.ok();
    assert_eq!(gone["spec"], json!({"defaulted": "d", "set": ["y"]}));
}

async fn managers_of_other_versions_keep_their_fields(subject: &Subject) {
    let group = "applyothers.example";
    let place = define(subject, group, two_versions).await;
    let v2 = place.of(&format!("{group}/v2"));
    apply(&place, "widgets/a?fieldManager=one", &widget(group, "a", json!({"size": 1, "set": ["x"]})))
        .await
        .ok();
    let error = apply(&v2, "widgets/a?fieldManager=two", &second(group, json!({"size": 2}))).await;
    assert_eq!(error.line(), "409 Conflict: Apply failed with 1 conflict: conflict with \"one\": .spec.size");
    let shared =
        apply(&v2, "widgets/a?fieldManager=two", &second(group, json!({"size": 1, "flag": true}))).await.ok();
    let fields = |fields: Value| json!({"f:spec": fields});
    let expected = [
        ("one Apply".to_owned(), fields(json!({"f:set": {"v:\"x\"": {}}, "f:size": {}}))),
        ("two Apply".to_owned(), fields(json!({"f:flag": {}, "f:size": {}}))),
    ];
    assert_eq!(managed(&shared.body), expected);
    // An update through one version takes fields from managers of the other.
    let updated = v2.merge("widgets/a?fieldManager=three", json!({"spec": {"size": 5}})).await.ok();
    let expected = [
        ("one Apply".to_owned(), fields(json!({"f:set": {"v:\"x\"": {}}}))),
        ("three Update".to_owned(), fields(json!({"f:size": {}}))),
        ("two Apply".to_owned(), fields(json!({"f:flag": {}}))),
    ];
    assert_eq!(managed(&updated.body), expected);
}

async fn an_entry_of_a_version_that_is_gone_refuses_applies(subject: &Subject) {
    let group = "applygone.example";
    let place = define(subject, group, two_versions).await;
    let v2 = place.of(&format!("{group}/v2"));
    apply(&v2, "widgets/a?fieldManager=one", &second(group, json!({"size": 1}))).await.ok();
    let remove = json!([{"op": "remove", "path": "/spec/versions/1"}]);
    place.send(ApiRequest::new("JSON", &format!("{DEFINITIONS}/widgets.{group}")).json(&remove)).await.ok();
    wait("v2 to be gone", || async { v2.get("widgets/a").await.code() == 404 }).await;
    wait("v1 to be served", || async { place.get("widgets/a").await.code() == 200 }).await;
    let config = widget(group, "a", json!({"size": 2}));
    let refused = apply(&place, "widgets/a?fieldManager=two", &config).await;
    let message = "500 -: request to convert CR to an invalid group/version: applygone.example/v2";
    assert_eq!(refused.line(), message);
    // Other writes clear the entries; then it can be applied to again.
    let cleared = place.merge("widgets/a?fieldManager=two", json!({"spec": {"flag": true}})).await.ok();
    assert_eq!(managed(&cleared.body), []);
    let error = apply(&place, "widgets/a?fieldManager=two", &config).await;
    assert_eq!(error.reason(), "409 Conflict");
    let forced = apply(&place, "widgets/a?fieldManager=two&force=true", &config).await.ok();
    assert_eq!(forced["spec"]["size"], 2);
}
