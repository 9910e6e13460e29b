//! Conversions under which something changes: the definition, the objects, the webhook, or what the user wants.

use std::collections::BTreeMap;

use restow_lab::ClusterSpec;
use serde_json::json;

use super::fixture::*;
use crate::controller::{Controller, is, migrations};
use crate::support::{CRDS, Lab, Widgets, name, patch, send, try_send, wait};

scenarios! {
    a_conversion_whose_storage_version_is_set_back_fails,
    a_conversion_can_be_suspended_resumed_and_deleted,
    an_object_written_between_the_check_and_the_change_is_checked_before_it_is_rewritten,
    a_schema_that_is_changed_in_the_middle_is_checked_before_more_is_rewritten,
    a_definition_that_is_deleted_and_made_again_is_left_alone,
    a_webhook_that_is_down_for_a_while_costs_no_object,
}

async fn a_conversion_whose_storage_version_is_set_back_fails(lab: Lab) {
    const OBJECTS: usize = 400;
    let cluster = lab.cluster(ClusterSpec::new()).await;
    let (client, restow) = prepared(&cluster).await;
    let widgets = Widgets { plural: "undone" };
    let mut crd = crd(&widgets, alike(), None);
    define(&client, &widgets, &crd).await;
    create(&client, &widgets, OBJECTS, &[]).await;
    let args = ["--controllers", WITHOUT_TRIGGER, "--qps", "60", "--page-size", "20"];
    let controller = Controller::start(&restow, &args).await;
    send(&client, "POST", CONVERSIONS, Some(&conversion("undone", &widgets, ("v1", "v2"), json!({})))).await;
    rewritten(&client, "undone", 40).await;
    crd["spec"]["versions"][0]["storage"] = true.into();
    crd["spec"]["versions"][1]["storage"] = false.into();
    patch(
        &client,
        &format!("{CRDS}/{}", widgets.name()),
        &json!({"spec": {"versions": crd["spec"]["versions"]}}),
    )
    .await;
    let failed = wait_for(&client, "undone", "Failed").await;
    assert_eq!(reason(&failed, "Failed"), "Superseded", "{failed:#}");
    assert!(!is(&failed, "Verified") && !is(&failed, "Pruned"), "{failed:#}");
    assert!(controller.stop().await);
    assert_eq!(widgets.stored_versions(&client).await, json!(["v1", "v2"]));
    let stored: usize = stored(&cluster, &widgets, ["size", "size"]).await.values().sum();
    assert_eq!(stored, OBJECTS);
}

async fn a_conversion_can_be_suspended_resumed_and_deleted(lab: Lab) {
    const OBJECTS: usize = 600;
    let cluster = lab.cluster(ClusterSpec::new()).await;
    let (client, restow) = prepared(&cluster).await;
    let widgets = Widgets { plural: "paused" };
    define(&client, &widgets, &crd(&widgets, alike(), None)).await;
    create(&client, &widgets, OBJECTS, &[]).await;
    let args = ["--controllers", WITHOUT_TRIGGER, "--qps", "80", "--page-size", "20"];
    let controller = Controller::start(&restow, &args).await;
    let object = conversion("paused", &widgets, ("v1", "v2"), json!({}));
    send(&client, "POST", CONVERSIONS, Some(&object)).await;
    rewritten(&client, "paused", 40).await;
    let path = format!("{CONVERSIONS}/paused");
    patch(&client, &path, &json!({"spec": {"suspend": true}})).await;
    wait("the conversion and its migration to stop", || async {
        let migration = migrations(&client, &widgets.name()).await.pop().unwrap_or_default();
        read(&client, "paused").await["status"]["phase"] == "Suspended"
            && migration["status"]["phase"] == "Suspended"
    })
    .await;
    let before = stored(&cluster, &widgets, ["size", "size"]).await;
    assert!(before["v1"] > 0 && before["v2"] >= 40, "{before:?}");
    // A restart does not wake it: the next controller is given time to look at everything.
    assert!(controller.stop().await);
    let controller = Controller::start(&restow, &args).await;
    wait("the controller to be ready", || async { controller.get("/readyz").await.contains("200 OK") }).await;
    assert_eq!(stored(&cluster, &widgets, ["size", "size"]).await, before);
    patch(&client, &path, &json!({"spec": {"suspend": false}})).await;
    rewritten(&client, "paused", before["v2"] as u64 + 20).await;

    // Deleted with its migration, and nothing is written any more.
    send(&client, "DELETE", &path, None).await;
    wait("the migration to be deleted", || async { migrations(&client, &widgets.name()).await.is_empty() })
        .await;
    assert!(controller.stop().await);
    let after = stored(&cluster, &widgets, ["size", "size"]).await;
    assert!(after["v1"] > 0, "{after:?}");
    assert_eq!(widgets.stored_versions(&client).await, json!(["v1", "v2"]));

    // Another Conversion finishes what it began.
    run_once(&restow, &conversion("finishing", &widgets, ("v1", "v2"), json!({})), &[]).await.expect(0);
    assert_eq!(
        stored(&cluster, &widgets, ["size", "size"]).await,
        BTreeMap::from([("v2".to_owned(), OBJECTS)])
    );
    assert_eq!(widgets.stored_versions(&client).await, json!(["v2"]));
}

