//! restow and the built-in migrator of Kubernetes: beside it, delegating to it, and in its place.
//!
//! Only on a real kube-apiserver: the embedded server has neither the built-in API nor kube-controller-manager.

use std::path::PathBuf;

use restow_lab::{Assets, Cluster, ClusterSpec, Part};
use serde_json::{Value, json};

use crate::controller::{Controller, MIGRATIONS, ask_for, is, migration, prepared, wait_for};
use crate::support::{CRDS, Restow, Widgets, cluster, lab, patch, send, try_send, wait};

/// The path of all migrations of the built-in API.
fn path(version: &str) -> String {
    format!("/apis/storagemigration.k8s.io/{version}/storageversionmigrations")
}

/// All migrations of the built-in API.
async fn built_in(client: &kube::Client) -> Vec<Value> {
    let all = send(client, "GET", &path("v1beta1"), None).await;
    all["items"].as_array().unwrap().clone()
}

/// Asks the built-in API for a migration.
async fn ask_built_in(client: &kube::Client, version: &str, name: &str, widgets: &Widgets) -> Value {
    let object = json!({
        "apiVersion": format!("storagemigration.k8s.io/{version}"), "kind": "StorageVersionMigration",
        "metadata": {"name": name},
        "spec": {"resource": {"group": widgets.group(), "resource": widgets.plural}},
    });
    send(client, "POST", &path(version), Some(&object)).await
}

/// Objects of a resource, made as v1 and now to be stored as v2.
async fn flipped(client: &kube::Client, plural: &'static str, count: usize) -> Widgets {
    let widgets = Widgets { plural };
    widgets.define(client).await;
    widgets.create(client, count).await;
    widgets.store_as(client, "v2").await;
    widgets
}

/// Fails unless every object is stored as v2.
async fn all_stored_anew(cluster: &Cluster, widgets: &Widgets, count: usize) {
    let stored = widgets.stored_as(cluster).await;
    assert_eq!(stored.get(&format!("{}/v2", widgets.group())), Some(&count), "{stored:?}");
    assert_eq!(stored.len(), 1, "{stored:?}");
}

/// Who has written an object.
fn writers(object: &Value) -> Vec<&str> {
    let entries = object["metadata"]["managedFields"].as_array().unwrap();
    entries.iter().map(|entry| entry["manager"].as_str().unwrap()).collect()
}

fn reason(migration: &Value, condition: &str) -> String {
    let conditions = migration["status"]["conditions"].as_array().cloned().unwrap_or_default();
    let found = conditions.iter().find(|one| one["type"] == condition);
    found.map(|one| one["reason"].as_str().unwrap_or_default().to_owned()).unwrap_or_default()
}

async fn wait_for_reason(client: &kube::Client, name: &str, condition: &str, wanted: &str) -> Value {
    wait(&format!("{name} to be {wanted}"), || async {
        reason(&migration(client, name).await, condition) == wanted
    })
    .await;
    migration(client, name).await
}

/// By default restow and the built-in controller each mind their own objects.
#[tokio::test]
async fn restow_works_beside_the_built_in_controller() {
    let assets = lab!();
    let cluster = cluster(&assets, ClusterSpec::new().built_in_migrator()).await;
    let (client, restow) = prepared(&cluster).await;
    let both = flipped(&client, "bothwidgets", 300).await;
    let ours = flipped(&client, "ourwidgets", 300).await;
    let theirs = flipped(&client, "theirwidgets", 300).await;
    // It looks for new resources only now and then, and at once when it starts.
    cluster.restart(Part::ControllerManager).await.unwrap();
    ask_for(&client, "both", &both.name()).await;
    ask_for(&client, "ours", &ours.name()).await;
    let args =
        ["--controllers", "migrator", "--concurrent-migrations", "2", "--qps", "60", "--page-size", "20"];
    let _controller = Controller::start(&restow, &args).await;
    for name in ["both", "ours"] {
        wait_for(&client, name, "Running").await;
    }
    ask_built_in(&client, "v1beta1", "both", &both).await;
    ask_built_in(&client, "v1beta1", "theirs", &theirs).await;
    let theirs_of =
        async |name: &str| send(&client, "GET", &format!("{}/{name}", path("v1beta1")), None).await;
    wait("both to be at work on one resource", || async {
        is(&theirs_of("both").await, "Running") && is(&migration(&client, "both").await, "Running")
    })
    .await;
    // Nobody else writes these, so the built-in controller would wait for minutes.
    wait("the built-in controller to have listed", || async {
        theirs_of("theirs").await["status"]["resourceVersion"].is_string()
    })
    .await;
    let touch = json!({"metadata": {"labels": {"touched": "yes"}}});
    patch(&client, &theirs.path("v1", "w-00000"), &touch).await;
    for name in ["both", "ours"] {
        let done = wait_for(&client, name, "Succeeded").await;
        assert_eq!(done["status"]["progress"]["verified"], true, "{done:#}");
        assert!(!writers(&done).contains(&"kube-controller-manager"), "{done:#}");
    }
    for name in ["both", "theirs"] {
        wait(&format!("the built-in {name} to succeed"), || async {
            is(&theirs_of(name).await, "Succeeded")
        })
        .await;
        let done = theirs_of(name).await;
        assert!(!writers(&done).contains(&"restow"), "{done:#}");
        assert!(done["metadata"]["labels"].is_null() && done["metadata"]["annotations"].is_null());
    }
    for widgets in [&both, &ours, &theirs] {
        all_stored_anew(&cluster, widgets, 300).await;
    }
    assert_eq!(built_in(&client).await.len(), 2, "restow made none");
    let own = send(&client, "GET", MIGRATIONS, None).await;
    assert_eq!(own["items"].as_array().unwrap().len(), 2, "nobody made another: {own:#}");
}

