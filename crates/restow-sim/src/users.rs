//! Users who create, change and delete objects while restow runs.

use std::time::Duration;

use serde_json::json;

use crate::objects::{object, path, send};
use crate::plan::{Plan, Scene, name};
use crate::trace::Trace;

/// Acts as users do. Every object gets a number that is higher than all before.
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
        // In the lagging scene only the second server handles objects.
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
