//! Whether a value fits its type.

use std::collections::BTreeSet;

use serde_json::Value;

use super::TypeErrors;
use crate::element::Element;
use crate::schema::{Kind, List, ListKind, Map, Ref, Scalar, Schema};

/// Whether lists may have several items that are identified alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Duplicates {
    Allowed,
    Refused,
}

/// Checks an object.
pub(crate) fn validate(schema: &Schema, object: &Value, duplicates: Duplicates) -> Result<(), TypeErrors> {
    let errors = value(schema, schema.root(), object, duplicates);
    if errors.is_empty() { Ok(()) } else { Err(errors) }
}

fn value(schema: &Schema, of: &Ref, value: &Value, duplicates: Duplicates) -> TypeErrors {
    if value.is_null() {
        return TypeErrors::default();
    }
    match (schema.resolve(of).kind(Some(value)), value) {
        (Kind::Map { map, .. }, Value::Object(fields)) => fields_of(schema, map, fields, duplicates),
        (Kind::Map { .. }, other) => TypeErrors::one(format!("expected map, got &{{{}}}", shown(other))),
        (Kind::List(list), Value::Array(items)) => items_of(schema, list, items, duplicates),
        (Kind::List(_), other) => TypeErrors::one(format!("expected list, got &{{{}}}", shown(other))),
        (Kind::Scalar(scalar), value) => check(scalar, value),
        (Kind::Nothing, _) => TypeErrors::one("schema error: invalid atom: inlined"),
    }
}

/// The start of a value, as it is shown in an error.
fn shown(value: &Value) -> String {
    match value {
        Value::String(text) => text.chars().take(200).collect(),
        other => other.to_string().chars().take(200).collect(),
    }
}

fn fields_of(
    schema: &Schema,
    map: &Map,
    fields: &serde_json::Map<String, Value>,
    duplicates: Duplicates,
) -> TypeErrors {
    let mut errors = TypeErrors::default();
    for (name, inner) in fields {
        let found = match map.field(name) {
            Some(of) => value(schema, of, inner, duplicates),
            None => TypeErrors::one("field not declared in schema"),
        };
        errors.add(format_args!(".{name}"), found);
        if errors.is_full() {
            break;
        }
    }
    errors
}

fn items_of(schema: &Schema, list: &List, items: &[Value], duplicates: Duplicates) -> TypeErrors {
    let mut errors = TypeErrors::default();
    let mut seen = BTreeSet::new();
    for (index, item) in items.iter().enumerate() {
        if errors.is_full() {
            break;
        }
        if list.kind == ListKind::Atomic {
            errors.add(Element::Index(index as i64), value(schema, &list.item, item, duplicates));
            continue;
        }
        let element = match schema.element(list, item) {
            Ok(element) => element,
            Err(message) => {
                errors.add("", TypeErrors::one(format!("element {index}: {message}")));
                return errors;
            }
        };
        if duplicates == Duplicates::Refused && seen.contains(&element) {
            errors.add("", TypeErrors::one(format!("duplicate entries for key {element}")));
        }
        errors.add(&element, value(schema, &list.item, item, duplicates));
        seen.insert(element);
    }
    errors
}

fn check(scalar: Scalar, value: &Value) -> TypeErrors {
    let fits = match scalar {
        Scalar::Number => value.is_number(),
        Scalar::Text => value.is_string(),
        Scalar::Boolean => value.is_boolean(),
        Scalar::Any => !value.is_array() && !value.is_object(),
    };
    if fits {
        return TypeErrors::default();
    }
    let message = match scalar {
        Scalar::Number => format!("expected numeric (int or float), got {}", go_type(value)),
        Scalar::Text => format!("expected string, got &value.valueUnstructured{{Value:{}}}", shown(value)),
        Scalar::Boolean => format!("expected boolean, got &{{{}}}", shown(value)),
        Scalar::Any => format!("expected any scalar, got &{{{}}}", shown(value)),
    };
    TypeErrors::one(message)
}

fn go_type(value: &Value) -> &'static str {
    match value {
        Value::String(_) => "string",
        Value::Bool(_) => "bool",
        Value::Array(_) => "[]interface {}",
        Value::Object(_) => "map[string]interface {}",
        Value::Number(_) => "float64",
        Value::Null => "<nil>",
    }
}
