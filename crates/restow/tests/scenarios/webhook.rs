//! A conversion webhook that is down for a while, or denies some objects: the others are migrated, the status says why, and
//! the same migration is retried.
//!
//! Only on a real kube-apiserver: it reads etcd and runs kubectl.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use restow_lab::{Cluster, ClusterSpec, ConversionWebhook, assets};
use serde_json::{Value, json};
use tokio::process::Command;

use crate::controller::{Controller, MIGRATIONS, ask_for, is, migration, prepared, wait_for};
use crate::support::{CRDS, Restow, Widgets, cluster, contents, lab, name, patch, try_send, wait};
use crate::traffic::ended;

const OBJECTS: usize = 300;
/// Spread, two of them side by side, the first and the last of all among them.
const DENIED: [usize; 10] = [0, 30, 77, 120, 121, 150, 199, 200, 250, 299];

/// Objects stored as v1, which a webhook converts to v2, the storage version now; v1 may be served no more.
async fn converted(cluster: &Cluster, plural: &'static str, v1_served: bool) -> (Widgets, ConversionWebhook) {
    let client = cluster.client(0).unwrap();
    let webhook = ConversionWebhook::start(cluster, |object, version| {
        if version.ends_with("/v2") {
            object["spec"]["length"] = object["spec"]["size"].clone();
        } else if let Some(spec) = object["spec"].as_object_mut() {
            spec.remove("length");
        }
    });
    let webhook = webhook.await.unwrap();
    let widgets = Widgets { plural };
    widgets.define(&client).await;
    widgets.create(&client, OBJECTS).await;
    let conversion = json!({"spec": {"conversion": webhook.conversion()}});
    patch(&client, &format!("{CRDS}/{}", widgets.name()), &conversion).await;
    wait("the webhook to be called", || async {
        try_send(&client, "GET", &widgets.path("v2", &name(0)), None)
            .await
            .is_ok_and(|object| object["spec"]["length"] == 0)
    })
    .await;
    widgets.store_as(&client, "v2").await;
    widgets.set_versions(&client, &[("v1", v1_served, false), ("v2", true, true)]).await;
    (widgets, webhook)
}

/// Denies these objects, each for a reason of its own.
fn deny(webhook: &ConversionWebhook, objects: &[usize]) {
    let names: BTreeSet<String> = objects.iter().map(|index| name(*index)).collect();
    webhook.deny(move |name, _| names.contains(name).then(|| format!("team blue keeps {name}")));
}

/// How many objects are stored in each version; those in v2 as the webhook made them.
async fn stored(cluster: &Cluster, widgets: &Widgets) -> BTreeMap<String, usize> {
    let mut versions = BTreeMap::new();
    let count = |_: &str, bytes: &[u8]| {
        let object: Value = serde_json::from_slice(bytes).unwrap();
        let version = object["apiVersion"].as_str().unwrap().rsplit('/').next().unwrap().to_owned();
        let length = if version == "v2" { &object["spec"]["size"] } else { &Value::Null };
        assert_eq!(&object["spec"]["length"], length, "{object}");
        *versions.entry(version).or_default() += 1;
    };
    cluster.etcd().for_each(&widgets.prefix(), count).await.unwrap();
    versions
}

/// `kubectl describe` of a migration.
async fn describe(kubectl: &Path, cluster: &Cluster, migration: &str) -> String {
    let ran = Command::new(kubectl)
        .arg("--kubeconfig")
        .arg(cluster.kubeconfig(0, "admin"))
        .arg("--cache-dir")
        .arg(cluster.dir().join("kubectl"))
        .args(["describe", &format!("storageversionmigration/{migration}")])
        .output();
    let ran = ran.await.unwrap();
    assert!(ran.status.success(), "{ran:?}");
    String::from_utf8(ran.stdout).unwrap()
}

/// Waits until a migration's Running condition has a reason.
async fn reason(client: &kube::Client, name: &str, reason: &str) {
    wait(&format!("{name} to be {reason}"), || async {
        let now = migration(client, name).await;
        let conditions = now["status"]["conditions"].as_array().cloned().unwrap_or_default();
        conditions.iter().any(|one| one["type"] == "Running" && one["reason"] == reason)
    })
    .await;
}

async fn rewritten(client: &kube::Client, name: &str, objects: u64) {
    wait(&format!("{objects} objects to be rewritten"), || async {
        migration(client, name).await["status"]["progress"]["rewritten"].as_u64() >= Some(objects)
    })
    .await;
}

