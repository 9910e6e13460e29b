//! The API of the built-in migrator, in whichever version it is served.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::APIGroup;
use kube::Api;
use kube::core::{ApiResource, GroupVersionKind};
use restow_api::{IN_TREE_VERSIONS, InTreeMigrationSpec, InTreeMigrationStatus};
use restow_migrate::server::RequestError;

use crate::context::Context;

/// Its group.
pub(crate) const GROUP: &str = "storagemigration.k8s.io";

/// A migration of that API.
pub(crate) type Object = kube::core::Object<InTreeMigrationSpec, InTreeMigrationStatus>;

/// The API as one cluster serves it.
#[derive(Clone)]
pub(crate) struct InTree {
    pub(crate) api: Api<Object>,
    pub(crate) resource: ApiResource,
}

impl InTree {
    /// Looks for it; the inner error says why it cannot be used.
    pub(crate) async fn find(context: &Context) -> Result<Result<Self, String>, RequestError> {
        let group: APIGroup = match context.cluster.server().get(&format!("/apis/{GROUP}")).await {
            Ok(group) => group,
            Err(error) if error.code() == Some(404) => return Ok(Err(unusable(&[]))),
            Err(error) => return Err(error),
        };
        let served: Vec<&str> = group.versions.iter().map(|served| served.version.as_str()).collect();
        let Some(version) = IN_TREE_VERSIONS.iter().find(|version| served.contains(version)) else {
            return Ok(Err(unusable(&served)));
        };
        let kind = GroupVersionKind::gvk(GROUP, version, "StorageVersionMigration");
        let resource = ApiResource::from_gvk_with_plural(&kind, "storageversionmigrations");
        Ok(Ok(Self { api: Api::all_with(context.client().clone(), &resource), resource }))
    }
}

/// Why the API cannot be used, given the versions it is served in.
fn unusable(served: &[&str]) -> String {
    if served.is_empty() {
        return format!("{GROUP} is not served");
    }
    let (served, read) = (served.join(", "), IN_TREE_VERSIONS.join(" and "));
    format!(
        "{GROUP} is served as {served} only, and restow reads {read}: Kubernetes 1.35 is the first that has it"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_older_form_of_the_api_is_named() {
        assert_eq!(unusable(&[]), "storagemigration.k8s.io is not served");
        let why = unusable(&["v1alpha1"]);
        assert!(why.contains("served as v1alpha1 only") && why.contains("v1 and v1beta1"), "{why}");
    }
}
