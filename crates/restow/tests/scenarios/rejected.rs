//! Objects that the server refuses are named, and the others are migrated.
//!
//! Only on a real kube-apiserver: it needs admission policies, and an etcd that is full.

use restow_lab::{Action, ClusterSpec, Seen};
use serde_json::{Value, json};

use crate::support::{Restow, Widgets, cluster, lab, name, patch, send, shared, try_send, wait};
use crate::traffic::{Traffic, ended, said};

const POLICIES: &str = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies";
const BINDINGS: &str = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings";

/// Denies updates of those objects that have the label `locked`, one of which is named; returns when that is so.
pub(crate) async fn deny(client: &kube::Client, widgets: &Widgets, locked: usize) {
    let (group, plural) = (&widgets.group(), widgets.plural);
    let policy = json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicy",
        "metadata": {"name": group},
        "spec": {
            "failurePolicy": "Fail",
            "matchConstraints": {"resourceRules": [{
                "apiGroups": [group], "apiVersions": ["*"], "operations": ["UPDATE"], "resources": [plural],
            }]},
            "validations": [{
                "expression": "!has(object.metadata.labels.locked)",
                "message": "locked by the change board",
            }],
        },
    });
    let binding = json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicyBinding",
        "metadata": {"name": group}, "spec": {"policyName": group, "validationActions": ["Deny"]},
    });
    send(client, "POST", POLICIES, Some(&policy)).await;
    send(client, "POST", BINDINGS, Some(&binding)).await;
    wait("the policy to deny", || async { touch(client, widgets, locked).await.is_err() }).await;
}

/// Takes that back.
pub(crate) async fn allow(client: &kube::Client, widgets: &Widgets, locked: usize) {
    send(client, "DELETE", &format!("{BINDINGS}/{}", widgets.group()), None).await;
    wait("the policy to be gone", || async { touch(client, widgets, locked).await.is_ok() }).await;
}

async fn touch(client: &kube::Client, widgets: &Widgets, index: usize) -> Result<Value, kube::Error> {
    let touch = json!({"metadata": {"annotations": {"touched": "true"}}});
    let path = widgets.path("v1", &format!("{}?dryRun=All", name(index)));
    try_send(client, "PATCH", &path, Some(&touch)).await
}

#[tokio::test]
async fn objects_denied_by_a_policy_are_quarantined() {
    let Some(cluster) = shared() else { return };
    let client = cluster.client(0).unwrap();
    let widgets = Widgets { plural: "denials" };
    widgets.define(&client).await;
    widgets.create(&client, 1000).await;
    let locked: Vec<usize> = (0..7).map(|number| number * 143).collect();
    for index in &locked {
        let label = json!({"metadata": {"labels": {"locked": "true"}}});
        patch(&client, &widgets.path("v1", &name(*index)), &label).await;
    }
    widgets.store_as(&client, "v2").await;
    deny(&client, &widgets, 0).await;

    let restow = Restow::new(cluster);
    let planned = restow.run(&["plan", &widgets.name(), "--dry-run-objects", "-o", "json"]).await.expect(3);
    let planned: Value = serde_json::from_str(&planned.stdout).unwrap();
    assert_eq!(planned[0]["rejected"].as_array().unwrap().len(), 7, "{planned:#}");
    assert_eq!(
        widgets.stored_as(cluster).await[&format!("{}/v1", widgets.group())],
        1000,
        "a dry run stored something"
    );

    let report = restow.migrate(&widgets.name(), &["--pace", "fast"]).await.expect(3).resource();
    assert_eq!((&report["rewritten"], &report["verified"]), (&json!(993), &json!(false)));
    let left = report["quarantined"].as_array().unwrap();
    let mut names: Vec<&str> = left.iter().map(|object| object["name"].as_str().unwrap()).collect();
    names.sort_unstable();
    assert_eq!(names, locked.iter().map(|index| name(*index)).collect::<Vec<_>>());
    for object in left {
        assert!(object["message"].as_str().unwrap().contains("locked by the change board"), "{object}");
        assert_eq!(object["namespace"], "default");
    }
    let summary = restow.run(&["migrate", &widgets.name(), "--retry-quarantined"]).await.expect(3);
    assert!(summary.stdout.contains("--retry-quarantined"), "{summary:#?}");

    allow(&client, &widgets, 0).await;
    let report = restow.migrate(&widgets.name(), &["--retry-quarantined"]).await.expect(0).resource();
    assert_eq!((&report["rewritten"], &report["verified"]), (&json!(1000), &json!(true)));
    assert_eq!(widgets.stored_as(cluster).await[&format!("{}/v2", widgets.group())], 1000);
}

/// An etcd without space reads well and stores nothing, and dry runs are accepted: no object is to blame.
#[tokio::test]
async fn a_full_store_does_not_quarantine_objects() {
    // More than are remembered as given up, so that there is always one whose dry run is accepted.
    const MANY: usize = 120;
    let assets = lab!();
    let cluster = cluster(&assets, ClusterSpec::new()).await;
    let client = cluster.client(0).unwrap();
    let widgets = Widgets { plural: "stuffed" };
    widgets.define(&client).await;
    widgets.create(&client, MANY).await;
    widgets.store_as(&client, "v2").await;
    let (recorder, traffic) = Traffic::record(&cluster, |_: &Seen, _| Action::Forward).await;
    let restow = Restow::with_kubeconfig(recorder.kubeconfig().to_owned());
    cluster.etcd().set_full(true).await.unwrap();
    let mut child = restow.start(&widgets.name(), &["-o", "json", "--pace", "fast"]);
    // An object that is refused is tried ten times before it is named.
    let tries = || {
        let tries = traffic.patches_of(&name(0)).into_iter();
        tries.filter(|request| !request.query.contains("dryRun")).count()
    };
    wait("more tries than an object has that is to blame", || {
        assert_eq!(child.try_wait().unwrap(), None, "{}", said(&mut child));
        let enough = tries() > 10;
        async move { enough }
    })
    .await;
    cluster.etcd().set_full(false).await.unwrap();
    let report = ended(child).await.expect(0).resource();
    assert_eq!((&report["rewritten"], &report["verified"]), (&json!(MANY), &json!(true)), "{report:#}");
    assert_eq!(widgets.stored_as(&cluster).await[&format!("{}/v2", widgets.group())], MANY);
}