/// Takes the webhook down until the migration tells of it, and looks at what it tells.
async fn outage(cluster: &Cluster, kubectl: &Path, webhook: &ConversionWebhook, name: &str) {
    let client = cluster.client(0).unwrap();
    webhook.down().await;
    reason(&client, name, "WaitingForServer").await;
    let told = describe(kubectl, cluster, name).await;
    for words in ["Running", "conversion webhook for", "connection refused"] {
        assert!(told.contains(words), "{words:?} in\n{told}");
    }
    let now = migration(&client, name).await;
    assert!(now["status"]["quarantined"].is_null() && !is(&now, "Failed"), "{now:#}");
    webhook.up().await.unwrap();
}

/// Every object was written, and that was verified. One may have been stored, and the webhook gone before the answer.
#[track_caller]
fn all_done(progress: &Value, answer_lost: &str) {
    let [written, lost] = ["rewritten", answer_lost].map(|count| progress[count].as_u64().unwrap());
    assert_eq!((written + lost, &progress["verified"]), (OBJECTS as u64, &json!(true)), "{progress:#}");
    assert!(lost < 40, "{progress:#}");
}

/// Down when the migration begins, in the middle of it, and while it verifies.
#[tokio::test]
async fn an_outage_of_the_webhook_is_waited_out() {
    let Some((assets, kubectl)) = assets::kubectl_or_skip("webhook::an_outage_of_the_webhook_is_waited_out")
    else {
        return;
    };
    let cluster = cluster(&assets, ClusterSpec::new()).await;
    let (client, restow) = prepared(&cluster).await;
    let (widgets, webhook) = converted(&cluster, "outages", true).await;
    let before = contents(&client, &widgets.path("v2", "")).await;
    webhook.down().await;
    let made = ask_for(&client, "outage", &widgets.name()).await;
    let args = ["--controllers", "migrator", "--page-size", "20", "--qps", "50"];
    let _controller = Controller::start(&restow, &args).await;
    outage(&cluster, &kubectl, &webhook, "outage").await;
    rewritten(&client, "outage", 60).await;
    outage(&cluster, &kubectl, &webhook, "outage").await;
    reason(&client, "outage", "Verifying").await;
    outage(&cluster, &kubectl, &webhook, "outage").await;

    let done = wait_for(&client, "outage", "Succeeded").await;
    assert_eq!(done["metadata"]["uid"], made["metadata"]["uid"]);
    all_done(&done["status"]["progress"], "skipped");
    assert_eq!(stored(&cluster, &widgets).await, BTreeMap::from([("v2".to_owned(), OBJECTS)]));
    // A merge patch wipes the managedFields that the webhook cannot convert.
    let after = contents(&client, &widgets.path("v2", "")).await;
    assert!(before.iter().all(|(name, (_, object))| after[name].1 == *object), "objects have changed");
}

/// With v1 served no more, nothing can even be read without the webhook.
#[tokio::test]
async fn an_outage_that_makes_every_object_unreadable_is_waited_out() {
    let Some((assets, kubectl)) =
        assets::kubectl_or_skip("webhook::an_outage_that_makes_every_object_unreadable_is_waited_out")
    else {
        return;
    };
    let cluster = cluster(&assets, ClusterSpec::new()).await;
    let (client, restow) = prepared(&cluster).await;
    let (widgets, webhook) = converted(&cluster, "blackouts", false).await;
    webhook.down().await;
    ask_for(&client, "blackout", &widgets.name()).await;
    let args = ["--controllers", "migrator", "--page-size", "20", "--qps", "50"];
    let _controller = Controller::start(&restow, &args).await;
    outage(&cluster, &kubectl, &webhook, "blackout").await;
    rewritten(&client, "blackout", 60).await;
    outage(&cluster, &kubectl, &webhook, "blackout").await;

    // One that waits stands still as soon as it is told to.
    webhook.down().await;
    reason(&client, "blackout", "WaitingForServer").await;
    let path = format!("{MIGRATIONS}/blackout");
    patch(&client, &path, &json!({"spec": {"suspend": true}})).await;
    reason(&client, "blackout", "Suspended").await;
    webhook.up().await.unwrap();
    patch(&client, &path, &json!({"spec": {"suspend": false}})).await;
    let done = wait_for(&client, "blackout", "Succeeded").await;
    all_done(&done["status"]["progress"], "skipped");
    assert_eq!(stored(&cluster, &widgets).await, BTreeMap::from([("v2".to_owned(), OBJECTS)]));
}

