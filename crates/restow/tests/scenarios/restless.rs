//! Objects that change with every write can be rewritten but not proven, and that is said.

use serde_json::json;

use crate::support::{Restow, Widgets, name, send, shared, try_send, wait};

const POLICIES: &str = "/apis/admissionregistration.k8s.io/v1/mutatingadmissionpolicies";
const BINDINGS: &str = "/apis/admissionregistration.k8s.io/v1/mutatingadmissionpolicybindings";

#[tokio::test]
async fn a_policy_that_mutates_every_write() {
    let Some(cluster) = shared() else { return };
    let client = cluster.client(0).unwrap();
    let widgets = Widgets { plural: "fidgets" };
    widgets.define(&client).await;
    widgets.create(&client, 20).await;
    widgets.store_as(&client, "v2").await;
    let group = widgets.group();
    let policy = json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "MutatingAdmissionPolicy",
        "metadata": {"name": group},
        "spec": {
            "failurePolicy": "Fail", "reinvocationPolicy": "Never",
            "matchConstraints": {"resourceRules": [{
                "apiGroups": [group], "apiVersions": ["*"], "operations": ["UPDATE"], "resources": [widgets.plural],
            }]},
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
        let path = widgets.path("v2", &format!("{}?dryRun=All", name(0)));
        let touched = try_send(&client, "PATCH", &path, Some(&touch)).await;
        touched.is_ok_and(|touched| !touched["spec"]["seen"].is_null())
    })
    .await;
    let restow = Restow::new(cluster);
    let report = restow.migrate(&widgets.name(), &["--prune-stored-versions"]).await.expect(1).resource();
    assert_eq!((&report["rewritten"], &report["verified"]), (&json!(20), &json!(false)));
    let error = report["error"].as_str().unwrap();
    assert!(error.contains("20 objects rewritten again") && error.contains("mutating webhook"), "{error}");
    assert_eq!(widgets.stored_versions(&client).await, json!(["v1", "v2"]), "pruned without proof");
}
