//! The API of the built-in migrator, in whichever version it is served.

use std::fmt::Debug;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::APIGroup;
use kube::api::{DeleteParams, Preconditions};
use kube::core::{ApiResource, GroupVersionKind};
use kube::{Api, ResourceExt as _};
use restow_api::{IN_TREE_VERSIONS, InTreeMigrationSpec, InTreeMigrationStatus};
use restow_migrate::server::RequestError;
use serde::de::DeserializeOwned;

use crate::record::code;
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

/// Deletes an object, if it is still the one that was seen.
pub(crate) async fn delete<K>(api: &Api<K>, object: &K) -> Result<(), kube::Error>
where
    K: kube::Resource + Clone + DeserializeOwned + Debug,
{
    let params = DeleteParams {
        preconditions: Some(Preconditions { uid: object.uid(), resource_version: None }),
        ..DeleteParams::background()
    };
    match api.delete(&object.name_any(), &params).await {
        Ok(_) => Ok(()),
        // It is gone, or another one has its name.
        Err(error) if matches!(code(&error), Some(404 | 409)) => Ok(()),
        Err(error) => Err(error),
    }
}
