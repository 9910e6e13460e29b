//! Compares two objects, path by path.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::set::Set;
use crate::object::structure::{Parts, Structure};

/// The paths that differ.
#[derive(Debug, Default)]
pub(super) struct Comparison {
    /// New or changed paths.
    pub(super) changed: Set,
    /// Removed paths.
    pub(super) removed: Set,
}

/// Compares two objects, except for `ignored` fields.
pub(super) fn compare(old: &Value, new: &Value, structure: Structure<'_>, ignored: &[&str]) -> Comparison {
    let mut comparison = Comparison::default();
    let empty = Map::new();
    let (old, new) = (old.as_object().unwrap_or(&empty), new.as_object().unwrap_or(&empty));
    let mut keys: Vec<_> = old.keys().chain(new.keys()).collect();
    keys.sort();
    keys.dedup();
    for key in keys.into_iter().filter(|key| !ignored.contains(&key.as_str())) {
        let step = format!("f:{key}");
        let (changed, removed) = (comparison.changed.at(step.clone()), comparison.removed.at(step));
        walk(old.get(key), new.get(key), structure.field(key), changed, removed);
    }
    comparison.changed.prune();
    comparison.removed.prune();
    comparison
}

fn walk(
    old: Option<&Value>,
    new: Option<&Value>,
    structure: Structure<'_>,
    changed: &mut Set,
    removed: &mut Set,
) {
    if old == new {
        return;
    }
    match (old, new) {
        (None, None) => return,
        (None, Some(_)) => changed.insert(),
        (Some(_), None) => removed.insert(),
        (Some(old), Some(new)) => {
            let alike = structure.parts(old) == structure.parts(new) && old.is_array() == new.is_array();
            if !alike || structure.parts(new) == Parts::None {
                changed.insert();
            }
        }
    }
    let (before, after) = (parts(old, structure), parts(new, structure));
    for (step, value) in &before {
        if !after.contains_key(step) {
            let structure = inner(structure, step);
            walk(Some(value), None, structure, changed.at(step.clone()), removed.at(step.clone()));
        }
    }
    for (step, value) in &after {
        let structure = inner(structure, step);
        let old = before.get(step).copied();
        walk(old, Some(value), structure, changed.at(step.clone()), removed.at(step.clone()));
    }
}

fn inner<'a>(structure: Structure<'a>, step: &str) -> Structure<'a> {
    match step.split_once(':') {
        Some(("f", key)) => structure.field(key),
        Some(("k", _)) => structure.item(),
        _ => Structure::Atomic,
    }
}

/// The parts of a value, by their path elements.
fn parts<'a>(value: Option<&'a Value>, structure: Structure<'_>) -> BTreeMap<String, &'a Value> {
    let Some(value) = value else { return BTreeMap::new() };
    let items = || value.as_array().map(Vec::as_slice).unwrap_or_default().iter();
    match structure.parts(value) {
        Parts::None => BTreeMap::new(),
        Parts::Fields => {
            let fields = value.as_object().into_iter().flatten();
            fields.map(|(key, value)| (format!("f:{key}"), value)).collect()
        }
        Parts::Set => items().map(|item| (format!("v:{item}"), item)).collect(),
        Parts::Keyed(keys) => items().map(|item| (key_step(item, &keys), item)).collect(),
    }
}

fn key_step(item: &Value, keys: &[String]) -> String {
    let pairs = keys.iter().filter_map(|key| Some((key.clone(), item.get(key)?.clone())));
    format!("k:{}", Value::Object(pairs.collect::<Map<_, _>>()))
}
