//! Versions of a custom resource: served versions, the storage version, and when an empty patch rewrites.

use serde_json::{Value, json};

use crate::definition::{DEFINITIONS, define, served, wait, widget};
use crate::subject::{ApiRequest, Place, Subject};

scenarios![
    an_object_can_be_read_in_every_version,
    an_empty_patch_writes_nothing_under_the_same_storage_version,
    an_empty_patch_rewrites_once_after_a_storage_version_change,
    a_stored_version_cannot_be_removed,
    a_version_that_is_not_served_is_not_found,
    the_hash_is_that_of_the_storage_version,
    a_watch_reports_objects_in_its_own_version,
    the_most_stable_version_is_preferred,
    a_body_of_another_version_is_refused,
    stored_versions_grow_and_can_be_pruned,
    each_version_has_its_own_schema,
    deprecated_versions_cause_a_warning,
];

/// Adds v2, which is served but not the storage version.
fn two_versions(definition: &mut Value) {
    let mut second = definition["spec"]["versions"][0].clone();
    second["name"] = json!("v2");
    second["storage"] = json!(false);
    definition["spec"]["versions"].as_array_mut().unwrap().push(second);
}

fn path(group: &str) -> String {
    format!("{DEFINITIONS}/widgets.{group}")
}

/// Makes v2 the storage version, and waits until the handlers use it: discovery may change before them.
async fn flip(place: &Place<'_>, group: &str) {
    let before = place.post("widgets", widget(group, "probe", json!({}))).await.ok().resource_version();
    let patch = json!([
        {"op": "replace", "path": "/spec/versions/0/storage", "value": false},
        {"op": "replace", "path": "/spec/versions/1/storage", "value": true},
    ]);
    place.send(ApiRequest::new("JSON", &path(group)).json(&patch)).await.ok();
    wait("the flip", || async {
        let patched = place.merge("widgets/probe", json!({})).await;
        // A handler that is being replaced answers 503.
        patched.code() == 200 && patched.resource_version() != before
    })
    .await;
    place.delete("widgets/probe").await.ok();
}

async fn an_object_can_be_read_in_every_version(subject: &Subject) {
    let group = "everyversion.example";
    let place = define(subject, group, two_versions).await;
    let second = place.of(&format!("{group}/v2"));
    let made = place.post("widgets", widget(group, "a", json!({"size": 1}))).await.ok();
    let read = second.get("widgets/a").await.ok();
    assert_eq!(read["apiVersion"], "everyversion.example/v2");
    assert_eq!((&read["spec"], read.uid()), (&made["spec"], made.uid()));
    assert_eq!(read.resource_version(), made.resource_version());
    assert_eq!(second.get("widgets").await.ok()["items"][0]["apiVersion"], "everyversion.example/v2");
    let patched = second.merge("widgets/a", json!({"spec": {"size": 2}})).await.ok();
    assert_eq!(patched["apiVersion"], "everyversion.example/v2");
    assert_eq!(place.get("widgets/a").await.ok()["spec"]["size"], 2);
}

async fn a_body_of_another_version_is_refused(subject: &Subject) {
    let group = "otherversion.example";
    let place = define(subject, group, two_versions).await;
    let mut other = widget(group, "a", json!({}));
    other["apiVersion"] = json!("otherversion.example/v2");
    let mut kind = widget(group, "a", json!({}));
    kind["kind"] = json!("Gadget");
    place
        .table(&[
            ("POST", "widgets", other, "400 BadRequest: the API version in the data (otherversion.example/v2) does not match the expected API version (otherversion.example/v1)"),
            ("POST", "widgets", kind, "4*"),
        ])
        .await;
}

async fn an_empty_patch_writes_nothing_under_the_same_storage_version(subject: &Subject) {
    let group = "noflip.example";
    let place = define(subject, group, two_versions).await;
    let made = place.post("widgets", widget(group, "a", json!({"size": 1}))).await.ok();
    let patch = json!({"metadata": {"uid": made.uid(), "resourceVersion": made.resource_version()}});
    for version in ["v1", "v2"] {
        let patched = place.of(&format!("{group}/{version}")).merge("widgets/a", patch.clone()).await.ok();
        assert_eq!(patched.resource_version(), made.resource_version(), "{version}");
    }
}

