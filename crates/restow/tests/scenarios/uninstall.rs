//! `restow uninstall` keeps what users created and what existed before.
//!
//! Only on a real kube-apiserver: it needs kube-controller-manager.

use restow_lab::{Cluster, ClusterSpec};
use serde_json::{Value, json};

use crate::controller::MIGRATIONS;
use crate::install::{CONTROLLERS, IMAGE, NAMESPACE, RBAC};
use crate::snapshot::{assert_same, first_snapshot, settle, snapshot};
use crate::support::{CRDS, Ran, Restow, cluster, lab, patch, send, try_send, wait};

const IN_TREE: &str = "/apis/storagemigration.k8s.io/v1/storageversionmigrations";

fn migration(name: &str) -> Value {
    json!({
        "apiVersion": "migration.k8s.io/v1alpha1", "kind": "StorageVersionMigration", "metadata": {"name": name},
        "spec": {"resource": {"version": "v1", "resource": "secrets"}},
    })
}

/// An uninstall takes all that install made, what its pods made, and nothing of anybody else's.
#[tokio::test]
async fn uninstall_keeps_what_users_created() {
    let assets = lab!();
    let cluster = cluster(&assets, ClusterSpec::new().controller_manager(&CONTROLLERS)).await;
    let client = cluster.client(0).unwrap();
    let restow = Restow::new(&cluster);
    let accounts = ["default", "kube-node-lease", "kube-public", "kube-system"];
    let accounts = accounts.map(|namespace| format!("serviceaccounts {namespace} default"));
    let before = first_snapshot(&client, &accounts.each_ref().map(String::as_str)).await;
    installed(&cluster, &restow).await;
    let with = snapshot(&client).await;

    let ran = restow.run(&["uninstall", "--crds", "--dry-run"]).await.expect(0);
    assert!(ran.stderr.contains("namespace/restow-system deleted (dry run)"), "{ran:#?}");
    assert_same(&snapshot(&client).await, &with, "a dry run deletes nothing");

    send(&client, "POST", MIGRATIONS, Some(&migration("mine"))).await;
    // It belongs to the ClusterRole that is deleted, and the garbage collector runs here.
    let made = restow.run(&["init", "configmaps", "-o", "json"]).await.expect(0).report();
    let owned = made["created"][0]["metadata"]["name"].as_str().unwrap().to_owned();
    assert_eq!(made["created"][0]["metadata"]["ownerReferences"][0]["name"], "restow", "{made:#}");
    let mine = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "mine"}});
    send(&client, "POST", &format!("{NAMESPACE}/configmaps"), Some(&mine)).await;
    let ran = restow.run(&["uninstall"]).await.expect(1);
    let kept = "storageversionmigrations.migration.k8s.io kept with its 2 objects; use --crds to delete them";
    assert!(ran.stderr.contains(kept), "{ran:#?}");
    assert!(ran.stderr.contains("1 migration of clusterrole/restow kept\n"), "{ran:#?}");
    assert!(ran.stderr.contains("restow-system was kept, because it contains configmaps/mine\n"), "{ran:#?}");
    let mut expected = before.clone();
    expected.extend(
        [
            "apiservices.apiregistration.k8s.io - v1alpha1.migration.k8s.io",
            "apiservices.apiregistration.k8s.io - v1alpha1.restow.dev",
            "configmaps restow-system mine",
            "customresourcedefinitions.apiextensions.k8s.io - conversionrules.restow.dev",
            "customresourcedefinitions.apiextensions.k8s.io - conversions.restow.dev",
            "customresourcedefinitions.apiextensions.k8s.io - storagestates.migration.k8s.io",
            "customresourcedefinitions.apiextensions.k8s.io - storageversionmigrations.migration.k8s.io",
            "namespaces - restow-system",
            "serviceaccounts restow-system default",
            "storageversionmigrations.migration.k8s.io - mine",
        ]
        .map(str::to_owned),
    );
    expected.insert(format!("storageversionmigrations.migration.k8s.io - {owned}"));
    // The pods are gone then, and the garbage collector deletes them after it has seen the roles go.
    settle(&client, &expected).await;
    let kept = send(&client, "GET", &format!("{MIGRATIONS}/{owned}"), None).await;
    assert_eq!(kept["metadata"].get("ownerReferences"), None, "{kept:#}");

    send(&client, "DELETE", &format!("{NAMESPACE}/configmaps/mine"), None).await;
    an_api_is_down(&client, &restow).await;
    let ran = restow.run(&["uninstall", "--crds", "--wait"]).await.expect(0);
    assert!(
        ran.stderr.contains("storageversionmigrations.migration.k8s.io deleted with its 2 objects\n"),
        "{ran:#?}"
    );
    assert!(try_send(&client, "GET", NAMESPACE, None).await.is_err(), "--wait is over when all is gone");
    settle(&client, &before).await;
    let ran = restow.run(&["uninstall", "--crds"]).await.expect(0);
    assert!(ran.stderr.contains("restow is not installed"), "{ran:#?}");

    // Gone as a whole, it can be installed anew, with the built-in API that this cluster does not serve.
    restow
        .run(&["install", "--image", IMAGE, "--adopt", "in-tree", "--apply", "--wait", "--timeout", "2s"])
        .await;
    wait("that API to be served", || async { try_send(&client, "GET", IN_TREE, None).await.is_ok() }).await;
    restow.run(&["uninstall", "--crds", "--wait"]).await.expect(0);
    settle(&client, &before).await;
}

