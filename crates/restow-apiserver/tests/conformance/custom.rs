//! Custom resources.

use serde_json::{Value, json};

use crate::definition::{define, widget};
use crate::subject::{ApiRequest, Subject};

scenarios![
    a_custom_resource_can_be_created_updated_and_deleted,
    custom_resources_refuse_strategic_patches,
    a_generation_counts_changes_of_all_but_metadata_and_status,
    the_status_of_a_custom_resource_is_a_subresource,
    without_a_status_subresource_an_update_writes_the_status,
    custom_resources_can_be_cluster_scoped,
    custom_resources_can_be_watched,
    custom_resources_are_selected_by_selectable_fields,
    a_custom_resource_has_its_printer_columns,
    ; real:
    // No scale subresource.
    a_custom_resource_can_have_a_scale_subresource,
];

async fn a_custom_resource_can_be_created_updated_and_deleted(subject: &Subject) {
    let group = "lives.example";
    let place = define(subject, group, |_| ()).await;
    let made = place.post("widgets", widget(group, "a", json!({"size": 1}))).await;
    assert_eq!((made.code(), made.generation()), (201, Some(1)));
    place
        .table(&[
            ("POST", "widgets", widget(group, "a", json!({})), r#"409 AlreadyExists: widgets.lives.example "a" already exists"#),
            ("GET", "widgets/b", Value::Null, r#"404 NotFound: widgets.lives.example "b" not found"#),
            ("MERGE", "widgets/a", json!({"metadata": {"resourceVersion": "1"}}), "409 Conflict: Operation cannot be fulfilled on widgets.lives.example \"a\": the object has been modified; please apply your changes to the latest version and try again"),
            ("MERGE", "widgets/a", json!({"spec": {"size": 2}}), "200"),
            ("JSON", "widgets/a", json!([{"op": "replace", "path": "/spec/size", "value": 3}]), "200"),
            ("PUT", "widgets/a", widget(group, "a", json!({})), r#"422 Invalid: widgets.lives.example "a" is invalid: metadata.resourceVersion: Invalid value: 0: must be specified for an update"#),
            ("POST", "widgets", json!({"metadata": {"name": "c"}}), "400 BadRequest: *"),
        ])
        .await;
    let list = place.get("widgets").await.ok();
    let kinds = (json!("WidgetList"), json!("lives.example/v1"));
    assert_eq!((&list["kind"], &list["apiVersion"], list.names().as_str()), (&kinds.0, &kinds.1, "a"));
    // Items of custom resources have kind and apiVersion.
    assert_eq!(list["items"][0]["kind"], "Widget");
    let deleted = place.delete("widgets/a").await.ok();
    let details = json!({"name": "a", "group": group, "kind": "widgets", "uid": made.uid()});
    assert_eq!((&deleted["status"], &deleted["details"]), (&json!("Success"), &details));
}

async fn custom_resources_refuse_strategic_patches(subject: &Subject) {
    let group = "strategic.example";
    let place = define(subject, group, |_| ()).await;
    place.post("widgets", widget(group, "a", json!({}))).await.ok();
    let answer =
        place.send(ApiRequest::new("STRATEGIC", "widgets/a").json(&json!({"spec": {"size": 1}}))).await;
    assert_eq!(answer.reason(), "415 UnsupportedMediaType", "{}", answer.line());
    let message = answer["message"].as_str().unwrap();
    assert!(message.starts_with("the body of the request was in an unknown format - accepted media types include: application/json-patch+json, application/merge-patch+json"), "{message}");
}

async fn a_generation_counts_changes_of_all_but_metadata_and_status(subject: &Subject) {
    let group = "generations.example";
    let place = define(subject, group, |_| ()).await;
    place.post("widgets", widget(group, "a", json!({"size": 1}))).await.ok();
    for (path, patch, generation) in [
        ("widgets/a", json!({"metadata": {"labels": {"l": "1"}}}), 1),
        ("widgets/a", json!({"spec": {"size": 2}}), 2),
        ("widgets/a", json!({"spec": {"size": 2}}), 2),
        ("widgets/a", json!({"status": {"phase": "ignored"}}), 2),
        ("widgets/a/status", json!({"status": {"phase": "done"}}), 2),
        ("widgets/a", json!({"metadata": {"generation": 9}}), 2),
        ("widgets/a", json!({"spec": null}), 3),
    ] {
        let patched = place.merge(path, patch.clone()).await.ok();
        assert_eq!(patched.generation(), Some(generation), "{path} {patch}");
    }
}

async fn the_status_of_a_custom_resource_is_a_subresource(subject: &Subject) {
    let group = "status.example";
    let place = define(subject, group, |_| ()).await;
    let mut object = widget(group, "a", json!({"size": 1}));
    object["status"] = json!({"phase": "early"});
    let made = place.post("widgets", object).await.ok();
    assert_eq!(made["status"], Value::Null);
    let both = json!({"spec": {"size": 9}, "status": {"phase": "now"}, "metadata": {"labels": {"l": "1"}}});
    let written = place.merge("widgets/a/status", both).await.ok();
    assert_eq!((&written["spec"]["size"], &written["status"]["phase"]), (&json!(1), &json!("now")));
    let labels = &written["metadata"]["labels"];
    assert_eq!(*labels, Value::Null);
    let wrong = place.merge("widgets/a/status", json!({"status": {"phase": 5}})).await;
    assert_eq!(wrong.reason(), "422 Invalid", "{}", wrong.line());
    assert_eq!(place.get("widgets/none/status").await.reason(), "404 NotFound");
}

async fn without_a_status_subresource_an_update_writes_the_status(subject: &Subject) {
    let group = "nostatus.example";
    let change = |definition: &mut Value| definition["spec"]["versions"][0]["subresources"] = Value::Null;
    let place = define(subject, group, change).await;
    let mut object = widget(group, "a", json!({}));
    object["status"] = json!({"phase": "early"});
    assert_eq!(place.post("widgets", object).await.ok()["status"], json!({"phase": "early"}));
    let patched = place.merge("widgets/a", json!({"status": {"phase": "late"}})).await.ok();
    assert_eq!((&patched["status"], patched.generation()), (&json!({"phase": "late"}), Some(2)));
    assert_eq!(place.get("widgets/a/status").await.code(), 404);
}

async fn custom_resources_can_be_cluster_scoped(subject: &Subject) {
    let group = "wide.example";
    let place = define(subject, group, |definition| definition["spec"]["scope"] = json!("Cluster")).await;
    let path = "/apis/wide.example/v1/widgets";
    let made = place.post(path, widget(group, "a", json!({}))).await.ok();
    assert_eq!(made["metadata"]["namespace"], Value::Null);
    assert_eq!(place.get(&format!("{path}/a")).await.ok().uid(), made.uid());
    assert_eq!(place.get("widgets").await.code(), 404);
}

async fn a_custom_resource_has_its_printer_columns(subject: &Subject) {
    let group = "columns.example";
    let place = define(subject, group, |definition| {
        definition["spec"]["versions"][0]["additionalPrinterColumns"] = json!([
            {"name": "Size", "type": "integer", "jsonPath": ".spec.size"},
            {"name": "Colour", "type": "string", "jsonPath": ".spec.colour", "description": "Its colour.", "priority": 1},
            {"name": "Made", "type": "date", "jsonPath": ".metadata.creationTimestamp"},
        ]);
    })
    .await;
    place.post("widgets", widget(group, "a", json!({"size": 5}))).await.ok();
    place.post("widgets", widget(group, "b", json!({}))).await.ok();
    let table = ApiRequest::get("widgets").header("accept", "application/json;as=Table;v=v1;g=meta.k8s.io");
    let table = place.send(table).await.ok();
    let columns: Vec<String> = table["columnDefinitions"]
        .as_array()
        .unwrap()
        .iter()
        .map(|column| {
            format!("{} {} {}", column["name"], column["type"], column["priority"]).replace('"', "")
        })
        .collect();
    assert_eq!(columns, ["Name string 0", "Size integer 0", "Colour string 1", "Made date 0"]);
    assert_eq!(table["columnDefinitions"][2]["description"], "Its colour.");
    let cells = |row: usize| table["rows"][row]["cells"].as_array().unwrap().clone();
    assert_eq!(cells(0)[..3], [json!("a"), json!(5), json!("red")]);
    assert_eq!(cells(1)[..3], [json!("b"), Value::Null, json!("red")]);
}

async fn custom_resources_can_be_watched(subject: &Subject) {
    let group = "watched.example";
    let place = define(subject, group, |_| ()).await;
    let from = place.get("widgets").await.ok().resource_version();
    let mut watching = place.watch(&format!("widgets?watch=true&resourceVersion={from}")).await;
    place.post("widgets", widget(group, "a", json!({}))).await.ok();
    place.merge("widgets/a", json!({"spec": {"size": 2}})).await.ok();
    place.delete("widgets/a").await.ok();
    assert_eq!(watching.take(3).await, ["ADDED a", "MODIFIED a", "DELETED a"]);
}

async fn custom_resources_are_selected_by_selectable_fields(subject: &Subject) {
    let group = "selectable.example";
    let place = define(subject, group, |definition| {
        definition["spec"]["versions"][0]["selectableFields"] = json!([{"jsonPath": ".spec.colour"}]);
    })
    .await;
    for (name, colour) in [("a", "red"), ("b", "blue")] {
        place.post("widgets", widget(group, name, json!({"colour": colour}))).await.ok();
    }
    for (selector, expected) in
        [("spec.colour%3Dblue", "b"), ("spec.colour!%3Dblue", "a"), ("metadata.name%3Da", "a")]
    {
        assert_eq!(
            place.get(&format!("widgets?fieldSelector={selector}")).await.ok().names(),
            expected,
            "{selector}"
        );
    }
    let answer = place.get("widgets?fieldSelector=spec.size%3D1").await;
    assert_eq!(answer.line(), "400 BadRequest: field label not supported: spec.size");
}

async fn a_custom_resource_can_have_a_scale_subresource(subject: &Subject) {
    let group = "scaled.example";
    let place = define(subject, group, |definition| {
        definition["spec"]["versions"][0]["subresources"]["scale"] =
            json!({"specReplicasPath": ".spec.size", "statusReplicasPath": ".status.size"});
    })
    .await;
    place.post("widgets", widget(group, "a", json!({"size": 2}))).await.ok();
    let scale = place.get("widgets/a/scale").await.ok();
    assert_eq!((&scale["kind"], &scale["spec"]), (&json!("Scale"), &json!({"replicas": 2})));
    place.merge("widgets/a/scale", json!({"spec": {"replicas": 4}})).await.ok();
    assert_eq!(place.get("widgets/a").await.ok()["spec"]["size"], 4);
}
