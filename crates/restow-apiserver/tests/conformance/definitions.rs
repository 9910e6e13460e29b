//! CustomResourceDefinitions: accepted, refused and deleted.

use serde_json::{Value, json};

use crate::definition::{DEFINITIONS, define, served, wait, widget, widgets};
use crate::subject::Subject;

scenarios![
    a_definition_becomes_established,
    invalid_definitions_are_refused,
    names_that_are_taken_are_not_accepted,
    deleting_a_definition_deletes_its_objects,
    deleting_a_definition_without_served_versions_deletes_its_objects,
];

async fn a_definition_becomes_established(subject: &Subject) {
    let group = "established.example";
    let place = define(subject, group, |definition| {
        definition["spec"]["names"] = json!({"plural": "widgets", "kind": "Widget"});
    })
    .await;
    let path = format!("{DEFINITIONS}/widgets.{group}");
    let accepted = async || place.get(&path).await.ok()["status"]["acceptedNames"]["kind"] == "Widget";
    wait("the names to be accepted", accepted).await;
    let definition = place.get(&path).await.ok();
    let names =
        json!({"plural": "widgets", "singular": "widget", "kind": "Widget", "listKind": "WidgetList"});
    assert_eq!(definition["spec"]["names"], names);
    assert_eq!(definition["spec"]["conversion"], json!({"strategy": "None"}));
    let status = &definition["status"];
    assert_eq!((&status["acceptedNames"], &status["storedVersions"]), (&names, &json!(["v1"])));
    let conditions: Vec<String> = status["conditions"]
        .as_array()
        .unwrap()
        .iter()
        .map(|condition| {
            ["type", "status", "reason", "message"].map(|key| condition[key].as_str().unwrap()).join(" ")
        })
        .collect();
    assert_eq!(
        conditions,
        [
            "NamesAccepted True NoConflicts no conflicts found",
            "Established True InitialNamesAccepted the initial names have been accepted"
        ]
    );
    assert_eq!(definition.generation(), Some(1));
}

async fn invalid_definitions_are_refused(subject: &Subject) {
    let place = subject.place("none");
    let group = "refused.example";
    let with = |pointer: &str, value: Value| {
        let mut definition = widgets(group);
        let (parent, key) = pointer.rsplit_once('/').unwrap();
        definition.pointer_mut(parent).unwrap()[key] = value;
        definition
    };
    let schema = "/spec/versions/0/schema/openAPIV3Schema";
    for (definition, field) in [
        (with("/metadata/name", json!("other.refused.example")), "metadata.name"),
        (with("/spec/scope", json!("Nowhere")), "spec.scope"),
        (with("/spec/versions/0/storage", json!(false)), "spec.versions"),
        (with("/spec/versions/0/name", json!("V1")), "spec.versions[0].name"),
        (with("/spec/versions/0/schema", Value::Null), "openAPIV3Schema"),
        (with(&format!("{schema}/type"), Value::Null), "openAPIV3Schema.type"),
        (
            with(&format!("{schema}/properties/spec/type"), Value::Null),
            "openAPIV3Schema.properties[spec].type",
        ),
        (
            with(&format!("{schema}/properties/spec/properties/colour/default"), json!(5)),
            "openAPIV3Schema.properties[spec].properties[colour].default",
        ),
        (with("/spec/preserveUnknownFields", json!(true)), "spec.preserveUnknownFields"),
        (with("/spec/conversion", json!({"strategy": "Webhook"})), "spec.conversion.webhookClientConfig"),
        (with("/spec/names/kind", json!("")), "spec.names.kind"),
    ] {
        let answer = place.post(DEFINITIONS, definition).await;
        assert_eq!(answer.reason(), "422 Invalid", "{field}: {}", answer.line());
        let causes = answer["details"]["causes"].as_array().unwrap();
        let named = |cause: &Value| cause["field"].as_str().unwrap().ends_with(field);
        assert!(causes.iter().any(named), "{field}: {causes:?}");
    }
}

async fn names_that_are_taken_are_not_accepted(subject: &Subject) {
    let group = "taken.example";
    let place = define(subject, group, |_| ()).await;
    let mut definition = widgets(group);
    definition["metadata"]["name"] = json!("gadgets.taken.example");
    definition["spec"]["names"] =
        json!({"plural": "gadgets", "singular": "gadget", "kind": "Widget", "listKind": "GadgetList"});
    place.post(DEFINITIONS, definition).await.ok();
    let path = format!("{DEFINITIONS}/gadgets.taken.example");
    let condition = async |kind: &str| {
        let definition = place.get(&path).await.ok();
        let conditions = definition["status"]["conditions"].as_array().cloned().unwrap_or_default();
        let found = conditions.into_iter().find(|condition| condition["type"] == kind);
        found.map(|found| {
            ["status", "reason", "message"].map(|key| found[key].as_str().unwrap().to_owned()).join(" ")
        })
    };
    wait("the names to be judged", || async { condition("NamesAccepted").await.is_some() }).await;
    assert_eq!(condition("NamesAccepted").await.unwrap(), r#"False KindConflict "Widget" is already in use"#);
    assert_eq!(condition("Established").await.unwrap(), "False NotAccepted not all names are accepted");
    assert_eq!(place.get("gadgets").await.code(), 404);
    // Once the name is free, it is accepted.
    place.delete(&format!("{DEFINITIONS}/widgets.taken.example")).await.ok();
    wait("gadgets to be served", || async { place.get("gadgets").await.code() == 200 }).await;
}

async fn deleting_a_definition_deletes_its_objects(subject: &Subject) {
    let group = "goes.example";
    let place = define(subject, group, |_| ()).await;
    place.post("widgets", widget(group, "a", json!({}))).await.ok();
    let path = format!("{DEFINITIONS}/widgets.{group}");
    let deleted = place.delete(&path).await.ok();
    assert!(deleted["metadata"]["deletionTimestamp"].is_string());
    wait("the definition to go", || async { place.get(&path).await.code() == 404 }).await;
    wait("its resources to go", || async { place.get("widgets").await.line() == "404 404 page not found" })
        .await;
    place.post(DEFINITIONS, widgets(group)).await.ok();
    served(&place, group, "v1").await;
    assert_eq!(place.get("widgets").await.ok().names(), "");
}

async fn deleting_a_definition_without_served_versions_deletes_its_objects(subject: &Subject) {
    let group = "unserved.example";
    let place = define(subject, group, |_| ()).await;
    place.post("widgets", widget(group, "a", json!({}))).await.ok();
    let path = format!("{DEFINITIONS}/widgets.{group}");
    let mut versions = widgets(group)["spec"]["versions"].clone();
    versions[0]["served"] = json!(false);
    place.merge(&path, json!({"spec": {"versions": versions}})).await.ok();
    wait("widgets not to be served", || async { place.get("widgets").await.code() == 404 }).await;
    place.delete(&path).await.ok();
    wait("the definition to go", || async { place.get(&path).await.code() == 404 }).await;
    place.post(DEFINITIONS, widgets(group)).await.ok();
    served(&place, group, "v1").await;
    assert_eq!(place.get("widgets").await.ok().names(), "");
}
