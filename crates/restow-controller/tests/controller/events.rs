//! Events on a real API server, and as kubectl shows them.

use std::sync::Arc;

use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::api::events::v1::Event;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{ListParams, PostParams};
use kube::{Api, Client, Resource as _};
use restow_api::{GroupVersionResource, StorageVersionMigration, StorageVersionMigrationSpec};
use restow_controller::observe::events::{EventType, Events};
use restow_lab::{Cluster, assets};

use crate::support::{shared, wait};

/// Creates a migration to publish Events about.
async fn migration(client: &Client, name: &str) -> ObjectReference {
    let definitions: Api<CustomResourceDefinition> = Api::all(client.clone());
    for crd in restow_api::crds() {
        // Another test may have created it.
        definitions.create(&PostParams::default(), &crd).await.ok();
    }
    let migrations: Api<StorageVersionMigration> = Api::all(client.clone());
    wait("the definition to be served", || async { migrations.list(&ListParams::default()).await.is_ok() })
        .await;
    let resource = GroupVersionResource { resource: "secrets".to_owned(), ..GroupVersionResource::default() };
    let spec = StorageVersionMigrationSpec { resource, ..StorageVersionMigrationSpec::default() };
    let migration = StorageVersionMigration::new(name, spec);
    migrations.create(&PostParams::default(), &migration).await.unwrap().object_ref(&())
}

/// The type, reason and note of all Events about an object, sorted.
async fn published(client: &Client, object: &ObjectReference) -> Vec<[String; 3]> {
    let events: Api<Event> = Api::all(client.clone());
    let about = |event: &Event| event.regarding.as_ref().is_some_and(|other| other.uid == object.uid);
    let all = events.list(&ListParams::default()).await.unwrap();
    let mut found: Vec<_> = all
        .into_iter()
        .filter(about)
        .map(|event| [event.type_, event.reason, event.note].map(Option::unwrap_or_default))
        .collect();
    found.sort();
    found
}

fn describe(cluster: &Cluster, name: &str) -> Option<String> {
    let kubectl = assets::or_skip("kubectl describe")?.kubectl;
    let Some(kubectl) = kubectl else {
        eprintln!("NOT RUN: kubectl describe: the lab's programs have no kubectl");
        return None;
    };
    let output = std::process::Command::new(kubectl)
        .args(["describe", "storageversionmigrations.migration.k8s.io", name])
        .env("KUBECONFIG", cluster.kubeconfig(0, "admin"))
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    Some(String::from_utf8(output.stdout).unwrap())
}

#[tokio::test(flavor = "multi_thread")]
async fn each_event_is_published_once_and_kubectl_shows_it() {
    let Some(cluster) = shared() else { return };
    let client = cluster.client(0).unwrap();
    let object = migration(&client, "told").await;
    let events = Events::new(client.clone(), "pod_1".to_owned(), Arc::default());
    for _ in 0..3 {
        events.publish(&object, EventType::Normal, "Started", "300 objects to look at");
        events.publish(&object, EventType::Warning, "Quarantined", "one was refused");
        events.publish(&object, EventType::Warning, "Quarantined", "two were refused");
    }
    events.finish().await;
    let expected = [
        ["Normal", "Started", "300 objects to look at"],
        ["Warning", "Quarantined", "one was refused"],
        ["Warning", "Quarantined", "two were refused"],
    ];
    assert_eq!(published(&client, &object).await, expected);

    let Some(described) = describe(cluster, "told") else { return };
    let (_, shown) = described.split_once("\nEvents:").expect("Events in it");
    for [kind, reason, note] in expected {
        let line = shown.lines().find(|line| line.contains(note)).unwrap_or_else(|| panic!("{described}"));
        let words: Vec<&str> = line.split_whitespace().collect();
        assert_eq!(words[..2], [kind, reason], "{described}");
        assert_eq!(words[3], "restow", "{described}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn long_messages_are_truncated_and_floods_are_limited() {
    let Some(cluster) = shared() else { return };
    let client = cluster.client(0).unwrap();
    // As long as a name may be: the name of an Event must not be longer.
    let object = migration(&client, &format!("dammed-{}", "d".repeat(246))).await;
    let events = Events::new(client.clone(), "pod_1".to_owned(), Arc::default());
    events.publish(&object, EventType::Warning, &"R".repeat(500), &"ö".repeat(5000));
    for number in 0..30 {
        events.publish(&object, EventType::Normal, "Number", &format!("{number}"));
    }
    events.finish().await;
    let found = published(&client, &object).await;
    assert_eq!(found.len(), restow_core::controller::event_limiter::MAX_PER_OBJECT, "{found:?}");
    let [_, reason, note] = found.last().unwrap();
    assert_eq!((reason.len(), note.len()), (128, 1024));
}

#[tokio::test(flavor = "multi_thread")]
async fn refused_events_are_dropped() {
    let Some(cluster) = shared() else { return };
    let client = cluster.client(0).unwrap();
    let object = migration(&client, "refused").await;
    let events = Events::new(cluster.client_as(0, "alice").unwrap(), "pod_1".to_owned(), Arc::default());
    events.publish(&object, EventType::Normal, "Started", "without permission");
    events.finish().await;
    assert_eq!(published(&client, &object).await, Vec::<[String; 3]>::new());
}
