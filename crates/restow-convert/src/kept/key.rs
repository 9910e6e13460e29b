//! The keys by which the elements of a list are told apart.

use std::collections::BTreeSet;

use serde_json::Value;

use super::fingerprint::fingerprint;
use super::tree::Key;

/// The keys of all elements of a list, if each has one of its own.
pub(super) fn keys(list: &[Value], names: &[&str]) -> Option<Vec<Key>> {
    let keys: Option<Vec<_>> = list.iter().map(|item| key_of(item, names)).collect();
    keys.filter(|keys| keys.iter().map(text).collect::<BTreeSet<_>>().len() == keys.len())
}

/// The key of an element. None if it lacks one of the fields.
pub(super) fn key_of(item: &Value, names: &[&str]) -> Option<Key> {
    let fields = names.iter().map(|name| {
        let value = item.get(name)?;
        let scalar = value.is_string() || value.is_number() || value.is_boolean();
        scalar.then(|| ((*name).to_owned(), value.clone()))
    });
    fields.collect::<Option<Key>>().filter(|key| !key.is_empty())
}

/// The key as text, for sets and maps.
pub(super) fn text(key: &Key) -> String {
    key.iter().map(|(name, value)| format!("{name}={};", fingerprint(value))).collect()
}
