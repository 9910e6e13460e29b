//! Values of cells, read from objects.

use jiff::Timestamp;
use serde_json::{Value, json};

use crate::object::meta;
use crate::object::table::age::age_of;

pub(super) fn at<'a>(object: &'a Value, path: &str) -> Option<&'a Value> {
    object.pointer(path).filter(|value| !value.is_null())
}

pub(super) fn text(object: &Value, path: &str) -> String {
    at(object, path).and_then(Value::as_str).unwrap_or_default().to_owned()
}

pub(super) fn text_or(object: &Value, path: &str, other: &str) -> String {
    Some(text(object, path)).filter(|text| !text.is_empty()).unwrap_or_else(|| other.to_owned())
}

pub(super) fn count(object: &Value, path: &str) -> usize {
    at(object, path).and_then(Value::as_object).map_or(0, serde_json::Map::len)
}

pub(super) fn items<'a>(object: &'a Value, path: &str) -> &'a [Value] {
    at(object, path).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default()
}

pub(super) fn number(object: &Value, path: &str) -> i64 {
    at(object, path).and_then(Value::as_i64).unwrap_or_default()
}

pub(super) fn created(object: &Value, now: Timestamp) -> Value {
    json!(age_of(at(object, "/metadata/creationTimestamp"), now))
}

pub(super) fn name(object: &Value) -> Value {
    json!(meta::name(object))
}