const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1";

/// Grants rules to an account.
async fn grant(client: &kube::Client, name: &str, rules: serde_json::Value) {
    let role = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": name}, "rules": rules});
    let binding = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": {"name": name},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name},
        "subjects": [{"kind": "ServiceAccount", "name": "converter", "namespace": "default"}]});
    send(client, "POST", &format!("{RBAC}/clusterroles"), Some(&role)).await;
    send(client, "POST", &format!("{RBAC}/clusterrolebindings"), Some(&binding)).await;
}

async fn an_object_written_between_the_check_and_the_change_is_checked_before_it_is_rewritten(lab: Lab) {
    const OBJECTS: usize = 60;
    let cluster = lab.cluster(ClusterSpec::new()).await;
    let (client, restow) = prepared(&cluster).await;
    let widgets = Widgets { plural: "latecomers" };
    // v2 has no colour, and no object has one when it is checked.
    let uncoloured = json!({"size": {"type": "integer"}, "padding": {"type": "string"}});
    define(&client, &widgets, &crd(&widgets, uncoloured, None)).await;
    create(&client, &widgets, OBJECTS, &[]).await;
    // An account that may do everything but change a definition holds the Conversion right before the change.
    let groups = [
        "",
        "coordination.k8s.io",
        "discovery.k8s.io",
        "events.k8s.io",
        "restow.dev",
        "migration.k8s.io",
        "apiregistration.k8s.io",
        "internal.apiserver.k8s.io",
        "authorization.k8s.io",
    ];
    let mut groups: Vec<String> = groups.map(str::to_owned).to_vec();
    groups.push(widgets.group());
    let all = json!([
        {"apiGroups": groups, "resources": ["*"], "verbs": ["*"]},
        {"apiGroups": ["apiextensions.k8s.io"], "resources": ["customresourcedefinitions"], "verbs": ["get", "list", "watch"]},
        {"apiGroups": ["apiextensions.k8s.io"], "resources": ["customresourcedefinitions/status"], "verbs": ["*"]},
        {"nonResourceURLs": ["*"], "verbs": ["get"]},
    ]);
    grant(&client, "latecomers-reads", all).await;
    let args = [
        "--controllers",
        WITHOUT_TRIGGER,
        "--as",
        "system:serviceaccount:default:converter",
        "--as-group",
        "system:authenticated",
    ];
    let controller = Controller::start(&restow, &args).await;
    let object = conversion("latecomers", &widgets, ("v1", "v2"), json!({}));
    send(&client, "POST", CONVERSIONS, Some(&object)).await;
    wait("the change to be refused", || async {
        let now = read(&client, "latecomers").await;
        is(&now, "Checked") && reason(&now, "Running") == "Forbidden"
    })
    .await;
    patch(&client, &widgets.path("v1", &name(17)), &json!({"spec": {"colour": "blue"}})).await;
    let change = json!([{"apiGroups": ["apiextensions.k8s.io"], "resources": ["customresourcedefinitions"], "verbs": ["patch"]}]);
    grant(&client, "latecomers-changes", change).await;
    let failed = wait_for(&client, "latecomers", "Failed").await;
    assert_eq!(reason(&failed, "Failed"), "FieldsLost", "{failed:#}");
    let refused = failed["status"]["refused"].as_array().unwrap();
    assert_eq!(
        (refused.len(), &refused[0]["name"], &refused[0]["fields"]),
        (1, &json!(name(17)), &json!(["spec.colour"]))
    );
    // Only what was written since was looked at, nothing was rewritten, and v1 is the storage version again.
    assert_eq!(failed["status"]["recheck"]["objects"], 1, "{failed:#}");
    assert_eq!(stored_object(&cluster, &widgets, 17).await["spec"]["colour"], "blue");
    assert_eq!(
        stored(&cluster, &widgets, ["size", "size"]).await,
        BTreeMap::from([("v1".to_owned(), OBJECTS)])
    );
    assert!(migrations(&client, &widgets.name()).await.is_empty());
    let versions = definition(&client, &widgets).await["spec"]["versions"].clone();
    assert_eq!((&versions[0]["storage"], &versions[1]["storage"]), (&json!(true), &json!(false)));

    // The object is corrected, and a retry goes through.
    patch(&client, &widgets.path("v1", &name(17)), &json!({"spec": {"colour": null}})).await;
    restow.run(&["retry", "latecomers", "--wait", "--timeout", "5m"]).await.expect(0);
    assert!(controller.stop().await);
    assert_eq!(
        stored(&cluster, &widgets, ["size", "size"]).await,
        BTreeMap::from([("v2".to_owned(), OBJECTS)])
    );
    assert_eq!(widgets.stored_versions(&client).await, json!(["v2"]));
}

