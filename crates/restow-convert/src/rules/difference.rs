//! Where the schemas of two versions differ.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value};

use super::path::Path;

/// A field that is not the same in both versions. A side that has no such field is empty.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Difference<'a> {
    pub path: Path,
    pub older: Option<&'a Value>,
    pub newer: Option<&'a Value>,
}

/// The differences between two schemas, in the order of the paths. Neither list items nor map values are entered.
pub(super) fn differences<'a>(older: &'a Value, newer: &'a Value) -> Vec<Difference<'a>> {
    let mut found = Vec::new();
    for (name, (older, newer)) in both(properties(older), properties(newer)) {
        // Only labels and annotations of the metadata may change, and they are the same in all versions.
        if !["apiVersion", "kind", "metadata"].contains(&name.as_str()) {
            collect(Path::new(vec![name.clone()]), older, newer, &mut found);
        }
    }
    found
}

/// The differences between the schemas of two elements.
pub(super) fn differences_of_elements<'a>(older: &'a Value, newer: &'a Value) -> Vec<Difference<'a>> {
    let mut found = Vec::new();
    for (name, (older, newer)) in both(properties(older), properties(newer)) {
        collect(Path::new(vec![name.clone()]), older, newer, &mut found);
    }
    found
}

fn collect<'a>(
    path: Path,
    older: Option<&'a Value>,
    newer: Option<&'a Value>,
    found: &mut Vec<Difference<'a>>,
) {
    match (older, newer) {
        (Some(older), Some(newer)) if has_properties(older) && has_properties(newer) => {
            for (name, (older, newer)) in both(properties(older), properties(newer)) {
                collect(path.child(name), older, newer, found);
            }
        }
        (Some(older), Some(newer)) if shape(older) == shape(newer) => {}
        _ => found.push(Difference { path, older, newer }),
    }
}

type Sides<'a> = (Option<&'a Value>, Option<&'a Value>);

fn both<'a>(
    older: Option<&'a Map<String, Value>>,
    newer: Option<&'a Map<String, Value>>,
) -> BTreeMap<&'a String, Sides<'a>> {
    let names: BTreeSet<_> = older.into_iter().chain(newer).flat_map(Map::keys).collect();
    let side = |fields: Option<&'a Map<String, Value>>, name| fields.and_then(|fields| fields.get(name));
    names.into_iter().map(|name| (name, (side(older, name), side(newer, name)))).collect()
}

pub(super) fn properties(schema: &Value) -> Option<&Map<String, Value>> {
    schema.get("properties")?.as_object()
}

fn has_properties(schema: &Value) -> bool {
    properties(schema).is_some()
}

/// What of a schema decides whether a value of one fits the other: types, fields and the values of enums. Limits and
/// descriptions do not.
pub(super) fn shape(schema: &Value) -> Value {
    const KEPT: [&str; 4] = [
        "type",
        "x-kubernetes-int-or-string",
        "x-kubernetes-preserve-unknown-fields",
        "x-kubernetes-embedded-resource",
    ];
    let Some(schema) = schema.as_object() else { return schema.clone() };
    let mut kept = Map::new();
    for (keyword, value) in schema {
        match (keyword.as_str(), value) {
            ("properties", Value::Object(fields)) => {
                let fields = fields.iter().map(|(name, field)| (name.clone(), shape(field)));
                kept.insert(keyword.clone(), Value::Object(fields.collect()));
            }
            ("items" | "additionalProperties", value) => {
                kept.insert(keyword.clone(), shape(value));
            }
            ("enum", Value::Array(values)) => {
                let values: BTreeSet<_> = values.iter().map(Value::to_string).collect();
                kept.insert(keyword.clone(), values.into_iter().collect());
            }
            (keyword, value) if KEPT.contains(&keyword) && *value != Value::Bool(false) => {
                kept.insert(keyword.to_owned(), value.clone());
            }
            _ => {}
        }
    }
    Value::Object(kept)
}

/// The type of a schema, such as `string`; `int-or-string` and `map` are types of their own here.
pub(super) fn type_of(schema: &Value) -> &str {
    if schema.get("x-kubernetes-int-or-string") == Some(&Value::Bool(true)) {
        return "int-or-string";
    }
    match schema.get("type").and_then(Value::as_str) {
        Some("object") if schema.get("additionalProperties").is_some() => "map",
        Some(name) => name,
        None => "any",
    }
}
