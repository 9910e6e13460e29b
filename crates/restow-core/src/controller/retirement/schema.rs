//! Which fields are lost when objects of one version are stored in another one, and no webhook converts them.
//!
//! An API server then changes nothing but apiVersion, and drops fields that the schema of the other version lacks.

use serde_json::Value;

const PRESERVE: &str = "x-kubernetes-preserve-unknown-fields";
const INT_OR_STRING: &str = "x-kubernetes-int-or-string";
/// How many fields are named.
const NAMED: usize = 20;

/// The fields of one version that another one lacks, or has with another type; both as entries of `spec.versions`.
pub fn lost_fields(from: &Value, to: &Value) -> Vec<String> {
    let schema = |version: &Value| version["schema"]["openAPIV3Schema"].clone();
    let mut lost = Vec::new();
    compare(&schema(from), &schema(to), "", &mut lost);
    lost.truncate(NAMED);
    lost
}

fn compare(from: &Value, to: &Value, path: &str, lost: &mut Vec<String>) {
    let preserves = |schema: &Value| schema[PRESERVE] == true;
    if preserves(to) {
        return;
    }
    let kind = |schema: &Value| {
        if schema[INT_OR_STRING] == true { Value::from("int-or-string") } else { schema["type"].clone() }
    };
    if preserves(from) || kind(from) != kind(to) {
        lost.push(if path.is_empty() { "the whole object".to_owned() } else { path.to_owned() });
        return;
    }
    for (name, field) in from["properties"].as_object().into_iter().flatten() {
        // API servers know these without a schema.
        if path.is_empty() && ["apiVersion", "kind", "metadata"].contains(&name.as_str()) {
            continue;
        }
        let place = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
        match &to["properties"][name] {
            Value::Null => match &to["additionalProperties"] {
                other @ Value::Object(_) => compare(field, other, &place, lost),
                Value::Bool(true) => {}
                _ => lost.push(place),
            },
            other => compare(field, other, &place, lost),
        }
    }
    for (key, suffix) in [("additionalProperties", ".*"), ("items", "[]")] {
        match (&from[key], &to[key]) {
            (Value::Object(_), Value::Object(_)) => {
                compare(&from[key], &to[key], &format!("{path}{suffix}"), lost);
            }
            (Value::Object(_) | Value::Bool(true), Value::Null | Value::Bool(false)) => {
                lost.push(format!("{path}{suffix}"));
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn version(properties: &Value) -> Value {
        json!({"schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": {"type": "object", "properties": properties}}}}})
    }

    #[test]
    fn only_fields_that_the_other_version_cannot_store_are_lost() {
        let text = json!({"type": "string", "description": "x"});
        let map = |of: Value| json!({"type": "object", "additionalProperties": of});
        let list = |of: Value| json!({"type": "array", "items": of});
        let object = |field: &str| json!({"type": "object", "properties": {field: {"type": "string"}}});
        let open = json!({"type": "object", PRESERVE: true});
        for (from, to, lost) in [
            (json!({"a": text}), json!({"a": {"type": "string"}}), &[][..]),
            (json!({"a": text}), json!({"a": text, "b": text}), &[]),
            (json!({"a": text, "b": text}), json!({"a": text}), &["spec.b"]),
            (json!({"a": text}), json!({"a": {"type": "integer"}}), &["spec.a"]),
            (json!({"a": map(text.clone())}), json!({"a": map(text.clone())}), &[]),
            (json!({"a": map(object("x"))}), json!({"a": map(object("y"))}), &["spec.a.*.x"]),
            (json!({"a": list(object("x"))}), json!({"a": list(object("y"))}), &["spec.a[].x"]),
            (json!({"a": object("x")}), json!({"a": map(text.clone())}), &[]),
            (json!({"a": map(text.clone())}), json!({"a": object("x")}), &["spec.a.*"]),
            (json!({"a": object("x")}), json!({"a": open}), &[]),
            (json!({"a": open}), json!({"a": object("x")}), &["spec.a"]),
        ] {
            assert_eq!(lost_fields(&version(&from), &version(&to)), lost, "{from} {to}");
        }
        let anything = json!({"schema": {"openAPIV3Schema": {"type": "object", PRESERVE: true}}});
        assert_eq!(lost_fields(&anything, &anything), [""; 0]);
        assert_eq!(lost_fields(&anything, &version(&json!({}))), ["the whole object"]);
    }
}
