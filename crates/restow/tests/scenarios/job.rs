//! `restow install --job`: its role is enough for the Job, and allows nothing else.

use serde_json::{Value, json};

use crate::support::{CRDS, Lab, Restow, Widgets, send, try_send, wait};

scenarios! {
    the_job_has_all_permissions_it_needs_and_no_others,
    ; real:
    // The embedded server does not serve batch.
    the_printed_job_is_accepted,
}

const IMAGE: &str = "registry.example/restow:test";

/// The objects that are printed for a Job.
async fn printed(restow: &Restow, args: &[&str]) -> Vec<Value> {
    let mut all = vec!["install", "--job", "--image", IMAGE];
    all.extend(args);
    let text = restow.run(&all).await.expect(0).stdout;
    text.split("---\n").skip(1).map(|document| serde_saphyr::from_str(document).unwrap()).collect()
}

/// The list that an object is created in.
fn path(object: &Value) -> String {
    let version = object["apiVersion"].as_str().unwrap();
    let base = if version.contains('/') { format!("/apis/{version}") } else { format!("/api/{version}") };
    let place = object["metadata"]["namespace"].as_str().map(|name| format!("/namespaces/{name}"));
    let kind = object["kind"].as_str().unwrap().to_lowercase();
    format!("{base}{}/{kind}s", place.unwrap_or_default())
}

/// Whether an account may do something: verb, resource with its group and subresource, name.
pub(crate) async fn may(
    client: &kube::Client,
    account: &str,
    verb: &str,
    resource: &str,
    name: &str,
) -> bool {
    let (resource, group) = resource.split_once('.').unwrap_or((resource, ""));
    let (resource, subresource) = resource.split_once('/').unwrap_or((resource, ""));
    let review = json!({
        "apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview",
        "spec": {"user": account, "groups": ["system:serviceaccounts", "system:authenticated"], "resourceAttributes": {
            "verb": verb, "group": group, "resource": resource, "subresource": subresource, "name": name,
        }},
    });
    let path = "/apis/authorization.k8s.io/v1/subjectaccessreviews";
    send(client, "POST", path, Some(&review)).await["status"]["allowed"] == true
}

async fn the_job_has_all_permissions_it_needs_and_no_others(lab: Lab) {
    let cluster = lab.shared();
    let client = cluster.client(0).unwrap();
    let (widgets, others) = (Widgets { plural: "shipments" }, Widgets { plural: "strangers" });
    for one in [&widgets, &others] {
        one.define(&client).await;
        one.create(&client, 20).await;
        one.store_as(&client, "v2").await;
    }
    let restow = Restow::new(cluster);
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "job-rights"}});
    send(&client, "POST", "/api/v1/namespaces", Some(&namespace)).await;
    let objects = printed(&restow, &[&widgets.name(), "-n", "job-rights"]).await;
    let (job, rights) = objects.split_last().unwrap();
    assert_eq!(job["kind"], "Job");
    for object in rights {
        send(&client, "POST", &path(object), Some(object)).await;
    }
    let name = job["spec"]["template"]["spec"]["serviceAccountName"].as_str().unwrap();
    let account = format!("system:serviceaccount:job-rights:{name}");
    wait("the roles to be known", || async { may(&client, &account, "list", &widgets.name(), "").await })
        .await;

    // The command line of the pod, as the account of the pod.
    let container = &job["spec"]["template"]["spec"]["containers"][0];
    let args = container["args"].as_array().unwrap().iter().map(|arg| arg.as_str().unwrap());
    let state = format!("--state-dir={}", restow.state.path().display());
    let mut args: Vec<&str> =
        args.map(|arg| if arg.starts_with("--state-dir=") { &state } else { arg }).collect();
    args.extend([
        "--as",
        &account,
        "--as-group",
        "system:serviceaccounts",
        "--as-group",
        "system:authenticated",
    ]);
    for _ in 0..2 {
        restow.run(&args).await.expect(0);
    }
    assert_eq!(widgets.stored_versions(&client).await, json!(["v2"]));
    assert_eq!(widgets.stored_as(cluster).await, [(format!("{}/v2", widgets.group()), 20)].into());

    let crds = "customresourcedefinitions.apiextensions.k8s.io";
    let status = "customresourcedefinitions/status.apiextensions.k8s.io";
    for (verb, resource, object) in [
        ("get", widgets.name(), ""),
        ("update", widgets.name(), ""),
        ("delete", widgets.name(), ""),
        ("create", widgets.name(), ""),
        ("list", others.name(), ""),
        ("patch", others.name(), ""),
        ("list", "secrets".to_owned(), ""),
        ("list", "configmaps".to_owned(), ""),
        ("patch", crds.to_owned(), &*widgets.name()),
        ("get", crds.to_owned(), &*others.name()),
        ("patch", status.to_owned(), &*others.name()),
        ("patch", status.to_owned(), ""),
        ("list", "leases.coordination.k8s.io".to_owned(), ""),
        ("create", "pods".to_owned(), ""),
    ] {
        assert!(!may(&client, &account, verb, &resource, object).await, "{verb} {resource} {object}");
    }
    let mut foreign = args.clone();
    let other = others.name();
    foreign[1] = &other;
    let refused = restow.run(&foreign).await.expect(1);
    assert!(refused.stderr.contains("no permission"), "{refused:#?}");
    assert_eq!(others.stored_versions(&client).await, json!(["v1", "v2"]));
    let bare = restow.run(&["install", "--job", "widgets", "--image", IMAGE]).await.expect(2);
    assert!(bare.stderr.contains("full name"), "{bare:#?}");
}

/// Everything passes a real server's strict validation, and the pod its strictest pod security.
async fn the_printed_job_is_accepted(lab: Lab) {
    let cluster = lab.shared();
    let client = cluster.client(0).unwrap();
    let restow = Restow::new(cluster);
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {
        "name": "job-accepted", "labels": {"pod-security.kubernetes.io/enforce": "restricted"}}});
    send(&client, "POST", "/api/v1/namespaces", Some(&namespace)).await;
    let plain = printed(&restow, &["widgets.example.com", "-n", "job-accepted"]).await;
    let hook = printed(&restow, &["widgets.example.com", "-n", "job-accepted", "--helm-hook"]).await;
    for object in plain.iter().chain(&hook) {
        let path = format!("{}?dryRun=All&fieldValidation=Strict", path(object));
        let accepted = try_send(&client, "POST", &path, Some(object)).await;
        assert!(accepted.is_ok(), "{accepted:?}: {object:#}");
    }
    let job = plain.last().unwrap();
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "x"}, "spec": job["spec"]["template"]["spec"]});
    let path = "/api/v1/namespaces/job-accepted/pods?dryRun=All&fieldValidation=Strict";
    let mut unbound = pod.clone();
    // The account exists only after the manifests were applied.
    unbound["spec"]["serviceAccountName"] = "default".into();
    send(
        &client,
        "POST",
        "/api/v1/namespaces/job-accepted/serviceaccounts",
        Some(&json!({
        "apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}})),
    )
    .await;
    let accepted = try_send(&client, "POST", path, Some(&unbound)).await;
    assert!(accepted.is_ok(), "{accepted:?}");
    for object in &hook {
        let event = &object["metadata"]["annotations"]["helm.sh/hook"];
        assert_eq!(event, "post-upgrade,post-rollback", "{object:#}");
    }
    assert!(
        try_send(&client, "GET", &format!("{CRDS}/widgets.example.com"), None).await.is_err(),
        "no CRD was needed"
    );
}
