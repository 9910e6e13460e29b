//! Merges an applied configuration into an object.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use serde_json::{Map as Object, Value};

use super::TypeErrors;
use crate::element::Element;
use crate::schema::{Kind, List, ListKind, Map, Ref, Schema};

/// The object with the values of the configuration.
pub(crate) fn merge(schema: &Schema, live: &Value, config: &Value) -> Result<Value, TypeErrors> {
    let mut errors = TypeErrors::default();
    let merged = value(schema, schema.root(), Some(live), Some(config), &mut errors);
    if errors.is_empty() { Ok(merged.unwrap_or(Value::Null)) } else { Err(errors) }
}

type Side<'v> = Option<&'v Value>;

fn value(
    schema: &Schema,
    of: &Ref,
    live: Side<'_>,
    config: Side<'_>,
    errors: &mut TypeErrors,
) -> Option<Value> {
    let replaced = || config.or(live).cloned();
    match schema.resolve(of).kind(config.or(live)) {
        Kind::Scalar(_) => replaced(),
        Kind::Map { atomic: true, .. } => replaced(),
        Kind::Map { map, .. } => {
            let (old, new) = (live.and_then(Value::as_object), config.and_then(Value::as_object));
            let is_empty = |side: Option<&Object<String, Value>>| side.is_none_or(Object::is_empty);
            if is_empty(old) && is_empty(new) {
                return replaced();
            }
            fields(schema, map, old, new, errors)
        }
        Kind::List(list) => {
            let items = |side: Side<'_>| side.and_then(Value::as_array).is_none_or(Vec::is_empty);
            if list.kind == ListKind::Atomic || (items(live) && items(config)) {
                return replaced();
            }
            items_of(schema, list, live, config, errors)
        }
        Kind::Nothing => {
            errors.add("", TypeErrors::one("field not declared in schema"));
            None
        }
    }
}

fn fields(
    schema: &Schema,
    map: &Map,
    live: Option<&Object<String, Value>>,
    config: Option<&Object<String, Value>>,
    errors: &mut TypeErrors,
) -> Option<Value> {
    let mut merged = Object::new();
    let untouched = live
        .into_iter()
        .flatten()
        .filter(|(name, _)| config.is_none_or(|config| !config.contains_key(*name)));
    let applied = config.into_iter().flatten();
    let both = untouched
        .map(|(name, old)| (name, Some(old), None))
        .chain(applied.map(|(name, new)| (name, live.and_then(|live| live.get(name)), Some(new))));
    for (name, old, new) in both {
        let Some(of) = map.field(name) else {
            errors.add(format_args!(".{name}"), TypeErrors::one("field not declared in schema"));
            continue;
        };
        let mut found = TypeErrors::default();
        if let Some(inner) = value(schema, of, old, new, &mut found) {
            merged.insert(name.clone(), inner);
        }
        errors.add(format_args!(".{name}"), found);
    }
    (!merged.is_empty()).then_some(Value::Object(merged))
}

/// The items of one list: how each is identified, and the value for each element. Of several items that are identified
/// alike, none is merged with.
struct Items<'v> {
    order: Vec<(Element, &'v Value)>,
    found: BTreeMap<Element, &'v Value>,
}

static NULL: Value = Value::Null;

impl<'v> Items<'v> {
    fn new(schema: &Schema, list: &List, side: Side<'v>, duplicates: bool, errors: &mut TypeErrors) -> Self {
        let mut items = Self { order: Vec::new(), found: BTreeMap::new() };
        for (index, item) in side.and_then(Value::as_array).into_iter().flatten().enumerate() {
            let element = match schema.element(list, item) {
                Ok(element) => element,
                Err(message) => {
                    errors.add("", TypeErrors::one(format!("element {index}: {message}")));
                    continue;
                }
            };
            let known = items.found.contains_key(&element);
            if known && !duplicates {
                errors.add("", TypeErrors::one(format!("duplicate entries for key {element}")));
                continue;
            }
            items.found.insert(element.clone(), if known { &NULL } else { item });
            items.order.push((element, item));
        }
        items
    }
}

/// The items of the live list keep their places, and those of the configuration come in its order.
fn items_of(
    schema: &Schema,
    list: &List,
    live: Side<'_>,
    config: Side<'_>,
    errors: &mut TypeErrors,
) -> Option<Value> {
    let mut wrong = TypeErrors::default();
    let new = Items::new(schema, list, config, false, &mut wrong);
    let old = Items::new(schema, list, live, true, &mut wrong);
    if !wrong.is_empty() {
        errors.add("", wrong);
        return None;
    }
    let mut merger = Merger { schema, list, errors, merged: Vec::new() };
    let mut shared: VecDeque<&Element> = new
        .order
        .iter()
        .map(|(element, _)| element)
        .filter(|element| old.found.contains_key(element))
        .collect();
    let mut taken: BTreeSet<&Element> = BTreeSet::new();
    let (mut olds, mut news) = (old.order.iter().peekable(), new.order.iter().peekable());
    let pair = |element: &Element| (old.found.get(element).copied(), new.found.get(element).copied());
    loop {
        if let (Some((element, _)), Some((next, _))) = (olds.peek(), news.peek()) {
            if element == next {
                taken.insert(element);
                let (before, after) = pair(element);
                merger.push(element, before, after);
                olds.next();
                news.next();
                shared.pop_front();
                continue;
            }
            // An item of both lists waits for its turn in the order of the configuration.
            if new.found.contains_key(element) && shared.front().is_some_and(|next| *next != element) {
                olds.next();
                continue;
            }
        }
        if let Some((element, item)) = olds.peek() {
            if !new.found.contains_key(element) {
                merger.push(element, Some(item), None);
                olds.next();
                continue;
            }
            if taken.contains(element) {
                olds.next();
            }
        }
        let Some((element, _)) = news.next() else {
            if olds.peek().is_none() {
                break;
            }
            continue;
        };
        taken.insert(element);
        let (before, after) = pair(element);
        merger.push(element, before, after);
        if shared.front() == Some(&element) {
            shared.pop_front();
        }
    }
    (!merger.merged.is_empty()).then_some(Value::Array(merger.merged))
}

struct Merger<'m> {
    schema: &'m Schema,
    list: &'m List,
    errors: &'m mut TypeErrors,
    merged: Vec<Value>,
}

impl Merger<'_> {
    fn push(&mut self, element: &Element, live: Side<'_>, config: Side<'_>) {
        let mut found = TypeErrors::default();
        let merged = value(self.schema, &self.list.item, live, config, &mut found);
        self.errors.add(element, found);
        self.merged.extend(merged);
    }
}
