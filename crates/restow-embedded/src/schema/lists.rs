//! Lists whose items are told apart by their value or by keys: no two may be the same.

use serde_json::{Map, Value};

use super::{Additional, ListType, Schema, child};
use crate::failure::Cause;

/// The items that are there twice, at any depth.
pub(super) fn faults(schema: &Schema, value: &Value, path: &str) -> Vec<Cause> {
    let mut causes = Vec::new();
    match value {
        Value::Object(fields) => {
            if let Some(Additional::Schema(schema)) = schema.additional.as_deref() {
                for (key, value) in fields {
                    causes.extend(faults(schema, value, &format!("{path}[{key}]")));
                }
            }
            for (key, value) in fields {
                if let Some(schema) = schema.properties.get(key) {
                    causes.extend(faults(schema, value, &child(path, key)));
                }
            }
        }
        Value::Array(items) => {
            causes.extend(duplicates(&schema.list, items, path));
            if let Some(schema) = &schema.items {
                for (index, item) in items.iter().enumerate() {
                    causes.extend(faults(schema, item, &format!("{path}[{index}]")));
                }
            }
        }
        _ => {}
    }
    causes
}

fn duplicates(list: &ListType, items: &[Value], path: &str) -> Vec<Cause> {
    match list {
        ListType::Atomic => Vec::new(),
        ListType::Set => repeated(items, path),
        ListType::Map(keys) => {
            if let Some(index) = items.iter().position(|item| !item.is_object() && !item.is_null()) {
                let detail = "must be an object for an array of list-type map";
                return vec![Cause::invalid(format!("{path}[{index}]"), &items[index], detail)];
            }
            let keyed: Vec<_> = items.iter().map(|item| key_of(item, keys)).collect();
            repeated(&keyed, path)
        }
    }
}

fn key_of(item: &Value, keys: &[String]) -> Value {
    let pairs = keys.iter().filter_map(|key| Some((key.clone(), item.get(key)?.clone())));
    Value::Object(pairs.collect::<Map<_, _>>())
}

/// The second of each that are the same.
fn repeated(items: &[Value], path: &str) -> Vec<Cause> {
    let mut seen = std::collections::BTreeMap::<String, usize>::new();
    let mut causes = Vec::new();
    for (index, item) in items.iter().enumerate() {
        let times = seen.entry(item.to_string()).or_default();
        *times += 1;
        if *times == 2 {
            causes.push(Cause::duplicate(format!("{path}[{index}]"), item));
        }
    }
    causes
}
