//! `restow install --webhook`: its role is enough to register, serve and rotate, and allows nothing else; how it is removed.

use restow_lab::ClusterSpec;
use serde_json::{Value, json};

use crate::job::may;
use crate::rotating::{OBJECTS, prepare, register};
use crate::serving::{Gadgets, expected, persist};
use crate::support::{CRDS, Lab, Restow, name, patch, send, try_send, wait};
use crate::webhook_pool::{Pool, Replica, Replicas, rotate};

scenarios! {
    the_installed_webhook_has_all_permissions_it_needs_and_no_others,
    ; real:
    // The embedded server serves neither Deployments nor PodDisruptionBudgets.
    the_printed_webhook_is_accepted,
}

const ACCOUNT: &str = "system:serviceaccount:restow-system:restow-webhook";
const AS: [&str; 6] =
    ["--as", ACCOUNT, "--as-group", "system:serviceaccounts", "--as-group", "system:authenticated"];
const SECRET: &str = "restow-webhook-certificates";

async fn the_installed_webhook_has_all_permissions_it_needs_and_no_others(lab: Lab) {
    let (cluster, gadgets) = (lab.cluster(ClusterSpec::new()).await, Gadgets { plural: "installedgadgets" });
    let (client, restow) = (cluster.client(0).unwrap(), Restow::new(&cluster));
    let crd = gadgets.crd_name();
    restow.run(&["install", "--webhook", &crd, "--without-deployment", "--apply", "--wait"]).await.expect(0);
    prepare(&cluster, &client, &gadgets).await;
    wait("the role to be known", || may(&client, ACCOUNT, "list", &crd, "")).await;
    let pool = Pool::start().await;
    let named = [&AS[..], &["--crds", &crd]].concat();
    let how = Replicas {
        restow: &restow,
        pool: &pool,
        namespace: "restow-system",
        secret: SECRET,
        settle: "2s",
        more: &named,
    };
    let (one, two) = register(&client, &gadgets, &how).await;
    rotate(&client, &gadgets, [&one, &two], 1).await;
    for index in 0..OBJECTS {
        let object = persist(&client, "GET", &gadgets.path("v1", &name(index)), None).await;
        assert_eq!(object["spec"], expected(index, "v1", 0));
    }
    has_no_other_permissions(&client, &gadgets).await;
    says_which_permission_is_missing(&how).await;
    let other =
        restow.run(&["install", "--webhook", "a.example.com", "--without-deployment", "--apply"]).await;
    assert!(other.expect(1).stderr.contains(&format!("webhook unregister {crd}")));
    is_removed_only_if_that_is_safe(&client, &restow, &gadgets, &[&one, &two]).await;
    for replica in [one, two] {
        replica.end(&pool).await;
    }
    let removed = restow.run(&["uninstall"]).await.expect(0);
    assert!(removed.stderr.contains(&format!("secret/{SECRET} in restow-system deleted")), "{removed:#?}");
    let gone = try_send(&client, "GET", &how.secret_path(), None).await;
    assert!(gone.is_err_and(|error| error.to_string().contains("not found")));
}

/// What the account may not do.
async fn has_no_other_permissions(client: &kube::Client, gadgets: &Gadgets) {
    let crds = "customresourcedefinitions.apiextensions.k8s.io";
    let (rules, own) = ("conversionrules.restow.dev", gadgets.crd_name());
    for (verb, resource, object) in [
        ("get", own.as_str(), ""),
        ("patch", &own, ""),
        ("delete", &own, ""),
        ("get", crds, "conversionrules.restow.dev"),
        ("patch", crds, "conversionrules.restow.dev"),
        ("list", crds, ""),
        ("delete", crds, &own),
        ("create", rules, ""),
        ("delete", rules, ""),
        ("get", "secrets", SECRET),
        ("list", "secrets", ""),
        ("create", "secrets", ""),
        ("list", "configmaps", ""),
    ] {
        assert!(!may(client, ACCOUNT, verb, resource, object).await, "{verb} {resource} {object}");
    }
}

/// A webhook that is to serve a CRD which its role does not name.
async fn says_which_permission_is_missing(how: &Replicas<'_>) {
    let more = [&AS[..], &["--crds", "others.example.com"]].concat();
    let replica = Replica::start(&Replicas { more: &more, ..*how }).await;
    wait("the replica to say what is missing", || async {
        replica.has_logged("no permission to list and watch the CRD others.example.com")
    })
    .await;
    assert!(!replica.has_logged("Status {"), "no Rust types in messages");
}

