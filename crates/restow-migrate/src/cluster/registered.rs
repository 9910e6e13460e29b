//! StorageVersion objects, in which API servers register how they store resources.

use std::collections::HashMap;

use jiff::Timestamp;
use restow_core::agreement::StorageVersion;
use restow_core::inventory::Resource;
use restow_core::resource::GroupVersion;
use restow_core::storage_version;
use serde::Deserialize;

use super::Cluster;
use crate::server::RequestError;

const STORAGE_VERSIONS: &str = "/apis/internal.apiserver.k8s.io/v1alpha1/storageversions";

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

impl Cluster {
    /// The StorageVersion object of a resource, where there is one that may be read.
    pub(super) async fn storage_version(
        &self,
        resource: &Resource,
    ) -> Result<Option<StorageVersion>, RequestError> {
        let path = format!("{STORAGE_VERSIONS}/{}", storage_version::name(&resource.name));
        match self.server.get::<StorageVersionObject>(&path).await {
            Ok(object) => Ok(Some(object.into())),
            Err(RequestError::Refused { code: 403 | 404, .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Every StorageVersion object, by name, where they may be read.
    pub(crate) async fn storage_versions(&self) -> Result<HashMap<String, StorageVersion>, RequestError> {
        #[derive(Deserialize)]
        struct List {
            items: Vec<StorageVersionObject>,
        }
        match self.server.get::<List>(STORAGE_VERSIONS).await {
            Ok(list) => {
                let each = |object: StorageVersionObject| (object.metadata.name.clone(), object.into());
                Ok(list.items.into_iter().map(each).collect())
            }
            Err(RequestError::Refused { code: 403 | 404, .. }) => Ok(HashMap::new()),
            Err(error) => Err(error),
        }
    }
}
