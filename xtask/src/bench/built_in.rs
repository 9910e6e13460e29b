//! The built-in migrator of Kubernetes, in kube-controller-manager.

use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use http::Method;
use restow_lab::{Cluster, Part};
use serde_json::{Value, json};

use super::{link::Endpoint, widgets::Widgets};

const MIGRATIONS: &str = "/apis/storagemigration.k8s.io/v1beta1/storageversionmigrations";
const NAME: &str = "widgets";
/// How long its caches get to fill after its start; that time is not counted.
const WARM_UP: Duration = Duration::from_secs(15);
const ASK_EVERY: Duration = Duration::from_millis(100);
const MIGRATION_TIMEOUT: Duration = Duration::from_secs(3600);

/// What a migration took.
pub(crate) struct Ran {
    /// From the creation of the migration object to its Succeeded condition.
    pub(crate) whole: Duration,
    /// The most memory the controller manager held, in bytes.
    pub(crate) peak: u64,
}

/// Runs one migration; the controller manager is up for that time only.
pub(crate) async fn run(cluster: &Cluster, endpoint: &Endpoint, widgets: &Widgets<'_>) -> Result<Ran> {
    cluster.restart(Part::ControllerManager).await?;
    tokio::time::sleep(WARM_UP).await;
    let ran = migrate(cluster, endpoint, widgets).await;
    cluster.kill(Part::ControllerManager)?;
    ran
}

async fn migrate(cluster: &Cluster, endpoint: &Endpoint, widgets: &Widgets<'_>) -> Result<Ran> {
    let mut link = endpoint.link().await?;
    let migration = json!({
        "apiVersion": "storagemigration.k8s.io/v1beta1", "kind": "StorageVersionMigration",
        "metadata": {"name": NAME}, "spec": {"resource": Widgets::group_resource()},
    });
    let path = format!("{MIGRATIONS}/{NAME}");
    let began = Instant::now();
    link.json(Method::POST, MIGRATIONS, Some(&migration)).await?;
    link.wait(&path, |found| found["status"]["resourceVersion"].is_string()).await?;
    // In a cluster without other traffic it would wait minutes for an event of the resource.
    let touch = json!({"metadata": {"annotations": {"bench": format!("{began:?}")}}});
    link.json(Method::PATCH, &widgets.first(), Some(&touch)).await?;
    while began.elapsed() < MIGRATION_TIMEOUT {
        let found = link.json(Method::GET, &path, None).await?;
        if condition(&found, "Succeeded") {
            let whole = began.elapsed();
            link.json(Method::DELETE, &path, None).await?;
            return Ok(Ran { whole, peak: cluster.memory(Part::ControllerManager)?.peak });
        }
        if condition(&found, "Failed") {
            bail!("the built-in migration failed: {}", found["status"]);
        }
        tokio::time::sleep(ASK_EVERY).await;
    }
    bail!("the built-in migration takes more than {MIGRATION_TIMEOUT:?}")
}

fn condition(migration: &Value, name: &str) -> bool {
    let conditions = migration["status"]["conditions"].as_array();
    conditions.is_some_and(|all| all.iter().any(|one| one["type"] == name && one["status"] == "True"))
}
