//! Checks whether kube-storage-version-migrator is still running.

use restow_core::controller::predecessor::{Deployment, is_running};
use restow_migrate::client::Server;
use serde_json::Value;

use crate::error::CliError;
use crate::output::say;

/// The labels of its Deployments; each has one of them.
const DEPLOYMENTS: &str = "/apis/apps/v1/deployments?labelSelector=app%20in%20(migrator,trigger)";

/// Fails while kube-storage-version-migrator is running; warns if that cannot be checked.
pub(crate) async fn refuse(server: &Server) -> Result<(), CliError> {
    let list: Value = match server.get(DEPLOYMENTS).await {
        Ok(list) => list,
        // Without the Deployment API, it cannot run in this cluster.
        Err(error) if error.code() == Some(404) => return Ok(()),
        Err(error) => {
            say!(
                "warning: cannot determine whether kube-storage-version-migrator is running, because Deployments \
                cannot be listed: {error}; if it is, scale it down first"
            );
            return Ok(());
        }
    };
    let deployments = list["items"].as_array().cloned().unwrap_or_default();
    let running: Vec<Deployment> = deployments.iter().map(deployment).filter(is_running).collect();
    if running.is_empty() {
        return Ok(());
    }
    let names: Vec<String> = running.iter().map(|one| format!("{}/{}", one.namespace, one.name)).collect();
    let command =
        |one: &Deployment| format!("kubectl -n {} scale deployment {} --replicas=0", one.namespace, one.name);
    let commands: Vec<String> = running.iter().map(command).collect();
    let message = format!(
        "kube-storage-version-migrator is running ({}): it marks resources as migrated without verifying them, in \
        the objects that restow uses",
        names.join(", ")
    );
    Err(CliError::failed(message).hint(format!("scale it down first: {}", commands.join("; "))))
}

fn deployment(object: &Value) -> Deployment {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let containers = object["spec"]["template"]["spec"]["containers"].as_array().cloned().unwrap_or_default();
    Deployment {
        namespace: text(&object["metadata"]["namespace"]),
        name: text(&object["metadata"]["name"]),
        replicas: object["spec"]["replicas"].as_i64().unwrap_or(1),
        images: containers.iter().map(|container| text(&container["image"])).collect(),
    }
}
