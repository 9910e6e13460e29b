//! managedFields, without server-side apply.
//!
//! A write that changes fields makes its manager their only owner. Entries of unchanged fields are kept, including those
//! of managers that apply.

mod compare;
pub(crate) mod set;

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde_json::{Value, json};

use crate::http::status::golang::is_printable;
use crate::object::meta::{field, set as set_field, text, time};
use crate::object::structure::Structure;
use set::Set;

/// A write whose changes are recorded.
#[derive(Clone, Copy)]
pub(crate) struct Write<'a> {
    /// The field manager.
    pub manager: &'a str,
    /// The endpoint, such as `status`; empty for the object itself.
    pub subresource: &'a str,
    /// The version of the write.
    pub api_version: &'a str,
    /// The time of the write.
    pub now: Timestamp,
    /// Top-level fields that the endpoint does not change.
    pub ignored: &'a [&'a str],
    /// Whether a version can be converted to: an entry of an unknown version clears all entries.
    pub is_known: &'a dyn Fn(&str) -> bool,
}

/// How many entries of managers that do not apply are kept.
const MOST_MANAGERS: usize = 10;
const ANCIENT: &str = "ancient-changes";

/// Metadata that no manager owns.
const UNOWNED: [&str; 9] = [
    "name",
    "namespace",
    "creationTimestamp",
    "selfLink",
    "uid",
    "clusterName",
    "generation",
    "managedFields",
    "resourceVersion",
];

/// The manager of a request: its parameter, or the first part of its User-Agent.
pub(crate) fn manager(given: &str, user_agent: &str) -> String {
    if !given.is_empty() {
        return given.to_owned();
    }
    let first = user_agent.split('/').next().unwrap_or_default();
    let mut manager = String::new();
    for letter in first.chars().filter(|letter| is_printable(*letter)) {
        if manager.len() + letter.len_utf8() > 128 {
            break;
        }
        manager.push(letter);
    }
    manager
}

/// Records the changes from `live` to `object` in the object. Without a `live` object, everything but `zero` is new.
pub(crate) fn track(
    object: &mut Value,
    live: Option<&Value>,
    zero: &Value,
    structure: Structure<'_>,
    write: &Write<'_>,
) {
    let Some(entries) = recorded(object, live, write) else { return };
    if !entries.iter().all(|entry| (write.is_known)(&entry.id.api_version)) {
        set_field(object, "managedFields", None);
        return;
    }
    // An object whose managedFields were cleared gets no new ones.
    if entries.is_empty() && live.is_some_and(|live| !text(live, "uid").is_empty()) {
        set_field(object, "managedFields", None);
        return;
    }
    let comparison = compare::compare(live.unwrap_or(zero), object, structure, write.ignored);
    let updated = update(entries, &comparison, write);
    let list: Vec<_> = updated.iter().map(Entry::to_value).collect();
    set_field(object, "managedFields", (!list.is_empty()).then_some(Value::Array(list)));
}

/// One entry of managedFields.
#[derive(Clone, Debug)]
struct Entry {
    id: Id,
    time: Option<String>,
    fields: Set,
}

/// The identity of an entry.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Id {
    operation: String,
    manager: String,
    api_version: String,
    subresource: String,
}

/// The current entries: those of the request if it has any, otherwise those of the live object. None if neither can be
/// parsed: then they are left as they are.
fn recorded(object: &Value, live: Option<&Value>, write: &Write<'_>) -> Option<Vec<Entry>> {
    let given = field(object, "managedFields");
    if write.subresource.is_empty() {
        if is_reset(given) {
            return Some(Vec::new());
        }
        if let Some(entries) = given.and_then(Entry::parse_all).filter(|entries| !entries.is_empty()) {
            return Some(entries);
        }
    }
    match live.and_then(|live| field(live, "managedFields")) {
        None => Some(Vec::new()),
        Some(list) => Entry::parse_all(list),
    }
}

