//! A migration that failed for a temporary reason is replaced after a pause, also one with the longest name.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use restow_core::resource::hash::storage_version_hash;
use restow_core::resource::name::GroupVersion;
use restow_lab::{Action, ClusterSpec};
use serde_json::{Value, json};

use crate::controller::{Controller, MIGRATIONS, STATES, is, migrations, prepared, state};
use crate::support::{CRDS, Lab, Restow, Widgets, create_all, name, patch, send, try_send, wait};
use crate::traffic::{Traffic, status};

scenarios! {
    a_failure_of_the_cluster_is_retried_by_the_current_leader,
    a_resource_with_the_longest_name_is_migrated,
    a_migration_is_created_although_its_first_requests_are_refused,
}

/// The Events about objects of a kind.
pub(crate) async fn events(client: &kube::Client, kind: &str) -> Vec<Value> {
    let all = send(client, "GET", "/apis/events.k8s.io/v1/events", None).await;
    let about = |event: &&Value| event["regarding"]["kind"] == kind;
    all["items"].as_array().unwrap().iter().filter(about).cloned().collect()
}

async fn a_failure_of_the_cluster_is_retried_by_the_current_leader(lab: Lab) {
    const MANY: usize = 40;
    let cluster = lab.cluster(ClusterSpec::new()).await;
    let (client, _) = prepared(&cluster).await;
    let widgets = Widgets { plural: "retried" };
    widgets.define(&client).await;
    widgets.create(&client, MANY).await;
    widgets.store_as(&client, "v2").await;
    let refuses = Arc::new(AtomicBool::new(true));
    let (refusing, plural) = (Arc::clone(&refuses), widgets.plural);
    let rule = move |seen: &restow_lab::Seen, _| {
        if seen.path.ends_with(&format!("/{plural}")) && refusing.load(Ordering::SeqCst) {
            return status(405, "MethodNotAllowed", "a proxy that is being changed");
        }
        Action::Forward
    };
    let (recorder, _traffic) = Traffic::record(&cluster, rule).await;
    let restow = Restow::with_kubeconfig(recorder.kubeconfig().to_owned());
    let args = ["--resources", &widgets.name(), "--poll-interval", "10m"];
    let controller = Controller::start(&restow, &args).await;

    // It fails, and says what happens next.
    let status = async || {
        let state = try_send(&client, "GET", &format!("{STATES}/{}", widgets.name()), None).await;
        state.unwrap_or_default()["status"].clone()
    };
    wait("the replacement to be planned", || async { status().await["nextMigrationTime"].is_string() }).await;
    let failed = migrations(&client, &widgets.name()).await;
    assert_eq!(failed.len(), 1, "{failed:#?}");
    let conditions = failed[0]["status"]["conditions"].as_array().unwrap();
    let why = conditions.iter().find(|one| one["type"] == "Failed").unwrap();
    assert_eq!((&why["status"], &why["reason"]), (&json!("True"), &json!("ListRefused")), "{why:#}");
    assert!(why["message"].as_str().unwrap().contains("the trigger will replace this migration"), "{why:#}");
    wait("an Event that tells of it", || async {
        events(&client, "StorageState").await.iter().any(|event| event["reason"] == "RetryPlanned")
    })
    .await;

    // Another controller goes on with the plan.
    controller.kill().await;
    refuses.store(false, Ordering::SeqCst);
    let _controller = Controller::start(&restow, &args).await;
    let new = format!("{}/v2", widgets.group());
    wait("everything to be rewritten", || async {
        let now = migrations(&client, &widgets.name()).await;
        assert!(now.len() <= 1, "{now:#?}");
        widgets.stored_as(&cluster).await.get(&new) == Some(&MANY)
    })
    .await;
    let hash = storage_version_hash(&GroupVersion::new(widgets.group(), "v2"), "Widget");
    wait("the state to be settled", || async {
        state(&client, &widgets.name(), &[(&hash, "v2")]).await == Some(("v2".to_owned(), "v2".to_owned()))
    })
    .await;
    let done = migrations(&client, &widgets.name()).await;
    assert!(done.len() == 1 && is(&done[0], "Succeeded"), "{done:#?}");
    assert_ne!(done[0]["metadata"]["uid"], failed[0]["metadata"]["uid"]);
    let settled = status().await;
    assert!(settled["nextMigrationTime"].is_null() && settled["replacedMigrations"].is_null(), "{settled:#}");
}

