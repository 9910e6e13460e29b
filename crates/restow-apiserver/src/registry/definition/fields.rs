//! Access to fields of a definition.

use serde_json::{Value, json};

use crate::http::status::Cause;

pub(crate) fn text(value: &Value, key: &str) -> String {
    value.get(key).and_then(Value::as_str).unwrap_or_default().to_owned()
}

pub(crate) fn flag(value: &Value, key: &str) -> bool {
    value.get(key) == Some(&Value::Bool(true))
}

pub(crate) fn list<'a>(value: &'a Value, key: &str) -> &'a [Value] {
    value.get(key).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default()
}

pub(crate) fn texts(value: &Value, key: &str) -> Vec<String> {
    list(value, key).iter().filter_map(Value::as_str).map(str::to_owned).collect()
}

/// Whether a value is empty.
pub(super) fn is_zero(value: &Value) -> bool {
    matches!(value, Value::Null | Value::Bool(false)) || value == ""
}

pub(super) fn one_of(field: &str, value: &str, known: &[&str]) -> Option<Cause> {
    match value {
        "" => Some(Cause::required(field, "")),
        value if known.contains(&value) => None,
        value => Some(Cause::not_supported(field, &json!(value), known)),
    }
}