/// The built-in controller rewrites, restow verifies, and a crash in the middle changes nothing.
#[tokio::test]
async fn a_delegated_migration_survives_a_crash_and_is_verified() {
    let assets = lab!();
    let cluster = cluster(&assets, ClusterSpec::new().built_in_migrator()).await;
    let (client, restow) = prepared(&cluster).await;
    let widgets = flipped(&client, "handedwidgets", 600).await;
    cluster.restart(Part::ControllerManager).await.unwrap();
    assert_eq!(widgets.stored_versions(&client).await, json!(["v1", "v2"]));
    let args = ["--backend=in-tree", "--controllers", "migrator,pruner"];
    let controller = Controller::start(&restow, &args).await;
    ask_for(&client, "handed", &widgets.name()).await;
    let handed = wait_for_reason(&client, "handed", "Running", "Delegated").await;
    wait("an object of the built-in API", || async { built_in(&client).await.len() == 1 }).await;
    let made = built_in(&client).await.remove(0);
    assert_eq!(made["metadata"]["name"], "handed");
    assert_eq!(made["metadata"]["ownerReferences"][0]["uid"], handed["metadata"]["uid"]);
    assert_eq!(made["spec"]["resource"], json!({"group": widgets.group(), "resource": widgets.plural}));

    let new = format!("{}/v2", widgets.group());
    let rewritten = async || widgets.stored_as(&cluster).await.get(&new).copied().unwrap_or_default();
    wait("the built-in controller to be in the middle", async || rewritten().await > 20).await;
    controller.kill().await;
    let before = rewritten().await;
    assert!(before < 600, "killed too late to show anything: {before}");
    let _controller = Controller::start(&restow, &args).await;
    let done = wait_for(&client, "handed", "Succeeded").await;
    let progress = &done["status"]["progress"];
    assert_eq!(progress["verified"], true, "{done:#}");
    assert_eq!((&progress["listed"], &progress["quarantined"]), (&json!(600), &json!(0)), "{done:#}");
    assert!(progress["rewritten"].as_u64() < Some(10), "restow only verified: {done:#}");
    let all = built_in(&client).await;
    assert_eq!(all.len(), 1, "{all:#?}");
    assert_eq!(all[0]["metadata"]["uid"], made["metadata"]["uid"], "it was waited for, not made anew");
    assert!(is(&all[0], "Succeeded"), "{all:#?}");
    all_stored_anew(&cluster, &widgets, 600).await;
    wait("storedVersions to be pruned", || async { widgets.stored_versions(&client).await == json!(["v2"]) })
        .await;
}

