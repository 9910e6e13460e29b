//! The structural schema of a custom resource's version, read once and then asked about every object.
//!
//! The order in which a server is to call it on what it was sent: [`Schema::prune`], [`Schema::fill`], and, with
//! metadata checked, [`Schema::check_create`], [`Schema::check_update`] or [`Schema::check_status`].

mod embedded;
mod fill;
pub mod format;
mod lists;
pub mod pattern;
mod prune;
pub mod rule;
pub mod strict;
mod validate;

use std::collections::BTreeMap;

use serde_json::Value;

use crate::http::status::{Cause, CauseKind};
use crate::object::path::Path;
use format::Format;
use pattern::Pattern;
use rule::Rule;

/// What one value may be.
#[derive(Clone, Debug, Default)]
pub struct Schema {
    /// The JSON type; none if any is allowed.
    pub kind: Option<String>,
    /// An integer or a text.
    pub int_or_string: bool,
    /// Null is a value of it.
    pub nullable: bool,
    /// What it is if it is not given.
    pub default: Option<Value>,
    /// The fields of an object.
    pub properties: BTreeMap<String, Schema>,
    /// All other fields of an object.
    pub additional: Option<Box<Additional>>,
    /// The items of a list.
    pub items: Option<Box<Schema>>,
    /// Unknown fields are kept.
    pub preserve_unknown: bool,
    /// The object is a resource of its own, with metadata.
    pub embedded: bool,
    /// How a list's items are told apart.
    pub list: ListType,
    /// Whether an object is one value to field managers.
    pub atomic_map: bool,
    /// What the value is held against.
    pub limits: Limits,
    /// Rules in the Common Expression Language.
    pub rules: Vec<Rule>,
}

/// What fields beside the named ones may be.
#[derive(Clone, Debug)]
#[allow(clippy::large_enum_variant, reason = "it is always in a box")]
pub enum Additional {
    /// Anything, or nothing.
    Any(bool),
    /// What this says.
    Schema(Schema),
}

/// How the items of a list are told apart.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum ListType {
    /// They are not: the list is one value.
    #[default]
    Atomic,
    /// By their value.
    Set,
    /// By these fields.
    Map(Vec<String>),
}

/// The limits of a value.
#[derive(Clone, Debug, Default)]
#[allow(missing_docs, reason = "the names are those of JSON schema")]
pub struct Limits {
    pub required: Vec<String>,
    pub one_of_values: Vec<Value>,
    pub format: Option<Format>,
    pub maximum: Option<f64>,
    pub exclusive_maximum: bool,
    pub minimum: Option<f64>,
    pub exclusive_minimum: bool,
    pub multiple_of: Option<f64>,
    pub max_length: Option<u64>,
    pub min_length: Option<u64>,
    pub pattern: Option<Pattern>,
    pub max_items: Option<u64>,
    pub min_items: Option<u64>,
    pub max_properties: Option<u64>,
    pub min_properties: Option<u64>,
    pub all_of: Vec<Schema>,
    pub any_of: Vec<Schema>,
    pub one_of: Vec<Schema>,
    pub not: Option<Box<Schema>>,
}

/// What keeps the rules of the Common Expression Language from being asked.
const NOT_CHECKED: &str = "some validation rules were not checked because the object was invalid; correct the existing \
     errors to complete validation";

impl Schema {
    /// Reads an `openAPIV3Schema`; what is not understood is left out, because the definition was checked before.
    pub fn parse(schema: &Value) -> Self {
        let flag = |key: &str| schema.get(key) == Some(&Value::Bool(true));
        let text = |key: &str| schema.get(key).and_then(Value::as_str);
        let int_or_string = flag("x-kubernetes-int-or-string");
        let properties = schema.get("properties").and_then(Value::as_object).into_iter().flatten();
        Self {
            kind: text("type").filter(|kind| !kind.is_empty()).map(str::to_owned),
            int_or_string,
            nullable: flag("nullable"),
            default: schema.get("default").filter(|value| !value.is_null()).cloned(),
            properties: properties.map(|(name, schema)| (name.clone(), Self::parse(schema))).collect(),
            additional: schema.get("additionalProperties").and_then(Additional::parse).map(Box::new),
            items: schema
                .get("items")
                .filter(|items| items.is_object())
                .map(|items| Box::new(Self::parse(items))),
            preserve_unknown: flag("x-kubernetes-preserve-unknown-fields"),
            embedded: flag("x-kubernetes-embedded-resource"),
            list: ListType::parse(schema),
            atomic_map: text("x-kubernetes-map-type") == Some("atomic"),
            limits: Limits::parse(schema),
            rules: list(schema, "x-kubernetes-validations").iter().filter_map(Rule::parse).collect(),
        }
    }

    /// The schema of a field of an object.
    pub fn field(&self, key: &str) -> Option<&Self> {
        self.properties.get(key).or(match self.additional.as_deref() {
            Some(Additional::Schema(schema)) => Some(schema),
            _ => None,
        })
    }

    /// What is wrong with a value, such as a default.
    pub fn check_value(&self, value: &Value) -> Vec<Cause> {
        validate::causes(self, value, None, "")
    }

