//! StorageState: in which versions a resource may be stored.

use std::borrow::Cow;
use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube_derive::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::resource::GroupResource;

/// Stands for a hash that is not known.
pub const UNKNOWN: &str = "Unknown";

/// The resource a StorageState is about.
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
    doc = "StorageState is the state of the storage of one resource.",
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
    /// The resource. Immutable, as the name is.
    #[x_kube(validation = Rule::new("self == oldSelf").message("spec.resource is immutable"))]
    pub resource: GroupResource,
}

// kube's derive finds the `Rule` of a whole object only under the crate `kube`, which is a client.
impl JsonSchema for StorageState {
    fn schema_name() -> Cow<'static, str> {
        "StorageState".into()
    }

    fn json_schema(generator: &mut schemars::SchemaGenerator) -> schemars::Schema {
        /// StorageState is the state of the storage of one resource.
        #[derive(KubeSchema)]
        #[x_kube(
            crates(kube_core = "::kube_core"),
            validation = Rule::new("self.metadata.name == (has(self.spec.resource.group) && self.spec.resource.group != '' ? self.spec.resource.resource + '.' + self.spec.resource.group : self.spec.resource.resource)")
                .message("the name must be <resource>.<group>, or just <resource> in the core group"),
        )]
        #[expect(dead_code, reason = "only its schema is used")]
        struct Schema {
            spec: StorageStateSpec,
            status: Option<StorageStateStatus>,
        }
        Schema::json_schema(generator)
    }
}

/// What is known of how the resource is stored.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct StorageStateStatus {
    /// Hashes of the storage versions that objects may still be stored in; "Unknown" is a valid one.
    ///
    /// No API server that cannot read all of them may be installed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub persisted_storage_version_hashes: Vec<String>,
    /// The hash of the storage version that is written now; "Unknown" while the API servers do not agree.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub current_storage_version_hash: Option<String>,
    /// The names of the versions in `persistedStorageVersionHashes`, in its order; a hash whose version is not known
    /// stands for itself.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub persisted_storage_versions: Vec<String>,
    /// The name of the version in `currentStorageVersionHash`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub current_storage_version: Option<String>,
    /// When all API servers were last heard.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_heartbeat_time: Option<Time>,
    /// Hashes of the encryption configurations that objects may still be stored under, where that is watched.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub persisted_encryption_config_hashes: Vec<String>,
    /// The hash of the encryption configuration that is written under now; "Unknown" while the API servers differ.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub current_encryption_config_hash: Option<String>,
    /// When each API server last took up an encryption configuration without a restart, by the hash of its identity,
    /// where that is watched.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub encryption_config_reloads: Option<BTreeMap<String, String>>,
    /// The CustomResourceDefinition, as uid and generation, that the last verified migration ran under.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verified_definition: Option<String>,
    /// Since when the API servers had agreed on the current storage version when they were last asked, where they tell.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agreed_since: Option<Time>,
    /// The versions that were served when the last migration was made: entries of managedFields may be of them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub served_versions: Vec<String>,
    /// How many migrations in a row failed for a reason that may pass by itself, and were replaced.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<i64>")]
    pub replaced_migrations: Option<u32>,
    /// When the migration that failed last is replaced.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_migration_time: Option<Time>,
    /// The migration that is to be made. It is written down before those it replaces are deleted, so that no stop in
    /// between loses it, and taken away when it is there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pending_migration: Option<PendingMigration>,
    /// What the agreement of the API servers rests on, or `none`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agreement: Option<String>,
    /// Why there is none, or what cannot be seen of the keys, for a person.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

/// A migration that is to be made.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PendingMigration {
    /// The name it gets, which no other migration has had.
    pub name: String,
    /// Whether it is suspended, as the one it replaces is.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub suspend: bool,
}

impl StorageStateStatus {
    /// Whether objects can only be stored as the API servers write them now: in one version, and under one key.
    pub fn is_settled(&self) -> bool {
        let current = self.current_storage_version_hash.as_ref();
        is_all(current, &self.persisted_storage_version_hashes) && self.encryption_is_settled()
    }

    /// The current version by name and hash: `v2 (gIwvi5rymmg=)`; `Unknown` when it is not known.
    pub fn current_version(&self) -> String {
        let hash = self.current_storage_version_hash.as_deref().unwrap_or(UNKNOWN);
        beside(self.current_storage_version.as_deref(), hash)
    }

    /// The versions that objects may still be stored in, by name and hash.
    pub fn persisted_versions(&self) -> Vec<String> {
        let hashes = &self.persisted_storage_version_hashes;
        // Who does not know the names writes just the hashes.
        let named = self.persisted_storage_versions.len() == hashes.len();
        let name = |index: usize| self.persisted_storage_versions.get(index).filter(|_| named);
        let each = |(index, hash): (usize, &String)| beside(name(index).map(String::as_str), hash);
        hashes.iter().enumerate().map(each).collect()
    }

    /// Whether they can only be stored under one key; that is so where keys are not watched.
    pub fn encryption_is_settled(&self) -> bool {
        let (key, keys) = (&self.current_encryption_config_hash, &self.persisted_encryption_config_hashes);
        (key.is_none() && keys.is_empty()) || is_all(key.as_ref(), keys)
    }
}

/// A hash beside the name of its version, where that is known.
fn beside(name: Option<&str>, hash: &str) -> String {
    match name {
        Some(name) if name != hash && hash != UNKNOWN => format!("{name} ({hash})"),
        _ => hash.to_owned(),
    }
}

/// Whether the current one is known, and all that is left.
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
            // A hash that no version is known for.
            (&["a", "b"], &["a", "v2"], "a, v2 (b)"),
            // Written by somebody who does not know the names.
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
