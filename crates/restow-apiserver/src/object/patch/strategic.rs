//! Strategic merge patches: merge patches that merge lists by their keys. Only built-in kinds support them.

mod order;

use std::collections::{HashMap, HashSet};

use serde_json::{Map, Value};

use crate::http::status::StatusError;
use crate::object::structure::Structure;
use crate::object::structure::built_in::{Field, PLAIN, Type};

const DIRECTIVE: &str = "$patch";
const RETAIN: &str = "$retainKeys";
const DELETE: &str = "$deleteFromPrimitiveList/";
const ORDER: &str = "$setElementOrder/";

/// Merges a patch into an object of a built-in kind.
pub(crate) fn apply(object: &Value, patch: &Value, kind: &'static Type) -> Result<Value, StatusError> {
    let Value::Object(changes) = patch else {
        return Err(StatusError::bad_request(
            "json: cannot unmarshal array into Go value of type map[string]interface {}",
        ));
    };
    let fields = object.as_object().cloned().unwrap_or_default();
    merge_fields(fields, changes.clone(), Structure::BuiltIn(kind)).map(Value::Object)
}

type Fields = Map<String, Value>;

fn bad_format(of: &str) -> StatusError {
    StatusError::bad_request(format!("invalid patch format of {of}"))
}

fn merge_fields(
    mut fields: Fields,
    mut changes: Fields,
    structure: Structure,
) -> Result<Fields, StatusError> {
    if let Some(directive) = changes.remove(DIRECTIVE) {
        return match directive.as_str() {
            Some("replace") => Ok(changes),
            Some("delete") => Ok(Fields::new()),
            _ => Err(unknown_directive(&directive, changes)),
        };
    }
    retain_keys(&mut fields, &mut changes)?;
    order_lists(&mut fields, &mut changes, structure)?;
    for (key, change) in changes {
        if let Some(list) = key.strip_prefix(DELETE) {
            delete_values(&mut fields, list, &change)?;
        } else if change.is_null() {
            fields.remove(&key);
        } else {
            let merged = match (fields.remove(&key), change) {
                (Some(Value::Object(before)), Value::Object(change)) => {
                    Some(Value::Object(merge_fields(before, change, structure.field(&key))?))
                }
                (Some(Value::Array(before)), Value::Array(change)) => {
                    Some(Value::Array(merge_list(before, change, structure.field(&key))?))
                }
                (_, change) => plain(change),
            };
            fields.extend(merged.map(|merged| (key, merged)));
        }
    }
    Ok(fields)
}

fn unknown_directive(directive: &Value, mut map: Fields) -> StatusError {
    map.insert(DIRECTIVE.into(), directive.clone());
    let map = order::show(&Value::Object(map));
    StatusError::plain(format!("unknown patch type: {} in map: {map}", order::show(directive)))
}

/// Drops fields that `$retainKeys` does not name.
fn retain_keys(fields: &mut Fields, changes: &mut Fields) -> Result<(), StatusError> {
    let Some(retained) = changes.remove(RETAIN) else { return Ok(()) };
    let retained = retained.as_array().ok_or_else(|| bad_format("retainKeys"))?;
    let retained: HashSet<&str> = retained.iter().filter_map(Value::as_str).collect();
    let is_named = |key: &str| retained.contains(key);
    let is_odd = |(key, change): (&String, &Value)| {
        !change.is_null() && !key.starts_with(DELETE) && !key.starts_with(ORDER) && !is_named(key)
    };
    if changes.iter().any(is_odd) {
        return Err(bad_format("retainKeys"));
    }
    fields.retain(|key, _| is_named(key));
    Ok(())
}

/// Merges lists with `$setElementOrder`, and sorts them in that order.
fn order_lists(fields: &mut Fields, changes: &mut Fields, structure: Structure) -> Result<(), StatusError> {
    let keys: Vec<_> = changes.keys().filter_map(|key| key.strip_prefix(ORDER).map(str::to_owned)).collect();
    for key in keys {
        let Some(Value::Array(wanted)) = changes.remove(&format!("{ORDER}{key}")) else {
            return Err(bad_format("setElementOrder list"));
        };
        let before = list_of(fields.remove(&key))?;
        let change = list_of(changes.remove(&key))?;
        let inner = structure.field(&key);
        let merge_key = merge_key(inner).unwrap_or_default();
        if let Some(change) = &change {
            order::check(change, &wanted, merge_key)?;
        }
        let merged = match (before.clone(), change) {
            (None, None) => continue,
            (Some(before), None) => before,
            (None, Some(change)) => change.into_iter().filter_map(plain).collect(),
            (Some(before), Some(change)) => merge_list(before, change, inner)?,
        };
        let ordered = order::sort(merged, &wanted, &before.unwrap_or_default(), merge_key);
        fields.insert(key, Value::Array(ordered));
    }
    Ok(())
}

