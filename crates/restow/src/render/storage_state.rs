//! Summarizes a StorageState for display, given the time.

use jiff::Timestamp;
use kube::ResourceExt as _;
use restow_api::{StorageState, StorageStateStatus, UNKNOWN};
use restow_core::controller::trigger::HEARTBEAT_TIMEOUT;
use serde::Serialize;

use crate::render::migration::seconds;
use crate::render::table::Row;

/// The columns of the table of StorageStates.
pub(crate) const HEADER: [&str; 5] = ["STORAGE STATE", "SETTLED", "CURRENT", "AGREEMENT", "HEARTBEAT"];

/// The summary of a StorageState.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct StorageSummary {
    pub(crate) resource: String,
    /// Whether all objects are stored in the current version and under the current key.
    pub(crate) settled: bool,
    #[serde(skip)]
    encryption_settled: bool,
    current: String,
    pub(crate) persisted: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    current_version: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    persisted_versions: Vec<String>,
    /// Each hash with the name of its version.
    #[serde(skip)]
    named: (String, Vec<String>),
    #[serde(skip_serializing_if = "Option::is_none")]
    current_encryption: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    persisted_encryption: Vec<String>,
    agreement: Option<String>,
    heartbeat: Option<Timestamp>,
    #[serde(skip)]
    heartbeat_age: Option<f64>,
    message: Option<String>,
}

impl StorageSummary {
    /// Summarizes a StorageState now.
    pub(crate) fn of(state: &StorageState, now: Timestamp) -> Self {
        let status: StorageStateStatus = state.status.clone().unwrap_or_default();
        let (settled, encryption_settled) = (status.is_settled(), status.encryption_is_settled());
        let heartbeat = status.last_heartbeat_time.as_ref().map(|time| time.0);
        Self {
            resource: state.name_any(),
            settled,
            encryption_settled,
            named: (status.current_version(), status.persisted_versions()),
            current_version: status.current_storage_version,
            persisted_versions: status.persisted_storage_versions,
            current: status.current_storage_version_hash.unwrap_or_else(|| UNKNOWN.to_owned()),
            persisted: status.persisted_storage_version_hashes,
            current_encryption: status.current_encryption_config_hash,
            persisted_encryption: status.persisted_encryption_config_hashes,
            agreement: status.agreement,
            heartbeat,
            heartbeat_age: heartbeat.map(|beat| now.duration_since(beat).as_secs_f64().max(0.0)),
            message: status.message,
        }
    }

    /// Sorts those that are not settled first, then by name.
    pub(crate) fn order(&self) -> (bool, &str) {
        (self.settled, &self.resource)
    }

    /// The row in the table, and the lines below it.
    pub(crate) fn row(&self) -> Row {
        let cells = vec![
            self.resource.clone(),
            self.verdict().to_owned(),
            self.named.0.clone(),
            self.agreement.clone().unwrap_or_default(),
            self.heartbeat_age.map_or_else(|| "never".to_owned(), seconds),
        ];
        let mut beneath = self.persisted();
        beneath.extend(self.message.clone());
        if self.heartbeat_age.is_some_and(|age| age > HEARTBEAT_TIMEOUT.as_secs_f64()) {
            beneath.push("the heartbeat is stale: no controller updates this state".to_owned());
        }
        Row { cells, beneath }
    }

    fn verdict(&self) -> &'static str {
        if self.settled { "yes" } else { "no" }
    }

    /// The other versions and keys that objects may still be stored in.
    fn persisted(&self) -> Vec<String> {
        let mut lines = Vec::new();
        if self.settled {
            return lines;
        }
        if !self.persisted.is_empty() {
            lines.push(format!("persisted: {}", self.named.1.join(", ")));
        }
        if !self.encryption_settled {
            let now = self.current_encryption.as_deref().unwrap_or(UNKNOWN);
            lines.push(format!("encryption: {now}, persisted: {}", self.persisted_encryption.join(", ")));
        }
        lines
    }

    /// The summary in one line, which a heartbeat alone does not change.
    pub(crate) fn line(&self) -> String {
        let verdict = if self.settled { "settled" } else { "not settled" };
        let mut parts = vec![verdict.to_owned(), format!("current: {}", self.named.0)];
        parts.extend(self.persisted());
        parts.extend(self.agreement.as_ref().map(|basis| format!("agreement {basis}")));
        let why = self.message.as_ref().map(|why| format!(": {why}")).unwrap_or_default();
        format!("storage state {}: {}{why}", self.resource, parts.join("; "))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn storage(status: serde_json::Value, age: i64) -> StorageSummary {
        let state: StorageState = serde_json::from_value(json!({
            "apiVersion": "migration.k8s.io/v1alpha1", "kind": "StorageState",
            "metadata": {"name": "widgets.example.com"},
            "spec": {"resource": {"group": "example.com", "resource": "widgets"}}, "status": status,
        }))
        .unwrap();
        let beat: Timestamp = "2026-11-15T12:00:00Z".parse().unwrap();
        StorageSummary::of(&state, beat + jiff::SignedDuration::from_secs(age))
    }

    #[test]
    fn an_unsettled_state_lists_its_persisted_versions() {
        let status = json!({
            "persistedStorageVersionHashes": ["a", "b"], "currentStorageVersionHash": "Unknown",
            "persistedEncryptionConfigHashes": ["j", "k"], "currentEncryptionConfigHash": "k",
            "lastHeartbeatTime": "2026-11-15T12:00:00Z", "agreement": "none", "message": "api-1 is silent",
        });
        let row = storage(status.clone(), 42).row();
        assert_eq!(row.cells, ["widgets.example.com", "no", "Unknown", "none", "42s"]);
        assert_eq!(row.beneath, ["persisted: a, b", "encryption: k, persisted: j, k", "api-1 is silent"]);
        let old = storage(status.clone(), 4200);
        assert_eq!(old.row().beneath[3], "the heartbeat is stale: no controller updates this state");
        assert_eq!(old.line(), storage(status, 42).line(), "a heartbeat is no change");
        assert_eq!(
            old.line(),
            "storage state widgets.example.com: not settled; current: Unknown; persisted: a, b; \
             encryption: k, persisted: j, k; agreement none: api-1 is silent"
        );
    }
}
