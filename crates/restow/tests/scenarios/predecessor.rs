//! Users of kube-storage-version-migrator keep their objects and commands.
//!
//! Only on a real kube-apiserver: it runs kubectl, and resumes with a continue token of kube-apiserver.

use restow_core::resource::hash::storage_version_hash;
use restow_core::resource::name::GroupVersion;
use restow_lab::ClusterSpec;
use serde_json::{Value, json};

use crate::controller::{
    Controller, MIGRATIONS, STATES, define_again, migration, migrations, prepared, state, wait_for,
};
use crate::install::IMAGE;
use crate::replaced::events;
use crate::support::{CRDS, Restow, Widgets, cluster, lab, patch, send, try_send, wait};

/// The definitions as the predecessor has them: fewer fields, no rules, no columns.
fn old_definition(plural: &str, kind: &str, spec: &Value, status: &Value) -> Value {
    let schema = json!({"type": "object", "properties": {
        "apiVersion": {"type": "string"}, "kind": {"type": "string"}, "metadata": {"type": "object"},
        "spec": {"type": "object", "properties": spec}, "status": {"type": "object", "properties": status},
    }});
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {
            "name": format!("{plural}.migration.k8s.io"),
            "annotations": {"api-approved.kubernetes.io": "unapproved, test only"},
        },
        "spec": {
            "group": "migration.k8s.io", "scope": "Cluster", "preserveUnknownFields": false,
            "names": {"plural": plural, "singular": kind.to_lowercase(), "kind": kind},
            "versions": [{"name": "v1alpha1", "served": true, "storage": true,
                          "subresources": {"status": {}}, "schema": {"openAPIV3Schema": schema}}],
        },
    })
}

async fn define_old(client: &kube::Client) {
    let text = json!({"type": "string"});
    let resource =
        json!({"type": "object", "properties": {"group": text, "version": text, "resource": text}});
    let condition = json!({"type": "object", "required": ["type", "status"], "properties": {
        "type": text, "status": text, "reason": text, "message": text,
        "lastUpdateTime": {"type": "string", "format": "date-time"},
    }});
    let migrations = old_definition(
        "storageversionmigrations",
        "StorageVersionMigration",
        &json!({"resource": resource, "continueToken": text}),
        &json!({"conditions": {"type": "array", "items": condition}}),
    );
    let states = old_definition(
        "storagestates",
        "StorageState",
        &json!({"resource": resource}),
        &json!({
            "persistedStorageVersionHashes": {"type": "array", "items": text},
            "currentStorageVersionHash": text,
            "lastHeartbeatTime": {"type": "string", "format": "date-time"},
        }),
    );
    for definition in [migrations, states] {
        send(client, "POST", CRDS, Some(&definition)).await;
    }
    wait("the old definitions to be served", || async {
        try_send(client, "GET", MIGRATIONS, None).await.is_ok()
            && try_send(client, "GET", STATES, None).await.is_ok()
    })
    .await;
}