/// What is handed over follows its migration: suspended, failed, retried, verified, deleted. The test itself plays
/// the built-in controller.
#[tokio::test]
async fn a_delegate_follows_its_migration() {
    let assets = lab!();
    let cluster = cluster(&assets, ClusterSpec::new().storage_migration_api()).await;
    let (client, restow) = prepared(&cluster).await;
    let widgets = flipped(&client, "heldwidgets", 5).await;
    let args = ["--backend=in-tree", "--controllers", "migrator"];
    let controller = Controller::start(&restow, &args).await;
    ask_for(&client, "held", &widgets.name()).await;
    let made = async || {
        wait("an object of the built-in API", || async { built_in(&client).await.len() == 1 }).await;
        built_in(&client).await.remove(0)["metadata"]["uid"].clone()
    };
    let gone = async || {
        wait("it to be taken back", || async { built_in(&client).await.is_empty() }).await;
    };
    let path_of_ours = format!("{MIGRATIONS}/held");
    let suspend = async |suspend: bool| {
        patch(&client, &path_of_ours, &json!({"spec": {"suspend": suspend}})).await;
    };
    made().await;
    suspend(true).await;
    gone().await;
    wait_for_reason(&client, "held", "Running", "Suspended").await;
    suspend(false).await;
    made().await;

    // Suspended while no controller looks.
    controller.kill().await;
    suspend(true).await;
    let _controller = Controller::start(&restow, &args).await;
    gone().await;
    suspend(false).await;
    let failed = made().await;

    // It has listed and waits to hear of the resource: one object is written, and just one.
    let status_of_theirs = format!("{}/held/status", path("v1beta1"));
    patch(&client, &status_of_theirs, &json!({"status": {"resourceVersion": "1"}})).await;
    let new = format!("{}/v2", widgets.group());
    wait("it to be woken", || async { widgets.stored_as(&cluster).await.contains_key(&new) }).await;
    assert_eq!(widgets.stored_as(&cluster).await[&new], 1);

    let ends = |condition: &str, message: &str| {
        json!({"status": {"conditions": [{
            "type": condition, "status": "True", "reason": format!("StorageVersionMigration{condition}"),
            "message": message, "lastTransitionTime": "2026-01-01T00:00:00Z",
        }]}})
    };
    patch(&client, &status_of_theirs, &ends("Failed", "the webhook said no")).await;
    let ours = wait_for(&client, "held", "Failed").await;
    assert_eq!(reason(&ours, "Failed"), "DelegateFailed");
    assert!(ours["status"]["conditions"].to_string().contains("the webhook said no"), "{ours:#}");
    assert_eq!(made().await, failed, "it stays for people to look at");

    patch(&client, &path_of_ours, &json!({"metadata": {"annotations": {"restow.dev/retry": "yes"}}})).await;
    wait("another one to be made", || async {
        let all = built_in(&client).await;
        all.len() == 1 && all[0]["metadata"]["uid"] != failed
    })
    .await;
    // Its word is not taken: the rest was never rewritten, and restow finds that.
    patch(&client, &status_of_theirs, &ends("Succeeded", "")).await;
    let ours = wait_for(&client, "held", "Succeeded").await;
    let progress = &ours["status"]["progress"];
    assert_eq!((&progress["verified"], &progress["rewritten"]), (&json!(true), &json!(4)), "{ours:#}");
    all_stored_anew(&cluster, &widgets, 5).await;
    // There is no garbage collector here.
    send(&client, "DELETE", &path_of_ours, None).await;
    gone().await;

    // A name that is taken is left to whoever took it.
    ask_built_in(&client, "v1beta1", "taken", &widgets).await;
    ask_for(&client, "taken", &widgets.name()).await;
    wait_for_reason(&client, "taken", "Running", "DelegateNameTaken").await;
    assert_eq!(built_in(&client).await.len(), 1);
}

/// `kubectl wait`, as whoever uses the built-in API waits.
async fn kubectl_wait(assets: &Assets, cluster: &Cluster, name: &str) {
    let kubectl: &PathBuf = assets.kubectl.as_ref().expect("kubectl among the lab's programs");
    let done = tokio::process::Command::new(kubectl)
        .env("KUBECONFIG", cluster.kubeconfig(0, "admin"))
        .args(["wait", "--for=condition=Succeeded", "--timeout=60s"])
        .arg(format!("storageversionmigrations.storagemigration.k8s.io/{name}"))
        .output();
    let done = done.await.unwrap();
    assert!(done.status.success(), "{done:?}");
}

