//! The order of merged lists: as the patch tells, with the other items near where they were.

use serde_json::Value;

use crate::failure::Failure;
use crate::failure::golang::show_number;

fn is_same(one: &Value, other: &Value, key: &str) -> bool {
    if key.is_empty() { one == other } else { one.get(key).is_some() && one.get(key) == other.get(key) }
}

fn position(list: &[Value], item: &Value, key: &str) -> Option<usize> {
    list.iter().position(|other| is_same(other, item, key))
}

/// The items in the order of the patch's list, and those that only the server has between them.
pub(super) fn settle(merged: Vec<Value>, wanted: &[Value], before: &[Value], key: &str) -> Vec<Value> {
    let (mut ordered, mut others): (Vec<_>, Vec<_>) =
        merged.into_iter().partition(|item| position(wanted, item, key).is_some());
    ordered.sort_by_key(|item| position(wanted, item, key));
    others.sort_by_key(|item| position(before, item, key).unwrap_or(usize::MAX));
    let mut settled = Vec::with_capacity(ordered.len() + others.len());
    let (mut ordered, mut others) = (ordered.into_iter().peekable(), others.into_iter().peekable());
    while let (Some(left), Some(right)) = (others.peek(), ordered.peek()) {
        let places = position(before, left, key).zip(position(before, right, key));
        let next =
            if places.is_some_and(|(left, right)| left < right) { others.next() } else { ordered.next() };
        settled.extend(next);
    }
    settled.extend(others);
    settled.extend(ordered);
    settled
}

/// Refuses a list whose items are in another order than the patch itself tells.
pub(super) fn check(list: &[Value], wanted: &[Value], key: &str) -> Result<(), Failure> {
    let items = list.iter().filter(|item| item.get("$patch").is_none());
    let mut last = None;
    for item in items {
        let place = position(wanted, item, key);
        if place.is_none() || place < last {
            return Err(Failure::plain(format!(
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
