//! Retiring a version: storedVersions are pruned only if that is safe, and managedFields are kept.

use restow_lab::ClusterSpec;
use serde_json::{Value, json};

use crate::controller::{Controller, STATES, prepared};
use crate::support::{Lab, Restow, Widgets, name, patch, send, try_send, wait};

scenarios! {
    stored_versions_are_pruned_only_after_a_verified_run,
    managed_fields_of_a_removed_version_are_kept,
    managed_fields_of_an_unserved_version_are_moved_before_its_removal,
    the_controller_migrates_when_a_version_is_retired,
}

/// The versions of an object's managedFields entries.
async fn field_versions(client: &kube::Client, path: &str) -> Vec<String> {
    let object = send(client, "GET", path, None).await;
    let entries = object["metadata"]["managedFields"].as_array().cloned().unwrap_or_default();
    entries.iter().map(|entry| entry["apiVersion"].as_str().unwrap().to_owned()).collect()
}

async fn stored_versions_are_pruned_only_after_a_verified_run(lab: Lab) {
    let cluster = lab.shared();
    let client = cluster.client(0).unwrap();
    let widgets = Widgets { plural: "prunes" };
    widgets.define(&client).await;
    widgets.create(&client, 50).await;
    widgets.store_as(&client, "v2").await;
    assert_eq!(widgets.stored_versions(&client).await, json!(["v1", "v2"]));
    let restow = Restow::new(cluster);
    // Without the flag, and without proof, they stay.
    restow.migrate(&widgets.name(), &[]).await.expect(0);
    assert_eq!(widgets.stored_versions(&client).await, json!(["v1", "v2"]));
    let unproven =
        restow.migrate(&widgets.name(), &["--verify", "none", "--prune-stored-versions"]).await.expect(4);
    assert!(unproven.resource()["error"].as_str().unwrap().contains("not verified"), "{unproven:#?}");
    assert_eq!(widgets.stored_versions(&client).await, json!(["v1", "v2"]));

    let report = restow.migrate(&widgets.name(), &["--prune-stored-versions"]).await.expect(0).resource();
    assert_eq!(report["prunedStoredVersions"], json!(["v2"]));
    assert_eq!(widgets.stored_versions(&client).await, json!(["v2"]));
    // Now v1 can be dropped, which the server refuses while it is among the stored versions.
    widgets.set_versions(&client, &[("v2", true, true)]).await;
}

async fn managed_fields_of_a_removed_version_are_kept(lab: Lab) {
    let cluster = lab.shared();
    let client = cluster.client(0).unwrap();
    let widgets = Widgets { plural: "owners" };
    widgets.define(&client).await;
    widgets.create(&client, 20).await;
    widgets.store_as(&client, "v2").await;
    // One object is written through v2 alone.
    let fresh: Value = json!({
        "apiVersion": format!("{}/v2", widgets.group()), "kind": "Widget", "metadata": {"name": "fresh"}, "spec": {},
    });
    send(&client, "POST", &widgets.path("v2", ""), Some(&fresh)).await;
    let (v1, v2) = (format!("{}/v1", widgets.group()), format!("{}/v2", widgets.group()));
    let restow = Restow::new(cluster);
    restow.migrate(&widgets.name(), &["--prune-stored-versions"]).await.expect(0);
    assert_eq!(field_versions(&client, &widgets.path("v2", &name(0))).await, std::slice::from_ref(&v1));

    // Dropped too early: the owners are still recorded through v1. restow must not cause the wipe.
    widgets.set_versions(&client, &[("v2", true, true)]).await;
    let report = restow.migrate(&widgets.name(), &[]).await.expect(3).resource();
    assert_eq!(report["quarantined"].as_array().unwrap().len(), 20, "{report:#}");
    assert_eq!(report["quarantined"][0]["reason"], "StaleManagedFields");
    assert_eq!(report["current"], 1);
    assert_eq!(field_versions(&client, &widgets.path("v2", &name(0))).await, std::slice::from_ref(&v1));

    // The repair moves them, ownership intact.
    let before = send(&client, "GET", &widgets.path("v2", &name(1)), None).await;
    let more = ["--retry-quarantined", "--repair-managed-fields"];
    let report = restow.migrate(&widgets.name(), &more).await.expect(0).resource();
    assert_eq!(report["verified"], true);
    let after = send(&client, "GET", &widgets.path("v2", &name(1)), None).await;
    assert_eq!(field_versions(&client, &widgets.path("v2", &name(1))).await, [v2]);
    let owned = |object: &Value| {
        let entry = &object["metadata"]["managedFields"][0];
        (entry["manager"].clone(), entry["operation"].clone(), entry["fieldsV1"].clone())
    };
    assert_eq!(owned(&before), owned(&after));
    assert_eq!(before["metadata"]["generation"], after["metadata"]["generation"]);
    // And a user's write no longer wipes them.
    patch(&client, &widgets.path("v2", &name(1)), &json!({"metadata": {"labels": {"by": "user"}}})).await;
    assert!(!field_versions(&client, &widgets.path("v2", &name(1))).await.is_empty());
}

