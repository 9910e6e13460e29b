//! StorageState: the versions in which a resource may be stored.

use std::borrow::Cow;
use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube_derive::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::resource::GroupResource;

/// The value of a hash that is not known.
pub const UNKNOWN: &str = "Unknown";

/// The resource that a StorageState describes.
#[derive(CustomResource, KubeSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[x_kube(crates(kube_core = "::kube_core"))]
#[kube(
    crates(kube_core = "::kube_core"),
    group = "migration.k8s.io",
    version = "v1alpha1",
    kind = "StorageState",
    plural = "storagestates",
    singular = "storagestate",
    shortname = "sst",
    category = "storage-migration",
    derive = "PartialEq",
    derive = "Default",
    status = "StorageStateStatus",
    doc = "StorageState records the versions and encryption keys in which the objects of one resource may be stored.",
    annotation(
        "api-approved.kubernetes.io",
        "unapproved, the API of kube-storage-version-migrator as restow serves it"
    ),
    schema = "manual",
    printcolumn = r#"{"name":"Current","type":"string","jsonPath":".status.currentStorageVersion"}"#,
    printcolumn = r#"{"name":"Persisted","type":"string","jsonPath":".status.persistedStorageVersions"}"#,
    printcolumn = r#"{"name":"Current Hash","type":"string","jsonPath":".status.currentStorageVersionHash"}"#,
    printcolumn = r#"{"name":"Persisted Hashes","type":"string","jsonPath":".status.persistedStorageVersionHashes","priority":1}"#,
    printcolumn = r#"{"name":"Agreement","type":"string","jsonPath":".status.agreement"}"#,
    printcolumn = r#"{"name":"Heartbeat","type":"date","jsonPath":".status.lastHeartbeatTime"}"#
)]
pub struct StorageStateSpec {
    /// The resource that the StorageState describes. Immutable; the name of the object must match it.
    #[x_kube(validation = Rule::new("self == oldSelf").message("spec.resource is immutable"))]
    pub resource: GroupResource,
}

// kube's derive finds the `Rule` of a whole object only under the crate `kube`, which is a client.
impl JsonSchema for StorageState {
    fn schema_name() -> Cow<'static, str> {
        "StorageState".into()
    }

    fn json_schema(generator: &mut schemars::SchemaGenerator) -> schemars::Schema {
        /// StorageState records the versions and encryption keys in which the objects of one resource may be stored.
        #[derive(KubeSchema)]
        #[x_kube(
            crates(kube_core = "::kube_core"),
            validation = Rule::new("self.metadata.name == (has(self.spec.resource.group) && self.spec.resource.group != '' ? self.spec.resource.resource + '.' + self.spec.resource.group : self.spec.resource.resource)")
                .message("the name must be <resource>.<group>, or <resource> in the core group"),
        )]
        #[expect(dead_code, reason = "only its schema is used")]
        struct Schema {
            spec: StorageStateSpec,
            status: Option<StorageStateStatus>,
        }
        Schema::json_schema(generator)
    }
}

/// How the objects of the resource are stored, as far as it is known.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct StorageStateStatus {
    /// The hashes of all storage versions in which objects may still be stored. "Unknown" is a valid value.
    ///
    /// Every API server must be able to read all of these versions.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub persisted_storage_version_hashes: Vec<String>,
    /// The hash of the storage version that the API servers write now; "Unknown" while they disagree.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub current_storage_version_hash: Option<String>,
    /// The names of the versions in `persistedStorageVersionHashes`, in the same order. If the version of a hash is not
    /// known, the hash is repeated here.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub persisted_storage_versions: Vec<String>,
    /// The name of the version that `currentStorageVersionHash` stands for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub current_storage_version: Option<String>,
    /// The last time the controller reached all API servers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_heartbeat_time: Option<Time>,
    /// The hashes of all encryption configurations under which objects may still be stored, if the key is watched.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub persisted_encryption_config_hashes: Vec<String>,
    /// The hash of the encryption configuration that the API servers use now; "Unknown" while they differ.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub current_encryption_config_hash: Option<String>,
    /// When each API server last loaded an encryption configuration without a restart, by the hash of its identity, if the
    /// key is watched.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub encryption_config_reloads: Option<BTreeMap<String, String>>,
    /// The uid and generation of the CustomResourceDefinition during the last verified migration.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verified_definition: Option<String>,
    /// Since when the API servers have agreed on the current storage version, if a StorageVersion object shows that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agreed_since: Option<Time>,
    /// The versions that were served when the last migration was created. Entries of managedFields may refer to them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub served_versions: Vec<String>,
    /// The number of consecutive migrations that failed for a reason that may go away, and were replaced.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<i64>")]
    pub replaced_migrations: Option<u32>,
    /// When the last failed migration will be replaced.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_migration_time: Option<Time>,
    /// The migration to create next. It is recorded before the migrations that it replaces are deleted, so that a crash in
    /// between does not lose it, and removed once the migration exists.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pending_migration: Option<PendingMigration>,
    /// What the agreement of the API servers rests on: storageversion, direct, endpoints, named, sampled or assumed; `none`
    /// without an agreement.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agreement: Option<String>,
    /// A human-readable message: why there is no agreement, or what is not known about the keys.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

