//! StorageVersionMigration: one resource to be rewritten, and how far that is.

use std::borrow::Cow;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube_derive::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::reason::Reason;
use crate::resource::GroupVersionResource;

/// A resource to rewrite.
#[derive(CustomResource, KubeSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[x_kube(crates(kube_core = "::kube_core"))]
#[kube(
    crates(kube_core = "::kube_core"),
    group = "migration.k8s.io",
    version = "v1alpha1",
    kind = "StorageVersionMigration",
    plural = "storageversionmigrations",
    singular = "storageversionmigration",
    shortname = "svm",
    category = "storage-migration",
    derive = "PartialEq",
    derive = "Default",
    status = "StorageVersionMigrationStatus",
    doc = "StorageVersionMigration represents a migration of stored data to the latest storage version.",
    annotation(
        "api-approved.kubernetes.io",
        "unapproved, the API of kube-storage-version-migrator as restow serves it"
    ),
    printcolumn = r#"{"name":"Resource","type":"string","jsonPath":".spec.resource.resource"}"#,
    printcolumn = r#"{"name":"Group","type":"string","jsonPath":".spec.resource.group","priority":1}"#,
    printcolumn = r#"{"name":"Phase","type":"string","jsonPath":".status.phase"}"#,
    printcolumn = r#"{"name":"Progress","type":"string","jsonPath":".status.progress.percent"}"#,
    printcolumn = r#"{"name":"Remaining","type":"integer","jsonPath":".status.progress.remaining"}"#,
    printcolumn = r#"{"name":"Quarantined","type":"integer","jsonPath":".status.progress.quarantined","priority":1}"#,
    printcolumn = r#"{"name":"Agreement","type":"string","jsonPath":".status.progress.agreement","priority":1}"#,
    printcolumn = r#"{"name":"Age","type":"date","jsonPath":".metadata.creationTimestamp"}"#
)]
pub struct StorageVersionMigrationSpec {
    /// The resource to rewrite. Immutable.
    #[x_kube(validation = Rule::new("self == oldSelf").message("spec.resource is immutable: make another migration"))]
    pub resource: GroupVersionResource,
    /// Where the next page of the list starts, while the migration runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub continue_token: Option<String>,
    /// The storage version hash this migration is for; without it, whatever the API servers agree on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub storage_version_hash: Option<String>,
    /// The hash of the encryption configuration this migration is for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub encryption_config_hash: Option<String>,
    /// Stops the migration within a page; it goes on from there when this is taken back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub suspend: Option<bool>,
}

/// How far it is.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct StorageVersionMigrationStatus {
    /// What was last observed: Running, Succeeded, Failed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<MigrationCondition>,
    /// The conditions in one word, for tables.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub phase: Option<String>,
    /// Counts of objects.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub progress: Option<MigrationProgress>,
    /// The first of those objects that were left as they are; `progress.quarantined` counts all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub quarantined: Vec<QuarantinedObject>,
    /// What restow itself goes on from. Its form is not promised.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub checkpoint: Option<Checkpoint>,
}

/// One observation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MigrationCondition {
    /// Which.
    #[serde(rename = "type")]
    pub type_: ConditionType,
    /// Whether it holds.
    pub status: ConditionStatus,
    /// When it last changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_update_time: Option<Time>,
    /// Why, in one word.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Why, for a person.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

/// What can be observed of a migration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum ConditionType {
    /// It is under way.
    Running,
    /// Every object is stored as it should be, and that was verified.
    Succeeded,
    /// It ended otherwise.
    Failed,
}

/// Whether a condition holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum ConditionStatus {
    /// It holds.
    True,
    /// It does not.
    False,
    /// Nobody knows.
    Unknown,
}

