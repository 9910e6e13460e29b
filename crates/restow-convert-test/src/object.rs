//! Objects as JSON values.

use restow_convert::ANNOTATION;
use serde_json::{Map, Value};

/// The version of an object, such as `v1`.
pub(crate) fn version_of(object: &Value) -> Option<&str> {
    let api_version = object.get("apiVersion")?.as_str()?;
    Some(api_version.split_once('/').map_or(api_version, |(_, version)| version))
}

/// Whether the object has the annotation that keeps what a version cannot express.
pub(crate) fn is_annotated(object: &Value) -> bool {
    annotations(object).is_some_and(|annotations| annotations.contains_key(ANNOTATION))
}

/// The object without the annotation that keeps what a version cannot express.
pub(crate) fn without_annotation(mut object: Value) -> Value {
    if is_annotated(&object)
        && let Some(Value::Object(metadata)) = object.get_mut("metadata")
        && let Some(Value::Object(annotations)) = metadata.get_mut("annotations")
    {
        annotations.remove(ANNOTATION);
        if annotations.is_empty() {
            metadata.remove("annotations");
        }
    }
    object
}

/// What an object says, without what only the API server writes into its metadata.
pub(crate) fn meaning(object: &Value) -> Value {
    let mut object = object.clone();
    if let Some(Value::Object(metadata)) = object.get_mut("metadata") {
        metadata.retain(|name, _| ["name", "namespace", "labels", "annotations"].contains(&name.as_str()));
    }
    object
}

fn annotations(object: &Value) -> Option<&Map<String, Value>> {
    object.get("metadata")?.get("annotations")?.as_object()
}

/// Removes the value at a path such as `spec.ports[].note`, in every element of a list and every value of a map.
pub(crate) fn remove(object: &mut Value, path: &[&str]) {
    let Some((first, rest)) = path.split_first() else { return };
    let (name, elements) = first.strip_suffix("[]").map_or((*first, false), |name| (name, true));
    let Value::Object(fields) = object else { return };
    if rest.is_empty() && !elements {
        fields.remove(name);
        return;
    }
    match fields.get_mut(name) {
        Some(Value::Array(items)) if elements => items.iter_mut().for_each(|item| remove(item, rest)),
        Some(Value::Object(values)) if elements => values.values_mut().for_each(|value| remove(value, rest)),
        Some(value) if !elements => remove(value, rest),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn paths_lead_through_lists_and_maps() {
        let object = json!({"spec": {"a": 1, "b": [{"c": 1, "d": 2}, 3], "m": {"x": {"c": 1}}}});
        let cases = [
            ("spec.a", json!({"spec": {"b": [{"c": 1, "d": 2}, 3], "m": {"x": {"c": 1}}}})),
            ("spec.b[].c", json!({"spec": {"a": 1, "b": [{"d": 2}, 3], "m": {"x": {"c": 1}}}})),
            ("spec.m[].c", json!({"spec": {"a": 1, "b": [{"c": 1, "d": 2}, 3], "m": {"x": {}}}})),
            ("spec.none.c", object.clone()),
            ("spec.b.c", object.clone()),
        ];
        for (path, expected) in cases {
            let mut changed = object.clone();
            remove(&mut changed, &path.split('.').collect::<Vec<_>>());
            assert_eq!(changed, expected, "{path}");
        }
    }

    #[test]
    fn only_the_annotation_of_the_conversion_is_left_out() {
        let annotated = |others: Value| json!({"metadata": {"name": "a", "annotations": others}});
        let cases = [
            (annotated(json!({ANNOTATION: "{}"})), json!({"metadata": {"name": "a"}})),
            (annotated(json!({ANNOTATION: "{}", "b": "c"})), annotated(json!({"b": "c"}))),
            (annotated(json!({})), annotated(json!({}))),
            (json!({}), json!({})),
        ];
        for (object, expected) in cases {
            assert_eq!(without_annotation(object), expected);
        }
    }
}