/// The names of a migration's objects that were left; each with the webhook's own words.
#[track_caller]
fn left(migration: &Value) -> Vec<String> {
    let objects = migration["status"]["quarantined"].as_array().cloned().unwrap_or_default();
    let mut names: Vec<String> =
        objects.iter().map(|object| object["name"].as_str().unwrap().to_owned()).collect();
    for object in &objects {
        let words = format!("team blue keeps {}", object["name"].as_str().unwrap());
        assert!(object["message"].as_str().unwrap().contains(&words), "{object}");
        assert_eq!(object["namespace"], "default");
    }
    names.sort_unstable();
    names
}

/// Asks for what `restow retry` asks for, and waits until it has ended with so many left.
async fn retry(client: &kube::Client, name: &str, still: usize) -> Value {
    let ask = json!({"metadata": {"annotations": {restow_api::RETRY: ""}}});
    patch(client, &format!("{MIGRATIONS}/{name}"), &ask).await;
    let end = if still == 0 { "Succeeded" } else { "Failed" };
    wait(&format!("{name} to have {still} left"), || async {
        let now = migration(client, name).await;
        let asked = !now["metadata"]["annotations"][restow_api::RETRY].is_null();
        !asked && is(&now, end) && left(&now).len() == still
    })
    .await;
    migration(client, name).await
}

#[tokio::test]
async fn ten_objects_that_the_webhook_denies_are_quarantined() {
    let Some((assets, kubectl)) =
        assets::kubectl_or_skip("webhook::ten_objects_that_the_webhook_denies_are_quarantined")
    else {
        return;
    };
    let cluster = cluster(&assets, ClusterSpec::new()).await;
    let (client, restow) = prepared(&cluster).await;
    let (widgets, webhook) = converted(&cluster, "denials", true).await;
    deny(&webhook, &DENIED);
    let made = ask_for(&client, "denial", &widgets.name()).await;
    let args = ["--controllers", "migrator", "--page-size", "100", "--pace", "fast"];
    let _controller = Controller::start(&restow, &args).await;
    let failed = wait_for(&client, "denial", "Failed").await;
    assert_eq!(left(&failed), DENIED.map(name), "{failed:#}");
    let conditions = failed["status"]["conditions"].as_array().unwrap();
    assert!(conditions.iter().all(|one| one["reason"] == "Quarantined"), "{conditions:#?}");
    let progress = &failed["status"]["progress"];
    assert_eq!((&progress["rewritten"], &progress["quarantined"]), (&json!(290), &json!(10)), "{progress}");
    let versions = [("v1".to_owned(), 10), ("v2".to_owned(), 290)];
    assert_eq!(stored(&cluster, &widgets).await, BTreeMap::from(versions));
    let told = describe(&kubectl, &cluster, "denial").await;
    for words in DENIED.map(|index| format!("team blue keeps {}", name(index))) {
        assert!(told.contains(&words), "{words:?} in\n{told}");
    }
    assert!(told.contains("restow retry denial"), "{told}");

    // Not yet mended, mended for all but one, and mended.
    assert_eq!(left(&retry(&client, "denial", 10).await), DENIED.map(name));
    deny(&webhook, &DENIED[3..4]);
    assert_eq!(left(&retry(&client, "denial", 1).await), [name(DENIED[3])]);
    webhook.mend();
    let done = retry(&client, "denial", 0).await;
    assert_eq!(done["metadata"]["uid"], made["metadata"]["uid"], "it was made anew");
    let progress = &done["status"]["progress"];
    assert_eq!((&progress["rewritten"], &progress["verified"]), (&json!(OBJECTS), &json!(true)), "{done:#}");
    assert_eq!(stored(&cluster, &widgets).await, BTreeMap::from([("v2".to_owned(), OBJECTS)]));
}

