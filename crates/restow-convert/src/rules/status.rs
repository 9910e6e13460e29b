//! The status of a ConversionRules object: whether it is valid, and which replicas of the webhook serve it.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The condition that says whether the rules can be used.
pub const VALID: &str = "Valid";
/// The condition that says whether API servers call the webhook for the kind, and with these rules.
pub const REGISTERED: &str = "Registered";

/// Whether rules are valid, and which replicas of the webhook serve them.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ConversionRulesStatus {
    /// The generation that the conditions are about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// Valid: whether the rules can be used, and if not, why. Registered: whether API servers call the webhook.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
    /// What each replica of the webhook serves. A replica renews its entry, and removes it when it ends.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 100))]
    pub replicas: Vec<ServingReplica>,
    /// The rules that passed every gate last. While API servers call the webhook, replicas serve these.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub in_force: Option<RulesInForce>,
}

/// Rules that passed every gate of the webhook.
#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RulesInForce {
    /// Their generation.
    pub generation: i64,
    /// The spec of that generation.
    #[schemars(schema_with = "object")]
    pub spec: Value,
}

/// The schema of an object with any fields.
fn object(_: &mut SchemaGenerator) -> Schema {
    schemars::json_schema!({"type": "object", "x-kubernetes-preserve-unknown-fields": true})
}

/// What a replica of the webhook serves.
#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ServingReplica {
    /// The name of the replica, such as its pod's.
    pub name: String,
    /// The generation of the rules that it serves; 0 if it serves none.
    pub generation: i64,
    /// The generation of the CRD that those rules were checked against.
    pub definition_generation: i64,
    /// When it said so last.
    pub renewed: Time,
}
