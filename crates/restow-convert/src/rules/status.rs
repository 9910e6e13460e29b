//! The status of a ConversionRules object: whether it is valid, and which replicas of the webhook serve it.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The condition that says whether the rules can be used.
pub const VALID: &str = "Valid";

/// Whether rules are valid, and which replicas of the webhook serve them.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ConversionRulesStatus {
    /// The generation that the conditions are about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// Valid: whether the rules can be used, and if not, why.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
    /// What each replica of the webhook serves. A replica renews its entry, and removes it when it ends.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 100))]
    pub replicas: Vec<ServingReplica>,
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
