//! Objects that change with every write are rewritten and reported as not verified.
//!
//! Only on a real kube-apiserver: the embedded server has no admission policies.

use std::ops::Range;

use restow_lab::{Action, Cluster, Seen};
use serde_json::{Value, json};

use crate::support::{Restow, Widgets, name, send, shared, try_send, wait};
use crate::traffic::{Held, Traffic, number};

const POLICIES: &str = "/apis/admissionregistration.k8s.io/v1/mutatingadmissionpolicies";
const BINDINGS: &str = "/apis/admissionregistration.k8s.io/v1/mutatingadmissionpolicybindings";

/// Objects stored as v1, of a definition that stores as v2 now, and a policy that changes these of them with every write.
async fn restless(
    cluster: &Cluster,
    plural: &'static str,
    objects: usize,
    restless: Range<usize>,
) -> Widgets {
    let one = name(restless.start);
    let client = cluster.client(0).unwrap();
    let widgets = Widgets { plural };
    widgets.define(&client).await;
    widgets.create(&client, objects).await;
    widgets.store_as(&client, "v2").await;
    let group = widgets.group();
    let names: Vec<_> = restless.map(name).collect();
    let policy = json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "MutatingAdmissionPolicy",
        "metadata": {"name": group},
        "spec": {
            "failurePolicy": "Fail", "reinvocationPolicy": "Never",
            "matchConstraints": {"resourceRules": [{
                "apiGroups": [group], "apiVersions": ["*"], "operations": ["UPDATE"], "resources": [widgets.plural],
            }]},
            "matchConditions": [{"name": "some", "expression": format!("request.name in {:?}", names)}],
            "mutations": [{"patchType": "JSONPatch", "jsonPatch": {"expression":
                "[JSONPatch{op: 'add', path: '/spec/seen', value: oldObject.metadata.resourceVersion}]",
            }}],
        },
    });
    let binding = json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "MutatingAdmissionPolicyBinding",
        "metadata": {"name": group}, "spec": {"policyName": group},
    });
    send(&client, "POST", POLICIES, Some(&policy)).await;
    send(&client, "POST", BINDINGS, Some(&binding)).await;
    wait("the policy to mutate", || async {
        let touch = json!({"metadata": {"annotations": {"touched": "true"}}});
        let path = widgets.path("v2", &format!("{one}?dryRun=All"));
        let touched = try_send(&client, "PATCH", &path, Some(&touch)).await;
        touched.is_ok_and(|touched| !touched["spec"]["seen"].is_null())
    })
    .await;
    widgets
}

/// The report of a run that proves nothing, and what it says.
async fn unproven(cluster: &Cluster, widgets: &Widgets, restow: &Restow, more: &[&str]) -> (Value, String) {
    let flags = [&["--prune-stored-versions"], more].concat();
    let report = restow.migrate(&widgets.name(), &flags).await.expect(1).resource();
    assert_eq!(report["verified"], json!(false), "{report}");
    let stored = widgets.stored_versions(&cluster.client(0).unwrap()).await;
    assert_eq!(stored, json!(["v1", "v2"]), "pruned without proof");
    let error = report["error"].as_str().unwrap().to_owned();
    (report, error)
}

#[tokio::test]
async fn objects_that_change_with_every_write_are_not_verified() {
    let Some(cluster) = shared() else { return };
    let widgets = restless(cluster, "fidgets", 20, 0..20).await;
    let (report, error) = unproven(cluster, &widgets, &Restow::new(cluster), &[]).await;
    assert_eq!(report["rewritten"], json!(20), "{report}");
    assert!(error.contains("20 objects rewritten again") && error.contains("mutating webhook"), "{error}");
}

/// The second try of such a write finds a newer object, which looks as if somebody else had written it.
#[tokio::test]
async fn a_lost_answer_leaves_a_pass_unproven() {
    let Some(cluster) = shared() else { return };
    let widgets = restless(cluster, "lostfidgets", 5, 0..5).await;
    let rule = |seen: &Seen, before: usize| match number(seen) {
        Some(_) if before.is_multiple_of(2) => Action::DropAfter,
        _ => Action::Forward,
    };
    let (recorder, _traffic) = Traffic::record(cluster, rule).await;
    let restow = Restow::with_kubeconfig(recorder.kubeconfig().to_owned());
    let (report, error) = unproven(cluster, &widgets, &restow, &["--pace", "fast"]).await;
    assert_eq!((&report["rewritten"], &report["conflicted"]), (&json!(0), &json!(5)), "{report}");
    assert!(error.contains("answers to writes were lost"), "{error}");
}

/// What the killed process wrote looks as if somebody else had written it.
#[tokio::test]
async fn a_write_of_a_killed_process_leaves_a_pass_unproven() {
    const RESTLESS: usize = 3;
    const HELD: usize = 4;
    let Some(cluster) = shared() else { return };
    let widgets = restless(cluster, "killedfidgets", HELD + 1, RESTLESS..HELD).await;
    let verifying = Held::default();
    let rule = {
        let verifying = verifying.clone();
        move |seen: &Seen, before: usize| match (number(seen), before) {
            (Some(HELD), 1) => verifying.hold(),
            _ => Action::Forward,
        }
    };
    let (recorder, traffic) = Traffic::record(cluster, rule).await;
    let restow = Restow::with_kubeconfig(recorder.kubeconfig().to_owned());
    // It is killed in the second page of the pass that verifies.
    let flags = ["--pace", "fast", "--page-size", "3"];
    let mut child = restow.start(&widgets.name(), &flags);
    verifying.come().await;
    wait("the other to be written", || async { traffic.answers_to(&name(RESTLESS)).len() == 2 }).await;
    child.kill().await.unwrap();
    verifying.let_go();
    let resume = [&flags[..], &["--resume"]].concat();
    let (_, error) = unproven(cluster, &widgets, &restow, &resume).await;
    assert!(error.contains("1 object rewritten again"), "{error}");
}
