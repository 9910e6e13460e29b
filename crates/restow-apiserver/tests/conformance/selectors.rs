//! Selectors of labels and of fields.

use serde_json::{Value, json};

use crate::subject::Subject;

scenarios![
    lists_are_filtered_by_label_selectors,
    lists_are_filtered_by_field_selectors,
    invalid_selectors_are_refused,
    kinds_have_their_own_field_selectors,
];

async fn lists_are_filtered_by_label_selectors(subject: &Subject) {
    let place = subject.namespace("select-labels").await;
    for (name, labels) in [
        ("a", json!({"env": "prod", "tier": "1"})),
        ("b", json!({"env": "test"})),
        ("c", json!({"tier": "3"})),
        ("d", json!({"env": "", "x.example/y": "z"})),
    ] {
        place.post("configmaps", json!({"metadata": {"name": name, "labels": labels}})).await.ok();
    }
    for (selector, expected) in [
        ("env=prod", "a"),
        ("env==prod", "a"),
        ("env!=prod", "b c d"),
        ("env in (prod,test)", "a b"),
        ("env notin (prod,test)", "c d"),
        ("env", "a b d"),
        ("!env", "c"),
        ("env=", "d"),
        ("env=prod,tier=1", "a"),
        ("env=prod,tier=3", ""),
        ("tier>1", "c"),
        ("tier<3", "a"),
        ("x.example/y=z", "d"),
        ("x.example/y in (z, q) , env", "d"),
        ("", "a b c d"),
    ] {
        let query: String = form(selector);
        assert_eq!(
            place.get(&format!("configmaps?labelSelector={query}")).await.ok().names(),
            expected,
            "{selector}"
        );
    }
}

async fn lists_are_filtered_by_field_selectors(subject: &Subject) {
    let place = subject.namespace("select-fields").await;
    for name in ["a", "b", "c"] {
        place.post("configmaps", json!({"metadata": {"name": name}})).await.ok();
    }
    for (selector, expected) in [
        ("metadata.name=a", "a"),
        ("metadata.name==a", "a"),
        ("metadata.name!=a", "b c"),
        ("metadata.name=none", ""),
        ("metadata.name!=a,metadata.name!=b", "c"),
        ("metadata.namespace=select-fields", "a b c"),
        ("metadata.namespace=elsewhere", ""),
        ("metadata.name=a,metadata.namespace=select-fields", "a"),
        ("", "a b c"),
    ] {
        let query = form(selector);
        assert_eq!(
            place.get(&format!("configmaps?fieldSelector={query}")).await.ok().names(),
            expected,
            "{selector}"
        );
    }
}

async fn kinds_have_their_own_field_selectors(subject: &Subject) {
    let place = subject.namespace("select-kinds").await;
    let kinds = [("opaque", "Opaque"), ("token", "example.com/token")];
    for (name, kind) in kinds {
        place.post("secrets", json!({"metadata": {"name": name}, "type": kind})).await.ok();
    }
    let containers = json!([{"name": "c", "image": "i"}]);
    for (name, node) in [("here", json!("node-1")), ("nowhere", Value::Null)] {
        let spec = json!({"nodeName": node, "containers": containers});
        place.post("pods", json!({"metadata": {"name": name}, "spec": spec})).await.ok();
    }
    for (path, selector, expected) in [
        ("secrets", "type=Opaque", "opaque"),
        ("secrets", "type!=Opaque", "token"),
        ("pods", "spec.nodeName=node-1", "here"),
        ("pods", "spec.nodeName=", "nowhere"),
        ("pods", "status.phase=Pending", "here nowhere"),
        ("pods", "status.phase!=Pending", ""),
    ] {
        let query = form(selector);
        let list = place.get(&format!("{path}?fieldSelector={query}")).await.ok();
        assert_eq!(list.names(), expected, "{path} {selector}");
    }
    let query = form("metadata.name=select-kinds,status.phase=Active");
    assert_eq!(
        place.get(&format!("/api/v1/namespaces?fieldSelector={query}")).await.ok().names(),
        "select-kinds"
    );
}

async fn invalid_selectors_are_refused(subject: &Subject) {
    let place = subject.namespace("select-refuses").await;
    for (query, expected) in [
        ("labelSelector=,", "400 BadRequest"),
        ("labelSelector=a in", "400 BadRequest"),
        ("labelSelector=a=b c", "400 BadRequest"),
        ("labelSelector=-a", "400 BadRequest"),
        ("labelSelector=a>b", "400 BadRequest"),
        ("fieldSelector=metadata.labels=a", "400 BadRequest"),
        ("fieldSelector=type=Opaque", "400 BadRequest"),
    ] {
        let (name, selector) = query.split_once('=').unwrap();
        let answer = place.get(&format!("configmaps?{name}={}", form(selector))).await;
        assert_eq!(answer.reason(), expected, "{query}: {}", answer.line());
    }
}

/// Encodes text for a query.
fn form(text: &str) -> String {
    text.bytes().map(|byte| format!("%{byte:02X}")).collect()
}