/// While an API server cannot say what it has in the namespace, that is not deleted.
async fn an_api_is_down(client: &kube::Client, restow: &Restow) {
    let services = "/apis/apiregistration.k8s.io/v1/apiservices";
    let down = json!({
        "apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService", "metadata": {"name": "v1.down.example.com"},
        "spec": {
            "group": "down.example.com", "version": "v1", "groupPriorityMinimum": 100, "versionPriority": 100,
            "insecureSkipTLSVerify": true, "service": {"namespace": "default", "name": "down"},
        },
    });
    send(client, "POST", services, Some(&down)).await;
    wait("the group to be listed", || async {
        send(client, "GET", "/apis", None).await.to_string().contains("down.example.com")
    })
    .await;
    let ran = restow.run(&["uninstall"]).await.expect(1);
    assert!(
        ran.stderr.contains("restow-system was kept: down.example.com/v1: cannot query its API server"),
        "{ran:#?}"
    );
    send(client, "DELETE", &format!("{services}/v1.down.example.com"), None).await;
    wait("the group to be gone", || async {
        !send(client, "GET", "/apis", None).await.to_string().contains("down.example.com")
    })
    .await;
}

/// Installs all of it, and waits until its pods are there, and the Lease they would make.
async fn installed(cluster: &Cluster, restow: &Restow) {
    let client = cluster.client(0).unwrap();
    restow.run(&["install", "--image", IMAGE, "--apply"]).await.expect(0);
    let lease = json!({
        "apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "restow"},
        "spec": {"holderIdentity": "a-pod"},
    });
    let path = "/apis/coordination.k8s.io/v1/namespaces/restow-system/leases";
    send(&client, "POST", path, Some(&lease)).await;
    wait("two pods, a replica set, endpoints and an account", || async {
        let mut found = 0;
        for path in [
            &format!("{NAMESPACE}/pods")[..],
            "/apis/apps/v1/namespaces/restow-system/replicasets",
            "/apis/discovery.k8s.io/v1/namespaces/restow-system/endpointslices",
            &format!("{NAMESPACE}/serviceaccounts"),
        ] {
            found += send(&client, "GET", path, None).await["items"].as_array().unwrap().len();
        }
        found == 6
    })
    .await;
}