#[tokio::test]
async fn the_command_line_waits_out_an_outage_of_the_webhook() {
    let assets = lab!();
    let cluster = cluster(&assets, ClusterSpec::new()).await;
    let restow = Restow::new(&cluster);
    let (widgets, webhook) = converted(&cluster, "lineoutages", true).await;
    let said = restow.state.path().join("stderr");
    let child = restow
        .command(&["migrate", &widgets.name(), "--page-size", "20", "--qps", "50", "-o", "json"])
        .stderr(std::fs::File::create(&said).unwrap())
        .spawn()
        .unwrap();
    wait("pages to be done", || async { restow.listed(&widgets.name(), "counts") >= 60 }).await;
    webhook.down().await;
    wait("restow to say what it waits for", || async {
        let said = std::fs::read_to_string(&said).unwrap();
        said.contains("waiting: conversion webhook for") && said.contains("connection refused")
    })
    .await;
    webhook.up().await.unwrap();
    let report = ended(child).await.expect(0).resource();
    all_done(&report, "conflicted");
    assert_eq!(report["quarantined"], json!([]));
    assert_eq!(stored(&cluster, &widgets).await, BTreeMap::from([("v2".to_owned(), OBJECTS)]));

    let (widgets, webhook) = converted(&cluster, "linedenials", true).await;
    deny(&webhook, &DENIED);
    let report = restow.migrate(&widgets.name(), &["--pace", "fast"]).await.expect(3).resource();
    assert_eq!(names(&report), DENIED.map(name), "{report:#}");
    assert_eq!(report["rewritten"], 290, "{report:#}");
    restow.migrate(&widgets.name(), &["--retry-quarantined"]).await.expect(3);
    webhook.mend();
    let report = restow.migrate(&widgets.name(), &["--retry-quarantined"]).await.expect(0).resource();
    assert_eq!((&report["rewritten"], &report["verified"]), (&json!(OBJECTS), &json!(true)), "{report:#}");
    assert_eq!(stored(&cluster, &widgets).await, BTreeMap::from([("v2".to_owned(), OBJECTS)]));
}

/// The names of a report's objects that were left.
fn names(report: &Value) -> Vec<String> {
    let left = report["quarantined"].as_array().unwrap();
    let mut names: Vec<String> =
        left.iter().map(|object| object["name"].as_str().unwrap().to_owned()).collect();
    names.sort_unstable();
    names
}

/// Denied objects that only the webhook can read are found like those that cannot be decoded.
#[tokio::test]
async fn objects_that_only_the_webhook_could_read_are_named() {
    let assets = lab!();
    let cluster = cluster(&assets, ClusterSpec::new()).await;
    let restow = Restow::new(&cluster);
    let (widgets, webhook) = converted(&cluster, "blinddenials", false).await;
    deny(&webhook, &[30, 120, 299]);
    let flags = ["--pace", "fast", "--page-size", "100"];
    let report = restow.migrate(&widgets.name(), &flags).await.expect(3).resource();
    assert_eq!(names(&report), [30, 120, 299].map(name), "{report:#}");
    for object in report["quarantined"].as_array().unwrap() {
        let words = format!("team blue keeps {}", object["name"].as_str().unwrap());
        assert!(object["message"].as_str().unwrap().contains(&words), "{object}");
    }
    assert_eq!(report["rewritten"], OBJECTS - 3, "{report:#}");
    webhook.mend();
    let report = restow.migrate(&widgets.name(), &["--retry-quarantined"]).await.expect(0).resource();
    assert_eq!((&report["rewritten"], &report["verified"]), (&json!(OBJECTS), &json!(true)), "{report:#}");
    assert_eq!(stored(&cluster, &widgets).await, BTreeMap::from([("v2".to_owned(), OBJECTS)]));
}

/// A merge patch would be taken, and would wipe the managedFields that the webhook fails to convert.
#[tokio::test]
async fn objects_that_cannot_be_converted_back_are_quarantined() {
    let assets = lab!();
    let cluster = cluster(&assets, ClusterSpec::new()).await;
    let client = cluster.client(0).unwrap();
    let restow = Restow::new(&cluster);
    let (widgets, webhook) = converted(&cluster, "wipes", true).await;
    let fields = async || {
        let now = contents(&client, &widgets.path("v2", "")).await;
        let of = |(name, (_, object)): (String, (String, Value))| {
            (name, object["metadata"]["managedFields"].clone())
        };
        now.into_iter().map(of).collect::<BTreeMap<_, _>>()
    };
    let before = fields().await;
    let back = |name: &str, version: &str| name == "w-00077" && version.ends_with("/v1");
    webhook.deny(move |name, version| back(name, version).then(|| "there is no way back".to_owned()));
    let report = restow.migrate(&widgets.name(), &["--pace", "fast"]).await.expect(3).resource();
    assert_eq!(names(&report), [name(77)], "{report:#}");
    assert!(report["quarantined"][0]["message"].as_str().unwrap().contains("no way back"), "{report:#}");
    webhook.mend();
    assert_eq!(fields().await, before);
    restow.migrate(&widgets.name(), &["--retry-quarantined"]).await.expect(0);
    assert_eq!(fields().await, before);
    assert_eq!(stored(&cluster, &widgets).await, BTreeMap::from([("v2".to_owned(), OBJECTS)]));
}
