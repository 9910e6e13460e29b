//! Finds the resource of a definition among those that API servers serve.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use restow_core::resource::inventory::Resource;
use restow_core::resource::name::GroupResource;
use restow_lease::Stop;
use restow_migrate::cluster::Cluster;

use crate::error::CrdsError;

/// Finds a resource that can be migrated.
pub(crate) async fn resource(
    cluster: &Cluster,
    name: &GroupResource,
    stop: &Stop,
) -> Result<Resource, CrdsError> {
    let inventory = stop.unless(cluster.inventory(false)).await.ok_or(CrdsError::Stopped)??;
    let found = inventory.resources.into_iter().find(|resource| resource.name == *name);
    let resource = found.ok_or_else(|| CrdsError::NotServed(format!("no API server serves {name} yet")))?;
    match &resource.obstacle {
        Some(obstacle) => Err(CrdsError::NotServed(format!("{name}: {}", obstacle.explain()))),
        None => Ok(resource),
    }
}

pub(crate) fn name_of(definition: &CustomResourceDefinition) -> GroupResource {
    GroupResource::new(definition.spec.group.clone(), definition.spec.names.plural.clone())
}
