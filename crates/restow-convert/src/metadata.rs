//! A conversion may change labels and annotations, and no other metadata: API servers refuse the object otherwise.

use serde_json::{Map, Value};

const CHANGEABLE: [&str; 2] = ["labels", "annotations"];

/// The first field other than labels and annotations that differs.
pub(crate) fn changed_field(before: &Value, after: &Value) -> Option<String> {
    let none = Map::new();
    let fields = |metadata: &Value| metadata.as_object().cloned().unwrap_or_else(|| none.clone());
    let (before, after) = (fields(before), fields(after));
    let names = before.keys().chain(after.keys()).filter(|name| !CHANGEABLE.contains(&name.as_str()));
    names
        .min_by_key(|name| (before.get(*name) == after.get(*name), *name))
        .filter(|name| before.get(*name) != after.get(*name))
        .cloned()
}

/// Gives the converted object the original's metadata, with the labels and annotations that the converter returned.
pub(crate) fn carry(original: &Value, converted: &mut Value) {
    let Some(converted) = converted.as_object_mut() else { return };
    let returned = converted.remove("metadata");
    let mut metadata = original.get("metadata").and_then(Value::as_object).cloned().unwrap_or_default();
    for name in CHANGEABLE {
        match returned.as_ref().and_then(|returned| returned.get(name)) {
            Some(value) => metadata.insert(name.to_owned(), value.clone()),
            None => metadata.remove(name),
        };
    }
    converted.insert("metadata".to_owned(), Value::Object(metadata));
}
