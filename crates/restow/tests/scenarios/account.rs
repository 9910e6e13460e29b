//! The controller with only the permissions that `restow install` grants.
//!
//! Only on a real kube-apiserver: the permissions are checked by its own RBAC authorizer and cover its StorageVersions.

use restow_lab::ClusterSpec;
use serde_json::json;

use crate::controller::{Controller, STATES, is, migrations};
use crate::support::{Restow, Widgets, cluster, lab, send, try_send, wait};

#[tokio::test]
async fn the_installed_account_has_all_permissions_it_needs() {
    let assets = lab!();
    let cluster = cluster(&assets, ClusterSpec::new().storage_version_api()).await;
    let client = cluster.client(0).unwrap();
    let widgets = Widgets { plural: "accounts" };
    widgets.define(&client).await;
    widgets.create(&client, 30).await;
    let restow = Restow::new(&cluster);
    restow
        .run(&["install", &widgets.name(), "secrets", "--without-deployment", "--apply", "--wait"])
        .await
        .expect(0);
    widgets.store_as(&client, "v2").await;
    let resources = format!("secrets,{}", widgets.name());
    let account = "system:serviceaccount:restow-system:restow";
    let args = [
        "--as",
        account,
        "--as-group",
        "system:serviceaccounts",
        "--as-group",
        "system:authenticated",
        "--leader-elect",
        "--leader-election-namespace",
        "restow-system",
        "--resources",
        &resources,
    ];
    let controller = Controller::start(&restow, &args).await;
    for name in ["secrets".to_owned(), widgets.name()] {
        wait(&format!("{name} to be settled"), || async {
            let state = try_send(&client, "GET", &format!("{STATES}/{name}"), None).await.unwrap_or_default();
            let status = &state["status"];
            !status["currentStorageVersionHash"].is_null()
                && status["persistedStorageVersionHashes"] == json!([status["currentStorageVersionHash"]])
        })
        .await;
        assert!(is(&migrations(&client, &name).await[0], "Succeeded"));
    }
    wait("storedVersions to be pruned", || async { widgets.stored_versions(&client).await == json!(["v2"]) })
        .await;
    let events = send(&client, "GET", "/api/v1/namespaces/default/events", None).await;
    let reasons: Vec<&str> =
        events["items"].as_array().unwrap().iter().filter_map(|event| event["reason"].as_str()).collect();
    for reason in ["NewResource", "Started", "Verified", "Migrated", "Pruned"] {
        assert!(reasons.contains(&reason), "{reason} is not among {reasons:?}");
    }
    assert!(controller.stop().await);
    // It has no other permissions.
    let outside = restow.run(&["migrate", "configmaps", "--as", account]).await.expect(1);
    assert!(outside.stderr.contains("no permission"), "{outside:#?}");
}
