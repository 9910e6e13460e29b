//! What a namespace contains besides objects of restow and of the cluster itself.

use futures::{StreamExt as _, TryStreamExt as _, stream};
use kube::api::{Api, ApiResource, DynamicObject, ListParams};
use kube::core::ObjectMeta;
use restow_core::resource::inventory::{Obstacle, Resource};
use restow_migrate::cluster::Cluster;

use crate::commands::install::manifest::PART_OF;
use crate::commands::install::rules::{CERTIFICATES, NAME};
use crate::connect::unanswered;
use crate::error::CliError;

/// How many resources are listed concurrently.
const AT_ONCE: usize = 8;
/// The most objects read of a list: restow creates fewer, so more belong to something else.
const ENOUGH: u32 = 100;
/// How many objects are named.
const NAMED: usize = 10;

/// The first objects that something else created there. Fails if not every resource can be checked.
pub(crate) async fn others(cluster: &Cluster, namespace: &str) -> Result<Vec<String>, CliError> {
    let inventory = match cluster.inventory(true).await {
        Ok(inventory) => inventory,
        Err(error) => return Err(unanswered(cluster, error).await),
    };
    if let Some((version, obstacle)) = inventory.unavailable.first() {
        return Err(CliError::failed(format!(
            "namespace/{namespace} was kept: {version}: {}",
            obstacle.explain()
        ))
        .hint("the namespace may contain objects of that API; run this again when it is available"));
    }
    let list = |resource: &Resource| list(cluster, namespace, resource.clone());
    let resources: Vec<&Resource> = inventory.resources.iter().filter(|resource| holds(resource)).collect();
    let found: Vec<Vec<String>> = stream::iter(resources).map(list).buffered(AT_ONCE).try_collect().await?;
    let mut found = found.concat();
    let more = found.len().saturating_sub(NAMED);
    found.truncate(NAMED);
    if more > 0 {
        found.push(format!("{more} more"));
    }
    Ok(found)
}

/// Whether a resource can have objects of its own in a namespace; Events are only about other objects.
fn holds(resource: &Resource) -> bool {
    let apart = !matches!(resource.obstacle, Some(Obstacle::Verbs(_) | Obstacle::SharedWith(_)));
    resource.namespaced && apart && resource.kind != "Event"
}

async fn list(cluster: &Cluster, namespace: &str, resource: Resource) -> Result<Vec<String>, CliError> {
    let Some(version) = resource.endpoint() else { return Ok(Vec::new()) };
    let resource_of = ApiResource {
        group: version.group.clone(),
        version: version.version.clone(),
        api_version: version.to_string(),
        kind: resource.kind.clone(),
        plural: resource.name.resource.clone(),
    };
    let api: Api<DynamicObject> =
        Api::namespaced_with(cluster.server().client().clone(), namespace, &resource_of);
    let objects = api.list_metadata(&ListParams::default().limit(ENOUGH)).await.map_err(|error| {
        CliError::failed(format!("namespace/{namespace} was kept: listing its {}: {error}", resource.name))
    })?;
    let others = objects.items.iter().filter(|object| !is_expected(&resource.kind, &object.metadata));
    Ok(others.map(|object| title(&resource, &object.metadata)).collect())
}

fn title(resource: &Resource, meta: &ObjectMeta) -> String {
    format!("{}/{}", resource.name, meta.name.as_deref().unwrap_or_default())
}

/// Whether restow or the cluster itself created it.
fn is_expected(kind: &str, meta: &ObjectMeta) -> bool {
    let labels = meta.labels.as_ref();
    let ours = |label: &str| labels.and_then(|labels| labels.get(label)).is_some_and(|value| value == NAME);
    let known = [
        ("ConfigMap", "kube-root-ca.crt"),
        ("ServiceAccount", "default"),
        ("Lease", NAME),
        ("Lease", CERTIFICATES),
        ("Secret", CERTIFICATES),
    ];
    let name = meta.name.as_deref().unwrap_or_default();
    (ours(PART_OF) && ours(restow_api::MANAGED_BY)) || known.contains(&(kind, name))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn objects_of_the_cluster_and_of_restow_are_expected() {
        let labels = json!({"app.kubernetes.io/part-of": "restow", "app.kubernetes.io/managed-by": "restow"});
        for (kind, meta, expected) in [
            ("Pod", json!({"name": "restow-1", "labels": labels}), true),
            ("Pod", json!({"name": "mine"}), false),
            ("Pod", json!({"name": "half", "labels": {"app.kubernetes.io/managed-by": "restow"}}), false),
            ("ConfigMap", json!({"name": "kube-root-ca.crt"}), true),
            ("ConfigMap", json!({"name": "default"}), false),
            ("ServiceAccount", json!({"name": "default"}), true),
            ("Lease", json!({"name": "restow"}), true),
            ("Lease", json!({"name": "another"}), false),
        ] as [(&str, Value, bool); 8]
        {
            let meta: ObjectMeta = serde_json::from_value(meta).unwrap();
            assert_eq!(is_expected(kind, &meta), expected, "{kind} {:?}", meta.name);
        }
    }
}
