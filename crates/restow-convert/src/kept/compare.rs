//! Finds what a conversion there and back has lost.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value};

use super::fingerprint::fingerprint;
use super::key::{keys, text};
use super::tree::{Kept, Key, Replacement, Which};
use crate::schema::Schema;

/// What must be kept so that `restore` makes the original of what came back. None if they are equal.
pub(crate) fn compare(original: Option<&Value>, back: Option<&Value>, schema: Schema<'_>) -> Option<Kept> {
    match (original, back) {
        (original, back) if original == back => None,
        (Some(Value::Object(original)), Some(Value::Object(back))) => {
            Some(compare_fields(original, back, schema))
        }
        (Some(Value::Array(originals)), Some(Value::Array(backs))) => {
            compare_lists(originals, backs, schema).or_else(|| Some(whole(original, back)))
        }
        _ => Some(whole(original, back)),
    }
}

fn whole(original: Option<&Value>, back: Option<&Value>) -> Kept {
    Kept::Here(Replacement { value: original.cloned(), was: back.map(fingerprint) })
}

fn compare_fields(original: &Map<String, Value>, back: &Map<String, Value>, schema: Schema<'_>) -> Kept {
    let names: BTreeSet<_> = original.keys().chain(back.keys()).collect();
    let fields = names.into_iter().filter_map(|name| {
        compare(original.get(name), back.get(name), schema.field(name)).map(|kept| (name.clone(), kept))
    });
    Kept::Fields(fields.collect())
}

/// None if the lists must be kept as a whole.
fn compare_lists(original: &[Value], back: &[Value], schema: Schema<'_>) -> Option<Kept> {
    let names = schema.list_keys();
    match (keys(original, &names), keys(back, &names)) {
        (Some(original_keys), Some(back_keys)) => {
            compare_keyed((original, &original_keys), (back, &back_keys), schema.items())
        }
        _ => compare_by_index(original, back, schema.items()),
    }
}

fn compare_keyed(
    (original, original_keys): (&[Value], &[Key]),
    (back, back_keys): (&[Value], &[Key]),
    schema: Schema<'_>,
) -> Option<Kept> {
    let places: BTreeMap<_, _> =
        back_keys.iter().enumerate().map(|(place, key)| (text(key), place)).collect();
    let common = original_keys.iter().filter_map(|key| places.get(&text(key)));
    if !common.is_sorted() {
        return None;
    }
    let mut elements = Vec::new();
    for (place, (item, key)) in original.iter().zip(original_keys).enumerate() {
        let (after, kept) = match places.get(&text(key)) {
            Some(&place) => (None, compare(Some(item), Some(&back[place]), schema)),
            None => (
                place.checked_sub(1).map(|before| original_keys[before].clone()),
                Some(whole(Some(item), None)),
            ),
        };
        elements.extend(kept.map(|kept| (Which::Keyed { key: key.clone(), after }, kept)));
    }
    let known: BTreeSet<_> = original_keys.iter().map(text).collect();
    for (item, key) in back.iter().zip(back_keys) {
        if !known.contains(&text(key)) {
            elements.push((Which::Keyed { key: key.clone(), after: None }, whole(None, Some(item))));
        }
    }
    Some(Kept::Elements(elements))
}

fn compare_by_index(original: &[Value], back: &[Value], schema: Schema<'_>) -> Option<Kept> {
    if original.len() != back.len() {
        return None;
    }
    let elements = original.iter().zip(back).enumerate().filter_map(|(index, (original, back))| {
        let kept = compare(Some(original), Some(back), schema)?;
        Some((Which::Content { index, was: fingerprint(back) }, kept))
    });
    Some(Kept::Elements(elements.collect()))
}
