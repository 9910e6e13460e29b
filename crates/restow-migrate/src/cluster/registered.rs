//! StorageVersion objects, in which API servers register how they store resources.

use std::collections::HashMap;

use jiff::Timestamp;
use restow_core::agreement::version::StorageVersion;
use restow_core::protocol::storage_version;
use restow_core::resource::inventory::{Origin, Resource, hides_storage};
use restow_core::resource::name::{GroupResource, GroupVersion};
use serde::Deserialize;

use super::handle::{Cluster, Trust};
use crate::client::RequestError;
use crate::client::access::Missing;

/// The path of all StorageVersion objects.
pub(crate) const STORAGE_VERSIONS: &str = "/apis/internal.apiserver.k8s.io/v1alpha1/storageversions";

/// Whether StorageVersion objects are served in this version of a group.
pub(super) fn are_in(version: &GroupVersion) -> bool {
    STORAGE_VERSIONS.starts_with(&version.path())
}

#[derive(Deserialize)]
struct StorageVersionObject {
    metadata: StorageVersionMeta,
    #[serde(default)]
    status: StorageVersionStatus,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct StorageVersionMeta {
    name: String,
    resource_version: String,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct StorageVersionStatus {
    #[serde(default)]
    storage_versions: Vec<StorageVersionEntry>,
    common_encoding_version: Option<String>,
    #[serde(default)]
    conditions: Vec<StorageVersionCondition>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct StorageVersionCondition {
    #[serde(rename = "type")]
    kind: String,
    status: String,
    last_transition_time: Option<Timestamp>,
}

#[derive(Deserialize)]
struct StorageVersionEntry {
    #[serde(rename = "apiServerID")]
    id: String,
    #[serde(rename = "encodingVersion")]
    encoding: String,
}

impl From<StorageVersionObject> for StorageVersion {
    fn from(object: StorageVersionObject) -> Self {
        let equal = |condition: &&StorageVersionCondition| {
            condition.kind == storage_version::ALL_EQUAL && condition.status == "True"
        };
        Self {
            since: object.status.conditions.iter().find(equal).and_then(|equal| equal.last_transition_time),
            resource_version: object.metadata.resource_version,
            entries: object.status.storage_versions.into_iter().map(|e| (e.id, e.encoding)).collect(),
            common: object.status.common_encoding_version.filter(|version| !version.is_empty()),
        }
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
    /// The StorageVersion object of a resource, if there is one; the inner error says that it may not be read.
    pub(super) async fn storage_version(
        &self,
        resource: &Resource,
    ) -> Result<Result<Option<StorageVersion>, String>, RequestError> {
        let path = format!("{STORAGE_VERSIONS}/{}", storage_version::name(&resource.name));
        match self.server.get::<StorageVersionObject>(&path).await {
            Ok(object) => Ok(Ok(Some(object.into()))),
            Err(error) if error.code() == Some(404) => Ok(Ok(None)),
            Err(error) if error.code() == Some(403) => Ok(Err(error.to_string())),
            Err(error) => Err(error),
        }
    }

    /// Every StorageVersion object, by name; the inner error says that they may not be listed.
    pub(crate) async fn storage_versions(
        &self,
    ) -> Result<Result<HashMap<String, StorageVersion>, String>, RequestError> {
        match self.list_storage_versions().await {
            Ok(all) => Ok(Ok(all)),
            Err(error) if error.code() == Some(404) => Ok(Ok(HashMap::new())),
            Err(error) if error.code() == Some(403) => Ok(Err(error.to_string())),
            Err(error) => Err(error),
        }
    }

    async fn list_storage_versions(&self) -> Result<HashMap<String, StorageVersion>, RequestError> {
        #[derive(Deserialize)]
        struct List {
            items: Vec<StorageVersionObject>,
        }
        let list: List = self.server.get(STORAGE_VERSIONS).await?;
        let each = |object: StorageVersionObject| (object.metadata.name.clone(), object.into());
        Ok(list.items.into_iter().map(each).collect())
    }

    /// Whether a resource is migrated by its StorageVersion alone, which tells the kube-apiservers' storage only to who
    /// does not tell them apart in another way.
    pub(super) fn goes_by_registered(&self, resource: &Resource) -> bool {
        let believed = match self.trust {
            Trust::Members => true,
            Trust::Named(_) | Trust::Sampled(_) => resource.origin == Origin::Aggregated,
            Trust::Single => false,
        };
        believed && hides_storage(resource)
    }

    /// The encoding versions that are registered, where StorageVersions are served; the inner error says that they may
    /// not be listed. A 404 on what is served is somebody else's, and passes.
    pub(super) async fn registered(&self) -> Result<Result<Registered, String>, RequestError> {
        let version = |object: &StorageVersion| {
            object.common.clone().or_else(|| object.entries.first().map(|(_, version)| version.clone()))
        };
        match self.list_storage_versions().await {
            Ok(all) => Ok(Ok(Registered(
                all.iter().filter_map(|(name, object)| Some((name.clone(), version(object)?))).collect(),
            ))),
            Err(error) if error.code() == Some(403) => {
                let name = GroupResource::new("internal.apiserver.k8s.io", "storageversions");
                let grant = Missing::grant(&[Missing::new("list", &name)]);
                Ok(Err(format!("{error}; {grant}")))
            }
            Err(error) => Err(error),
        }
    }
}
