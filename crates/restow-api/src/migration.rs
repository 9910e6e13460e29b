//! StorageVersionMigration: a request to rewrite one resource, and its progress.

use std::borrow::Cow;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube_derive::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::labels::RETRY;
use crate::reason::Reason;
use crate::resource::GroupVersionResource;

/// Which resource to migrate, and how.
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
    /// The resource to migrate. Immutable.
    #[x_kube(validation = Rule::new("self == oldSelf").message("spec.resource is immutable: create another migration"))]
    pub resource: GroupVersionResource,
    /// The continue token of the next page while the migration runs. Set by the controller.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub continue_token: Option<String>,
    /// The storage version hash that this migration is for. If it is not set, the migration is for the version that the API
    /// servers agree on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub storage_version_hash: Option<String>,
    /// The hash of the encryption configuration that this migration is for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub encryption_config_hash: Option<String>,
    /// If true, the migration stops within a page. It resumes from there when this is false or removed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub suspend: Option<bool>,
}

/// The progress and the result of a migration.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct StorageVersionMigrationStatus {
    /// The latest observations of the migration: Running, Succeeded, Failed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<MigrationCondition>,
    /// The conditions as one word: Waiting, Suspended, Running, Succeeded or Failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub phase: Option<String>,
    /// How many objects were processed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub progress: Option<MigrationProgress>,
    /// The first 100 objects that could not be rewritten; `progress.quarantined` counts all of them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub quarantined: Vec<QuarantinedObject>,
    /// What restow resumes from. Its format may change.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub checkpoint: Option<Checkpoint>,
}

/// The state of a migration at a certain point.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MigrationCondition {
    /// Type of the condition: Running, Succeeded or Failed.
    #[serde(rename = "type")]
    pub type_: ConditionType,
    /// Status of the condition: True, False or Unknown.
    pub status: ConditionStatus,
    /// The last time the condition changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_update_time: Option<Time>,
    /// The reason for the last change, as one CamelCase word.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// A human-readable message with details about the last change.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

/// The type of a condition.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum ConditionType {
    /// Objects are being rewritten or verified.
    Running,
    /// Every object is stored in the current version and under the current key, and that was verified.
    Succeeded,
    /// The migration ended without success.
    Failed,
}

/// The status of a condition.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum ConditionStatus {
    /// The condition holds.
    True,
    /// The condition does not hold.
    False,
    /// It is not known whether the condition holds.
    Unknown,
}

/// How many objects were processed, and with which result.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MigrationProgress {
    /// The number of objects listed.
    #[schemars(with = "i64")]
    pub listed: u64,
    /// The number of objects rewritten in the storage version.
    #[schemars(with = "i64")]
    pub rewritten: u64,
    /// The number of objects that were already stored in the current version and under the current key.
    #[schemars(with = "i64")]
    pub current: u64,
    /// The number of objects that others deleted or wrote meanwhile.
    #[schemars(with = "i64")]
    pub skipped: u64,
    /// The number of objects that could not be rewritten.
    #[schemars(with = "i64")]
    pub quarantined: u64,
    /// The number of objects checked in the verifying pass.
    #[serde(default)]
    #[schemars(with = "i64")]
    pub checked: u64,
    /// The current pass: `rewriting` or `verifying`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pass: Option<String>,
    /// The number of objects that remain in this pass, if it is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<i64>")]
    pub remaining: Option<u64>,
    /// The share of this pass that is done, for example `42%`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub percent: Option<String>,
    /// The storage version that is migrated to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub storage_version: Option<String>,
    /// The hash of that version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub storage_version_hash: Option<String>,
    /// What the agreement of the API servers rests on: storageversion, direct, endpoints, named, sampled or assumed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agreement: Option<String>,
    /// Whether a verifying pass found nothing left to rewrite.
    #[serde(default)]
    pub verified: bool,
    /// When the first page was started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started_at: Option<Time>,
    /// When the last page was finished.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub updated_at: Option<Time>,
    /// When this pass will end if it continues at the same rate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub estimated_completion: Option<Time>,
}

/// An object that could not be rewritten.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct QuarantinedObject {
    /// The namespace of the object; absent for cluster-scoped objects.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub namespace: String,
    /// The name of the object; of an unreadable object, as much as is known.
    pub name: String,
    /// The uid of the object; absent if it could not be read.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub uid: String,
    /// Why it could not be rewritten, as one CamelCase word from the API server or restow.
    pub reason: String,
    /// The message of the API server or restow.
    pub message: String,
}

/// What restow resumes from after a crash, in a private format.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Checkpoint(pub serde_json::Map<String, serde_json::Value>);

// Not derived, because with the derived schema of a map the server prunes nested fields.
impl JsonSchema for Checkpoint {
    fn schema_name() -> Cow<'static, str> {
        "Checkpoint".into()
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({
            "type": "object",
            "description": "What restow resumes from after a crash. Its format may change.",
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
    /// The name in objects.
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

    /// The condition of a type.
    pub fn condition(&self, type_: ConditionType) -> Option<&MigrationCondition> {
        self.conditions.iter().find(|condition| condition.type_ == type_)
    }
}

impl StorageVersionMigration {
    /// Whether a condition is True.
    pub fn is(&self, type_: ConditionType) -> bool {
        self.status.as_ref().is_some_and(|status| status.is(type_))
    }

    /// Whether it has succeeded or failed.
    pub fn is_finished(&self) -> bool {
        self.is(ConditionType::Succeeded) || self.is(ConditionType::Failed)
    }

    /// Whether a user has suspended it.
    pub fn is_suspended(&self) -> bool {
        self.spec.suspend.unwrap_or(false)
    }

    /// Whether a retry was requested and has not begun yet.
    pub fn retry_requested(&self) -> bool {
        self.metadata.annotations.as_ref().is_some_and(|annotations| annotations.contains_key(RETRY))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objects_of_the_predecessor_round_trip() {
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
