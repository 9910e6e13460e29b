//! Removes the fields of a set from a value.

use serde_json::{Map as Object, Value};

use crate::element::Element;
use crate::schema::{Kind, List, ListKind, Map, Ref, Schema};
use crate::set::Set;

/// An object without the fields of a set.
pub(crate) fn remove(schema: &Schema, object: &Value, removed: &Set) -> Value {
    value(schema, schema.root(), object, removed)
}

/// What is left of a value; null if that is nothing.
fn value(schema: &Schema, of: &Ref, value: &Value, removed: &Set) -> Value {
    match (schema.resolve(of).kind(Some(value)), value) {
        (Kind::Scalar(_), value) => value.clone(),
        (Kind::Map { map, atomic: false }, Value::Object(fields)) => fields_of(schema, map, fields, removed),
        (Kind::List(list), Value::Array(items)) if list.kind != ListKind::Atomic => {
            items_of(schema, list, items, removed)
        }
        _ => Value::Null,
    }
}

fn fields_of(schema: &Schema, map: &Map, fields: &Object<String, Value>, removed: &Set) -> Value {
    let mut kept = Object::new();
    for (name, inner) in fields {
        let node = removed.at(&Element::Field(name.clone()));
        let left = match (node, map.field(name)) {
            (None, _) => inner.clone(),
            (Some(node), _) if node.member => continue,
            (Some(node), Some(of)) => value(schema, of, inner, &node.below),
            (Some(_), None) => Value::Null,
        };
        kept.insert(name.clone(), left);
    }
    if kept.is_empty() { Value::Null } else { Value::Object(kept) }
}

fn items_of(schema: &Schema, list: &List, items: &[Value], removed: &Set) -> Value {
    let mut kept = Vec::new();
    for item in items {
        let node = schema.element(list, item).ok().and_then(|element| removed.at(&element));
        match node {
            None => kept.push(item.clone()),
            Some(node) if node.member => {}
            Some(node) => kept.push(value(schema, &list.item, item, &node.below)),
        }
    }
    if kept.is_empty() { Value::Null } else { Value::Array(kept) }
}
