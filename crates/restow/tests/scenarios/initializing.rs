//! `restow init`: one migration for each resource, once.
//!
//! Only on a real kube-apiserver: it needs built-in resources that the embedded server does not serve.

use std::collections::{BTreeMap, BTreeSet};

use restow_core::resource::hash::storage_version_hash;
use restow_core::resource::name::GroupVersion;
use restow_lab::ClusterSpec;
use serde_json::{Value, json};

use crate::cli::grant;
use crate::controller::{MIGRATIONS, STATES, define};
use crate::objects::{set, standing};
use crate::support::{Restow, Widgets, cluster, lab, patch, send};
use crate::terminal::OnTerminal;

const ROLES: &str = "/apis/rbac.authorization.k8s.io/v1/clusterroles";

/// All migrations there are, by the full name of their resource.
async fn migrations(client: &kube::Client) -> BTreeMap<String, Vec<Value>> {
    let mut all: BTreeMap<String, Vec<Value>> = BTreeMap::new();
    for migration in send(client, "GET", MIGRATIONS, None).await["items"].as_array().unwrap() {
        let resource = &migration["spec"]["resource"];
        let group = resource["group"].as_str().unwrap_or_default();
        let name = format!("{}.{group}", resource["resource"].as_str().unwrap());
        all.entry(name.trim_end_matches('.').to_owned()).or_default().push(migration.clone());
    }
    all
}

#[tokio::test]
async fn each_resource_gets_one_migration() {
    let assets = lab!();
    let cluster = cluster(&assets, ClusterSpec::new()).await;
    let client = cluster.client(0).unwrap();
    let restow = Restow::new(&cluster);
    define(&client).await;
    let (moved, still) = (Widgets { plural: "moved" }, Widgets { plural: "still" });
    moved.define(&client).await;
    still.define(&client).await;
    moved.store_as(&client, "v2").await;

    let dry = restow.run(&["init", "--dry-run"]).await.expect(0);
    assert!(dry.stdout.contains("would be created") && dry.stderr.contains("would be created"), "{dry:#?}");
    assert!(migrations(&client).await.is_empty());

    let made = restow.run(&["init", "-o", "json"]).await.expect(0).report();
    let all = migrations(&client).await;
    assert_eq!(made["created"].as_array().unwrap().len(), all.len(), "{made:#}");
    assert!(all.values().all(|of_one| of_one.len() == 1), "{all:#?}");
    let skipped = |made: &Value, name: &str| {
        let of_name = made["skipped"].as_array().unwrap().iter().find(|skipped| skipped["resource"] == name);
        of_name.map(|skipped| skipped["reason"].as_str().unwrap().to_owned()).unwrap_or_default()
    };
    assert!(skipped(&made, "events").contains("--include-events"), "{made:#}");
    assert_eq!(skipped(&made, "events.events.k8s.io"), "stored as events, migrated there");
    assert!(skipped(&made, &still.name()).contains("all is stored in v1"), "{made:#}");
    assert_eq!(skipped(&made, "tokenreviews.authentication.k8s.io"), "", "it is not stored at all");
    for name in ["events", "events.events.k8s.io", &still.name(), "bindings"] {
        assert!(!all.contains_key(name), "{name}");
    }
    let of_moved = &all[&moved.name()][0];
    let spec = json!({
        "resource": {"group": moved.group(), "version": "v2", "resource": "moved"},
        "storageVersionHash": storage_version_hash(&GroupVersion::new(moved.group(), "v2"), "Widget"),
    });
    assert_eq!(of_moved["spec"], spec);
    let meta = &of_moved["metadata"];
    assert!(meta["name"].as_str().unwrap().starts_with(&format!("{}-", moved.name())), "{meta:#}");
    assert_eq!(meta["labels"][restow_api::MANAGED_BY], restow_api::MANAGER);
    assert_eq!(meta.get("ownerReferences"), None, "there is nothing to own it");
    // Stored in a version that is not served: the preferred one stands for it.
    let crds = &all["customresourcedefinitions.apiextensions.k8s.io"][0];
    assert_eq!(crds["spec"]["resource"]["version"], "v1");

    // What `plan` shows as needed, or perhaps, is what `init` makes.
    let plan = restow.run(&["plan", "--needed", "-o", "name"]).await.expect(3).stdout;
    assert_eq!(plan.lines().collect::<BTreeSet<_>>(), all.keys().map(String::as_str).collect());

    believed(&client, &restow).await;
    once_more(&client, &restow, &moved).await;
    // Who cannot see whether another migrator runs is told so.
    let rule = |group: &str, resource: &str, verbs: &[&str]| json!({"apiGroups": [group], "resources": [resource], "verbs": verbs});
    let rules = [
        rule("apiextensions.k8s.io", "customresourcedefinitions", &["list"]),
        rule("apiregistration.k8s.io", "apiservices", &["list"]),
        rule("migration.k8s.io", "storageversionmigrations", &["list", "create"]),
    ];
    grant(&client, "init", &rules).await;
    let args = ["init", &still.name(), "--dry-run", "--owner", "none", "--as", "alice"];
    let ran = restow.run(&args).await.expect(0);
    assert!(
        ran.stderr.contains("cannot determine whether kube-storage-version-migrator is running"),
        "{ran:#?}"
    );
    owners(&client, &restow, &still).await;
    let (code, shown) = OnTerminal::start(restow.command(&["init", "--dry-run"]), 80, 24).end().await;
    assert!(code == 0 && shown.lines().all(|line| line.chars().count() <= 80), "{shown}");
}