async fn a_resource_with_the_longest_name_is_migrated(lab: Lab) {
    const MANY: usize = 5;
    let cluster = lab.cluster(ClusterSpec::new()).await;
    let (client, restow) = prepared(&cluster).await;
    let plural = "w".repeat(60);
    let group = ["a", "b", "c"].map(|letter| letter.repeat(60)).join(".") + ".ddddd";
    let resource = format!("{plural}.{group}");
    assert_eq!(resource.len(), 249);
    let schema = json!({"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}});
    let versions = |stored: &str| {
        ["v1", "v2"]
            .map(|name| json!({"name": name, "served": true, "storage": name == stored, "schema": schema}))
    };
    let crd = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": resource},
        "spec": {
            "group": group, "scope": "Namespaced", "versions": versions("v1"),
            "names": {"plural": plural, "singular": plural, "kind": "Widget"},
        },
    });
    send(&client, "POST", CRDS, Some(&crd)).await;
    let path = format!("/apis/{group}/v1/namespaces/default/{plural}");
    wait("it to be served", || async { try_send(&client, "GET", &path, None).await.is_ok() }).await;
    let widget = |index| json!({"apiVersion": format!("{group}/v1"), "kind": "Widget", "metadata": {"name": name(index)}});
    create_all(&client, &path, 0..MANY, widget).await;
    patch(&client, &format!("{CRDS}/{resource}"), &json!({"spec": {"versions": versions("v2")}})).await;

    let _controller = Controller::start(&restow, &["--resources", &resource, "--poll-interval", "1s"]).await;
    let new = format!("\"apiVersion\":\"{group}/v2\"");
    wait("everything to be rewritten", || async {
        let mut count = 0;
        let each =
            |_: &str, bytes: &[u8]| count += usize::from(String::from_utf8_lossy(bytes).contains(&new));
        cluster.store().for_each(&format!("/registry/{group}/{plural}/"), each).await.unwrap();
        count == MANY
    })
    .await;
    wait("its migration to succeed", || async {
        let all = migrations(&client, &resource).await;
        all.len() == 1 && is(&all[0], "Succeeded")
    })
    .await;
    wait("an Event about it", || async {
        let told = events(&client, "StorageVersionMigration").await;
        told.iter().any(|event| event["reason"] == "Verified")
    })
    .await;
}

async fn a_migration_is_created_although_its_first_requests_are_refused(lab: Lab) {
    const MANY: usize = 20;
    let cluster = lab.cluster(ClusterSpec::new()).await;
    let (client, _) = prepared(&cluster).await;
    let widgets = Widgets { plural: "obstructeds" };
    widgets.define(&client).await;
    widgets.create(&client, MANY).await;
    widgets.store_as(&client, "v2").await;
    // A webhook denies the first writes of the state, and the first migration with a code of its own.
    let rule = move |seen: &restow_lab::Seen, before| {
        let write = seen.method != http::Method::GET;
        if write && before < 2 && seen.path.starts_with(STATES) && seen.path.ends_with("/status") {
            return status(403, "Forbidden", "denied by a webhook");
        }
        if write && before < 2 && seen.path == MIGRATIONS {
            return status(409, "AlreadyExists", "denied by a webhook");
        }
        Action::Forward
    };
    let (recorder, traffic) = Traffic::record(&cluster, rule).await;
    let restow = Restow::with_kubeconfig(recorder.kubeconfig().to_owned());
    let args = ["--resources", &widgets.name(), "--poll-interval", "1s"];
    let controller = Controller::start(&restow, &args).await;
    let new = format!("{}/v2", widgets.group());
    wait("everything to be rewritten", || async {
        widgets.stored_as(&cluster).await.get(&new) == Some(&MANY)
    })
    .await;
    let hash = storage_version_hash(&GroupVersion::new(widgets.group(), "v2"), "Widget");
    let settled = Some(("v2".to_owned(), "v2".to_owned()));
    wait("the state to be settled", || async {
        state(&client, &widgets.name(), &[(&hash, "v2")]).await == settled
    })
    .await;
    // Nothing was made before the state said so, and nothing was made in vain.
    let sent: Vec<String> = traffic
        .requests()
        .iter()
        .filter(|request| request.method != http::Method::GET)
        .filter(|request| request.path.starts_with(STATES) || request.path == MIGRATIONS)
        .map(|request| {
            let what = if request.path == MIGRATIONS { "migration" } else { "state" };
            format!("{} {what}", request.method)
        })
        .collect();
    let made = sent.iter().position(|request| request == "POST migration").unwrap();
    assert_eq!(sent[..made], ["POST state", "PUT state", "PUT state", "PUT state"]);
    assert_eq!(sent.iter().filter(|request| *request == "POST migration").count(), 3, "{sent:#?}");
    let deleted = traffic.requests().iter().filter(|request| request.method == http::Method::DELETE).count();
    assert_eq!(deleted, 0, "{sent:#?}");
    controller.stop().await;

    // One that somebody has suspended is replaced by one that is suspended.
    let _trigger = Controller::start(&restow, &[&args[..], &["--controllers", "trigger"]].concat()).await;
    let unfinished = async || {
        let all = migrations(&client, &widgets.name()).await;
        all.into_iter().find(|one| !is(one, "Succeeded")).unwrap_or_default()
    };
    let made_for = async |version: &str| {
        widgets.store_as(&client, version).await;
        let hash = storage_version_hash(&GroupVersion::new(widgets.group(), version), "Widget");
        wait("another migration", || async {
            unfinished().await["spec"]["storageVersionHash"] == hash.as_str()
        })
        .await;
        unfinished().await
    };
    let first = made_for("v1").await;
    assert!(first["spec"]["suspend"].is_null(), "{first:#}");
    let path = format!("{MIGRATIONS}/{}", first["metadata"]["name"].as_str().unwrap());
    patch(&client, &path, &json!({"spec": {"suspend": true}})).await;
    let second = made_for("v2").await;
    assert_eq!(second["spec"]["suspend"], true, "{second:#}");
}
