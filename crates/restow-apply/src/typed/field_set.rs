//! The set of all fields of a value.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::element::Element;
use crate::schema::{Kind, List, ListKind, Map, Ref, Schema};
use crate::set::{Node, Set};

/// The fields of an object: scalars, atomic values, items of lists, entries of maps, and what is null or empty.
pub(crate) fn field_set(schema: &Schema, object: &Value) -> Set {
    value(schema, schema.root(), object).below
}

fn value(schema: &Schema, of: &Ref, value: &Value) -> Node {
    let leaf = || Node { member: true, below: Set::default() };
    match (schema.resolve(of).kind(Some(value)), value) {
        (Kind::Scalar(_) | Kind::Map { atomic: true, .. }, _) => leaf(),
        (Kind::List(list), _) if list.kind == ListKind::Atomic => leaf(),
        (Kind::Map { map, .. }, Value::Object(fields)) => {
            Node { member: false, below: fields_of(schema, map, fields) }
        }
        (Kind::List(list), Value::Array(items)) => {
            Node { member: false, below: items_of(schema, list, items) }
        }
        _ => Node::default(),
    }
}

fn fields_of(schema: &Schema, map: &Map, fields: &serde_json::Map<String, Value>) -> Set {
    let mut set = Set::default();
    for (name, inner) in fields {
        let mut node = map.field(name).map(|of| value(schema, of, inner)).unwrap_or_default();
        let is_empty = inner.is_null() || inner.as_object().is_some_and(serde_json::Map::is_empty);
        node.member |= is_empty || !map.fields.contains_key(name);
        set.attach(&Element::Field(name.clone()), node);
    }
    set
}

/// Items that are identified alike count as one, without their fields.
fn items_of(schema: &Schema, list: &List, items: &[Value]) -> Set {
    let mut found: BTreeMap<Element, Option<&Value>> = BTreeMap::new();
    for item in items {
        if let Ok(element) = schema.element(list, item) {
            found.entry(element).and_modify(|one| *one = None).or_insert(Some(item));
        }
    }
    let mut set = Set::default();
    for (element, item) in found {
        let below = item.map(|item| value(schema, &list.item, item).below).unwrap_or_default();
        set.attach(&element, Node { member: true, below });
    }
    set
}
