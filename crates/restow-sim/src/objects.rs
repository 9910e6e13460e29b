//! The objects of a run, and requests for them.

use http::Request;
use serde_json::{Value, json};

use crate::plan::Scene;

/// The path of all CustomResourceDefinitions.
pub(crate) const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";

/// Sends one request with a body.
pub(crate) async fn send(
    client: &kube::Client,
    method: &str,
    path: &str,
    body: &Value,
) -> kube::Result<Value> {
    let kind = if method == "PATCH" { "application/merge-patch+json" } else { "application/json" };
    let request = Request::builder().method(method).uri(path).header("content-type", kind);
    let request = request.body(body.to_string().into_bytes()).map_err(kube::Error::HttpError)?;
    client.request(request).await
}

/// The path of the objects of a scene in a version.
pub(crate) fn path(scene: Scene, group: &str, version: &str) -> String {
    match scene {
        Scene::Keys | Scene::Rotation => "/api/v1/namespaces/default/secrets".to_owned(),
        _ => format!("/apis/{group}/{version}/namespaces/default/boats"),
    }
}

/// A new object with a number.
pub(crate) fn object(scene: Scene, group: &str, version: &str, name: &str, number: u64) -> Value {
    match scene {
        Scene::Keys | Scene::Rotation => json!({
            "apiVersion": "v1", "kind": "Secret", "metadata": {"name": name},
            "stringData": {"n": number.to_string()},
        }),
        _ => json!({
            "apiVersion": format!("{group}/{version}"), "kind": "Boat", "metadata": {"name": name},
            "spec": {"n": number, "crew": ["a", "b"]},
        }),
    }
}

/// The CRD of a group, which stores objects in this version; where `v1` is retired, it is no longer served.
pub(crate) fn definition(group: &str, stored: &str, retired: bool) -> Value {
    let version = |name: &str| {
        json!({
            "name": name, "served": name != "v1" || !retired, "storage": name == stored,
            "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}},
        })
    };
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("boats.{group}")},
        "spec": {
            "group": group, "scope": "Namespaced", "names": {"plural": "boats", "kind": "Boat"},
            "versions": [version("v1"), version("v2")],
        },
    })
}