/// Whether the request has a single empty entry, which clears all entries.
fn is_reset(given: Option<&Value>) -> bool {
    let list = given.and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    matches!(list, [Value::Object(entry)] if entry.is_empty())
}

fn update(entries: Vec<Entry>, comparison: &compare::Comparison, write: &Write<'_>) -> Vec<Entry> {
    let mut kept: BTreeMap<Id, Entry> = BTreeMap::new();
    for mut entry in entries {
        entry.fields = entry.fields.without(&comparison.changed).without(&comparison.removed);
        if !entry.fields.is_empty() {
            kept.insert(entry.id.clone(), entry);
        }
    }
    let mut own = comparison.changed.clone();
    own.remove_fields(&UNOWNED);
    if !own.is_empty() {
        let id = Id {
            operation: "Update".into(),
            manager: write.manager.into(),
            api_version: write.api_version.into(),
            subresource: write.subresource.into(),
        };
        let before = kept.remove(&id).map(|entry| entry.fields).unwrap_or_default();
        let fields = before.with(&own);
        kept.insert(id.clone(), Entry { id, time: Some(time(write.now)), fields });
    }
    let mut kept: Vec<_> = capped(kept.into_values().collect());
    kept.sort_by(|one, other| {
        let order = |entry: &Entry| {
            let id = entry.id.clone();
            (id.operation, entry.time.clone(), id.manager, id.api_version, id.subresource)
        };
        order(one).cmp(&order(other))
    });
    kept
}

/// Merges the oldest entries of each version if there are too many.
fn capped(entries: Vec<Entry>) -> Vec<Entry> {
    let (applied, mut updated): (Vec<_>, Vec<_>) =
        entries.into_iter().partition(|entry| entry.id.operation == "Apply");
    updated.sort_by(|one, other| (&one.time, &one.id).cmp(&(&other.time, &other.id)));
    let mut excess = updated.len().saturating_sub(MOST_MANAGERS);
    let mut kept: Vec<Entry> = Vec::new();
    for entry in updated {
        let same = kept.iter_mut().find(|first| first.id.api_version == entry.id.api_version);
        match same {
            Some(first) if excess > 0 => {
                first.id.manager = ANCIENT.into();
                first.id.subresource = String::new();
                first.fields = std::mem::take(&mut first.fields).with(&entry.fields);
                first.time = entry.time;
                excess -= 1;
            }
            _ => kept.push(entry),
        }
    }
    kept.extend(applied);
    kept
}

impl Entry {
    /// Parses `managedFields`; none if any entry is malformed.
    fn parse_all(list: &Value) -> Option<Vec<Self>> {
        list.as_array()?.iter().map(Self::parse).collect()
    }

    fn parse(entry: &Value) -> Option<Self> {
        let part = |key: &str| entry.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
        let id = Id {
            operation: part("operation"),
            manager: part("manager"),
            api_version: part("apiVersion"),
            subresource: part("subresource"),
        };
        let known = ["Apply", "Update"].contains(&id.operation.as_str());
        if !known || id.api_version.is_empty() || part("fieldsType") != "FieldsV1" {
            return None;
        }
        let time = Some(part("time")).filter(|time| !time.is_empty());
        Some(Self { id, time, fields: Set::parse(entry.get("fieldsV1").unwrap_or(&Value::Null))? })
    }

    fn to_value(&self) -> Value {
        let mut entry = json!({"operation": self.id.operation, "apiVersion": self.id.api_version,
            "fieldsType": "FieldsV1", "fieldsV1": self.fields.to_value()});
        for (key, text) in [
            ("manager", Some(&self.id.manager)),
            ("subresource", Some(&self.id.subresource)),
            ("time", self.time.as_ref()),
        ] {
            if let Some(text) = text.filter(|text| !text.is_empty()) {
                entry[key] = json!(text);
            }
        }
        entry
    }
}

#[cfg(test)]
mod tests;