fn list_of(value: Option<Value>) -> Result<Option<Vec<Value>>, StatusError> {
    match value {
        None | Some(Value::Null) => Ok(None),
        Some(Value::Array(list)) => Ok(Some(list)),
        Some(other) => {
            let kind = crate::http::status::golang::type_name(&other);
            Err(StatusError::plain(format!("expected a []interface {{}}, but received a {kind}")))
        }
    }
}

fn delete_values(fields: &mut Fields, key: &str, values: &Value) -> Result<(), StatusError> {
    let values = values.as_array().ok_or_else(|| bad_format("primitive list"))?;
    if let Some(list) = fields.get_mut(key).and_then(Value::as_array_mut) {
        let values: HashSet<String> = values.iter().map(Value::to_string).collect();
        list.retain(|item| !values.contains(&item.to_string()));
    }
    Ok(())
}

/// The merge key of a list: empty for plain values; none if the list is replaced.
fn merge_key(structure: Structure) -> Option<&'static str> {
    match structure {
        Structure::Field(Field::Set) => Some(""),
        Structure::Field(Field::Keyed { key, .. }) => Some(key),
        _ => None,
    }
}

fn merge_list(
    before: Vec<Value>,
    change: Vec<Value>,
    structure: Structure,
) -> Result<Vec<Value>, StatusError> {
    match merge_key(structure) {
        None => Ok(change),
        Some("") => {
            let mut seen = HashSet::new();
            let both = before.iter().chain(&change);
            let merged = both.filter(|item| seen.insert(item.to_string())).cloned().collect();
            Ok(order::sort(merged, &change, &before, ""))
        }
        Some(key) => merge_items(before, change, key, structure),
    }
}

fn merge_items(
    before: Vec<Value>,
    change: Vec<Value>,
    key: &str,
    structure: Structure,
) -> Result<Vec<Value>, StatusError> {
    let item_type = match structure {
        Structure::Field(Field::Keyed { item, .. }) => item,
        _ => &PLAIN,
    };
    let (mut merged, changes) = obey_directives(before.clone(), change, key)?;
    let mut places = HashMap::new();
    for (at, own) in merged.iter().enumerate().filter_map(|(at, item)| Some((at, item.get(key)?))) {
        places.entry(own.to_string()).or_insert(at);
    }
    for item in &changes {
        let (Some(changes), Some(own)) = (item.as_object(), item.get(key)) else {
            return Err(no_key(item, key));
        };
        match places.get(&own.to_string()).copied() {
            Some(at) => {
                let fields = merged[at].as_object().cloned().unwrap_or_default();
                merged[at] =
                    Value::Object(merge_fields(fields, changes.clone(), Structure::BuiltIn(item_type))?);
            }
            None => {
                if let Some(item) = plain(item.clone()) {
                    places.insert(own.to_string(), merged.len());
                    merged.push(item);
                }
            }
        }
    }
    Ok(order::sort(merged, &changes, &before, key))
}

/// Carries out items with `$patch`: they delete other items, or replace the list.
fn obey_directives(
    before: Vec<Value>,
    change: Vec<Value>,
    key: &str,
) -> Result<(Vec<Value>, Vec<Value>), StatusError> {
    let (mut kept, mut items, mut replaced) = (before, Vec::new(), false);
    let mut deleted = HashSet::new();
    for item in change {
        match item.get(DIRECTIVE) {
            None => items.push(item),
            Some(Value::String(text)) if text == "delete" => {
                let own = item.get(key).ok_or_else(|| no_key(&item, key))?;
                deleted.insert(own.to_string());
            }
            Some(Value::String(text)) if text == "replace" => replaced = true,
            Some(Value::String(text)) if text == "merge" => {
                return Err(StatusError::plain("merging lists cannot yet be specified in the patch"));
            }
            Some(other) => {
                let map = order::show(&item);
                return Err(StatusError::plain(format!(
                    "unknown patch type: {} in map: {map}",
                    order::show(other)
                )));
            }
        }
    }
    if !deleted.is_empty() {
        kept.retain(|item| item.get(key).is_none_or(|own| !deleted.contains(&own.to_string())));
    }
    Ok(if replaced { (items, Vec::new()) } else { (kept, items) })
}

fn no_key(item: &Value, key: &str) -> StatusError {
    StatusError::plain(format!("map: {} does not contain declared merge key: {key}", order::show(item)))
}

/// A new value without directives and nulls; none if it is only a directive.
fn plain(value: Value) -> Option<Value> {
    match value {
        Value::Object(fields) => {
            if fields.get(DIRECTIVE).is_some_and(|directive| directive == "delete") {
                return None;
            }
            let kept = fields.into_iter().filter(|(key, value)| {
                let directive =
                    key == DIRECTIVE || key == RETAIN || key.starts_with(DELETE) || key.starts_with(ORDER);
                !directive && !value.is_null()
            });
            Some(Value::Object(kept.filter_map(|(key, value)| Some((key, plain(value)?))).collect()))
        }
        Value::Array(items) => Some(Value::Array(items.into_iter().filter_map(plain).collect())),
        other => Some(other),
    }
}

#[cfg(test)]
mod tests;