/// A migration to create.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PendingMigration {
    /// The name of the migration; it is unique.
    pub name: String,
    /// Whether it is created suspended, because the migration that it replaces is suspended.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub suspend: bool,
}

impl StorageStateStatus {
    /// Whether all objects are stored in the current version and under the current key.
    pub fn is_settled(&self) -> bool {
        let current = self.current_storage_version_hash.as_ref();
        is_all(current, &self.persisted_storage_version_hashes) && self.encryption_is_settled()
    }

    /// The current version by name and hash, `v2 (gIwvi5rymmg=)`, or `Unknown`.
    pub fn current_version(&self) -> String {
        let hash = self.current_storage_version_hash.as_deref().unwrap_or(UNKNOWN);
        beside(self.current_storage_version.as_deref(), hash)
    }

    /// The versions that objects may still be stored in, by name and hash.
    pub fn persisted_versions(&self) -> Vec<String> {
        let hashes = &self.persisted_storage_version_hashes;
        // Another controller may write only the hashes.
        let named = self.persisted_storage_versions.len() == hashes.len();
        let name = |index: usize| self.persisted_storage_versions.get(index).filter(|_| named);
        let each = |(index, hash): (usize, &String)| beside(name(index).map(String::as_str), hash);
        hashes.iter().enumerate().map(each).collect()
    }

    /// Whether all objects are stored under one key, or the key is not watched.
    pub fn encryption_is_settled(&self) -> bool {
        let (key, keys) = (&self.current_encryption_config_hash, &self.persisted_encryption_config_hashes);
        (key.is_none() && keys.is_empty()) || is_all(key.as_ref(), keys)
    }
}

/// A hash with the name of its version, if that is known.
fn beside(name: Option<&str>, hash: &str) -> String {
    match name {
        Some(name) if name != hash && hash != UNKNOWN => format!("{name} ({hash})"),
        _ => hash.to_owned(),
    }
}

/// Whether the current hash is known and the only persisted one.
fn is_all(current: Option<&String>, persisted: &[String]) -> bool {
    current.is_some_and(|current| current != UNKNOWN && persisted == std::slice::from_ref(current))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_named_beside_their_hashes() {
        for (hashes, names, shown) in [
            (&["a", "b"][..], &["v1", "v2"][..], "v1 (a), v2 (b)"),
            (&["Unknown", "b"], &["Unknown", "v2"], "Unknown, v2 (b)"),
            // A hash whose version is not known.
            (&["a", "b"], &["a", "v2"], "a, v2 (b)"),
            // Written by a controller that does not know the names.
            (&["a", "b"], &["v1"], "a, b"),
            (&[], &[], ""),
        ] {
            let texts = |all: &[&str]| all.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>();
            let status = StorageStateStatus {
                persisted_storage_version_hashes: texts(hashes),
                persisted_storage_versions: texts(names),
                ..StorageStateStatus::default()
            };
            assert_eq!(status.persisted_versions().join(", "), shown);
            assert_eq!(status.current_version(), UNKNOWN);
        }
    }

    #[test]
    fn settled_means_one_version_and_one_key() {
        for (persisted, current, keys, key, settled) in [
            (&["a"][..], Some("a"), &[][..], None, true),
            (&["a", "b"], Some("b"), &[], None, false),
            (&["b"], Some("a"), &[], None, false),
            (&["Unknown"], Some("Unknown"), &[], None, false),
            (&[], Some("a"), &[], None, false),
            (&[], None, &[], None, false),
            (&["a"], Some("a"), &["k"], Some("k"), true),
            (&["a"], Some("a"), &["j", "k"], Some("k"), false),
            (&["a"], Some("a"), &["Unknown"], None, false),
        ] {
            let texts = |all: &[&str]| all.iter().map(|text| (*text).to_owned()).collect();
            let status = StorageStateStatus {
                persisted_storage_version_hashes: texts(persisted),
                current_storage_version_hash: current.map(str::to_owned),
                persisted_encryption_config_hashes: texts(keys),
                current_encryption_config_hash: key.map(str::to_owned),
                ..StorageStateStatus::default()
            };
            assert_eq!(status.is_settled(), settled, "{persisted:?} {current:?} {keys:?} {key:?}");
        }
    }
}
