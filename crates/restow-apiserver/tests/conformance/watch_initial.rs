//! Watches that start with all existing objects, followed by a bookmark.

use serde_json::{Value, json};

use crate::answer::revision;
use crate::subject::{ApiRequest, Subject};

scenarios![
    initial_events_end_with_a_bookmark,
    changes_follow_the_initial_events,
    initial_events_are_not_older_than_requested,
    initial_events_can_be_partial_object_metadata,
    no_initial_events_when_declined,
    an_empty_list_of_initial_events_ends_with_a_bookmark,
];

const INITIAL: &str =
    "watch=true&sendInitialEvents=true&allowWatchBookmarks=true&resourceVersionMatch=NotOlderThan";

fn is_end(event: &Value) -> bool {
    event["type"] == "BOOKMARK"
        && event["object"]["metadata"]["annotations"]["k8s.io/initial-events-end"] == "true"
}

async fn initial_events_end_with_a_bookmark(subject: &Subject) {
    let place = subject.namespace("initial-end").await;
    let newest = place.make(&["b", "a", "c"]).await;
    let mut watching = place.watch(&format!("configmaps?{INITIAL}")).await;
    let mut begun = watching.take(3).await;
    begun.sort();
    assert_eq!(begun, ["ADDED a", "ADDED b", "ADDED c"]);
    let end = watching.event().await.unwrap();
    assert!(is_end(&end), "{end}");
    assert_eq!(end["object"]["kind"], "ConfigMap");
    let version = end["object"]["metadata"]["resourceVersion"].as_str().unwrap();
    assert!(revision(version) >= revision(&newest));
}

async fn changes_follow_the_initial_events(subject: &Subject) {
    let place = subject.namespace("initial-changes").await;
    place.make(&["a"]).await;
    let mut watching = place.watch(&format!("configmaps?{INITIAL}&resourceVersion=")).await;
    assert_eq!(watching.next().await, "ADDED a");
    assert!(is_end(&watching.event().await.unwrap()));
    place.make(&["b"]).await;
    place.delete("configmaps/a").await.ok();
    let mut changes = Vec::new();
    while changes.len() < 2 {
        let event = watching.next().await;
        // Bookmarks may come at any time.
        changes.extend((event != "BOOKMARK").then_some(event));
    }
    assert_eq!(changes, ["ADDED b", "DELETED a"]);
}

async fn initial_events_are_not_older_than_requested(subject: &Subject) {
    let place = subject.namespace("initial-new").await;
    let newest = place.make(&["a", "b"]).await;
    let mut watching = place.watch(&format!("configmaps?{INITIAL}&resourceVersion={newest}")).await;
    assert_eq!(watching.take(2).await, ["ADDED a", "ADDED b"]);
    assert!(is_end(&watching.event().await.unwrap()));
}

async fn initial_events_can_be_partial_object_metadata(subject: &Subject) {
    let place = subject.namespace("initial-metadata").await;
    place.post("secrets", json!({"metadata": {"name": "a"}, "data": {"k": "dg=="}})).await.ok();
    let call = ApiRequest::get(&format!("secrets?{INITIAL}"))
        .header("accept", "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1");
    let mut watching = place.watch_with(call).await;
    for _ in 0..2 {
        let event = watching.event().await.unwrap();
        assert_eq!(event["object"]["kind"], "PartialObjectMetadata", "{event}");
        assert_eq!(event["object"]["data"], Value::Null);
        assert!(is_end(&event) || event["object"]["metadata"]["name"] == "a");
    }
}

async fn no_initial_events_when_declined(subject: &Subject) {
    let place = subject.namespace("initial-declined").await;
    let newest = place.make(&["a"]).await;
    let query = format!(
        "configmaps?watch=true&sendInitialEvents=false&resourceVersionMatch=NotOlderThan&resourceVersion={newest}"
    );
    let mut watching = place.watch(&query).await;
    place.make(&["b"]).await;
    assert_eq!(watching.next().await, "ADDED b");
}

async fn an_empty_list_of_initial_events_ends_with_a_bookmark(subject: &Subject) {
    let place = subject.namespace("initial-nothing").await;
    let mut watching = place.watch(&format!("configmaps?{INITIAL}")).await;
    let end = watching.event().await.unwrap();
    assert!(is_end(&end), "{end}");
}
