//! What is kept of one object: a tree in memory, a flat list of entries in the annotation.
//!
//! The list is not deeper than the object itself, so it can be read wherever the object can.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// What is kept at one place of an object.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Kept {
    /// Of some fields of the object at this place, by their names.
    Fields(BTreeMap<String, Kept>),
    /// Of some elements of the list at this place, in the order of the original list.
    Elements(Vec<(Which, Kept)>),
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
#[derive(Debug, Deserialize, PartialEq, Serialize)]
pub(crate) struct Entry {
    /// Where it stood.
    pub path: Vec<Step>,
    #[serde(flatten)]
    pub replacement: Replacement,
}

/// A step down from an object to its field, or from a list to its element.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(untagged)]
pub(crate) enum Step {
    Field(String),
    Element(Which),
}

/// Reads `null` as a value, which serde takes for none.
fn present<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Option<Value>, D::Error> {
    Value::deserialize(deserializer).map(Some)
}

impl Kept {
    /// The list of entries for the annotation.
    pub(crate) fn into_entries(self) -> Vec<Entry> {
        let mut entries = Vec::new();
        self.collect(&mut Vec::new(), &mut entries);
        entries
    }

    fn collect(self, path: &mut Vec<Step>, entries: &mut Vec<Entry>) {
        let mut descend = |step, kept: Self| {
            path.push(step);
            kept.collect(path, entries);
            path.pop();
        };
        match self {
            Self::Fields(fields) => {
                fields.into_iter().for_each(|(name, kept)| descend(Step::Field(name), kept))
            }
            Self::Elements(elements) => {
                elements.into_iter().for_each(|(which, kept)| descend(Step::Element(which), kept));
            }
            Self::Here(replacement) => entries.push(Entry { path: path.clone(), replacement }),
        }
    }

    /// The tree of a list of entries. None if no list that restow wrote could look like this.
    pub(crate) fn from_entries(entries: Vec<Entry>) -> Option<Self> {
        let mut tree = None;
        for Entry { path, replacement } in entries {
            tree = Some(insert(tree, path.into_iter(), replacement)?);
        }
        tree
    }
}

fn insert(tree: Option<Kept>, mut path: std::vec::IntoIter<Step>, replacement: Replacement) -> Option<Kept> {
    match (path.next(), tree) {
        (None, None) => Some(Kept::Here(replacement)),
        (Some(Step::Field(name)), None) => {
            Some(Kept::Fields(BTreeMap::from([(name, insert(None, path, replacement)?)])))
        }
        (Some(Step::Field(name)), Some(Kept::Fields(mut fields))) => {
            let below = insert(fields.remove(&name), path, replacement)?;
            fields.insert(name, below);
            Some(Kept::Fields(fields))
        }
        (Some(Step::Element(which)), None) => {
            Some(Kept::Elements(vec![(which, insert(None, path, replacement)?)]))
        }
        (Some(Step::Element(which)), Some(Kept::Elements(mut elements))) => {
            // The entries of one element stand beside each other.
            let before = elements.pop_if(|(known, _)| *known == which).map(|(_, kept)| kept);
            elements.push((which, insert(before, path, replacement)?));
            Some(Kept::Elements(elements))
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

    /// Whether it stood at this path, or further down.
    pub(crate) fn lies_below(&self, path: &[String]) -> bool {
        let fields = self.path.iter().filter_map(|step| match step {
            Step::Field(name) => Some(name),
            Step::Element(_) => None,
        });
        fields.take(path.len()).eq(path)
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