/// A settled StorageState counts only if restow wrote it, and has watched until now.
async fn believed(client: &kube::Client, restow: &Restow) {
    let name = "priorityclasses.scheduling.k8s.io";
    let (group, kind) = (GroupVersion::parse("scheduling.k8s.io/v1"), "PriorityClass");
    let hash = storage_version_hash(&group, kind);
    let state = json!({
        "apiVersion": "migration.k8s.io/v1alpha1", "kind": "StorageState", "metadata": {"name": name},
        "spec": {"resource": {"group": "scheduling.k8s.io", "resource": "priorityclasses"}},
    });
    send(client, "POST", STATES, Some(&state)).await;
    let ago = |seconds| restow_clock::now() - jiff::SignedDuration::from_secs(seconds);
    for (agreement, beat, needed, reason) in [
        (json!("direct"), ago(0), "no", "its StorageState is settled"),
        (json!("direct"), ago(700), "maybe", "its storage version was not watched for too long"),
        (Value::Null, ago(0), "maybe", "its state was written by another controller"),
    ] {
        let status = json!({"status": {
            "currentStorageVersionHash": hash, "persistedStorageVersionHashes": [hash],
            "agreement": agreement, "lastHeartbeatTime": beat.strftime("%FT%TZ").to_string(),
        }});
        patch(client, &format!("{STATES}/{name}/status"), &status).await;
        let line = restow.run(&["plan", name, "-o", "json"]).await.expect(0).report()[0].clone();
        assert_eq!(line["needed"], needed, "{line:#}");
        assert!(line["reason"].as_str().unwrap().contains(reason), "{line:#}");
    }
    send(client, "DELETE", &format!("{STATES}/{name}"), None).await;
}

/// What is unfinished is left alone, what has ended can be made anew.
async fn once_more(client: &kube::Client, restow: &Restow, moved: &Widgets) {
    let before = migrations(client).await;
    let again = restow.run(&["init"]).await.expect(0);
    assert!(again.stderr.contains("0 created"), "{again:#?}");
    let first = before[&moved.name()][0]["metadata"]["name"].as_str().unwrap();
    assert!(again.stdout.contains(&format!("{first} is Waiting")), "{again:#?}");
    assert_eq!(migrations(client).await.len(), before.len());

    set(client, first, &standing("Succeeded", "Verified", "", 1000, 0)).await;
    let ran = restow.run(&["init", &moved.name(), "secrets", "-o", "name"]).await.expect(0);
    let made = ran.stdout.trim_end();
    assert!(
        made.starts_with(&format!("storageversionmigration.migration.k8s.io/{}-", moved.name())),
        "{ran:#?}"
    );
    assert_eq!(migrations(client).await[&moved.name()].len(), 2);
    // By either of its names, it is stored once.
    let names = ["init", "events.events.k8s.io", "events", "--include-events", "-o", "json"];
    let report = restow.run(&names).await.expect(0).report();
    assert_eq!(report["created"].as_array().unwrap().len(), 1, "{report:#}");
    assert_eq!(report["created"][0]["spec"]["resource"]["resource"], "events", "{report:#}");
    assert_eq!(restow.run(&names).await.expect(0).report()["created"], json!([]));
}

async fn owners(client: &kube::Client, restow: &Restow, still: &Widgets) {
    let owner = async |args: &[&str]| {
        let mut all = vec!["init", "-o", "json", "--dry-run"];
        let name = still.name();
        all.push(&name);
        all.extend(args);
        restow.run(&all).await.expect(0).report()["created"][0]["metadata"]["ownerReferences"][0].clone()
    };
    assert_eq!(owner(&[]).await, Value::Null);
    let view = send(client, "GET", &format!("{ROLES}/view"), None).await;
    let named = owner(&["--owner", "clusterrole/view"]).await;
    assert_eq!((&named["kind"], &named["uid"]), (&json!("ClusterRole"), &view["metadata"]["uid"]));
    let role = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": "restow"}});
    let role = send(client, "POST", ROLES, Some(&role)).await;
    assert_eq!(owner(&[]).await["uid"], role["metadata"]["uid"]);
    assert_eq!(owner(&["--owner", "none"]).await, Value::Null);
    for (owner, why) in [
        ("deployment/restow", "a Deployment is namespaced"),
        ("clusterrole/nobody", "there is no ClusterRole \"nobody\""),
        ("nothing/restow", "no resource \"nothing\""),
        ("restow", "give KIND/NAME"),
    ] {
        let ran = restow.run(&["init", &still.name(), "--owner", owner]).await.expect(2);
        assert!(ran.stderr.contains(why), "{ran:#?}");
    }
    let ran = restow.run(&["init", "bindings"]).await.expect(2);
    assert!(ran.stderr.contains("does not support list and patch"), "{ran:#?}");
    let ran = restow.run(&["init", "secrts"]).await.expect(2);
    assert!(ran.stderr.contains("did you mean secrets?"), "{ran:#?}");

    let all = restow.run(&["init", "--all", "-o", "json"]).await.expect(0).report();
    let made = all["created"].as_array().unwrap();
    assert!(made.iter().any(|one| one["spec"]["resource"]["resource"] == still.plural), "{all:#}");
}