/// Where the API is served and nobody runs it, restow does; and only what users made.
#[tokio::test]
async fn adopted_migrations_are_served() {
    let assets = lab!();
    let cluster = cluster(&assets, ClusterSpec::new().storage_migration_api()).await;
    let (client, restow) = prepared(&cluster).await;
    let widgets = flipped(&client, "adoptedwidgets", 200).await;
    ask_built_in(&client, "v1beta1", "delegate", &widgets).await;
    let label = json!({"metadata": {"labels": {"app.kubernetes.io/managed-by": "restow"}}});
    patch(&client, &format!("{}/delegate", path("v1beta1")), &label).await;
    let asked = ask_built_in(&client, "v1beta1", "x", &widgets).await;
    let controller =
        Controller::start(&restow, &["--adopt=in-tree", "--controllers", "migrator,pruner"]).await;
    kubectl_wait(&assets, &cluster, "x").await;
    all_stored_anew(&cluster, &widgets, 200).await;
    let done = send(&client, "GET", &format!("{}/x", path("v1beta1")), None).await;
    assert_eq!(reason(&done, "Succeeded"), "Verified", "{done:#}");
    assert!(!is(&done, "Running"), "{done:#}");
    let at: u64 = done["status"]["resourceVersion"].as_str().unwrap().parse().unwrap();
    assert!(at > 0);
    let ours = migration(&client, "in-tree-x").await;
    assert_eq!(ours["metadata"]["ownerReferences"][0]["uid"], asked["metadata"]["uid"]);
    assert_eq!(ours["metadata"]["labels"]["restow.dev/adopted"], "true");
    let own = send(&client, "GET", MIGRATIONS, None).await;
    assert_eq!(own["items"].as_array().unwrap().len(), 1, "what restow made itself is not adopted: {own:#}");

    // A resource that is not there: told, not retried for ever.
    ask_built_in(&client, "v1beta1", "y", &Widgets { plural: "nowidgets" }).await;
    wait("y to fail", || async {
        let y = send(&client, "GET", &format!("{}/y", path("v1beta1")), None).await;
        is(&y, "Failed") && reason(&y, "Failed") == "NotServed"
    })
    .await;

    // There is no garbage collector here.
    send(&client, "DELETE", &format!("{}/x", path("v1beta1")), None).await;
    wait("the migration of what was deleted to go", || async {
        try_send(&client, "GET", &format!("{MIGRATIONS}/in-tree-x"), None).await.is_err()
    })
    .await;
    assert!(controller.stop().await);
}

/// Where the API is not served, its definition is installed, and v1 and v1beta1 are the same objects.
#[tokio::test]
async fn adoption_works_with_the_installed_crd() {
    let assets = lab!();
    let cluster = cluster(&assets, ClusterSpec::new()).await;
    let (client, restow) = prepared(&cluster).await;
    let widgets = flipped(&client, "definedwidgets", 100).await;
    ask_for(&client, "waiting", &widgets.name()).await;
    let delegating = Controller::start(&restow, &["--backend=in-tree", "--controllers", "migrator"]).await;
    let waiting = wait_for_reason(&client, "waiting", "Running", "BackendNotServed").await;
    assert_eq!(waiting["status"]["phase"], "Waiting", "{waiting:#}");
    assert!(delegating.stop().await);
    send(&client, "DELETE", &format!("{MIGRATIONS}/waiting"), None).await;

    // Adopting begins when there is something to adopt.
    let _controller =
        Controller::start(&restow, &["--adopt=in-tree", "--controllers", "migrator,pruner"]).await;
    let crd = serde_json::to_value(restow_api::in_tree_crd()).unwrap();
    send(&client, "POST", CRDS, Some(&crd)).await;
    for version in ["v1", "v1beta1"] {
        wait("the definition to be served", || async {
            try_send(&client, "GET", &path(version), None).await.is_ok()
        })
        .await;
    }
    ask_built_in(&client, "v1beta1", "x", &widgets).await;
    kubectl_wait(&assets, &cluster, "x").await;
    all_stored_anew(&cluster, &widgets, 100).await;
    let done = send(&client, "GET", &format!("{}/x", path("v1")), None).await;
    assert!(
        done["status"]["conditions"].as_array().unwrap().iter().all(|one| one["observedGeneration"] == 1)
    );
    let other = json!({"spec": {"resource": {"resource": "secrets", "group": ""}}});
    let refused = try_send(&client, "PATCH", &format!("{}/x", path("v1")), Some(&other)).await;
    assert!(refused.unwrap_err().to_string().contains("immutable"));
}

/// One of the two, never both.
#[tokio::test]
async fn adopting_and_delegating_exclude_each_other() {
    let restow = Restow::with_kubeconfig(PathBuf::from("/no/such/file"));
    for args in [["--adopt=in-tree", "--backend=in-tree"], ["--backend=restow", "--adopt=in-tree"]] {
        let ran = restow.run(&["controller", args[0], args[1]]).await.expect(2);
        assert!(ran.stderr.contains("cannot be used with"), "{ran:#?}");
    }
}
