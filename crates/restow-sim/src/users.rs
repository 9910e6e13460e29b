//! Users, who create, change and delete objects while restow works.

use std::time::Duration;

use http::Request;
use serde_json::{Value, json};

use crate::plan::{Plan, Scene, name};
use crate::trace::Trace;

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

/// Where the objects of a scene are, in one of its versions.
pub(crate) fn path(scene: Scene, group: &str, version: &str) -> String {
    match scene {
        Scene::Keys | Scene::Rotation => "/api/v1/namespaces/default/secrets".to_owned(),
        _ => format!("/apis/{group}/{version}/namespaces/default/boats"),
    }
}

/// A new object that holds a number.
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

/// Does what users do; each number is higher than all before it.
pub(crate) async fn act(
    plan: &Plan,
    group: &str,
    trace: &Trace,
    direct: impl Fn(usize) -> Option<kube::Client>,
) {
    let mut number = 1000;
    for _ in 0..plan.users {
        tokio::time::sleep(Duration::from_millis(fastrand::u64(..900))).await;
        number += 1;
        let name = name(fastrand::usize(..plan.objects + 4));
        let version = if fastrand::bool() && !plan.retired { "v1" } else { "v2" };
        let path = path(plan.scene, group, version);
        // A server whose handlers lag is one, and it handles.
        let server = if plan.scene == Scene::Lagging { 1 } else { fastrand::usize(..plan.servers()) };
        let what = fastrand::u8(..6);
        let Some(client) = direct(server) else { continue };
        let done = match what {
            0..2 => send(&client, "POST", &path, &object(plan.scene, group, version, &name, number)).await,
            2 => send(&client, "DELETE", &format!("{path}/{name}"), &json!({})).await,
            _ => {
                let change = match plan.scene {
                    Scene::Keys | Scene::Rotation => json!({"stringData": {"n": number.to_string()}}),
                    _ => json!({"spec": {"n": number}}),
                };
                send(&client, "PATCH", &format!("{path}/{name}"), &change).await
            }
        };
        let told = if done.is_ok() { "done" } else { "refused" };
        trace.step(&format!("user {what} {name} {version} by {server}: {told}"));
    }
}
