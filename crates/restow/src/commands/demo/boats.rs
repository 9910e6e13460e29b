//! The resource of the demo: boats, a custom resource whose storage version changes from v1 to v2.

use serde_json::{Value, json};

/// The API group.
pub(crate) const GROUP: &str = "demo.restow.dev";
/// The full name.
pub(crate) const NAME: &str = "boats.demo.restow.dev";
/// Where definitions are served.
pub(crate) const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
/// Where the objects are stored.
pub(crate) const STORED: &str = "/registry/demo.restow.dev/boats/";

/// The definition, with this storage version.
pub(crate) fn definition(storage: &str) -> Value {
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": NAME},
        "spec": {
            "group": GROUP, "scope": "Namespaced",
            "names": {"plural": "boats", "singular": "boat", "kind": "Boat", "listKind": "BoatList"},
            "versions": versions(storage),
        },
    })
}

/// The versions of the definition, with this storage version.
pub(crate) fn versions(storage: &str) -> Value {
    let spec =
        json!({"type": "object", "properties": {"number": {"type": "integer"}, "cargo": {"type": "string"}}});
    let schema = json!({"openAPIV3Schema": {"type": "object", "properties": {"spec": spec}}});
    ["v1", "v2"]
        .iter()
        .map(|&name| json!({"name": name, "served": true, "storage": name == storage, "schema": schema}))
        .collect()
}

/// The path of all boats in a version.
pub(crate) fn all(version: &str) -> String {
    format!("/apis/{GROUP}/{version}/namespaces/default/boats")
}

/// The name of a boat that no user has.
pub(crate) fn name(number: u64) -> String {
    format!("boat-{number:07}")
}

pub(crate) fn boat(version: &str, name: &str, number: u64) -> Value {
    json!({
        "apiVersion": format!("{GROUP}/{version}"), "kind": "Boat", "metadata": {"name": name},
        "spec": {"number": number, "cargo": "tea ".repeat(100)},
    })
}