async fn a_schema_that_is_changed_in_the_middle_is_checked_before_more_is_rewritten(lab: Lab) {
    const OBJECTS: usize = 400;
    const LAST: usize = OBJECTS - 1;
    let cluster = lab.cluster(ClusterSpec::new()).await;
    let (client, restow) = prepared(&cluster).await;
    let widgets = Widgets { plural: "redrawn" };
    let mut more = alike();
    more["more"] = json!({"type": "boolean"});
    define(&client, &widgets, &crd(&widgets, more, None)).await;
    create(&client, &widgets, OBJECTS, &[LAST]).await;
    let args = ["--controllers", WITHOUT_TRIGGER, "--qps", "60", "--page-size", "20"];
    let controller = Controller::start(&restow, &args).await;
    send(&client, "POST", CONVERSIONS, Some(&conversion("redrawn", &widgets, ("v1", "v2"), json!({})))).await;
    rewritten(&client, "redrawn", 40).await;
    // v2 loses its colour while most objects are still stored in v1.
    let mut versions = definition(&client, &widgets).await["spec"]["versions"].clone();
    let fields = &mut versions[1]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"];
    fields.as_object_mut().unwrap().remove("colour");
    set_versions(&client, &widgets, &versions).await;
    let failed = wait_for(&client, "redrawn", "Failed").await;
    assert_eq!(reason(&failed, "Failed"), "FieldsLost", "{failed:#}");
    let refused = failed["status"]["refused"].as_array().unwrap();
    assert_eq!((refused.len(), &refused[0]["name"]), (1, &json!(name(LAST))), "{failed:#}");
    assert!(!is(&failed, "Verified") && !is(&failed, "Pruned"), "{failed:#}");
    wait("its migration to be suspended", || async {
        migrations(&client, &widgets.name()).await.iter().all(|one| one["status"]["phase"] == "Suspended")
    })
    .await;
    assert!(controller.stop().await);
    let object = stored_object(&cluster, &widgets, LAST).await;
    assert_eq!(object["spec"]["colour"], "blue", "{object:#}");
}

