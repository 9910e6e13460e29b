//! What is kept of one object: a tree in memory, a flat list of entries in the annotation.
//!
//! The list is not deeper than the object itself, so it can be read wherever the object can.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// What is kept at one place of an object.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Kept {
    /// Of some fields of the object at this place.
    Fields {
        /// By their names.
        fields: BTreeMap<String, Kept>,
        /// Whether the object is made if it is missing: the other version has nothing like it, so nobody removed it there.
        make: bool,
    },
    /// Of some elements of the list at this place.
    Elements {
        /// In the order of the original list.
        elements: Vec<(Which, Kept)>,
        /// The elements in the order in which they came back, with their ranks in the original list. Empty if the order
        /// was the same.
        order: Vec<(Key, usize)>,
    },
    /// The value at this place.
    Here(Replacement),
}

/// A value that takes another's place.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
pub(crate) struct Replacement {
    /// The original value; without one, nothing stood here.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
    pub value: Option<Value>,
    /// The fingerprint of what came back from the other version; without one, nothing did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub was: Option<String>,
}

/// The key fields of an element and their values.
pub(crate) type Key = BTreeMap<String, Value>;

/// How an element of a list is recognised.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(untagged)]
pub(crate) enum Which {
    /// By its keys.
    Keyed {
        key: Key,
        /// The keys of the element before it, which tell where to insert it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        after: Option<Key>,
    },
    /// By its content.
    Content { index: usize, was: String },
}

/// One value that is kept, as it is written into the annotation.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub(crate) struct Entry {
    /// Where it stood.
    pub path: Vec<Step>,
    #[serde(flatten)]
    pub replacement: Replacement,
    /// How many of the objects above it are made if they are missing, from the innermost one on.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub make: usize,
    /// Set for the order of a list, and not for a value.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub order: Vec<(Key, usize)>,
}

/// Whether serde can leave a number out.
#[allow(clippy::trivially_copy_pass_by_ref)] // serde asks for a reference
fn is_zero(number: &usize) -> bool {
    *number == 0
}

/// A step down from an object to its field, or from a list to its element.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(untagged)]
pub(crate) enum Step {
    Field(String),
    Element(Which),
}

/// A step of a path that may be any element of a list, or any value of a map.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Pattern {
    Field(String),
    Any,
}

/// The pattern as people write it.
pub(crate) fn pattern_text(pattern: &[Pattern]) -> String {
    let mut text = String::new();
    for step in pattern {
        match step {
            Pattern::Field(name) if text.is_empty() => text.push_str(name),
            Pattern::Field(name) => text.extend([".", name]),
            Pattern::Any => text.push_str("[]"),
        }
    }
    text
}

/// Whether a value is nested deeper than this.
pub(crate) fn is_deeper(value: &Value, depth: usize) -> bool {
    match value {
        Value::Array(items) => depth == 0 || items.iter().any(|item| is_deeper(item, depth - 1)),
        Value::Object(fields) => depth == 0 || fields.values().any(|field| is_deeper(field, depth - 1)),
        _ => false,
    }
}

/// Reads `null` as a value, which serde takes for none.
fn present<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Option<Value>, D::Error> {
    Value::deserialize(deserializer).map(Some)
}

impl Kept {
    /// The list of entries for the annotation.
    pub(crate) fn into_entries(self) -> Vec<Entry> {
        let mut entries = Vec::new();
        self.collect(&mut Vec::new(), 0, &mut entries);
        entries
    }

    /// `make` is the number of objects above that are made if they are missing.
    fn collect(self, path: &mut Vec<Step>, make: usize, entries: &mut Vec<Entry>) {
        let (below, make): (Vec<_>, _) = match self {
            Self::Here(replacement) => {
                entries.push(Entry { path: path.clone(), replacement, make, order: Vec::new() });
                return;
            }
            Self::Fields { fields, make: true } => (steps(fields, Step::Field), make + 1),
            Self::Fields { fields, make: false } => (steps(fields, Step::Field), 0),
            Self::Elements { elements, order } => {
                if !order.is_empty() {
                    let replacement = Replacement::default();
                    entries.push(Entry { path: path.clone(), replacement, make: 0, order });
                }
                (steps(elements, Step::Element), 0)
            }
        };
        for (step, kept) in below {
            path.push(step);
            kept.collect(path, make, entries);
            path.pop();
        }
    }

