//! Lists of type set or map: no two items may have the same value or keys.

use std::collections::HashMap;

use serde_json::{Map, Value};

use super::model::{Additional, ListType, Schema};
use crate::http::status::{Cause, MOST_CAUSES};
use crate::object::path::Path;

/// The items of the old list by their keys, if the list is a map.
pub(super) struct Counterparts<'a> {
    keys: &'a [String],
    items: HashMap<String, &'a Value>,
}

impl<'a> Counterparts<'a> {
    /// Indexes the old list.
    pub(super) fn new(list: &'a ListType, old: Option<&'a Value>) -> Self {
        let ListType::Map(keys) = list else { return Self { keys: &[], items: HashMap::new() } };
        let mut items = HashMap::new();
        for item in old.and_then(Value::as_array).into_iter().flatten() {
            items.entry(key_of(item, keys).to_string()).or_insert(item);
        }
        Self { keys, items }
    }

    /// The old item with the same keys.
    pub(super) fn of(&self, item: &Value) -> Option<&'a Value> {
        if self.items.is_empty() {
            return None;
        }
        self.items.get(&key_of(item, self.keys).to_string()).copied()
    }
}

/// The duplicate items, at any depth.
pub(super) fn errors(schema: &Schema, value: &Value, path: &Path<'_>) -> Vec<Cause> {
    let mut causes = Vec::new();
    match value {
        Value::Object(fields) => {
            if let Some(Additional::Schema(schema)) = schema.additional.as_deref() {
                for (key, value) in fields {
                    if causes.len() > MOST_CAUSES {
                        return causes;
                    }
                    causes.extend(errors(schema, value, &path.key(key)));
                }
            }
            for (key, value) in fields {
                if let Some(schema) = schema.properties.get(key) {
                    causes.extend(errors(schema, value, &path.field(key)));
                }
            }
        }
        Value::Array(items) => {
            causes.extend(duplicates(&schema.list, items, path));
            if let Some(schema) = &schema.items {
                for (index, item) in items.iter().enumerate() {
                    if causes.len() > MOST_CAUSES {
                        return causes;
                    }
                    causes.extend(errors(schema, item, &path.item(index)));
                }
            }
        }
        _ => {}
    }
    causes
}

fn duplicates(list: &ListType, items: &[Value], path: &Path<'_>) -> Vec<Cause> {
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

/// The second of each pair of equal items.
fn repeated(items: &[Value], path: &Path<'_>) -> Vec<Cause> {
    let mut seen = std::collections::BTreeMap::<String, usize>::new();
    let mut causes = Vec::new();
    for (index, item) in items.iter().enumerate() {
        let times = seen.entry(item.to_string()).or_default();
        *times += 1;
        if *times == 2 {
            causes.push(Cause::duplicate(format!("{path}[{index}]"), item));
        }
        if causes.len() > MOST_CAUSES {
            break;
        }
    }
    causes
}