/// What was there before is taken over where it is the same API, used where it serves, and else refused untouched.
#[tokio::test]
async fn uninstall_keeps_what_existed_before() {
    let assets = lab!();
    let cluster = cluster(&assets, ClusterSpec::new().controller_manager(&["namespace-controller"])).await;
    let client = cluster.client(0).unwrap();
    let restow = Restow::new(&cluster);
    let predecessor = predecessor();
    send(&client, "POST", CRDS, Some(&predecessor)).await;
    wait("the predecessor's API", || async { try_send(&client, "GET", MIGRATIONS, None).await.is_ok() })
        .await;
    send(&client, "POST", MIGRATIONS, Some(&migration("old"))).await;
    let others = serde_json::to_value(restow_api::in_tree_crd()).unwrap();
    send(&client, "POST", CRDS, Some(&others)).await;
    wait("somebody else's API", || async { try_send(&client, "GET", IN_TREE, None).await.is_ok() }).await;
    let own = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "restow-system"}});
    send(&client, "POST", "/api/v1/namespaces", Some(&own)).await;
    let role = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": "restow"}, "rules": [],
    });
    send(&client, "POST", &format!("{RBAC}/clusterroles"), Some(&role)).await;

    let before = first_snapshot(&client, &[]).await;
    let ran = restow.run(&["install", "--image", IMAGE, "--apply"]).await.expect(1);
    assert!(ran.stderr.contains("clusterrole/restow already exists, and is not restow's"), "{ran:#?}");
    assert_same(&snapshot(&client).await, &before, "nothing is written when something cannot be");
    let ran = restow.run(&["uninstall", "--crds"]).await.expect(0);
    for name in
        ["storageversionmigrations.migration.k8s.io", "storageversionmigrations.storagemigration.k8s.io"]
    {
        let kept = format!("customresourcedefinition/{name} kept: restow install did not create it\n");
        assert!(ran.stderr.contains(&kept), "{ran:#?}");
    }
    assert_same(&snapshot(&client).await, &before, "what install did not make is not deleted");
    send(&client, "DELETE", &format!("{RBAC}/clusterroles/restow"), None).await;

    let before = snapshot(&client).await;
    let command = restow.command(&["install", "--image", IMAGE, "--apply", "--wait"]).spawn().unwrap();
    run_in_name_only(&client).await;
    let ran = Ran::from(command.wait_with_output().await.unwrap()).expect(0);
    assert!(ran.stderr.ends_with("deployment/restow in restow-system is ready\n"), "{ran:#?}");
    let crd = "customresourcedefinition/storageversionmigrations.migration.k8s.io";
    assert!(
        ran.stderr.contains(&format!("{crd} configured, taken over from an earlier install\n")),
        "{ran:#?}"
    );
    assert!(ran.stderr.contains("namespace/restow-system kept as it is"), "{ran:#?}");
    let namespace = send(&client, "GET", NAMESPACE, None).await;
    assert!(namespace["metadata"]["labels"]["app.kubernetes.io/managed-by"].is_null(), "{namespace:#}");
    let old = format!("{MIGRATIONS}/old");
    let suspended = patch(&client, &old, &json!({"spec": {"suspend": true}})).await;
    assert_eq!(
        suspended["spec"],
        json!({"resource": {"version": "v1", "resource": "secrets"}, "suspend": true})
    );

    let ran = restow.run(&["uninstall", "--wait"]).await.expect(0);
    assert!(
        ran.stderr.contains("namespace/restow-system kept: restow install did not create it"),
        "{ran:#?}"
    );
    let mut expected = before;
    expected.extend(
        [
            "apiservices.apiregistration.k8s.io - v1alpha1.restow.dev",
            "customresourcedefinitions.apiextensions.k8s.io - conversionrules.restow.dev",
            "customresourcedefinitions.apiextensions.k8s.io - conversions.restow.dev",
            "customresourcedefinitions.apiextensions.k8s.io - storagestates.migration.k8s.io",
        ]
        .map(str::to_owned),
    );
    settle(&client, &expected).await;
}

/// Has the Deployment look as if its pods ran, which nothing does here.
async fn run_in_name_only(client: &kube::Client) {
    let path = "/apis/apps/v1/namespaces/restow-system/deployments/restow";
    wait("the Deployment", || async { try_send(client, "GET", path, None).await.is_ok() }).await;
    let status = json!({
        "observedGeneration": 1, "replicas": 2, "updatedReplicas": 2, "readyReplicas": 2, "availableReplicas": 2,
    });
    patch(client, &format!("{path}/status"), &json!({"status": status})).await;
}

/// A definition of migrations as kube-storage-version-migrator has it, in short.
fn predecessor() -> Value {
    let resource = json!({"type": "object", "properties": {
        "group": {"type": "string"}, "version": {"type": "string"}, "resource": {"type": "string"},
    }});
    let spec = json!({"type": "object", "required": ["resource"], "properties": {
        "continueToken": {"type": "string"}, "resource": resource,
    }});
    let schema = json!({"type": "object", "properties": {
        "spec": spec, "status": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
    }});
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {
            "name": "storageversionmigrations.migration.k8s.io",
            "annotations": {"api-approved.kubernetes.io": "https://github.com/kubernetes/enhancements/pull/747"},
        },
        "spec": {
            "group": "migration.k8s.io", "scope": "Cluster",
            "names": {
                "plural": "storageversionmigrations", "singular": "storageversionmigration",
                "kind": "StorageVersionMigration", "listKind": "StorageVersionMigrationList",
            },
            "versions": [{
                "name": "v1alpha1", "served": true, "storage": true, "subresources": {"status": {}},
                "schema": {"openAPIV3Schema": schema},
            }],
        },
    })
}
