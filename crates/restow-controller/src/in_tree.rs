//! The API of the built-in migrator, in whichever version it is served.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::APIGroup;
use kube::Api;
use kube::core::{ApiResource, GroupVersionKind};
use restow_api::{IN_TREE_VERSIONS, InTreeMigrationSpec, InTreeMigrationStatus};
use restow_migrate::server::RequestError;

use crate::shared::Shared;

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
    /// Looks for it; none where it is not served in a form that is known.
    pub(crate) async fn find(shared: &Shared) -> Result<Option<Self>, RequestError> {
        let group: APIGroup = match shared.cluster.server().get(&format!("/apis/{GROUP}")).await {
            Ok(group) => group,
            Err(error) if error.code() == Some(404) => return Ok(None),
            Err(error) => return Err(error),
        };
        let served = |version: &&&str| group.versions.iter().any(|served| served.version == **version);
        Ok(IN_TREE_VERSIONS.iter().find(served).map(|version| {
            let kind = GroupVersionKind::gvk(GROUP, version, "StorageVersionMigration");
            let resource = ApiResource::from_gvk_with_plural(&kind, "storageversionmigrations");
            Self { api: Api::all_with(shared.client().clone(), &resource), resource }
        }))
    }
}
