//! The ConversionRules document: what an author writes instead of code.

use kube_derive::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::path::Path;
use super::status::ConversionRulesStatus;

/// Converts the objects of one kind between the versions of its CRD.
///
/// A field that has the same path and the same type in two neighbouring versions needs no rule. Every other field needs
/// one. What a version cannot express is kept in an annotation and restored on the way back.
#[derive(Clone, CustomResource, Debug, Deserialize, JsonSchema, PartialEq, Serialize)]
#[kube(
    group = "restow.dev",
    version = "v1alpha1",
    kind = "ConversionRules",
    plural = "conversionrules",
    category = "restow",
    status = "ConversionRulesStatus",
    printcolumn = r#"{"name": "Kind", "type": "string", "jsonPath": ".spec.kind"}"#,
    printcolumn = r#"{"name": "Group", "type": "string", "jsonPath": ".spec.group"}"#,
    printcolumn = r#"{"name": "Valid", "type": "string", "jsonPath": ".status.conditions[?(@.type==\"Valid\")].status"}"#,
    printcolumn = r#"{"name": "Reason", "type": "string", "jsonPath": ".status.conditions[?(@.type==\"Valid\")].reason"}"#,
    printcolumn = r#"{"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"}"#,
    crates(kube_core = "::kube_core")
)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ConversionRulesSpec {
    /// The API group of the kind, such as example.com.
    pub group: String,
    /// The kind, such as Widget.
    pub kind: String,
    /// The pairs of neighbouring versions, the oldest first.
    pub hops: Vec<HopRules>,
}

/// The rules between two neighbouring versions. Each works in both directions.
#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct HopRules {
    /// The older version, such as v1beta1.
    pub older: String,
    /// The newer version, such as v1.
    pub newer: String,
    /// The rules. Their order does not matter: each reads the object as it was before the conversion.
    #[serde(default)]
    pub rules: Vec<Rule>,
}

/// How one field, or a few that belong together, are converted. Exactly one of these.
#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub enum Rule {
    /// A field has another name in the same object.
    Rename(Both),
    /// A field has another place.
    Move(Both),
    /// A field that one version has gets this value when the object comes from the other version.
    Default(Set),
    /// A field that one version has always gets this value when the object comes from the other version.
    Constant(Set),
    /// A field that only one version has.
    Remove(Remove),
    /// A field whose values have other names.
    Enum(Enum),
    /// A field that has another type.
    Type(TypeChange),
    /// A string that becomes several fields in the newer version.
    Split(Split),
    /// Several fields that become one string in the newer version.
    Join(Join),
    /// A list that becomes a map in the newer version.
    ListToMap(ListAndMap),
    /// A map that becomes a list in the newer version.
    MapToList(ListAndMap),
    /// A value that becomes a list of one element in the newer version.
    Wrap(Both),
    /// A list of which the newer version has only the first element.
    Unwrap(Both),
    /// A number that is multiplied.
    Scale(Scale),
    /// A Kubernetes quantity such as 1Gi, or a number in such a unit.
    Quantity(Units),
    /// A duration such as 1h30m, or a number in such a unit.
    Duration(Units),
    /// Rules for each element of a list, or each value of a map. Their paths begin at the element.
    Each(Each),
    /// Fields that CEL expressions compute from those of the other version.
    Cel(Cel),
}

/// A field of both versions.
#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Both {
    /// The field of the older version.
    pub older: Path,
    /// The field of the newer version.
    pub newer: Path,
}

/// A field of one version, either the older or the newer one.
#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Set {
    /// The field, if the older version has it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub older: Option<Path>,
    /// The field, if the newer version has it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub newer: Option<Path>,
    /// What the field is set to.
    #[schemars(schema_with = "any")]
    pub value: Value,
}

/// A field that one version does not have.
#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Remove {
    /// The field, if the older version has it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub older: Option<Path>,
    /// The field, if the newer version has it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub newer: Option<Path>,
    /// Why the value need not be kept in the annotation. Without a reason it is kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lossy: Option<String>,
}

