//! StorageVersion objects, in which API servers register how they store resources.

use std::collections::HashMap;

use k8s_openapi::api::apiserverinternal::v1alpha1;
use restow_core::agreement::version::StorageVersion;
use restow_core::protocol::storage_version;
use restow_core::resource::inventory::{Origin, Resource, hides_storage};
use restow_core::resource::name::{GroupResource, GroupVersion};
use serde::Deserialize;

use super::handle::{Cluster, Trust};
use crate::client::RequestError;
use crate::client::access::{Access, Missing};

/// The path of all StorageVersion objects.
pub(crate) const STORAGE_VERSIONS: &str = "/apis/internal.apiserver.k8s.io/v1alpha1/storageversions";

/// Whether StorageVersion objects are served in this version of a group.
pub(super) fn are_in(version: &GroupVersion) -> bool {
    STORAGE_VERSIONS.starts_with(&version.path())
}

/// A StorageVersion with its name and resourceVersion, which `{}` from a proxy lacks.
#[derive(Deserialize)]
#[serde(try_from = "v1alpha1::StorageVersion")]
struct Named(String, StorageVersion);

impl TryFrom<v1alpha1::StorageVersion> for Named {
    type Error = &'static str;

    fn try_from(object: v1alpha1::StorageVersion) -> Result<Self, Self::Error> {
        let name = object.metadata.name.ok_or("it has no name")?;
        let resource_version = object.metadata.resource_version.ok_or("it has no resourceVersion")?;
        let status = object.status.unwrap_or_default();
        let is_equal = |condition: &v1alpha1::StorageVersionCondition| {
            condition.type_ == storage_version::ALL_EQUAL && condition.status == "True"
        };
        let equal = status.conditions.into_iter().flatten().find(is_equal);
        let entries = status.storage_versions.into_iter().flatten();
        let version = StorageVersion {
            since: equal.and_then(|equal| equal.last_transition_time).map(|time| time.0),
            resource_version,
            entries: entries.map(|entry| (entry.api_server_id, entry.encoding_version)).collect(),
            common: status.common_encoding_version.filter(|version| !version.is_empty()),
        };
        Ok(Self(name, version))
    }
}

/// The encoding versions that API servers have registered.
pub(super) struct Registered(HashMap<String, String>);

impl Registered {
    pub(super) fn get(&self, resource: &GroupResource) -> Option<&String> {
        self.0.get(&storage_version::name(resource))
    }
}

impl Cluster {
    /// The StorageVersion object of a resource, if there is one.
    pub(super) async fn storage_version(
        &self,
        resource: &Resource,
    ) -> Result<Access<Option<StorageVersion>>, RequestError> {
        let path = format!("{STORAGE_VERSIONS}/{}", storage_version::name(&resource.name));
        match self.server.get::<Named>(&path).await {
            Ok(Named(_, version)) => Ok(Access::Granted(Some(version))),
            Err(error) if error.code() == Some(404) => Ok(Access::Granted(None)),
            Err(error) if error.code() == Some(403) => Ok(Access::Denied(error.to_string())),
            Err(error) => Err(error),
        }
    }

    /// Every StorageVersion object, by name.
    pub(crate) async fn storage_versions(
        &self,
    ) -> Result<Access<HashMap<String, StorageVersion>>, RequestError> {
        match self.list_storage_versions().await {
            Ok(all) => Ok(Access::Granted(all)),
            Err(error) if error.code() == Some(404) => Ok(Access::Granted(HashMap::new())),
            Err(error) if error.code() == Some(403) => Ok(Access::Denied(error.to_string())),
            Err(error) => Err(error),
        }
    }

    async fn list_storage_versions(&self) -> Result<HashMap<String, StorageVersion>, RequestError> {
        #[derive(Deserialize)]
        struct List {
            items: Vec<Named>,
        }
        let list: List = self.server.get(STORAGE_VERSIONS).await?;
        Ok(list.items.into_iter().map(|Named(name, version)| (name, version)).collect())
    }

    /// Whether the agreement on a resource rests on its StorageVersion alone. Where API servers are named or sampled, that
    /// is so only for aggregated resources.
    pub(super) fn goes_by_registered(&self, resource: &Resource) -> bool {
        let believed = match self.trust {
            Trust::Members => true,
            Trust::Named(_) | Trust::Sampled(_) => resource.origin == Origin::Aggregated,
            Trust::Single => false,
        };
        believed && hides_storage(resource)
    }

    /// The encoding versions that are registered, where StorageVersions are served. A 404 does not come from the API
    /// server then, and may pass.
    pub(super) async fn registered(&self) -> Result<Access<Registered>, RequestError> {
        let version = |object: &StorageVersion| {
            object.common.clone().or_else(|| object.entries.first().map(|(_, version)| version.clone()))
        };
        match self.list_storage_versions().await {
            Ok(all) => Ok(Access::Granted(Registered(
                all.iter().filter_map(|(name, object)| Some((name.clone(), version(object)?))).collect(),
            ))),
            Err(error) if error.code() == Some(403) => {
                let name = GroupResource::new("internal.apiserver.k8s.io", "storageversions");
                let grant = Missing::grant(&[Missing::new("list", &name)]);
                Ok(Access::Denied(format!("{error}; {grant}")))
            }
            Err(error) => Err(error),
        }
    }
}
