//! Watches: every change after a resourceVersion, in order.

use serde_json::{Value, json};

use crate::answer::revision;
use crate::subject::{ApiRequest, Place, Subject};

scenarios![
    changes_are_reported_in_order,
    a_watch_from_a_resource_version_reports_later_changes,
    a_deleted_object_is_reported_in_its_last_state,
    a_watch_with_a_selector_reports_objects_that_start_and_stop_matching,
    a_single_object_can_be_watched,
    a_watch_can_span_all_namespaces,
    a_watch_without_a_resource_version_starts_with_existing_objects,
    bookmarks_are_sent_when_requested,
    a_watch_ends_after_its_timeout,
    a_watch_can_report_partial_object_metadata,
    writes_that_change_nothing_are_not_reported,
    invalid_watch_options_are_refused,
    ; real:
    // Deprecated since 1.11; no client in use asks so.
    the_deprecated_watch_path_works,
];

async fn make(place: &Place<'_>, name: &str) -> String {
    place.post("configmaps", json!({"metadata": {"name": name}})).await.ok().resource_version()
}

async fn now(place: &Place<'_>) -> String {
    place.get("configmaps").await.ok().resource_version()
}

async fn changes_are_reported_in_order(subject: &Subject) {
    let place = subject.namespace("watch-order").await;
    let mut watching =
        place.watch(&format!("configmaps?watch=true&resourceVersion={}", now(&place).await)).await;
    for index in 0..5 {
        make(&place, &format!("c{index}")).await;
    }
    place.merge("configmaps/c1", json!({"data": {"k": "v"}})).await.ok();
    place.delete("configmaps/c0").await.ok();
    let mut versions = Vec::new();
    let mut summary = Vec::new();
    for _ in 0..7 {
        let event = watching.event().await.unwrap();
        assert_eq!(
            (&event["object"]["kind"], &event["object"]["apiVersion"]),
            (&json!("ConfigMap"), &json!("v1"))
        );
        let version = event["object"]["metadata"]["resourceVersion"].as_str().unwrap();
        versions.push(revision(version));
        summary.push(crate::watching::summary(&event));
    }
    let expected = ["ADDED c0", "ADDED c1", "ADDED c2", "ADDED c3", "ADDED c4", "MODIFIED c1", "DELETED c0"];
    assert_eq!(summary, expected);
    assert!(versions.is_sorted() && versions.windows(2).all(|pair| pair[0] != pair[1]), "{versions:?}");
}

async fn a_watch_from_a_resource_version_reports_later_changes(subject: &Subject) {
    let place = subject.namespace("watch-from").await;
    make(&place, "before").await;
    let from = make(&place, "at").await;
    make(&place, "after").await;
    let mut watching = place.watch(&format!("configmaps?watch=1&resourceVersion={from}")).await;
    assert_eq!(watching.next().await, "ADDED after");
    make(&place, "later").await;
    assert_eq!(watching.next().await, "ADDED later");
}

async fn a_deleted_object_is_reported_in_its_last_state(subject: &Subject) {
    let place = subject.namespace("watch-deleted").await;
    let body = json!({"metadata": {"name": "a"}, "data": {"k": "last"}});
    let made = place.post("configmaps", body).await.ok();
    let mut watching =
        place.watch(&format!("configmaps?watch=true&resourceVersion={}", made.resource_version())).await;
    place.delete("configmaps/a").await.ok();
    let event = watching.event().await.unwrap();
    assert_eq!((&event["type"], &event["object"]["data"]), (&json!("DELETED"), &json!({"k": "last"})));
    let version = event["object"]["metadata"]["resourceVersion"].as_str().unwrap();
    assert!(revision(version) > made.revision());
}

async fn a_watch_with_a_selector_reports_objects_that_start_and_stop_matching(subject: &Subject) {
    let place = subject.namespace("watch-selector").await;
    let from = now(&place).await;
    let query = format!("configmaps?watch=true&resourceVersion={from}&labelSelector=l%3Dyes");
    let mut watching = place.watch(&query).await;
    let label = |value: &str| json!({"metadata": {"labels": {"l": value}}});
    make(&place, "never").await;
    make(&place, "a").await;
    place.merge("configmaps/a", label("yes")).await.ok();
    place.merge("configmaps/a", json!({"data": {"k": "v"}})).await.ok();
    place.merge("configmaps/a", label("no")).await.ok();
    place.delete("configmaps/a").await.ok();
    make(&place, "b").await;
    place.merge("configmaps/b", label("yes")).await.ok();
    place.delete("configmaps/b").await.ok();
    let expected = ["ADDED a", "MODIFIED a", "DELETED a", "ADDED b", "DELETED b"];
    assert_eq!(watching.take(5).await, expected);
}

async fn a_single_object_can_be_watched(subject: &Subject) {
    let place = subject.namespace("watch-one").await;
    let from = now(&place).await;
    let query = format!("configmaps?watch=true&resourceVersion={from}&fieldSelector=metadata.name%3Da");
    let mut watching = place.watch(&query).await;
    for name in ["b", "a", "c"] {
        make(&place, name).await;
    }
    place.delete("configmaps/b").await.ok();
    place.delete("configmaps/a").await.ok();
    assert_eq!(watching.take(2).await, ["ADDED a", "DELETED a"]);
}

