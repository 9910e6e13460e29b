//! Puts what was kept back into an object, as far as nobody has changed what it belonged to.

use std::collections::{HashMap, HashSet};

use serde_json::{Map, Value};

use super::fingerprint::fingerprint;
use super::key::{key_of, text};
use super::tree::{Kept, Key, Replacement, Which};

/// The value with what was kept of it.
pub(crate) fn restore(kept: Kept, current: Option<Value>) -> Option<Value> {
    match (kept, current) {
        (Kept::Here(replacement), current) => restore_here(replacement, current),
        (Kept::Fields { fields, .. }, Some(Value::Object(mut object))) => {
            for (name, kept) in fields {
                let field = object.remove(&name);
                if let Some(restored) = restore(kept, field) {
                    object.insert(name, restored);
                }
            }
            Some(Value::Object(object))
        }
        (Kept::Fields { fields, make: true }, None) => {
            let restored = fields.into_iter().filter_map(|(name, kept)| Some((name, restore(kept, None)?)));
            let restored: Map<_, _> = restored.collect();
            (!restored.is_empty()).then_some(Value::Object(restored))
        }
        (Kept::Elements { elements, order }, Some(Value::Array(list))) => {
            Some(Value::Array(restore_elements(elements, &order, list)))
        }
        // The object or list that it was kept for is gone.
        (_, current) => current,
    }
}

fn restore_here(replacement: Replacement, current: Option<Value>) -> Option<Value> {
    let unchanged = current.as_ref().map(fingerprint) == replacement.was;
    if unchanged { replacement.value } else { current }
}

fn restore_elements(elements: Vec<(Which, Kept)>, order: &[(Key, usize)], list: Vec<Value>) -> Vec<Value> {
    let mut places = Places::default();
    let found = find_by_content(&elements, &list);
    let mut restored: Vec<_> = list.iter().cloned().map(Some).collect();
    let mut inserted = Inserted::default();
    for (number, (which, kept)) in elements.into_iter().enumerate() {
        match which {
            Which::Keyed { key, after } => match places.of(&list, &key) {
                Some([]) => {
                    if let Some(value) = restore(kept, None) {
                        inserted.add(after.as_ref(), &key, value);
                    }
                }
                Some(&[place]) => restored[place] = restore(kept, restored[place].take()),
                // Several elements have this key: nothing tells which one is meant.
                _ => {}
            },
            Which::Content { .. } => {
                if let Some(&place) = found.get(&number) {
                    restored[place] = restore(kept, restored[place].take());
                }
            }
        }
    }
    restore_order(order, &list, &mut restored, &mut places);
    inserted.merge(restored)
}

/// Where the elements with certain keys are.
#[derive(Default)]
struct Places {
    /// By the names of the key fields, and then by the keys.
    known: HashMap<Vec<String>, HashMap<String, Vec<usize>>>,
}

impl Places {
    /// The places of the elements with a key. None if the key has no fields.
    fn of(&mut self, list: &[Value], key: &Key) -> Option<&[usize]> {
        let names: Vec<String> = key.keys().cloned().collect();
        if names.is_empty() {
            return None;
        }
        let places = self.known.entry(names).or_insert_with_key(|names| {
            let names: Vec<_> = names.iter().map(String::as_str).collect();
            let mut places: HashMap<String, Vec<usize>> = HashMap::new();
            for (place, item) in list.iter().enumerate() {
                if let Some(key) = key_of(item, &names) {
                    places.entry(text(&key)).or_default().push(place);
                }
            }
            places
        });
        Some(places.get(&text(key)).map_or(&[], Vec::as_slice))
    }
}

/// Elements that the other version cannot express, by the key of the element that they follow.
#[derive(Default)]
struct Inserted {
    after: HashMap<Option<String>, Vec<(Key, Value)>>,
}

impl Inserted {
    fn add(&mut self, after: Option<&Key>, key: &Key, value: Value) {
        self.after.entry(after.map(text)).or_default().push((key.clone(), value));
    }