/// A field whose values have other names.
#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Enum {
    /// The field of the older version.
    pub older: Path,
    /// The field of the newer version.
    pub newer: Path,
    /// The pairs of values. A value that stands in several pairs is converted by the first of them; one that stands in none
    /// stays as it is, if the other version allows it.
    pub values: Vec<EnumValue>,
}

/// A value and its other name.
#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct EnumValue {
    /// The value in the older version.
    pub older: String,
    /// The value in the newer version.
    pub newer: String,
}

/// A field that has another type.
#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct TypeChange {
    /// The field of the older version.
    pub older: Path,
    /// The field of the newer version.
    pub newer: Path,
    /// The type in the older version.
    pub older_type: ScalarType,
    /// The type in the newer version.
    pub newer_type: ScalarType,
}

/// The types between which a value can be converted.
#[derive(Clone, Copy, Debug, Deserialize, JsonSchema, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum ScalarType {
    /// Text.
    String,
    /// A whole number.
    Integer,
    /// A number.
    Number,
    /// true or false.
    Boolean,
}

impl ScalarType {
    /// The name that schemas use.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::String => "string",
            Self::Integer => "integer",
            Self::Number => "number",
            Self::Boolean => "boolean",
        }
    }
}

/// A string that becomes several fields.
#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Split {
    /// The string of the older version.
    pub older: Path,
    /// The fields of the newer version, in the order of the parts.
    pub newer: Vec<Part>,
    /// What stands between the parts.
    pub separator: String,
}

/// Several fields that become one string.
#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Join {
    /// The fields of the older version, in the order of the parts.
    pub older: Vec<Part>,
    /// The string of the newer version.
    pub newer: Path,
    /// What stands between the parts.
    pub separator: String,
}

/// A part of a string.
#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Part {
    /// The field that has this part.
    pub path: Path,
    /// Its type; string if none is given.
    #[serde(default, rename = "type", skip_serializing_if = "Option::is_none")]
    pub scalar: Option<ScalarType>,
}

/// A list of objects in one version that is a map in the other one.
#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ListAndMap {
    /// The field of the older version.
    pub older: Path,
    /// The field of the newer version.
    pub newer: Path,
    /// The field of each element that is the key in the map.
    pub key: String,
    /// The field of each element that is the value in the map. Without it, the value is the element without its key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<String>,
}

/// A number that is multiplied.
#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Scale {
    /// The field of the older version.
    pub older: Path,
    /// The field of the newer version.
    pub newer: Path,
    /// The newer value is the older one times this.
    pub factor: f64,
}

/// A quantity or duration. A field with a unit is a number; a field without one is a text with its unit.
#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Units {
    /// The field of the older version.
    pub older: Path,
    /// The field of the newer version.
    pub newer: Path,
    /// The unit of the number in the older version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub older_unit: Option<String>,
    /// The unit of the number in the newer version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub newer_unit: Option<String>,
}

/// Rules for each element of a list, or each value of a map.
#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Each {
    /// The list or map of the older version.
    pub older: Path,
    /// The list or map of the newer version.
    pub newer: Path,
    /// The rules. Their paths begin at the element.
    #[schemars(schema_with = "any")]
    pub rules: Vec<Rule>,
}

/// Fields that CEL expressions compute from those of the other version.
#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Cel {
    /// The fields of the older version.
    pub older: Vec<Computed>,
    /// The fields of the newer version.
    pub newer: Vec<Computed>,
}

/// A field, and the expression that computes it.
#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Computed {
    /// The field that the expression computes.
    pub path: Path,
    /// A CEL expression for its value. There, self is the object in the other version, with only the fields of this rule. A
    /// field without an expression is not set when an object comes from the other version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<String>,
}

/// Any value: a CRD's schema cannot refer to itself.
fn any(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
    schemars::json_schema!({"x-kubernetes-preserve-unknown-fields": true})
}