#[tokio::test]
async fn objects_of_the_predecessor_keep_working() {
    let assets = lab!();
    let cluster = cluster(&assets, ClusterSpec::new()).await;
    let client = cluster.client(0).unwrap();
    define_old(&client).await;
    let widgets = Widgets { plural: "heirlooms" };
    widgets.define(&client).await;
    widgets.create(&client, 60).await;
    widgets.store_as(&client, "v2").await;

    // What the predecessor left: one migration done, one under way, and a state.
    let of = |resource: Value, token: Option<&str>, name: &str| {
        json!({"apiVersion": "migration.k8s.io/v1alpha1", "kind": "StorageVersionMigration",
               "metadata": {"name": name}, "spec": {"resource": resource, "continueToken": token}})
    };
    let secrets = json!({"version": "v1", "resource": "secrets"});
    send(&client, "POST", MIGRATIONS, Some(&of(secrets, None, "secrets-abcde"))).await;
    let done = json!({"status": {"conditions": [
        {"type": "Running", "status": "False"},
        {"type": "Succeeded", "status": "True", "lastUpdateTime": "2023-01-01T00:00:00Z"},
    ]}});
    patch(&client, &format!("{MIGRATIONS}/secrets-abcde/status"), &done).await;
    let all = format!("/apis/{}/v1/{}?limit=20", widgets.group(), widgets.plural);
    let page = send(&client, "GET", &all, None).await;
    let token = page["metadata"]["continue"].as_str().unwrap().to_owned();
    let ours = json!({"group": widgets.group(), "version": "v1", "resource": widgets.plural});
    send(&client, "POST", MIGRATIONS, Some(&of(ours, Some(&token), "heirlooms-fghij"))).await;
    let running = json!({"status": {"conditions": [{"type": "Running", "status": "True"}]}});
    patch(&client, &format!("{MIGRATIONS}/heirlooms-fghij/status"), &running).await;
    let before = migration(&client, "secrets-abcde").await;

    // The switch.
    define_again(&client).await;
    let restow = Restow::new(&cluster);
    let _controller =
        Controller::start(&restow, &["--controllers", "migrator,pruner", "--page-size", "20"]).await;
    let ended = wait_for(&client, "heirlooms-fghij", "Succeeded").await;
    assert_eq!(ended["status"]["progress"]["listed"], 40, "it did not go on from the token: {ended:#}");
    assert_eq!(ended["status"]["progress"]["verified"], true);
    assert_eq!(widgets.stored_as(&cluster).await[&format!("{}/v2", widgets.group())], 60);
    assert_eq!(
        migration(&client, "secrets-abcde").await["status"],
        before["status"],
        "history was rewritten"
    );

    // A user with rights on the objects alone, and the commands they know.
    let role = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": "migrations"},
        "rules": [{"apiGroups": ["migration.k8s.io"], "resources": ["storageversionmigrations"],
                   "verbs": ["get", "list", "watch", "create", "delete"]}]});
    send(&client, "POST", "/apis/rbac.authorization.k8s.io/v1/clusterroles", Some(&role)).await;
    let binding = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": {"name": "migrations"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "migrations"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "alice"}]});
    send(&client, "POST", "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", Some(&binding)).await;
    let file = restow.state.path().join("migration.yaml");
    std::fs::write(
        &file,
        "apiVersion: migration.k8s.io/v1alpha1\nkind: StorageVersionMigration\nmetadata: {name: configmaps-klmno}\n\
         spec: {resource: {version: v1, resource: configmaps}}\n",
    )
    .unwrap();
    let kubectl = async |args: &[&str]| {
        let kubectl = assets.kubectl.clone().expect("kubectl");
        let mut command = tokio::process::Command::new(kubectl);
        let output =
            command.args(args).env("KUBECONFIG", cluster.kubeconfig(0, "alice")).output().await.unwrap();
        assert!(output.status.success(), "kubectl {args:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    };
    kubectl(&["create", "-f", file.to_str().unwrap()]).await;
    kubectl(&[
        "wait",
        "--for=condition=Succeeded",
        "--timeout=60s",
        "storageversionmigrations/configmaps-klmno",
    ])
    .await;
    let table = kubectl(&["get", "storageversionmigrations"]).await;
    assert!(table.contains("PHASE") && table.contains("heirlooms-fghij"), "{table}");
    kubectl(&["delete", "storageversionmigration", "configmaps-klmno"]).await;
    // Nothing was triggered: that controller was not asked for.
    assert_eq!(state(&client, &widgets.name(), &[]).await, None);
}

#[tokio::test]
async fn a_migration_that_another_migrator_ended_is_reported_and_replaced() {
    let assets = lab!();
    let cluster = cluster(&assets, ClusterSpec::new()).await;
    let (client, restow) = prepared(&cluster).await;
    let widgets = Widgets { plural: "foreigns" };
    widgets.define(&client).await;
    let name = widgets.name();
    let args = ["--controllers", "trigger", "--resources", &name, "--poll-interval", "1s"];
    let _controller = Controller::start(&restow, &args).await;
    wait("a migration", || async { migrations(&client, &name).await.len() == 1 }).await;
    let made = migrations(&client, &name).await[0]["metadata"].clone();
    let done = json!({"status": {"conditions": [
        {"type": "Succeeded", "status": "True", "lastUpdateTime": "2023-01-01T00:00:00Z"},
    ]}});
    let status = format!("{MIGRATIONS}/{}/status", made["name"].as_str().unwrap());
    patch(&client, &status, &done).await;
    wait("another migration in its place", || async {
        let all = migrations(&client, &name).await;
        all.len() == 1 && all[0]["metadata"]["uid"] != made["uid"]
    })
    .await;
    wait("an Event about it", || async {
        events(&client, "StorageVersionMigration")
            .await
            .iter()
            .any(|event| event["reason"] == "AnotherController" && event["regarding"]["name"] == made["name"])
    })
    .await;
}

#[tokio::test]
async fn a_running_predecessor_is_reported_and_its_states_are_not_trusted() {
    const MANY: usize = 20;
    let assets = lab!();
    let cluster = cluster(&assets, ClusterSpec::new()).await;
    let (client, restow) = prepared(&cluster).await;
    let widgets = Widgets { plural: "legacies" };
    widgets.define(&client).await;
    widgets.create(&client, MANY).await;
    widgets.store_as(&client, "v2").await;
    let name = widgets.name();

    // It is running.
    let container =
        json!({"name": "trigger", "image": "registry.example/storage-version-migration-trigger:v0.0.5"});
    let deployment = json!({"apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"name": "trigger", "labels": {"app": "trigger"}},
        "spec": {"replicas": 1, "selector": {"matchLabels": {"app": "trigger"}}, "template": {
            "metadata": {"labels": {"app": "trigger"}}, "spec": {"containers": [container]}}}});
    let deployments = "/apis/apps/v1/namespaces/kube-system/deployments";
    send(&client, "POST", deployments, Some(&deployment)).await;
    for args in [&["install", "--image", IMAGE, "--apply"][..], &["init", &name]] {
        let ran = restow.run(args).await.expect(1);
        assert!(
            ran.stderr.contains("kubectl -n kube-system scale deployment trigger --replicas=0"),
            "{ran:#?}"
        );
    }
    // What is printed is not refused, but comes with the same warning.
    let ran = restow.run(&["install", "--image", IMAGE]).await.expect(0);
    let warned = "warning: kube-storage-version-migrator is running (kube-system/trigger)";
    assert!(ran.stderr.contains(warned) && ran.stderr.contains("--replicas=0"), "{ran:#?}");
    assert_eq!(migrations(&client, &name).await, Vec::<Value>::new());

    // Scaled down, it leaves a state that calls everything migrated.
    patch(&client, &format!("{deployments}/trigger"), &json!({"spec": {"replicas": 0}})).await;
    let ran = restow.run(&["install", "--image", IMAGE, "--dry-run"]).await.expect(0);
    assert!(ran.stderr.contains("every object of"), "what the first start does is not said: {ran:#?}");
    let hash = storage_version_hash(&GroupVersion::new(widgets.group(), "v2"), "Widget");
    let of = json!({"group": widgets.group(), "resource": widgets.plural});
    let old = json!({"apiVersion": "migration.k8s.io/v1alpha1", "kind": "StorageState",
        "metadata": {"name": name}, "spec": {"resource": of}});
    send(&client, "POST", STATES, Some(&old)).await;
    let beat = || jiff::Timestamp::from_second(jiff::Timestamp::now().as_second()).unwrap().to_string();
    let migrated = json!({"status": {"persistedStorageVersionHashes": [hash], "currentStorageVersionHash": hash,
        "lastHeartbeatTime": beat(), "agreement": null}});
    patch(&client, &format!("{STATES}/{name}/status"), &migrated).await;
    let watched = format!("{name},configmaps");
    let _controller = Controller::start(&restow, &["--resources", &watched, "--poll-interval", "1s"]).await;
    let settled = Some(("v2".to_owned(), "v2".to_owned()));
    wait("everything to be stored in one version", || async {
        widgets.stored_as(&cluster).await.get(&format!("{}/v2", widgets.group())) == Some(&MANY)
    })
    .await;
    wait("the state to be settled", || async {
        let verified =
            send(&client, "GET", &format!("{STATES}/{name}"), None).await["status"]["agreement"].is_string();
        verified && state(&client, &name, &[(&hash, "v2")]).await == settled
    })
    .await;
    let other = async || send(&client, "GET", &format!("{STATES}/configmaps"), None).await["status"].clone();
    wait("the other state to be settled", || async {
        let status = other().await;
        status["persistedStorageVersionHashes"] == json!([status["currentStorageVersionHash"]])
    })
    .await;

    // It runs again, and writes the state: the trigger stands back and says why.
    patch(&client, &format!("{STATES}/{name}/status"), &migrated).await;
    wait("an Event about the other controller", || async {
        events(&client, "StorageState").await.iter().any(|event| event["reason"] == "AnotherController")
    })
    .await;
    let state = send(&client, "GET", &format!("{STATES}/{name}"), None).await;
    assert_eq!(state["status"]["agreement"], Value::Null, "{state:#}");
    assert_eq!(migrations(&client, &name).await.len(), 1);
    // What the other controller does not write is not forgotten meanwhile.
    let last = other().await["lastHeartbeatTime"].clone();
    wait("a heartbeat of the other state", || async { other().await["lastHeartbeatTime"] != last }).await;
}