/// Counts of what became of the objects.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MigrationProgress {
    /// Seen in lists.
    #[schemars(with = "i64")]
    pub listed: u64,
    /// Stored anew.
    #[schemars(with = "i64")]
    pub rewritten: u64,
    /// Already stored as they should be.
    #[schemars(with = "i64")]
    pub current: u64,
    /// Deleted, or written by somebody else, meanwhile.
    #[schemars(with = "i64")]
    pub skipped: u64,
    /// Refused by the server.
    #[schemars(with = "i64")]
    pub quarantined: u64,
    /// Looked at once more in the pass that verifies.
    #[serde(default)]
    #[schemars(with = "i64")]
    pub checked: u64,
    /// The pass under way: `rewriting` or `verifying`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pass: Option<String>,
    /// Not yet looked at in this pass, where that can be told.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<i64>")]
    pub remaining: Option<u64>,
    /// How much of this pass is done, such as `42%`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub percent: Option<String>,
    /// The storage version that is migrated to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub storage_version: Option<String>,
    /// The hash of that version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub storage_version_hash: Option<String>,
    /// What the agreement of the API servers rests on: storageversion, direct, named, sampled or assumed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agreement: Option<String>,
    /// Whether a second pass found nothing left to rewrite.
    #[serde(default)]
    pub verified: bool,
    /// When the first page was begun.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started_at: Option<Time>,
    /// When the last page was finished.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub updated_at: Option<Time>,
    /// When this pass will end, at its pace until now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub estimated_completion: Option<Time>,
}

/// An object that was left as it is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct QuarantinedObject {
    /// Its namespace, absent for cluster-wide objects.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub namespace: String,
    /// Its name; of an unreadable object, as far as it could be told.
    pub name: String,
    /// Its uid; absent when it could not be read.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub uid: String,
    /// The server's own reason, or restow's.
    pub reason: String,
    /// The server's own words, or restow's.
    pub message: String,
}

/// What restow goes on from after a crash, in a form of its own.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Checkpoint(pub serde_json::Map<String, serde_json::Value>);

// By hand, because a derived schema of a map lets the server prune what is deeper in it.
impl JsonSchema for Checkpoint {
    fn schema_name() -> Cow<'static, str> {
        "Checkpoint".into()
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({
            "type": "object",
            "description": "What restow goes on from after a crash. Its form is not promised.",
            "x-kubernetes-preserve-unknown-fields": true,
        })
    }
}

impl MigrationCondition {
    /// The reason, if it is one of restow's.
    pub fn reason(&self) -> Option<Reason> {
        self.reason.as_deref()?.parse().ok()
    }
}

impl ConditionType {
    /// Its name, as objects have it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Running => "Running",
            Self::Succeeded => "Succeeded",
            Self::Failed => "Failed",
        }
    }
}

impl StorageVersionMigrationStatus {
    /// Whether a condition is True.
    pub fn is(&self, type_: ConditionType) -> bool {
        self.condition(type_).is_some_and(|condition| condition.status == ConditionStatus::True)
    }

    /// One condition.
    pub fn condition(&self, type_: ConditionType) -> Option<&MigrationCondition> {
        self.conditions.iter().find(|condition| condition.type_ == type_)
    }
}

impl StorageVersionMigration {
    /// Whether a condition is True.
    pub fn is(&self, type_: ConditionType) -> bool {
        self.status.as_ref().is_some_and(|status| status.is(type_))
    }

    /// Whether it has ended, well or not.
    pub fn is_finished(&self) -> bool {
        self.is(ConditionType::Succeeded) || self.is(ConditionType::Failed)
    }

    /// Whether it is to stand still.
    pub fn is_suspended(&self) -> bool {
        self.spec.suspend.unwrap_or(false)
    }

    /// Whether one more try of what was left was asked for.
    pub fn retry_requested(&self) -> bool {
        self.metadata.annotations.as_ref().is_some_and(|annotations| annotations.contains_key(crate::RETRY))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objects_of_the_predecessor_are_read_and_kept() {
        let text = r#"{"apiVersion":"migration.k8s.io/v1alpha1","kind":"StorageVersionMigration",
            "metadata":{"name":"deployments.apps-x7k2p"},
            "spec":{"resource":{"group":"apps","version":"v1","resource":"deployments"},"continueToken":"abc"},
            "status":{"conditions":[{"type":"Running","status":"False","lastUpdateTime":"2023-03-01T10:00:00Z"},
                                    {"type":"Succeeded","status":"True","lastUpdateTime":"2023-03-01T10:05:00Z"}]}}"#;
        let migration: StorageVersionMigration = serde_json::from_str(text).unwrap();
        assert!(migration.is(ConditionType::Succeeded) && !migration.is(ConditionType::Running));
        assert_eq!(migration.spec.resource.name(), "deployments.apps");
        let before: serde_json::Value = serde_json::from_str(text).unwrap();
        assert_eq!(serde_json::to_value(&migration).unwrap(), before);
    }
}