    /// What is wrong with an object that is to be created.
    pub fn check_create(&self, object: &Value) -> Vec<Cause> {
        let mut causes = validate::causes(self, object, None, "");
        causes.extend(embedded::faults(self, object, &Path::default()));
        causes.extend(lists::faults(self, object, &Path::default()));
        self.with_rules(causes, object, None)
    }

    /// What is wrong with an object that is to replace `old`; faults of what was not changed are let pass.
    pub fn check_update(&self, object: &Value, old: &Value) -> Vec<Cause> {
        let mut causes = validate::causes(self, object, Some(old), "");
        causes.extend(embedded::faults(self, object, &Path::default()));
        if lists::faults(self, old, &Path::default()).is_empty() {
            causes.extend(lists::faults(self, object, &Path::default()));
        }
        self.with_rules(causes, object, Some(old))
    }

    /// What is wrong with an object whose status is to replace the status of `old`.
    pub fn check_status(&self, object: &Value, old: &Value) -> Vec<Cause> {
        let mut causes = match (self.properties.get("status"), object.get("status")) {
            (Some(schema), Some(status)) => validate::causes(schema, status, old.get("status"), "status"),
            _ => Vec::new(),
        };
        if lists::faults(self, old, &Path::default()).is_empty() {
            causes.extend(lists::faults(self, object, &Path::default()));
        }
        self.with_rules(causes, object, Some(old))
    }

    /// The rules that are not understood and so not enforced, at any depth.
    pub fn unenforced(&self) -> Vec<&str> {
        let own = self.rules.iter().filter(|rule| !rule.is_understood()).map(|rule| rule.text.as_str());
        let mut found: Vec<_> = own.collect();
        let additional = match self.additional.as_deref() {
            Some(Additional::Schema(schema)) => Some(schema),
            _ => None,
        };
        for schema in self.properties.values().chain(self.items.as_deref()).chain(additional) {
            found.extend(schema.unenforced());
        }
        found
    }

    /// Whether there is any rule, at any depth.
    fn has_rules(&self) -> bool {
        let additional = match self.additional.as_deref() {
            Some(Additional::Schema(schema)) => schema.has_rules(),
            _ => false,
        };
        !self.rules.is_empty()
            || additional
            || self.properties.values().any(Self::has_rules)
            || self.items.as_deref().is_some_and(Self::has_rules)
    }

    fn with_rules(&self, mut causes: Vec<Cause>, object: &Value, old: Option<&Value>) -> Vec<Cause> {
        let blocking = [
            CauseKind::NotSupported,
            CauseKind::Required,
            CauseKind::TooLong,
            CauseKind::TooMany,
            CauseKind::TypeInvalid,
        ];
        if !self.has_rules() {
            return causes;
        }
        if causes.iter().any(|cause| blocking.contains(&cause.kind)) {
            causes.push(Cause::invalid("<nil>", &Value::Null, NOT_CHECKED));
        } else {
            causes.extend(rule::faults(self, object, old, &Path::default()));
        }
        causes
    }
}

impl Additional {
    fn parse(value: &Value) -> Option<Self> {
        match value {
            Value::Bool(any) => Some(Self::Any(*any)),
            Value::Object(_) => Some(Self::Schema(Schema::parse(value))),
            _ => None,
        }
    }
}

impl ListType {
    fn parse(schema: &Value) -> Self {
        match schema.get("x-kubernetes-list-type").and_then(Value::as_str) {
            Some("set") => Self::Set,
            Some("map") => Self::Map(texts(schema, "x-kubernetes-list-map-keys")),
            _ => Self::Atomic,
        }
    }
}

impl Limits {
    fn parse(schema: &Value) -> Self {
        let flag = |key: &str| schema.get(key) == Some(&Value::Bool(true));
        let number = |key: &str| schema.get(key).and_then(Value::as_f64);
        let count = |key: &str| schema.get(key).and_then(Value::as_u64);
        let schemas = |key: &str| list(schema, key).iter().map(Schema::parse).collect();
        Self {
            required: texts(schema, "required"),
            one_of_values: list(schema, "enum").to_vec(),
            format: Format::parse(schema),
            maximum: number("maximum"),
            exclusive_maximum: flag("exclusiveMaximum"),
            minimum: number("minimum"),
            exclusive_minimum: flag("exclusiveMinimum"),
            multiple_of: number("multipleOf"),
            max_length: count("maxLength"),
            min_length: count("minLength"),
            pattern: schema
                .get("pattern")
                .and_then(Value::as_str)
                .filter(|text| !text.is_empty())
                .map(Pattern::new),
            max_items: count("maxItems"),
            min_items: count("minItems"),
            max_properties: count("maxProperties"),
            min_properties: count("minProperties"),
            all_of: schemas("allOf"),
            any_of: schemas("anyOf"),
            one_of: schemas("oneOf"),
            not: schema.get("not").filter(|not| not.is_object()).map(|not| Box::new(Schema::parse(not))),
        }
    }
}

fn list<'a>(schema: &'a Value, key: &str) -> &'a [Value] {
    schema.get(key).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default()
}

fn texts(schema: &Value, key: &str) -> Vec<String> {
    list(schema, key).iter().filter_map(Value::as_str).map(str::to_owned).collect()
}

/// The path of a field within an object.
pub(crate) fn child(path: &str, key: &str) -> String {
    if path.is_empty() { key.to_owned() } else { format!("{path}.{key}") }
}

#[cfg(test)]
mod tests;
