//! Values of expressions, from JSON and back.

use std::collections::HashMap;
use std::sync::Arc;

use kube_cel::cel::objects::{Key, Map, Value};
use serde_json::{Number, Value as Json};

use crate::schema::Schema;

/// A JSON value as an expression sees it. Fields that are null are left out. A number is an integer, unless its schema says
/// that it may have a fraction.
pub(super) fn from_json(json: &Json, schema: Schema<'_>) -> Value {
    match json {
        Json::Null => Value::Null,
        Json::Bool(flag) => Value::Bool(*flag),
        Json::Number(number) => match (number.as_i64(), number.as_u64()) {
            (Some(number), _) if !schema.is_number() => Value::Int(number),
            (None, Some(number)) if !schema.is_number() => Value::UInt(number),
            _ => Value::Float(number.as_f64().unwrap_or_default()),
        },
        Json::String(text) => Value::String(Arc::new(text.clone())),
        Json::Array(items) => {
            Value::List(Arc::new(items.iter().map(|item| from_json(item, schema.items())).collect()))
        }
        Json::Object(fields) => {
            let fields = fields.iter().filter(|(_, value)| !value.is_null());
            let map: HashMap<_, _> = fields
                .map(|(name, value)| {
                    (Key::String(Arc::new(name.clone())), from_json(value, schema.field(name)))
                })
                .collect();
            Value::Map(Map { map: Arc::new(map) })
        }
    }
}

/// A value as JSON.
///
/// # Errors
/// What JSON cannot express.
pub(super) fn to_json(value: &Value) -> Result<Json, String> {
    Ok(match value {
        Value::Null => Json::Null,
        Value::Bool(flag) => Json::Bool(*flag),
        Value::Int(number) => Json::from(*number),
        Value::UInt(number) => Json::from(*number),
        Value::Float(number) => float(*number)?,
        Value::String(text) => Json::String(text.as_ref().clone()),
        Value::List(items) => Json::Array(items.iter().map(to_json).collect::<Result<_, _>>()?),
        Value::Map(map) => {
            let fields = map.map.iter().map(|(key, value)| match key {
                Key::String(name) => Ok((name.as_ref().clone(), to_json(value)?)),
                _ => Err("a key of a map is not a string".to_owned()),
            });
            Json::Object(fields.collect::<Result<_, _>>()?)
        }
        other => return Err(format!("the result is a {}, which is not a JSON value", other.type_of())),
    })
}

/// A number without a fraction is written without one, as API servers do.
fn float(number: f64) -> Result<Json, String> {
    const EXACT: f64 = 9_007_199_254_740_992.0;
    #[allow(clippy::cast_possible_truncation)]
    if number.fract() == 0.0 && number.abs() < EXACT {
        return Ok(Json::from(number as i64));
    }
    Number::from_f64(number)
        .map(Json::Number)
        .ok_or_else(|| format!("the result is {number}, which is not a JSON value"))
}

/// How much there is of a JSON value: values, and bytes of text.
pub(super) fn size(json: &Json) -> usize {
    match json {
        Json::Null | Json::Bool(_) | Json::Number(_) => 1,
        Json::String(text) => 1 + text.len(),
        Json::Array(items) => 1 + items.iter().map(size).sum::<usize>(),
        Json::Object(fields) => {
            1 + fields.iter().map(|(name, value)| name.len() + size(value)).sum::<usize>()
        }
    }
}

/// How much there is of a value of an expression.
pub(super) fn size_of(value: &Value) -> usize {
    match value {
        Value::String(text) => 1 + text.len(),
        Value::Bytes(bytes) => 1 + bytes.len(),
        Value::List(items) => 1 + items.iter().map(size_of).sum::<usize>(),
        Value::Map(map) => {
            1 + map.map.iter().map(|(key, value)| size_of_key(key) + size_of(value)).sum::<usize>()
        }
        _ => 1,
    }
}

fn size_of_key(key: &Key) -> usize {
    match key {
        Key::String(name) => name.len(),
        _ => 1,
    }
}
