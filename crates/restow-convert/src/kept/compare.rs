//! Finds what a conversion there and back has lost.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use serde_json::{Map, Value};

use super::fingerprint::fingerprint;
use super::key::{keys, text};
use super::tree::{Kept, Key, Replacement, Which};
use crate::schema::Schema;

/// What the other version has at the same path.
#[derive(Clone, Copy)]
pub(crate) enum Counterpart<'a> {
    Known(Option<&'a Value>),
    /// In a list, where paths cannot be compared.
    Unknown,
}

impl<'a> Counterpart<'a> {
    fn field(self, name: &str) -> Self {
        match self {
            Self::Known(value) => Self::Known(value.and_then(|value: &'a Value| value.get(name))),
            Self::Unknown => Self::Unknown,
        }
    }

    fn is_missing(self) -> bool {
        matches!(self, Self::Known(None))
    }
}

/// What must be kept so that `restore` makes the original of what came back. None if they are equal.
pub(crate) fn compare(
    original: Option<&Value>,
    back: Option<&Value>,
    there: Counterpart<'_>,
    schema: Schema<'_>,
) -> Option<Kept> {
    match (original, back) {
        (original, back) if original == back => None,
        (Some(Value::Object(original)), Some(Value::Object(back))) => {
            let fields = compare_fields(original, back, there, schema);
            Some(Kept::Fields { fields, make: there.is_missing() })
        }
        (Some(Value::Object(original)), None) if !original.is_empty() => {
            Some(Kept::Fields { fields: compare_fields(original, &Map::new(), there, schema), make: true })
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

fn compare_fields(
    original: &Map<String, Value>,
    back: &Map<String, Value>,
    there: Counterpart<'_>,
    schema: Schema<'_>,
) -> BTreeMap<String, Kept> {
    let names: BTreeSet<_> = original.keys().chain(back.keys()).collect();
    let compared = |name: &String| {
        let kept = compare(original.get(name), back.get(name), there.field(name), schema.field(name))?;
        Some((name.clone(), kept))
    };
    names.into_iter().filter_map(compared).collect()
}

/// None if the lists must be kept as a whole.
fn compare_lists(original: &[Value], back: &[Value], schema: Schema<'_>) -> Option<Kept> {
    let names = schema.list_keys();
    match (keys(original, &names), keys(back, &names)) {
        (Some(original_keys), Some(back_keys)) => {
            Some(compare_keyed((original, &original_keys), (back, &back_keys), schema.items()))
        }
        _ => compare_by_index(original, back, schema.items()),
    }
}

fn compare_keyed(
    (original, original_keys): (&[Value], &[Key]),
    (back, back_keys): (&[Value], &[Key]),
    schema: Schema<'_>,
) -> Kept {
    let place_in = |keys: &[Key]| -> HashMap<String, usize> {
        keys.iter().enumerate().map(|(place, key)| (text(key), place)).collect()
    };
    let (original_places, back_places) = (place_in(original_keys), place_in(back_keys));
    let mut elements = Vec::new();
    for (place, (item, key)) in original.iter().zip(original_keys).enumerate() {
        let (after, kept) = match back_places.get(&text(key)) {
            Some(&place) => (None, compare(Some(item), Some(&back[place]), Counterpart::Unknown, schema)),
            None => {
                let before = place.checked_sub(1).map(|before| original_keys[before].clone());
                (before, Some(whole(Some(item), None)))
            }
        };
        elements.extend(kept.map(|kept| (Which::Keyed { key: key.clone(), after }, kept)));
    }
    let rank = |key: &Key| original_places.get(&text(key)).copied();
    for (item, key) in back.iter().zip(back_keys).filter(|(_, key)| rank(key).is_none()) {
        elements.push((Which::Keyed { key: key.clone(), after: None }, whole(None, Some(item))));
    }
    let mut order: Vec<_> = back_keys.iter().filter_map(|key| Some((key.clone(), rank(key)?))).collect();
    if order.is_sorted_by_key(|(_, rank)| *rank) {
        order.clear();
    }
    Kept::Elements { elements, order }
}

fn compare_by_index(original: &[Value], back: &[Value], schema: Schema<'_>) -> Option<Kept> {
    if original.len() != back.len() || looks_reordered(original, back) {
        return None;
    }
    let elements = original.iter().zip(back).enumerate().filter_map(|(index, (original, back))| {
        let kept = compare(Some(original), Some(back), Counterpart::Unknown, schema)?;
        Some((Which::Content { index, was: fingerprint(back) }, kept))
    });
    Some(Kept::Elements { elements: elements.collect(), order: Vec::new() })
}

/// Whether an element, or a field of one, differs from what came back in its place but came back in another place.
/// Then the places do not tell which element is which.
fn looks_reordered(original: &[Value], back: &[Value]) -> bool {
    let mut seen: BTreeSet<(String, String)> = BTreeSet::new();
    for item in back {
        seen.extend(marks(item));
    }
    let differs = |(original, back): (&Value, &Value)| {
        let same: BTreeSet<_> = marks(back).collect();
        marks(original).any(|mark| !same.contains(&mark) && seen.contains(&mark))
    };
    original.iter().zip(back).any(differs)
}

/// The element and its fields, as far as they are single values.
fn marks(item: &Value) -> impl Iterator<Item = (String, String)> + '_ {
    let fields =
        item.as_object().into_iter().flatten().filter(|(_, value)| !value.is_object() && !value.is_array());
    let fields = fields.map(|(name, value)| (name.clone(), fingerprint(value)));
    let alone = (!item.is_object()).then(|| (String::new(), fingerprint(item)));
    fields.chain(alone)
}
