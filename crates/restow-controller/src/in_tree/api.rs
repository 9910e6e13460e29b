//! Finds `storagemigration.k8s.io`, the API of the built-in migrator, in the version that the cluster serves.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::APIGroup;
use kube::Api;
use kube::core::{ApiResource, GroupVersionKind};
use restow_api::{IN_TREE_VERSIONS, InTreeMigrationSpec, InTreeMigrationStatus};
use restow_migrate::client::RequestError;

use crate::context::Context;

/// The API group.
pub(crate) const GROUP: &str = "storagemigration.k8s.io";

/// A migration of the built-in API.
pub(crate) type Object = kube::core::Object<InTreeMigrationSpec, InTreeMigrationStatus>;

/// Whether the cluster serves the API in a version that restow can use.
pub(crate) enum Availability {
    Served(Box<InTree>),
    /// Why it cannot be used.
    NotServed(String),
}

/// The API in the version that the cluster serves.
#[derive(Clone)]
pub(crate) struct InTree {
    pub(crate) api: Api<Object>,
    pub(crate) resource: ApiResource,
}

impl InTree {
    /// Asks the cluster for the API.
    pub(crate) async fn find(context: &Context) -> Result<Availability, RequestError> {
        let group: APIGroup = match context.cluster.server().get(&format!("/apis/{GROUP}")).await {
            Ok(group) => group,
            Err(error) if error.code() == Some(404) => return Ok(Availability::NotServed(unusable(&[]))),
            Err(error) => return Err(error),
        };
        let served: Vec<&str> = group.versions.iter().map(|served| served.version.as_str()).collect();
        let Some(version) = IN_TREE_VERSIONS.iter().find(|version| served.contains(version)) else {
            return Ok(Availability::NotServed(unusable(&served)));
        };
        let kind = GroupVersionKind::gvk(GROUP, version, "StorageVersionMigration");
        let resource = ApiResource::from_gvk_with_plural(&kind, "storageversionmigrations");
        let api = Api::all_with(context.client().clone(), &resource);
        Ok(Availability::Served(Box::new(Self { api, resource })))
    }
}

/// Why the API cannot be used, given the versions it is served in.
fn unusable(served: &[&str]) -> String {
    if served.is_empty() {
        return format!("{GROUP} is not served");
    }
    let (served, read) = (served.join(", "), IN_TREE_VERSIONS.join(" and "));
    format!(
        "{GROUP} is served only as {served}, but restow needs {read}, which Kubernetes 1.35 and later serve"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unsupported_version_is_named() {
        assert_eq!(unusable(&[]), "storagemigration.k8s.io is not served");
        let why = unusable(&["v1alpha1"]);
        assert!(why.contains("served only as v1alpha1") && why.contains("v1 and v1beta1"), "{why}");
    }
}
