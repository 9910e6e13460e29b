//! A structural schema, parsed from an `openAPIV3Schema`.

use std::collections::BTreeMap;

use serde_json::Value;

use super::format::Format;
use super::pattern::Pattern;
use super::rule::Rule;

/// The schema of one value.
#[derive(Clone, Debug, Default)]
pub(crate) struct Schema {
    /// The JSON type; none if any is allowed.
    pub kind: Option<String>,
    /// Whether it is an integer or a string.
    pub int_or_string: bool,
    /// Whether null is allowed.
    pub nullable: bool,
    pub default: Option<Value>,
    /// The fields of an object.
    pub properties: BTreeMap<String, Schema>,
    /// The schema of all other fields of an object.
    pub additional: Option<Box<Additional>>,
    /// The items of a list.
    pub items: Option<Box<Schema>>,
    /// Whether unknown fields are kept.
    pub preserve_unknown: bool,
    /// Whether the object is an embedded resource, with metadata.
    pub embedded: bool,
    /// The list type.
    pub list: ListType,
    /// The limits of the value.
    pub limits: Limits,
    /// The CEL rules.
    pub rules: Vec<Rule>,
}

/// The `additionalProperties` of a schema.
#[derive(Clone, Debug)]
#[allow(clippy::large_enum_variant, reason = "it is always in a box")]
pub(crate) enum Additional {
    /// Anything, or nothing.
    Any(bool),
    /// Values of this schema.
    Schema(Schema),
}

/// The `x-kubernetes-list-type` of a list.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum ListType {
    /// The list is one value.
    #[default]
    Atomic,
    /// Items are identified by their value.
    Set,
    /// Items are identified by these fields.
    Map(Vec<String>),
}

/// The limits of a value.
#[derive(Clone, Debug, Default)]
#[allow(missing_docs, reason = "the names are those of JSON schema")]
pub(crate) struct Limits {
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

impl Schema {
    /// Parses an `openAPIV3Schema`. Unknown parts are skipped, because the definition was validated before.
    pub(crate) fn parse(schema: &Value) -> Self {
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
            limits: Limits::parse(schema),
            rules: list(schema, "x-kubernetes-validations").iter().filter_map(Rule::parse).collect(),
        }
    }

    /// The schema of a field of an object.
    pub(crate) fn field(&self, key: &str) -> Option<&Self> {
        self.properties.get(key).or(match self.additional.as_deref() {
            Some(Additional::Schema(schema)) => Some(schema),
            _ => None,
        })
    }

    /// The rules that cannot be evaluated and so are not enforced, at any depth.
    pub(crate) fn unenforced(&self) -> Vec<&str> {
        let own = self.rules.iter().filter(|rule| !rule.is_supported()).map(|rule| rule.text.as_str());
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
