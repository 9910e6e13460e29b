//! Custom resources for scenarios: widgets, each scenario with its own group.

use std::time::Duration;

use restow_lab::suite;
use serde_json::{Value, json};

use crate::subject::{Place, Subject};

/// The path of definitions.
pub(crate) const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";

/// Waits until a condition is true, with a timeout.
pub(crate) async fn wait<F: Future<Output = bool>>(what: &str, is_true: impl FnMut() -> F) {
    suite::wait(Duration::from_secs(60), what, is_true).await;
}

/// Widgets of a group: only v1, with a schema that has something of everything.
pub(crate) fn widgets(group: &str) -> Value {
    let schema = json!({
        "type": "object",
        "properties": {
            "spec": {
                "type": "object",
                "properties": {
                    "size": {"type": "integer", "minimum": 1, "maximum": 100},
                    "colour": {"type": "string", "enum": ["red", "green", "blue"], "default": "red"},
                    "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
                    "tags": {"type": "array", "items": {"type": "string", "pattern": "^[a-z]+$"}, "maxItems": 3},
                    "when": {"type": "string", "format": "date-time"},
                    "port": {"x-kubernetes-int-or-string": true},
                    "nested": {
                        "type": "object",
                        "required": ["must"],
                        "properties": {
                            "must": {"type": "string"},
                            "deep": {"type": "integer", "default": 7},
                        },
                    },
                    "map": {"type": "object", "additionalProperties": {"type": "integer"}},
                    "maybe": {"type": "string", "nullable": true},
                },
            },
            "status": {"type": "object", "properties": {"phase": {"type": "string"}}},
        },
    });
    json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("widgets.{group}")},
        "spec": {
            "group": group,
            "scope": "Namespaced",
            "names": {"plural": "widgets", "singular": "widget", "kind": "Widget", "listKind": "WidgetList"},
            "versions": [{
                "name": "v1",
                "served": true,
                "storage": true,
                "schema": {"openAPIV3Schema": schema},
                "subresources": {"status": {}},
            }],
        },
    })
}

/// Defines widgets, with changes of the scenario, and waits until they are served. The namespace has the name of the
/// group.
pub(crate) async fn define<'a>(
    subject: &'a Subject,
    group: &str,
    change: impl FnOnce(&mut Value),
) -> Place<'a> {
    let mut definition = widgets(group);
    change(&mut definition);
    let namespace = group.replace('.', "-");
    let place = subject.namespace(&namespace).await.of(&format!("{group}/v1"));
    place.post(DEFINITIONS, definition.clone()).await.ok();
    established(&place, group).await;
    let versions = definition["spec"]["versions"].as_array().unwrap();
    for version in versions.iter().filter(|version| version["served"] == true) {
        served(&place, group, version["name"].as_str().unwrap()).await;
    }
    place
}

/// Waits until a definition is established.
async fn established(place: &Place<'_>, group: &str) {
    let path = format!("{DEFINITIONS}/widgets.{group}");
    wait("the definition to be established", || async {
        let definition = place.get(&path).await.ok();
        let conditions = definition["status"]["conditions"].as_array().cloned().unwrap_or_default();
        let is = |condition: &Value| condition["type"] == "Established" && condition["status"] == "True";
        conditions.iter().any(is)
    })
    .await;
}

/// Waits until widgets are served in a version, and are in discovery.
pub(crate) async fn served(place: &Place<'_>, group: &str, version: &str) {
    let (list, discovery) = (format!("/apis/{group}/{version}/widgets"), format!("/apis/{group}/{version}"));
    wait("widgets to be served", || async {
        place.get(&list).await.code() == 200 && place.get(&discovery).await.code() == 200
    })
    .await;
}

pub(crate) fn widget(group: &str, name: &str, spec: Value) -> Value {
    json!({"apiVersion": format!("{group}/v1"), "kind": "Widget", "metadata": {"name": name}, "spec": spec})
}
