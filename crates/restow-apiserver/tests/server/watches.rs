//! Watches: initial events, changes, and how they end.

use std::time::Duration;

use futures::{AsyncBufReadExt as _, StreamExt as _};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use restow_apiserver::{Server, ServerSettings};
use restow_store::Store as _;
use serde_json::{Value, json};

use crate::basics::{config_map, read, server};
use crate::memory::Memory;

const MAPS: &str = "/api/v1/namespaces/default/configmaps";

/// The next events of a watch; fewer if it ends before.
async fn events(server: &Server, query: &str, count: usize) -> Vec<Value> {
    let request = http::Request::get(format!("{MAPS}?watch=true&{query}")).body(Vec::new()).unwrap();
    let lines = server.client().request_stream(request).await.unwrap().lines();
    let events = lines.take(count).map(|line| serde_json::from_str(&line.unwrap()).unwrap()).collect();
    tokio::time::timeout(Duration::from_secs(20), events).await.unwrap()
}

fn short(events: &[Value]) -> Vec<String> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    events
        .iter()
        .map(|e| format!("{} {}", text(&e["type"]), text(&e["object"]["metadata"]["name"])))
        .collect()
}

async fn now(server: &Server) -> String {
    read(server, MAPS).await["metadata"]["resourceVersion"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn a_watch_reports_changes_in_order() {
    let server = server().await;
    let maps = Api::<ConfigMap>::namespaced(server.client(), "default");
    let from = now(&server).await;
    maps.create(&PostParams::default(), &config_map("a", "k", "v")).await.unwrap();
    let patch = Patch::Merge(json!({"data": {"k": "w"}}));
    let patched = maps.patch("a", &PatchParams::default(), &patch).await.unwrap();
    maps.delete("a", &DeleteParams::default()).await.unwrap();
    let events = events(&server, &format!("resourceVersion={from}"), 3).await;
    assert_eq!(short(&events), ["ADDED a", "MODIFIED a", "DELETED a"]);
    let version = |at: usize| {
        events[at]["object"]["metadata"]["resourceVersion"].as_str().unwrap().parse::<u64>().unwrap()
    };
    assert_eq!(version(1).to_string(), patched.metadata.resource_version.unwrap());
    assert!(version(2) > version(1));
    server.stop().await;
}

#[tokio::test]
async fn initial_events_end_with_an_annotated_bookmark() {
    let server = server().await;
    let maps = Api::<ConfigMap>::namespaced(server.client(), "default");
    for name in ["a", "b"] {
        maps.create(&PostParams::default(), &config_map(name, "k", "v")).await.unwrap();
    }
    assert_eq!(short(&events(&server, "", 2).await), ["ADDED a", "ADDED b"]);
    let query = "sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true";
    let events = events(&server, query, 3).await;
    assert_eq!(short(&events), ["ADDED a", "ADDED b", "BOOKMARK "]);
    assert_eq!(events[2]["object"]["metadata"]["annotations"]["k8s.io/initial-events-end"], "true");
    server.stop().await;
}

#[tokio::test]
async fn objects_that_start_or_stop_matching_are_reported_as_added_or_deleted() {
    let server = server().await;
    let maps = Api::<ConfigMap>::namespaced(server.client(), "default");
    let from = now(&server).await;
    maps.create(&PostParams::default(), &config_map("a", "k", "v")).await.unwrap();
    for label in [json!("yes"), Value::Null] {
        let patch = Patch::Merge(json!({"metadata": {"labels": {"wanted": label}}}));
        maps.patch("a", &PatchParams::default(), &patch).await.unwrap();
    }
    let events = events(&server, &format!("resourceVersion={from}&labelSelector=wanted"), 2).await;
    assert_eq!(short(&events), ["ADDED a", "DELETED a"]);
    server.stop().await;
}

#[tokio::test]
async fn a_watch_ends_in_time_with_a_bookmark() {
    let server = server().await;
    let from = now(&server).await;
    let query = format!("resourceVersion={from}&timeoutSeconds=1&allowWatchBookmarks=true");
    let events = events(&server, &query, 5).await;
    assert_eq!(short(&events), ["BOOKMARK "]);
    server.stop().await;
}

#[tokio::test]
async fn a_watch_from_a_compacted_revision_is_expired() {
    let store = Memory::new();
    let server = Server::start(ServerSettings::new(store.clone())).await.unwrap();
    store.compact(store.revision().await.unwrap()).await.unwrap();
    let events = events(&server, "resourceVersion=1", 5).await;
    assert_eq!(events.len(), 1);
    assert_eq!((&events[0]["type"], &events[0]["object"]["code"]), (&json!("ERROR"), &json!(410)));
    server.stop().await;
}

#[tokio::test]
async fn watches_end_when_the_server_does() {
    let server = server().await;
    let from = now(&server).await;
    let request =
        http::Request::get(format!("{MAPS}?watch=true&resourceVersion={from}")).body(vec![]).unwrap();
    let mut lines = server.client().request_stream(request).await.unwrap().lines();
    server.stop().await;
    assert!(tokio::time::timeout(Duration::from_secs(20), lines.next()).await.unwrap().is_none());
}

#[tokio::test]
async fn a_watch_skips_unreadable_objects_that_it_does_not_select() {
    let store = Memory::new();
    let server = Server::start(ServerSettings::new(store.clone())).await.unwrap();
    let from = now(&server).await;
    let key = "/registry/configmaps/default/a";
    store.put(key, "nonsense").await;
    let unreadable = store.revision().await.unwrap();
    store
        .put(key, r#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a","namespace":"default"}}"#)
        .await;
    let seen = events(&server, &format!("resourceVersion={unreadable}"), 1).await;
    assert_eq!(short(&seen), ["MODIFIED a"]);
    // Here the unreadable object would have to be shown.
    let seen = events(&server, &format!("resourceVersion={from}"), 1).await;
    assert_eq!(short(&seen), ["ERROR "]);
    server.stop().await;
}