    /// The list with these elements. Those whose predecessor is gone come last.
    fn merge(mut self, list: Vec<Option<Value>>) -> Vec<Value> {
        let names: Vec<Vec<String>> = {
            let keys = self.after.values().flatten().map(|(key, _)| key.keys().cloned().collect::<Vec<_>>());
            keys.collect::<HashSet<_>>().into_iter().collect()
        };
        let mut merged = Vec::with_capacity(list.len());
        self.emit(None, &mut merged);
        for item in list.into_iter().flatten() {
            let keys: Vec<_> = names
                .iter()
                .filter_map(|names| key_of(&item, &names.iter().map(String::as_str).collect::<Vec<_>>()))
                .collect();
            merged.push(item);
            for key in keys {
                self.emit(Some(text(&key)), &mut merged);
            }
        }
        let mut rest: Vec<_> = self.after.drain().collect();
        rest.sort_by(|(one, _), (other, _)| one.cmp(other));
        merged.extend(rest.into_iter().flat_map(|(_, items)| items).map(|(_, value)| value));
        merged
    }

    /// Appends what follows an element, and what follows that.
    fn emit(&mut self, after: Option<String>, merged: &mut Vec<Value>) {
        let mut next = vec![after];
        while let Some(after) = next.pop() {
            for (key, value) in self.after.remove(&after).into_iter().flatten() {
                merged.push(value);
                next.push(Some(text(&key)));
            }
        }
    }
}

/// Puts elements back into their original order, if they are in the order in which they came back.
fn restore_order(
    order: &[(Key, usize)],
    list: &[Value],
    restored: &mut [Option<Value>],
    places: &mut Places,
) {
    let mut present = Vec::new();
    for (key, rank) in order {
        if let Some(&[place]) = places.of(list, key)
            && restored[place].is_some()
        {
            present.push((place, *rank));
        }
    }
    if !present.is_sorted_by_key(|(place, _)| *place) {
        return;
    }
    let mut by_rank: Vec<_> = present.iter().map(|(place, rank)| (*rank, restored[*place].take())).collect();
    by_rank.sort_by_key(|(rank, _)| *rank);
    for ((place, _), (_, value)) in present.into_iter().zip(by_rank) {
        restored[place] = value;
    }
}

/// Which elements are meant by their content: those that are where they were, then those that are alone elsewhere.
fn find_by_content(elements: &[(Which, Kept)], list: &[Value]) -> HashMap<usize, usize> {
    let wanted: Vec<_> = elements
        .iter()
        .enumerate()
        .filter_map(|(number, (which, _))| match which {
            Which::Content { index, was } => Some((number, *index, was.as_str())),
            Which::Keyed { .. } => None,
        })
        .collect();
    if wanted.is_empty() {
        return HashMap::new();
    }
    let fingerprints: Vec<_> = list.iter().map(fingerprint).collect();
    let mut found = HashMap::new();
    let mut claimed = HashSet::new();
    for (number, index, was) in &wanted {
        if fingerprints.get(*index).is_some_and(|fingerprint| fingerprint == was) && claimed.insert(*index) {
            found.insert(*number, *index);
        }
    }
    let mut elsewhere: HashMap<&str, Vec<usize>> = HashMap::new();
    for (place, fingerprint) in fingerprints.iter().enumerate().filter(|(place, _)| !claimed.contains(place))
    {
        elsewhere.entry(fingerprint).or_default().push(place);
    }
    let mut equals: HashMap<&str, usize> = HashMap::new();
    wanted.iter().for_each(|(_, _, was)| *equals.entry(was).or_default() += 1);
    for (number, _, was) in &wanted {
        if let (false, Some(&[place]), Some(1)) =
            (found.contains_key(number), elsewhere.get(was).map(Vec::as_slice), equals.get(was))
        {
            found.insert(*number, place);
        }
    }
    found
}