async fn is_removed_only_if_that_is_safe(
    client: &kube::Client,
    restow: &Restow,
    gadgets: &Gadgets,
    replicas: &[&Replica],
) {
    let crd = gadgets.crd_name();
    let path = format!("{CRDS}/{crd}");
    let refused = restow.run(&["uninstall"]).await.expect(1);
    assert!(
        refused.stderr.contains("nothing was deleted") && refused.stderr.contains("unregister"),
        "{refused:#?}"
    );
    let needed = restow.run(&["webhook", "unregister", &crd]).await.expect(4);
    assert!(needed.stderr.contains("needs its conversion webhook"), "{needed:#?}");
    assert_eq!(send(client, "GET", &path, None).await["spec"]["conversion"]["strategy"], "Webhook");
    let mut versions = send(client, "GET", &path, None).await["spec"]["versions"].clone();
    for version in versions.as_array_mut().unwrap() {
        version["served"] = json!(version["name"] == "v1alpha1");
    }
    patch(client, &path, &json!({"spec": {"versions": versions}})).await;
    restow.run(&["webhook", "unregister", &crd, "--dry-run"]).await.expect(0);
    assert_eq!(send(client, "GET", &path, None).await["spec"]["conversion"]["strategy"], "Webhook");
    restow.run(&["webhook", "unregister", &crd]).await.expect(0);
    let after = send(client, "GET", &path, None).await;
    assert_eq!(after["spec"]["conversion"], json!({"strategy": "None"}));
    wait("the webhook to say that it was unregistered", || async {
        replicas.iter().any(|replica| replica.has_logged("the webhook was unregistered"))
    })
    .await;
    for index in 0..OBJECTS {
        let object = persist(client, "GET", &gadgets.path("v1alpha1", &name(index)), None).await;
        assert_eq!(object["spec"], expected(index, "v1alpha1", 0));
    }
    let again = send(client, "GET", &path, None).await;
    assert_eq!(again["spec"]["conversion"], json!({"strategy": "None"}), "it does not register itself again");
    restow.run(&["webhook", "unregister", &crd]).await.expect(0);
}

/// Everything passes a real server's strict validation, and the pod its strictest pod security.
async fn the_printed_webhook_is_accepted(lab: Lab) {
    let cluster = lab.shared();
    let (client, restow) = (cluster.client(0).unwrap(), Restow::new(cluster));
    let args = ["install", "--webhook", "widgets.example.com", "--image", "registry.example/restow:test"];
    let text = restow.run(&[&args[..], &["-n", "webhook-accepted"]].concat()).await.expect(0).stdout;
    let objects: Vec<Value> =
        text.split("---\n").skip(1).map(|document| serde_saphyr::from_str(document).unwrap()).collect();
    let namespace = objects.iter().find(|object| object["kind"] == "Namespace").unwrap();
    send(&client, "POST", "/api/v1/namespaces", Some(namespace)).await;
    for (kind, list) in [
        ("Service", "/api/v1/namespaces/webhook-accepted/services"),
        ("Deployment", "/apis/apps/v1/namespaces/webhook-accepted/deployments"),
        ("PodDisruptionBudget", "/apis/policy/v1/namespaces/webhook-accepted/poddisruptionbudgets"),
    ] {
        let object = objects.iter().find(|object| object["kind"] == kind).unwrap();
        let accepted =
            try_send(&client, "POST", &format!("{list}?dryRun=All&fieldValidation=Strict"), Some(object))
                .await;
        assert!(accepted.is_ok(), "{accepted:?}: {object:#}");
    }
    let deployment = objects.iter().find(|object| object["kind"] == "Deployment").unwrap();
    let mut pod = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "x"},
        "spec": deployment["spec"]["template"]["spec"],
    });
    // The account exists only after the manifests were applied.
    pod["spec"]["serviceAccountName"] = "default".into();
    let account = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}});
    send(&client, "POST", "/api/v1/namespaces/webhook-accepted/serviceaccounts", Some(&account)).await;
    let pods = "/api/v1/namespaces/webhook-accepted/pods?dryRun=All&fieldValidation=Strict";
    let accepted = try_send(&client, "POST", pods, Some(&pod)).await;
    assert!(accepted.is_ok(), "{accepted:?}");
    let bare = restow.run(&["install", "--webhook", "widgets", "--image", "i"]).await.expect(2);
    assert!(bare.stderr.contains("full name"), "{bare:#?}");
    restow.run(&["install", "--webhook", "--image", "i"]).await.expect(2);
}
