//! Prunes unknown fields.

use serde_json::Value;

use super::model::{Additional, Schema};
use crate::object::meta::shape;
use crate::object::path::{Path, Paths};

const OWN: [&str; 3] = ["apiVersion", "kind", "metadata"];

impl Schema {
    /// Prunes unknown fields, except for apiVersion, kind and metadata of the object. Returns the paths of the pruned
    /// fields.
    pub(crate) fn prune(&self, object: &mut Value) -> Vec<String> {
        let mut dropped = Paths::default();
        if self.preserve_unknown {
            keep(object, self, &Path::default(), true, &mut dropped);
        } else {
            prune(object, Some(self), &Path::default(), true, &mut dropped);
        }
        let mut dropped = dropped.into_vec();
        dropped.sort();
        dropped
    }
}

fn prune(value: &mut Value, schema: Option<&Schema>, path: &Path<'_>, root: bool, dropped: &mut Paths) {
    if let Some(schema) = schema.filter(|schema| schema.preserve_unknown) {
        return keep(value, schema, path, root, dropped);
    }
    match value {
        Value::Object(fields) => fields.retain(|key, value| {
            let known = schema.and_then(|schema| place(schema, key, root));
            match known {
                Some(Place::Own) => {
                    own(value, key, path, root, dropped);
                    true
                }
                Some(Place::Schema(schema)) => {
                    prune(value, schema, &path.field(key), false, dropped);
                    true
                }
                None => {
                    dropped.push(&path.field(key));
                    false
                }
            }
        }),
        Value::Array(items) => {
            for (index, item) in items.iter_mut().enumerate() {
                let schema = schema.and_then(|schema| schema.items.as_deref());
                prune(item, schema, &path.item(index), false, dropped);
            }
        }
        _ => {}
    }
}

/// Keeps unknown fields, and prunes within known ones.
fn keep(value: &mut Value, schema: &Schema, path: &Path<'_>, root: bool, dropped: &mut Paths) {
    match value {
        Value::Object(fields) => {
            for (key, value) in fields {
                match place(schema, key, root) {
                    Some(Place::Own) => own(value, key, path, root, dropped),
                    Some(Place::Schema(schema)) => prune(value, schema, &path.field(key), false, dropped),
                    None => {}
                }
            }
        }
        Value::Array(items) => {
            let Some(schema) = &schema.items else { return };
            for (index, item) in items.iter_mut().enumerate() {
                keep(item, schema, &path.item(index), false, dropped);
            }
        }
        _ => {}
    }
}

/// Normalizes the metadata of an embedded resource. The metadata of the object itself is already normalized.
fn own(value: &mut Value, key: &str, path: &Path<'_>, root: bool, dropped: &mut Paths) {
    if root || key != "metadata" {
        return;
    }
    let mut unknown = Vec::new();
    if let Ok(coerced) = shape::coerced(value, "", &mut unknown) {
        *value = coerced;
        let own = path.field(key);
        unknown.iter().for_each(|field| dropped.push(&own.field(field)));
    }
}

enum Place<'a> {
    /// A field that every resource has.
    Own,
    /// A field with this schema; none if nothing is known of it.
    Schema(Option<&'a Schema>),
}

fn place<'a>(schema: &'a Schema, key: &str, root: bool) -> Option<Place<'a>> {
    if (root || schema.embedded) && OWN.contains(&key) {
        return Some(Place::Own);
    }
    if let Some(schema) = schema.properties.get(key) {
        return Some(Place::Schema(Some(schema)));
    }
    match schema.additional.as_deref()? {
        Additional::Schema(schema) => Some(Place::Schema(Some(schema))),
        Additional::Any(_) => Some(Place::Schema(None)),
    }
}
