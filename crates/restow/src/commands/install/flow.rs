//! API Priority and Fairness for restow: its requests come after those of others, except for its Lease.

use serde_json::{Value, json};

use super::manifest::Manifest;
use super::rules::NAME;

const API: &str = "flowcontrol.apiserver.k8s.io/v1";

/// The priority level and the flow schemas.
pub(crate) fn manifests(namespace: &str) -> Vec<Manifest> {
    vec![level(), everything(namespace), lease(namespace)]
}

fn level() -> Manifest {
    let why = "A small share of the API servers' concurrency; half of it is lent to others while idle. Further\n\
        requests wait in one queue, and get 429 when it is full.";
    let object = json!({
        "apiVersion": API, "kind": "PriorityLevelConfiguration", "metadata": {"name": NAME},
        "spec": {
            "type": "Limited",
            "limited": {
                "nominalConcurrencyShares": 5,
                "lendablePercent": 50,
                "borrowingLimitPercent": 100,
                "limitResponse": {
                    "type": "Queue",
                    "queuing": {"queues": 1, "handSize": 1, "queueLengthLimit": 100},
                },
            },
        },
    });
    Manifest::new(why, object)
}

fn schema(why: &'static str, name: &str, level: &str, precedence: u32, rules: Value) -> Manifest {
    let object = json!({
        "apiVersion": API, "kind": "FlowSchema", "metadata": {"name": name},
        "spec": {
            "matchingPrecedence": precedence,
            "priorityLevelConfiguration": {"name": level},
            "rules": [rules],
        },
    });
    Manifest::new(why, object)
}

fn subjects(namespace: &str) -> Value {
    json!([{"kind": "ServiceAccount", "serviceAccount": {"name": NAME, "namespace": namespace}}])
}

fn everything(namespace: &str) -> Manifest {
    let why = "All requests of restow use that priority level. (This grants nothing: roles do.)";
    let rules = json!({
        "subjects": subjects(namespace),
        "resourceRules": [
            {"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"], "namespaces": ["*"], "clusterScope": true},
        ],
        "nonResourceRules": [{"nonResourceURLs": ["*"], "verbs": ["*"]}],
    });
    // It must precede the schema that puts all service accounts on a higher level (9000).
    schema(why, NAME, NAME, 1000, rules)
}

fn lease(namespace: &str) -> Manifest {
    let why = "Except for its Lease: a leader that waits in its own queue would lose it.";
    let rules = json!({
        "subjects": subjects(namespace),
        "resourceRules": [{
            "apiGroups": ["coordination.k8s.io"], "resources": ["leases"],
            "verbs": ["get", "create", "update", "patch"], "namespaces": [namespace],
        }],
    });
    schema(why, "restow-leader-election", "leader-election", 200, rules)
}