async fn a_definition_that_is_deleted_and_made_again_is_left_alone(lab: Lab) {
    const OBJECTS: usize = 300;
    let cluster = lab.cluster(ClusterSpec::new()).await;
    let (client, restow) = prepared(&cluster).await;
    let widgets = Widgets { plural: "phoenix" };
    define(&client, &widgets, &crd(&widgets, alike(), None)).await;
    create(&client, &widgets, OBJECTS, &[]).await;
    let args = ["--controllers", WITHOUT_TRIGGER, "--qps", "60", "--page-size", "20"];
    let controller = Controller::start(&restow, &args).await;
    send(&client, "POST", CONVERSIONS, Some(&conversion("phoenix", &widgets, ("v1", "v2"), json!({})))).await;
    rewritten(&client, "phoenix", 20).await;
    let path = format!("{CRDS}/{}", widgets.name());
    send(&client, "DELETE", &path, None).await;
    wait("the definition to be gone", || async { try_send(&client, "GET", &path, None).await.is_err() })
        .await;
    wait("the Conversion to wait for it", || async {
        reason(&read(&client, "phoenix").await, "Running") == "DefinitionMissing"
    })
    .await;
    define(&client, &widgets, &crd(&widgets, alike(), None)).await;
    create(&client, &widgets, 10, &[]).await;
    let failed = wait_for(&client, "phoenix", "Failed").await;
    assert_eq!(reason(&failed, "Failed"), "DefinitionChanged", "{failed:#}");
    assert!(!is(&failed, "Verified") && !is(&failed, "Pruned"), "{failed:#}");
    assert!(controller.stop().await);
    assert_eq!(widgets.stored_versions(&client).await, json!(["v1"]));
    assert_eq!(stored(&cluster, &widgets, ["size", "size"]).await, BTreeMap::from([("v1".to_owned(), 10)]));
}

async fn a_webhook_that_is_down_for_a_while_costs_no_object(lab: Lab) {
    const OBJECTS: usize = 200;
    let cluster = lab.cluster(ClusterSpec::new()).await;
    let (client, restow) = prepared(&cluster).await;
    let widgets = Widgets { plural: "offline" };
    let (webhook, names) = define_convertible(&cluster, &widgets).await;
    create(&client, &widgets, OBJECTS, &[3]).await;
    webhook.down().await;
    let args = ["--controllers", WITHOUT_TRIGGER, "--qps", "60", "--page-size", "20"];
    let controller = Controller::start(&restow, &args).await;
    send(&client, "POST", CONVERSIONS, Some(&conversion("offline", &widgets, ("v1", "v2"), json!({})))).await;
    // Down from the start: nothing is said about objects, and nothing is changed.
    wait("the check to wait", || async {
        reason(&read(&client, "offline").await, "Running") == "WebhookUnavailable"
    })
    .await;
    let waits = read(&client, "offline").await;
    assert!(waits["status"]["refused"].is_null() && !is(&waits, "StorageVersionSet"), "{waits:#}");
    webhook.up().await.unwrap();
    rewritten(&client, "offline", 40).await;
    // Down in the middle, until the migration has noticed.
    webhook.down().await;
    wait("the migration to wait", || async {
        let migration = migrations(&client, &widgets.name()).await.pop().unwrap_or_default();
        reason(&migration, "Running") == "WaitingForServer"
    })
    .await;
    let waits = read(&client, "offline").await;
    assert!(waits["status"]["quarantined"].is_null() && !is(&waits, "Failed"), "{waits:#}");
    webhook.up().await.unwrap();
    let done = wait_for(&client, "offline", "Succeeded").await;
    assert!(controller.stop().await);
    assert!(done["status"]["quarantined"].is_null() && done["status"]["refused"].is_null(), "{done:#}");
    assert_eq!(stored(&cluster, &widgets, names).await, BTreeMap::from([("v2".to_owned(), OBJECTS)]));
    assert_eq!(widgets.stored_versions(&client).await, json!(["v2"]));
}
