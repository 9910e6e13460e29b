//! Lists: order, resourceVersion and limits.

use serde_json::{Value, json};

use crate::answer::revision;
use crate::subject::Subject;

scenarios![
    a_list_can_span_all_namespaces,
    an_empty_list_has_an_empty_items_field,
    a_list_is_not_older_than_requested,
    a_list_at_a_future_resource_version_is_refused,
    a_list_at_an_exact_resource_version_shows_that_state,
    a_list_is_sorted_by_name,
    invalid_list_options_are_refused,
];

async fn a_list_is_sorted_by_name(subject: &Subject) {
    let place = subject.namespace("list-order").await;
    place.make(&["b", "a", "a.b", "a-b", "ab", "c1", "c10", "c2"]).await;
    let list = place.get("configmaps").await.ok();
    assert_eq!(list.names(), "a a-b a.b ab b c1 c10 c2");
    assert_eq!((&list["kind"], &list["apiVersion"]), (&json!("ConfigMapList"), &json!("v1")));
    let newest = list["items"].as_array().unwrap().iter();
    let newest =
        newest.map(|item| item["metadata"]["resourceVersion"].as_str().unwrap().parse::<u64>().unwrap());
    assert!(list.revision() >= newest.max().unwrap());
    assert_eq!(list["metadata"]["continue"], Value::Null);
    // Built-in items have no kind and apiVersion.
    assert_eq!((&list["items"][0]["kind"], &list["items"][0]["apiVersion"]), (&Value::Null, &Value::Null));
}

async fn a_list_can_span_all_namespaces(subject: &Subject) {
    let (one, two) = (subject.namespace("list-all-a").await, subject.namespace("list-all-b").await);
    for place in [&two, &one] {
        for name in ["b", "a"] {
            place
                .post("configmaps", json!({"metadata": {"name": name, "labels": {"list": "all"}}}))
                .await
                .ok();
        }
    }
    let list = one.get("/api/v1/configmaps?labelSelector=list%3Dall").await.ok();
    let found: Vec<String> = list["items"]
        .as_array()
        .unwrap()
        .iter()
        .map(|item| {
            format!("{}/{}", item["metadata"]["namespace"], item["metadata"]["name"]).replace('"', "")
        })
        .collect();
    assert_eq!(found, ["list-all-a/a", "list-all-a/b", "list-all-b/a", "list-all-b/b"]);
}

async fn an_empty_list_has_an_empty_items_field(subject: &Subject) {
    let place = subject.namespace("list-empty").await;
    for path in ["secrets", "/api/v1/namespaces/none-such/configmaps", "limitranges"] {
        let list = place.get(path).await.ok();
        assert_eq!(list["items"], json!([]), "{path}");
        assert!(!list.resource_version().is_empty(), "{path}");
    }
}

async fn a_list_is_not_older_than_requested(subject: &Subject) {
    let place = subject.namespace("list-new").await;
    place.make(&["a", "b"]).await;
    let version = place.post("configmaps", json!({"metadata": {"name": "c"}})).await.ok().resource_version();
    for query in [
        String::new(),
        format!("resourceVersion={version}"),
        format!("resourceVersion={version}&resourceVersionMatch=NotOlderThan"),
        format!("resourceVersion={version}&limit=10"),
    ] {
        let list = place.get(&format!("configmaps?{query}")).await.ok();
        assert_eq!(list.names(), "a b c", "{query}");
        assert!(list.revision() >= revision(&version), "{query}");
    }
}

async fn invalid_list_options_are_refused(subject: &Subject) {
    let place = subject.namespace("list-refuses").await;
    for (query, expected) in [
        ("resourceVersion=nonsense", "400 BadRequest"),
        ("resourceVersionMatch=Exact", "422 Invalid"),
        ("resourceVersionMatch=Nonsense&resourceVersion=1", "422 Invalid"),
        ("resourceVersionMatch=Exact&resourceVersion=0", "422 Invalid"),
        ("limit=nonsense", "400 BadRequest"),
        ("continue=nonsense&limit=1", "400 BadRequest"),
        ("sendInitialEvents=true", "422 Invalid"),
        ("labelSelector=a%20b", "400 BadRequest"),
        ("fieldSelector=nonsense", "400 BadRequest"),
        ("fieldSelector=data.k%3Dv", "400 BadRequest"),
    ] {
        let answer = place.get(&format!("configmaps?{query}")).await;
        assert_eq!(answer.reason(), expected, "{query}: {}", answer.line());
    }
}

async fn a_list_at_a_future_resource_version_is_refused(subject: &Subject) {
    let place = subject.namespace("list-future").await;
    let answer = place.get("configmaps?resourceVersion=999999999999&resourceVersionMatch=NotOlderThan").await;
    assert_eq!(answer.reason(), "504 Timeout", "{}", answer.line());
    let causes = json!([{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}]);
    assert_eq!(answer["details"]["causes"], causes);
    assert_eq!(answer["details"]["retryAfterSeconds"], 1);
    assert!(
        answer["message"]
            .as_str()
            .unwrap()
            .starts_with("Timeout: Too large resource version: 999999999999, current: ")
    );
}

async fn a_list_at_an_exact_resource_version_shows_that_state(subject: &Subject) {
    let place = subject.namespace("list-exact").await;
    place.make(&["a", "b"]).await;
    let then = place.get("configmaps").await.ok();
    place.delete("configmaps/a").await.ok();
    place.make(&["c"]).await;
    let query = format!("configmaps?resourceVersion={}&resourceVersionMatch=Exact", then.resource_version());
    let list = place.get(&query).await.ok();
    assert_eq!((list.names(), list.resource_version()), ("a b".to_owned(), then.resource_version()));
    assert_eq!(list["items"], then["items"]);
    assert_eq!(place.get("configmaps").await.names(), "b c");
}
