//! The order of merged lists: that of the patch, with other items near their former neighbours.

use std::collections::HashMap;

use serde_json::Value;

use crate::http::status::StatusError;
use crate::http::status::golang::show_number;

/// The positions of items in a list, by their key or value.
struct Places<'a> {
    key: &'a str,
    places: HashMap<String, usize>,
}

impl<'a> Places<'a> {
    fn new(list: &[Value], key: &'a str) -> Self {
        let mut places = HashMap::new();
        for (at, own) in list.iter().enumerate().filter_map(|(at, item)| Some((at, own(item, key)?))) {
            places.entry(own).or_insert(at);
        }
        Self { key, places }
    }

    /// The position of the first equal item.
    fn of(&self, item: &Value) -> Option<usize> {
        self.places.get(&own(item, self.key)?).copied()
    }
}

/// The identity of an item; none if it has no key.
fn own(item: &Value, key: &str) -> Option<String> {
    if key.is_empty() { Some(item.to_string()) } else { item.get(key).map(Value::to_string) }
}

/// Sorts items in the order of the patch, with items that only the server has between them.
pub(super) fn sort(merged: Vec<Value>, wanted: &[Value], before: &[Value], key: &str) -> Vec<Value> {
    let (wanted, before) = (Places::new(wanted, key), Places::new(before, key));
    let (mut ordered, mut others): (Vec<_>, Vec<_>) =
        merged.into_iter().partition(|item| wanted.of(item).is_some());
    ordered.sort_by_cached_key(|item| wanted.of(item));
    others.sort_by_cached_key(|item| before.of(item).unwrap_or(usize::MAX));
    let mut settled = Vec::with_capacity(ordered.len() + others.len());
    let (mut ordered, mut others) = (ordered.into_iter().peekable(), others.into_iter().peekable());
    while let (Some(left), Some(right)) = (others.peek(), ordered.peek()) {
        let places = before.of(left).zip(before.of(right));
        let next =
            if places.is_some_and(|(left, right)| left < right) { others.next() } else { ordered.next() };
        settled.extend(next);
    }
    settled.extend(others);
    settled.extend(ordered);
    settled
}

/// Refuses a list whose order contradicts `$setElementOrder`.
pub(super) fn check(list: &[Value], wanted: &[Value], key: &str) -> Result<(), StatusError> {
    let items = list.iter().filter(|item| item.get("$patch").is_none());
    let places = Places::new(wanted, key);
    let mut last = None;
    for item in items {
        let place = places.of(item);
        if place.is_none() || place < last {
            return Err(StatusError::plain(format!(
                "The order in patch list:\n{}\n doesn't match $setElementOrder list:\n{}\n",
                show(&Value::Array(list.to_vec())),
                show(&Value::Array(wanted.to_vec()))
            )));
        }
        last = place;
    }
    Ok(())
}

/// A value as Go's `%v` writes it.
pub(super) fn show(value: &Value) -> String {
    match value {
        Value::Null => "<nil>".to_owned(),
        Value::Bool(flag) => flag.to_string(),
        Value::Number(number) => show_number(number),
        Value::String(text) => text.clone(),
        Value::Array(items) => format!("[{}]", items.iter().map(show).collect::<Vec<_>>().join(" ")),
        Value::Object(fields) => {
            let pairs: Vec<_> = fields.iter().map(|(key, value)| format!("{key}:{}", show(value))).collect();
            format!("map[{}]", pairs.join(" "))
        }
    }
}
