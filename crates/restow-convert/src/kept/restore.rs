//! Puts what was kept back into an object, as far as nobody has changed what it belonged to.

use serde_json::Value;

use super::fingerprint::fingerprint;
use super::key::{key_of, keys};
use super::tree::{Kept, Key, Replacement, Which};

/// The value with what was kept of it.
pub(crate) fn restore(kept: Kept, current: Option<Value>) -> Option<Value> {
    match (kept, current) {
        (Kept::Here(replacement), current) => restore_here(replacement, current),
        (Kept::Fields(fields), Some(Value::Object(mut object))) => {
            for (name, kept) in fields {
                let field = object.remove(&name);
                if let Some(restored) = restore(kept, field) {
                    object.insert(name, restored);
                }
            }
            Some(Value::Object(object))
        }
        (Kept::Elements(elements), Some(Value::Array(list))) => {
            Some(Value::Array(restore_elements(elements, list)))
        }
        // The object or list that it was kept for is gone.
        (_, current) => current,
    }
}

fn restore_here(replacement: Replacement, current: Option<Value>) -> Option<Value> {
    let unchanged = current.as_ref().map(fingerprint) == replacement.was;
    if unchanged { replacement.value } else { current }
}

fn restore_elements(elements: Vec<(Which, Kept)>, list: Vec<Value>) -> Vec<Value> {
    let fingerprints: Vec<_> = list.iter().map(fingerprint).collect();
    let mut restored: Vec<_> = list.iter().cloned().map(Some).collect();
    for (which, kept) in elements {
        match which {
            Which::Keyed { key, after } => {
                // Without keys of their own, the elements cannot be recognised any more.
                if keys(&list, &names(&key)).is_some() {
                    restore_keyed(&mut restored, &key, after.as_ref(), kept);
                }
            }
            Which::Content { index, was } => {
                if let Some(index) = find(&fingerprints, index, &was) {
                    restored[index] = restore(kept, restored[index].take());
                }
            }
        }
    }
    restored.into_iter().flatten().collect()
}

fn restore_keyed(list: &mut Vec<Option<Value>>, key: &Key, after: Option<&Key>, kept: Kept) {
    if let Some(place) = place_of(list, key) {
        list[place] = restore(kept, list[place].take());
    } else if let Some(inserted) = restore(kept, None) {
        let place = match after {
            None => 0,
            Some(after) => place_of(list, after).map_or(list.len(), |before| before + 1),
        };
        list.insert(place, Some(inserted));
    }
}

fn names(key: &Key) -> Vec<&str> {
    key.keys().map(String::as_str).collect()
}

fn place_of(list: &[Option<Value>], key: &Key) -> Option<usize> {
    let names = names(key);
    list.iter().position(|item| item.as_ref().and_then(|item| key_of(item, &names)).as_ref() == Some(key))
}

/// The element with this fingerprint: where it was, or the only one elsewhere.
fn find(fingerprints: &[String], index: usize, was: &str) -> Option<usize> {
    if fingerprints.get(index).is_some_and(|fingerprint| fingerprint == was) {
        return Some(index);
    }
    let mut found = fingerprints.iter().enumerate().filter(|(_, fingerprint)| *fingerprint == was);
    match (found.next(), found.next()) {
        (Some((index, _)), None) => Some(index),
        _ => None,
    }
}
