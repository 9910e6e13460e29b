//! Whether an object fits the schema of its version, as far as a conversion can break it.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use serde_json::Value;

/// The versions of a CRD with their schemas, the oldest first.
pub(crate) fn schemas(definition: &CustomResourceDefinition) -> Vec<(String, Value)> {
    let mut schemas: Vec<_> = definition
        .spec
        .versions
        .iter()
        .filter_map(|version| {
            let schema = version.schema.as_ref()?.open_api_v3_schema.as_ref()?;
            Some((version.name.clone(), serde_json::to_value(schema).ok()?))
        })
        .collect();
    schemas.sort_by(|(one, _), (other, _)| restow_convert::version_order(one, other));
    schemas
}

/// The first field that does not fit: the API server would refuse the object, or drop the field.
pub(crate) fn misfit(object: &Value, schema: &Value) -> Option<String> {
    let Some(fields) = object.as_object() else { return Some("it is not an object".to_owned()) };
    // These are the same in every version, and no schema describes them.
    let rest = fields.iter().filter(|(name, _)| !["apiVersion", "kind", "metadata"].contains(&name.as_str()));
    let rest = Value::Object(rest.map(|(name, value)| (name.clone(), value.clone())).collect());
    below(&rest, schema, "")
}

fn below(value: &Value, schema: &Value, path: &str) -> Option<String> {
    if value.is_null() {
        // A null that is not allowed is dropped, or replaced by the default.
        return None;
    }
    if let Some(values) = schema["enum"].as_array()
        && !values.contains(value)
    {
        return Some(format!("{path}: the schema does not allow {value}"));
    }
    if schema["x-kubernetes-int-or-string"] == true {
        return (!value.is_string() && !value.is_i64() && !value.is_u64())
            .then(|| format!("{path}: {value} is neither an integer nor a string"));
    }
    let wanted = schema["type"].as_str().unwrap_or_default();
    let fits = match wanted {
        "string" => value.is_string(),
        "boolean" => value.is_boolean(),
        "integer" => value.is_i64() || value.is_u64() || value.as_f64().is_some_and(|n| n.fract() == 0.0),
        "number" => value.is_number(),
        "array" => value.is_array(),
        "object" => value.is_object(),
        _ => true,
    };
    if !fits {
        return Some(format!("{path}: {value} is not of type {wanted}"));
    }
    match value {
        Value::Object(_) => fields(value, schema, path),
        Value::Array(items) => {
            let element = &schema["items"];
            let mut items = items.iter().enumerate();
            items.find_map(|(index, item)| below(item, element, &format!("{path}[{index}]")))
        }
        _ => None,
    }
}

fn fields(object: &Value, schema: &Value, path: &str) -> Option<String> {
    let child = |name: &str| if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") };
    let missing = schema["required"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .find(|name| object.get(*name).is_none() && schema["properties"][*name].get("default").is_none());
    if let Some(name) = missing {
        return Some(format!("{}: the schema requires it", child(name)));
    }
    let open = schema["x-kubernetes-preserve-unknown-fields"] == true
        || schema["x-kubernetes-embedded-resource"] == true
        || schema["additionalProperties"] == true
        || schema.get("type").is_none();
    object.as_object()?.iter().find_map(|(name, value)| {
        let known = schema["properties"].get(name);
        let known = known.or_else(|| schema.get("additionalProperties").filter(|values| values.is_object()));
        match known {
            Some(known) => below(value, known, &child(name)),
            None if open => None,
            None => Some(format!(
                "{}: the schema has no such field, so the API server would drop it",
                child(name)
            )),
        }
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_an_api_server_would_refuse_or_drop_is_named() {
        let schema = json!({"type": "object", "properties": {"spec": {
            "type": "object", "required": ["size", "mode"], "properties": {
                "size": {"type": "integer"},
                "mode": {"type": "string", "enum": ["a", "b"], "default": "a"},
                "ports": {"type": "array", "items": {"type": "object", "properties": {"port": {"x-kubernetes-int-or-string": true}}}},
                "labels": {"type": "object", "additionalProperties": {"type": "string"}},
                "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
            },
        }}});
        let cases = [
            (
                json!({"size": 1, "ports": [{"port": "a"}, {"port": 1}], "labels": {"a": "b"}, "free": {"x": {}}}),
                None,
            ),
            (json!({"size": 1, "mode": null}), None),
            (json!({}), Some("spec.size: the schema requires it")),
            (json!({"size": "1"}), Some("spec.size: \"1\" is not of type integer")),
            (json!({"size": 1, "mode": "c"}), Some("spec.mode: the schema does not allow \"c\"")),
            (
                json!({"size": 1, "other": 1}),
                Some("spec.other: the schema has no such field, so the API server would drop it"),
            ),
            (
                json!({"size": 1, "ports": [{"port": 1}, {"port": true}]}),
                Some("spec.ports[1].port: true is neither an integer nor a string"),
            ),
            (json!({"size": 1, "labels": {"a": 1}}), Some("spec.labels.a: 1 is not of type string")),
        ];
        for (spec, expected) in cases {
            let object =
                json!({"apiVersion": "e.com/v1", "kind": "W", "metadata": {"name": "w"}, "spec": spec});
            assert_eq!(misfit(&object, &schema).as_deref(), expected, "{object}");
        }
    }
}