async fn a_watch_can_span_all_namespaces(subject: &Subject) {
    let (one, two) = (subject.namespace("watch-all-a").await, subject.namespace("watch-all-b").await);
    let query = format!(
        "/api/v1/configmaps?watch=true&resourceVersion={}&labelSelector=watch%3Dall",
        now(&one).await
    );
    let mut watching = one.watch(&query).await;
    for (place, name) in [(&one, "a"), (&two, "b"), (&one, "c")] {
        place.post("configmaps", json!({"metadata": {"name": name, "labels": {"watch": "all"}}})).await.ok();
    }
    assert_eq!(watching.take(3).await, ["ADDED a", "ADDED b", "ADDED c"]);
}

async fn a_watch_without_a_resource_version_starts_with_existing_objects(subject: &Subject) {
    let place = subject.namespace("watch-begin").await;
    make(&place, "b").await;
    let newest = make(&place, "a").await;
    for query in ["", "&resourceVersion=0", "&resourceVersion="] {
        // Existing objects may come from a cache: wait until it is current.
        place.get(&format!("configmaps?resourceVersion={newest}")).await.ok();
        let mut watching = place.watch(&format!("configmaps?watch=true{query}")).await;
        let mut begun = watching.take(2).await;
        begun.sort();
        assert_eq!(begun, ["ADDED a", "ADDED b"], "{query}");
    }
}

async fn bookmarks_are_sent_when_requested(subject: &Subject) {
    let place = subject.namespace("watch-bookmarks").await;
    let from = make(&place, "a").await;
    let query =
        format!("configmaps?watch=true&resourceVersion={from}&allowWatchBookmarks=true&timeoutSeconds=10");
    let mut watching = place.watch(&query).await;
    let mut last = None;
    while let Some(event) = watching.event().await {
        last = Some(event);
    }
    // One comes before the end at the latest; another test's writes may make more.
    let last = last.expect("a bookmark");
    assert_eq!((&last["type"], &last["object"]["kind"]), (&json!("BOOKMARK"), &json!("ConfigMap")));
    let version = last["object"]["metadata"]["resourceVersion"].as_str().unwrap();
    assert!(revision(version) >= revision(&from));
    assert_eq!(last["object"]["metadata"]["name"], Value::Null);
}

async fn a_watch_ends_after_its_timeout(subject: &Subject) {
    let place = subject.namespace("watch-ends").await;
    let from = make(&place, "a").await;
    let mut watching =
        place.watch(&format!("configmaps?watch=true&resourceVersion={from}&timeoutSeconds=1")).await;
    assert_eq!(watching.event().await, None);
}

async fn a_watch_can_report_partial_object_metadata(subject: &Subject) {
    let place = subject.namespace("watch-metadata").await;
    let from = now(&place).await;
    let call = ApiRequest::get(&format!("secrets?watch=true&resourceVersion={from}"))
        .header("accept", "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1");
    let mut watching = place.watch_with(call).await;
    place.post("secrets", json!({"metadata": {"name": "a"}, "data": {"k": "dg=="}})).await.ok();
    let event = watching.event().await.unwrap();
    let object = &event["object"];
    assert_eq!(
        (&object["kind"], &object["apiVersion"]),
        (&json!("PartialObjectMetadata"), &json!("meta.k8s.io/v1"))
    );
    assert_eq!((&object["metadata"]["name"], &object["data"]), (&json!("a"), &Value::Null));
}

async fn the_deprecated_watch_path_works(subject: &Subject) {
    let place = subject.namespace("watch-style").await;
    let from = now(&place).await;
    let path = format!("/api/v1/watch/namespaces/watch-style/configmaps?resourceVersion={from}");
    let mut watching = place.watch(&path).await;
    make(&place, "a").await;
    assert_eq!(watching.next().await, "ADDED a");
}

async fn writes_that_change_nothing_are_not_reported(subject: &Subject) {
    let place = subject.namespace("watch-nothing").await;
    let from = make(&place, "a").await;
    let mut watching = place.watch(&format!("configmaps?watch=true&resourceVersion={from}")).await;
    place.merge("configmaps/a", json!({})).await.ok();
    let dry = json!({"metadata": {"name": "dry"}});
    place.post("configmaps?dryRun=All", dry).await.ok();
    place.delete("configmaps/a?dryRun=All").await.ok();
    make(&place, "b").await;
    assert_eq!(watching.next().await, "ADDED b");
}

async fn invalid_watch_options_are_refused(subject: &Subject) {
    let place = subject.namespace("watch-refuses").await;
    for (query, expected) in [
        ("sendInitialEvents=true", "422 Invalid"),
        ("sendInitialEvents=true&resourceVersionMatch=Exact&allowWatchBookmarks=true", "422 Invalid"),
        ("resourceVersionMatch=NotOlderThan&resourceVersion=1", "422 Invalid"),
        ("labelSelector=a%20b", "400 BadRequest"),
    ] {
        let answer = place.get(&format!("configmaps?watch=true&timeoutSeconds=1&{query}")).await;
        assert_eq!(answer.reason(), expected, "{query}: {}", answer.line());
    }
    let gone = place.get("nonsense?watch=true").await;
    assert_eq!(gone.line(), "404 NotFound: the server could not find the requested resource");
}