async fn an_empty_patch_rewrites_once_after_a_storage_version_change(subject: &Subject) {
    let group = "flip.example";
    let place = define(subject, group, two_versions).await;
    let made = place.post("widgets", widget(group, "a", json!({"size": 1}))).await.ok();
    flip(&place, group).await;
    let nothing = |version: &str| json!({"metadata": {"uid": made.uid(), "resourceVersion": version}});
    let rewritten = place.merge("widgets/a", nothing(&made.resource_version())).await.ok();
    assert!(rewritten.revision() > made.revision());
    assert_eq!((&rewritten["spec"], rewritten.generation()), (&made["spec"], made.generation()));
    let again = place.merge("widgets/a", nothing(&rewritten.resource_version())).await.ok();
    assert_eq!(again.resource_version(), rewritten.resource_version());
    // A late request gets a conflict, or the current object.
    let late = place.merge("widgets/a", nothing(&made.resource_version())).await;
    assert!(late.code() == 409 || late.body == again.body, "{}", late.line());
}

async fn stored_versions_grow_and_can_be_pruned(subject: &Subject) {
    let group = "storedversions.example";
    let place = define(subject, group, two_versions).await;
    assert_eq!(place.get(&path(group)).await.ok()["status"]["storedVersions"], json!(["v1"]));
    flip(&place, group).await;
    assert_eq!(place.get(&path(group)).await.ok()["status"]["storedVersions"], json!(["v1", "v2"]));
    let cut = json!({"status": {"storedVersions": ["v2"]}});
    place.merge(&format!("{}/status", path(group)), cut).await.ok();
    // Not through the main endpoint.
    place.merge(&path(group), json!({"status": {"storedVersions": ["v1", "v2"]}})).await.ok();
    assert_eq!(place.get(&path(group)).await.ok()["status"]["storedVersions"], json!(["v2"]));
}

async fn a_stored_version_cannot_be_removed(subject: &Subject) {
    let group = "cannotdrop.example";
    let place = define(subject, group, two_versions).await;
    flip(&place, group).await;
    let drop = json!([{"op": "remove", "path": "/spec/versions/0"}]);
    let answer = place.send(ApiRequest::new("JSON", &path(group)).json(&drop)).await;
    assert_eq!(
        answer.line(),
        "422 Invalid: CustomResourceDefinition.apiextensions.k8s.io \"widgets.cannotdrop.example\" is invalid: \
         status.storedVersions[0]: Invalid value: \"v1\": missing from spec.versions; v1 was previously a storage \
         version, and must remain in spec.versions until a storage migration ensures no data remains persisted in \
         v1 and removes v1 from status.storedVersions"
    );
    let cut = json!({"status": {"storedVersions": ["v2"]}});
    place.merge(&format!("{}/status", path(group)), cut).await.ok();
    place.send(ApiRequest::new("JSON", &path(group)).json(&drop)).await.ok();
    wait("v1 to go", || async { place.get("widgets").await.code() == 404 }).await;
    let second = place.of(&format!("{group}/v2"));
    // Its storage is recreated, and answers 429 meanwhile.
    wait("v2 to be served", || async { second.get("widgets").await.code() == 200 }).await;
}

async fn a_version_that_is_not_served_is_not_found(subject: &Subject) {
    let group = "notserved.example";
    let place = define(subject, group, two_versions).await;
    place.post("widgets", widget(group, "a", json!({}))).await.ok();
    let stop = json!([{"op": "replace", "path": "/spec/versions/0/served", "value": false}]);
    place.send(ApiRequest::new("JSON", &path(group)).json(&stop)).await.ok();
    wait("v1 to be served no more", || async { place.get("widgets/a").await.code() == 404 }).await;
    // It is still stored in v1, and read in v2.
    let second = place.of(&format!("{group}/v2"));
    assert_eq!(second.get("widgets/a").await.ok()["apiVersion"], "notserved.example/v2");
    wait("discovery", || async {
        let group = place.get("/apis/notserved.example").await;
        group["versions"] == json!([{"groupVersion": "notserved.example/v2", "version": "v2"}])
    })
    .await;
}

