//! Watches of custom objects end when their definition changes.

use serde_json::json;

use crate::definition::{DEFINITIONS, define, served, wait, widget, widgets};
use crate::subject::{Place, Subject};
use crate::watching::{Watching, summary};

scenarios![
    a_watch_ends_when_its_definition_changes,
    a_watch_ends_when_its_version_is_no_longer_served,
    a_watch_ends_with_its_definition,
];

async fn watch(place: &Place<'_>) -> Watching {
    let from = place.get("widgets").await.ok().resource_version();
    place.watch(&format!("widgets?watch=true&resourceVersion={from}")).await
}

/// The events until the end, which must come without an error.
async fn rest(mut watching: Watching) -> Vec<String> {
    let mut events = Vec::new();
    while let Some(event) = watching.event().await {
        events.push(summary(&event));
    }
    events
}

async fn a_watch_ends_when_its_definition_changes(subject: &Subject) {
    let group = "watch-changes.example";
    let place = define(subject, group, |_| ()).await;
    let path = format!("{DEFINITIONS}/widgets.{group}");
    let mut watching = watch(&place).await;
    // A change of labels does not matter.
    place.merge(&path, json!({"metadata": {"labels": {"a": "b"}}})).await.ok();
    place.post("widgets", widget(group, "a", json!({}))).await.ok();
    assert_eq!(watching.next().await, "ADDED a");
    let mut versions = widgets(group)["spec"]["versions"].clone();
    versions[0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]["new"] =
        json!({"type": "string"});
    place.merge(&path, json!({"spec": {"versions": versions}})).await.ok();
    assert_eq!(rest(watching).await, [""; 0]);
    // A new watch uses the new definition.
    served(&place, group, "v1").await;
    let mut watching = watch(&place).await;
    place.post("widgets", widget(group, "b", json!({"new": "n"}))).await.ok();
    let event = watching.event().await.unwrap();
    assert_eq!((summary(&event).as_str(), &event["object"]["spec"]["new"]), ("ADDED b", &json!("n")));
}

async fn a_watch_ends_when_its_version_is_no_longer_served(subject: &Subject) {
    let group = "watch-unserved.example";
    let place = define(subject, group, |_| ()).await;
    let watching = watch(&place).await;
    let mut versions = widgets(group)["spec"]["versions"].clone();
    versions[0]["served"] = json!(false);
    place
        .merge(&format!("{DEFINITIONS}/widgets.{group}"), json!({"spec": {"versions": versions}}))
        .await
        .ok();
    assert_eq!(rest(watching).await, [""; 0]);
    wait("widgets not to be served", || async { place.get("widgets").await.code() == 404 }).await;
}

async fn a_watch_ends_with_its_definition(subject: &Subject) {
    let group = "watch-goes.example";
    let place = define(subject, group, |_| ()).await;
    place.post("widgets", widget(group, "a", json!({}))).await.ok();
    let watching = watch(&place).await;
    place.delete(&format!("{DEFINITIONS}/widgets.{group}")).await.ok();
    assert_eq!(rest(watching).await, ["DELETED a"]);
}