    /// The tree of a list of entries. None if no list that restow wrote could look like this.
    pub(crate) fn from_entries(entries: impl IntoIterator<Item = Entry>) -> Option<Self> {
        let mut tree = None;
        for Entry { path, replacement, make, order } in entries {
            let leaf = if order.is_empty() {
                Self::Here(replacement)
            } else {
                Self::Elements { elements: Vec::new(), order }
            };
            tree = Some(insert(tree, path.into_iter(), make, leaf)?);
        }
        tree
    }
}

fn steps<Name>(
    below: impl IntoIterator<Item = (Name, Kept)>,
    step: impl Fn(Name) -> Step,
) -> Vec<(Step, Kept)> {
    below.into_iter().map(|(name, kept)| (step(name), kept)).collect()
}

fn insert(tree: Option<Kept>, mut path: std::vec::IntoIter<Step>, make: usize, leaf: Kept) -> Option<Kept> {
    let steps = path.len();
    match (path.next(), tree) {
        (None, None) => Some(leaf),
        (Some(Step::Field(name)), tree @ (None | Some(Kept::Fields { .. }))) => {
            let (mut fields, made) = match tree {
                Some(Kept::Fields { fields, make }) => (fields, make),
                _ => (BTreeMap::new(), true),
            };
            let below = insert(fields.remove(&name), path, make, leaf)?;
            fields.insert(name, below);
            Some(Kept::Fields { fields, make: made && steps <= make })
        }
        (Some(Step::Element(which)), tree @ (None | Some(Kept::Elements { .. }))) => {
            let (mut elements, order) = match tree {
                Some(Kept::Elements { elements, order }) => (elements, order),
                _ => (Vec::new(), Vec::new()),
            };
            // The entries of one element stand beside each other.
            let before = elements.pop_if(|(known, _)| *known == which).map(|(_, kept)| kept);
            elements.push((which, insert(before, path, make, leaf)?));
            Some(Kept::Elements { elements, order })
        }
        _ => None,
    }
}

impl Entry {
    /// The entry as it is written into the annotation.
    pub(crate) fn to_json(&self) -> Value {
        // No map in it has keys other than strings, so it cannot fail.
        serde_json::to_value(self).unwrap_or_default()
    }

    /// Whether it stood where the pattern leads, or further down.
    pub(crate) fn lies_below(&self, pattern: &[Pattern]) -> bool {
        let fits = |(pattern, step): (&Pattern, &Step)| match (pattern, step) {
            (Pattern::Any, _) => true,
            (Pattern::Field(wanted), Step::Field(name)) => wanted == name,
            (Pattern::Field(_), Step::Element(_)) => false,
        };
        pattern.len() <= self.path.len() && pattern.iter().zip(&self.path).all(fits)
    }

    /// Whether it is nested deeper than objects may be.
    pub(crate) fn is_deeper_than(&self, depth: usize) -> bool {
        self.path.len() > depth
            || self.replacement.value.as_ref().is_some_and(|value| is_deeper(value, depth))
    }

    /// The place without the keys of elements, such as `spec.ports[].protocol`.
    pub(crate) fn pattern(&self) -> String {
        let steps = self.path.iter().map(|step| match step {
            Step::Field(name) => Pattern::Field(name.clone()),
            Step::Element(_) => Pattern::Any,
        });
        pattern_text(&steps.collect::<Vec<_>>())
    }

    /// The place as people write it, such as `spec.ports[web].protocol`.
    pub(crate) fn place(&self) -> String {
        let mut place = String::new();
        for step in &self.path {
            match step {
                Step::Field(name) if place.is_empty() => place.push_str(name),
                Step::Field(name) => place.extend([".", name]),
                Step::Element(Which::Keyed { key, .. }) => {
                    let values: Vec<_> = key.values().map(plain).collect();
                    place.extend(["[", &values.join(","), "]"]);
                }
                Step::Element(Which::Content { index, .. }) => place.extend(["[", &index.to_string(), "]"]),
            }
        }
        place
    }
}

fn plain(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}