async fn each_version_has_its_own_schema(subject: &Subject) {
    let group = "ownschema.example";
    let place = define(subject, group, |definition| {
        two_versions(definition);
        let schema = "/spec/versions/1/schema/openAPIV3Schema/properties/spec/properties";
        let properties = definition.pointer_mut(schema).unwrap();
        properties["extra"] = json!({"type": "string", "default": "only in v2"});
        properties.as_object_mut().unwrap().remove("size");
    })
    .await;
    let second = place.of(&format!("{group}/v2"));
    place.post("widgets", widget(group, "a", json!({"size": 5}))).await.ok();
    let read = second.get("widgets/a").await.ok();
    // Fields unknown to v2 are dropped; its defaults apply to objects written in it.
    assert_eq!(read["spec"], json!({"colour": "red"}));
    assert_eq!(place.get("widgets/a").await.ok()["spec"], json!({"colour": "red", "size": 5}));
}

async fn the_hash_is_that_of_the_storage_version(subject: &Subject) {
    let group = "hashes.example";
    let place = define(subject, group, two_versions).await;
    let hash = async |version: &str| {
        let list = place.get(&format!("/apis/{group}/{version}")).await.ok();
        list["resources"][0]["storageVersionHash"].as_str().unwrap().to_owned()
    };
    let first = hash("v1").await;
    assert_eq!(hash("v2").await, first);
    flip(&place, group).await;
    wait("the new hash", || async { hash("v1").await != first && hash("v1").await == hash("v2").await })
        .await;
}

async fn a_watch_reports_objects_in_its_own_version(subject: &Subject) {
    let group = "watchversion.example";
    let place = define(subject, group, two_versions).await;
    let second = place.of(&format!("{group}/v2"));
    let from = second.get("widgets").await.ok().resource_version();
    let mut watching = second.watch(&format!("widgets?watch=true&resourceVersion={from}")).await;
    place.post("widgets", widget(group, "a", json!({}))).await.ok();
    let event = watching.event().await.unwrap();
    assert_eq!(
        (&event["type"], &event["object"]["apiVersion"]),
        (&json!("ADDED"), &json!("watchversion.example/v2"))
    );
}

async fn deprecated_versions_cause_a_warning(subject: &Subject) {
    let group = "deprecated.example";
    let place = define(subject, group, |definition| {
        two_versions(definition);
        definition["spec"]["versions"][0]["deprecated"] = json!(true);
        definition["spec"]["versions"][1]["deprecated"] = json!(true);
        definition["spec"]["versions"][1]["deprecationWarning"] = json!("use something else");
    })
    .await;
    let list = place.get("widgets").await.ok();
    assert_eq!(list.header("warning"), r#"299 - "deprecated.example/v1 Widget is deprecated""#);
    let list = place.of(&format!("{group}/v2")).get("widgets").await.ok();
    assert_eq!(list.header("warning"), r#"299 - "use something else""#);
}

async fn the_most_stable_version_is_preferred(subject: &Subject) {
    let group = "preferred.example";
    let place = define(subject, group, |definition| {
        let first = definition["spec"]["versions"][0].clone();
        let versions = ["v1alpha1", "v10beta1", "v1", "v2beta2", "foo1", "v2"].map(|name| {
            let mut version = first.clone();
            version["name"] = json!(name);
            version["storage"] = json!(name == "v1");
            version
        });
        definition["spec"]["versions"] = json!(versions);
    })
    .await;
    served(&place, group, "foo1").await;
    let found = place.get("/apis/preferred.example").await.ok();
    let versions: Vec<&str> = found["versions"]
        .as_array()
        .unwrap()
        .iter()
        .filter_map(|version| version["version"].as_str())
        .collect();
    assert_eq!(versions, ["v2", "v1", "v10beta1", "v2beta2", "v1alpha1", "foo1"]);
    assert_eq!(found["preferredVersion"]["version"], "v2");
}
