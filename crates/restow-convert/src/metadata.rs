//! A conversion may change labels and annotations, and no other metadata: API servers refuse the object otherwise.

use serde_json::{Map, Value};

const CHANGEABLE: [&str; 2] = ["labels", "annotations"];

/// The first field other than labels and annotations that differs.
pub(crate) fn changed_field(before: &Value, after: &Value) -> Option<String> {
    let none = Map::new();
    let (before, after) = (before.as_object().unwrap_or(&none), after.as_object().unwrap_or(&none));
    let names = before.keys().chain(after.keys());
    let differs =
        |name: &&String| !CHANGEABLE.contains(&name.as_str()) && before.get(*name) != after.get(*name);
    names.filter(differs).min().cloned()
}

/// The metadata as far as no conversion may change it.
pub(crate) fn unchangeable(object: &Value) -> Value {
    let fields = object.get("metadata").and_then(Value::as_object).into_iter().flatten();
    let kept = fields.filter(|(name, _)| !CHANGEABLE.contains(&name.as_str()));
    Value::Object(kept.map(|(name, value)| (name.clone(), value.clone())).collect())
}

/// The first of labels and annotations that is not a map of texts, which API servers refuse.
pub(crate) fn not_texts(metadata: &Value) -> Option<&'static str> {
    let is_texts = |value: &Value| match value {
        Value::Object(fields) => fields.values().all(Value::is_string),
        other => other.is_null(),
    };
    CHANGEABLE.into_iter().find(|name| metadata.get(name).is_some_and(|value| !is_texts(value)))
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