async fn managed_fields_of_an_unserved_version_are_moved_before_its_removal(lab: Lab) {
    let cluster = lab.shared();
    let client = cluster.client(0).unwrap();
    let widgets = Widgets { plural: "retirees" };
    widgets.define(&client).await;
    widgets.create(&client, 20).await;
    widgets.set_versions(&client, &[("v1", false, false), ("v2", true, true)]).await;
    let restow = Restow::new(cluster);
    let more = ["--repair-managed-fields", "--prune-stored-versions"];
    let report = restow.migrate(&widgets.name(), &more).await.expect(0).resource();
    assert_eq!((&report["rewritten"], &report["verified"]), (&json!(20), &json!(true)));
    widgets.set_versions(&client, &[("v2", true, true)]).await;
    patch(&client, &widgets.path("v2", &name(1)), &json!({"metadata": {"labels": {"by": "user"}}})).await;
    let versions = field_versions(&client, &widgets.path("v2", &name(1))).await;
    assert!(!versions.is_empty() && versions.iter().all(|version| version.ends_with("/v2")), "{versions:?}");
    restow.migrate(&widgets.name(), &[]).await.expect(0);
}

/// In a cluster with the controller, a version is retired by changing its definition, and nothing else.
async fn the_controller_migrates_when_a_version_is_retired(lab: Lab) {
    let cluster = lab.cluster(ClusterSpec::new()).await;
    let (client, restow) = prepared(&cluster).await;
    let widgets = Widgets { plural: "pensions" };
    widgets.define(&client).await;
    widgets.create(&client, 20).await;
    let name = widgets.name();
    let _controller = Controller::start(&restow, &["--resources", &name]).await;
    let settled = async || {
        let state = try_send(&client, "GET", &format!("{STATES}/{name}"), None).await.unwrap_or_default();
        let status = &state["status"];
        status["persistedStorageVersionHashes"] == json!([status["currentStorageVersionHash"]])
            && status["servedVersions"] == json!(["v1", "v2"])
    };
    wait("the resource to be known", &settled).await;
    widgets.store_as(&client, "v2").await;
    wait("storedVersions to be pruned", || async { widgets.stored_versions(&client).await == json!(["v2"]) })
        .await;
    let object = widgets.path("v2", &crate::support::name(1));
    assert!(field_versions(&client, &object).await[0].ends_with("/v1"), "v1 is served still");

    // Served no more: its entries are moved before it can be dropped.
    widgets.set_versions(&client, &[("v1", false, false), ("v2", true, true)]).await;
    wait("the entries to be moved", || async {
        field_versions(&client, &object).await.iter().all(|version| version.ends_with("/v2"))
    })
    .await;
    widgets.set_versions(&client, &[("v2", true, true)]).await;
    patch(&client, &object, &json!({"metadata": {"labels": {"by": "user"}}})).await;
    assert!(!field_versions(&client, &object).await.is_empty(), "a user's write has wiped the owners");
}
