//! What a conversion asks of a CRD's schema: defaults, pruning, and the keys of lists.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, CustomResourceDefinitionVersion,
};
use serde_json::{Map, Value};

/// The fields that every object has, whatever its schema says.
pub(crate) const ENVELOPE: [&str; 3] = ["apiVersion", "kind", "metadata"];

/// The schema of a label and of an annotation.
pub(crate) static TEXT: LazyLock<Value> = LazyLock::new(|| serde_json::json!({"type": "string"}));

/// The schemas of a CRD's versions.
pub(crate) fn schemas(definition: &CustomResourceDefinition) -> BTreeMap<String, Value> {
    let schema = |version: &CustomResourceDefinitionVersion| {
        let schema = version.schema.as_ref()?.open_api_v3_schema.as_ref()?;
        serde_json::to_value(schema).ok()
    };
    let versions = definition.spec.versions.iter();
    versions.filter_map(|version| Some((version.name.clone(), schema(version)?))).collect()
}

/// The schema of a place in an object, if there is one.
#[derive(Clone, Copy, Default)]
pub(crate) struct Schema<'a>(Option<&'a Value>);

impl<'a> Schema<'a> {
    /// The schema of a whole object, as it stands in a CRD.
    pub(crate) fn new(schema: Option<&'a Value>) -> Self {
        Self(schema)
    }

    /// The schema of a field.
    pub(crate) fn field(self, name: &str) -> Self {
        let of_field = |schema: &'a Value| {
            schema
                .get("properties")
                .and_then(|fields| fields.get(name))
                .or_else(|| schema.get("additionalProperties"))
        };
        Self(self.0.and_then(of_field))
    }

    /// The schema of a list's elements.
    pub(crate) fn items(self) -> Self {
        Self(self.0.and_then(|schema| schema.get("items")))
    }

    /// The schema of a list's elements, or of a map's values.
    pub(crate) fn elements(self) -> Self {
        Self(self.0.and_then(|schema| schema.get("items").or_else(|| schema.get("additionalProperties"))))
    }

    /// The schema of what a path leads to.
    pub(crate) fn at(self, path: &[String]) -> Self {
        path.iter().fold(self, |schema, field| schema.field(field))
    }

    /// Labels and annotations are texts, though no schema says so.
    pub(crate) fn or_text_of_metadata(self, path: &[String]) -> Self {
        let is_metadata = path.first().is_some_and(|field| field == "metadata");
        if self.0.is_none() && is_metadata { Self(Some(&*TEXT)) } else { self }
    }

    /// Whether the place takes integers only.
    pub(crate) fn is_integer(self) -> bool {
        self.0.is_some_and(|schema| schema.get("type").and_then(Value::as_str) == Some("integer"))
    }

    /// Whether the place takes numbers with a fraction.
    pub(crate) fn is_number(self) -> bool {
        self.0.is_some_and(|schema| schema.get("type").and_then(Value::as_str) == Some("number"))
    }

    /// Whether the place takes lists only.
    pub(crate) fn is_list(self) -> bool {
        self.0.is_some_and(|schema| schema.get("type").and_then(Value::as_str) == Some("array"))
    }

    /// What of a value does not fit the types and enums of the schema. Null always fits: it is no value.
    pub(crate) fn misfit(self, value: &Value) -> Option<String> {
        let schema = self.0?;
        let wanted = schema.get("type").and_then(Value::as_str);
        let fits = match (wanted, value) {
            (_, Value::Null) => return None,
            _ if self.flag("x-kubernetes-int-or-string") => {
                value.is_string() || value.is_i64() || value.is_u64()
            }
            (Some("string"), value) => value.is_string(),
            (Some("boolean"), value) => value.is_boolean(),
            (Some("integer"), value) => value.is_i64() || value.is_u64(),
            (Some("number"), value) => value.is_number(),
            (Some("array"), value) => value.is_array(),
            (Some("object"), value) => value.is_object(),
            _ => true,
        };
        if !fits {
            let wanted = wanted.unwrap_or("integer or string");
            return Some(format!("{} is not of type {wanted}", shortened(value)));
        }
        if !self.allows(value) {
            return Some(format!("{} is not allowed", shortened(value)));
        }
        match value {
            Value::Array(items) => items.iter().find_map(|item| self.items().misfit(item)),
            Value::Object(fields) => fields.iter().find_map(|(name, value)| self.field(name).misfit(value)),
            _ => None,
        }
    }

    /// Whether an enum allows the value, or there is none.
    pub(crate) fn allows(self, value: &Value) -> bool {
        let values = self.0.and_then(|schema| schema.get("enum")?.as_array());
        values.is_none_or(|values| values.contains(value))
    }

    fn flag(self, name: &str) -> bool {
        self.0.is_some_and(|schema| schema.get(name) == Some(&Value::Bool(true)))
    }

    /// Drops the fields of an object that the schema does not know, as API servers do.
    pub(crate) fn prune(self, object: &mut Value) {
        if let Value::Object(fields) = object {
            let envelope: Vec<_> =
                ENVELOPE.iter().filter_map(|name| fields.remove(*name).map(|value| (*name, value))).collect();
            self.prune_below(object);
            for (name, value) in envelope {
                object[name] = value;
            }
        }
    }

    fn prune_below(self, value: &mut Value) {
        if self.0.is_none() {
            return;
        }
        match value {
            Value::Object(_) if self.flag("x-kubernetes-embedded-resource") => {
                // Its metadata is known without a schema.
                let envelope: Vec<_> =
                    ENVELOPE.iter().map(|name| (*name, value.get(name).cloned())).collect();
                self.prune_fields(value);
                for (name, kept) in envelope {
                    if let Some(kept) = kept {
                        value[name] = kept;
                    }
                }
            }
            Value::Object(_) => self.prune_fields(value),
            Value::Array(items) => items.iter_mut().for_each(|item| self.items().prune_below(item)),
            _ => {}
        }
    }

    fn prune_fields(self, value: &mut Value) {
        let Value::Object(fields) = value else { return };
        if !self.flag("x-kubernetes-preserve-unknown-fields") && !self.takes_any_field() {
            fields.retain(|name, _| self.field(name).0.is_some());
        }
        fields.iter_mut().for_each(|(name, field)| self.field(name).prune_below(field));
    }

    /// Whether `additionalProperties` is `true`.
    fn takes_any_field(self) -> bool {
        self.flag("additionalProperties")
    }

    /// The fields by which the elements of a list are told apart: those that the schema names, or else `name`.
    pub(crate) fn list_keys(self) -> Vec<&'a str> {
        let named = self.0.and_then(|schema| schema.get("x-kubernetes-list-map-keys")?.as_array());
        named.map_or_else(|| vec!["name"], |keys| keys.iter().filter_map(Value::as_str).collect())
    }

    /// Whether anything below has a default.
    pub(crate) fn has_defaults(self) -> bool {
        let Some(schema) = self.0 else { return false };
        let fields = schema.get("properties").and_then(Value::as_object).into_iter().flatten();
        let below = ["items", "additionalProperties"].into_iter().filter_map(|name| schema.get(name));
        let mut all = fields.map(|(_, field)| field).chain(below);
        all.any(|below| below.get("default").is_some() || Self(Some(below)).has_defaults())
    }

    /// Fills in the defaults of missing fields, as API servers do.
    pub(crate) fn fill_defaults(self, value: &mut Value) {
        let Some(schema) = self.0 else { return };
        match value {
            Value::Object(object) => {
                if let Some(fields) = schema.get("properties").and_then(Value::as_object) {
                    fill_missing(fields, object);
                }
                object.iter_mut().for_each(|(name, field)| self.field(name).fill_defaults(field));
            }
            Value::Array(items) => items.iter_mut().for_each(|item| self.items().fill_defaults(item)),
            _ => {}
        }
    }
}

/// The text of a value, cut short if it is long.
pub(crate) fn shortened(value: &Value) -> String {
    let mut text = value.to_string();
    if let Some((end, _)) = text.char_indices().nth(80) {
        text.truncate(end);
        text.push('…');
    }
    text
}

fn fill_missing(fields: &Map<String, Value>, object: &mut Map<String, Value>) {
    for (name, schema) in fields {
        let Some(default) = schema.get("default") else { continue };
        let nullable = schema.get("nullable") == Some(&Value::Bool(true));
        match object.get(name) {
            None => {}
            // A null that is not allowed is dropped before defaults are filled in.
            Some(Value::Null) if !nullable => {}
            Some(_) => continue,
        }
        object.insert(name.clone(), default.clone());
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn defaults_are_filled_in_as_an_api_server_does() {
        let schema = json!({
            "properties": {
                "mode": {"default": "auto"},
                "spec": {"default": {}, "properties": {"size": {"default": 1}, "empty": {"default": 0, "nullable": true}}},
                "ports": {"items": {"properties": {"protocol": {"default": "TCP"}}}},
                "map": {"additionalProperties": {"properties": {"on": {"default": true}}}},
                "absent": {"properties": {"never": {"default": 1}}},
            },
        });
        let filled = |mut value: Value| {
            Schema::new(Some(&schema)).fill_defaults(&mut value);
            value
        };
        assert!(!Schema::default().has_defaults());
        for below in ["mode", "spec", "ports", "map", "absent"] {
            let schema = json!({"properties": {"o": {"properties": {below: schema["properties"][below]}}}});
            assert!(Schema::new(Some(&schema)).has_defaults(), "{below}");
        }
        let without = json!({"properties": {"default": {"type": "string"}, "list": {"items": {}}}});
        assert!(!Schema::new(Some(&without)).has_defaults());
        assert_eq!(filled(json!({})), json!({"mode": "auto", "spec": {"size": 1, "empty": 0}}));
        assert_eq!(
            filled(json!({
                "mode": null, "spec": {"size": 2, "empty": null}, "ports": [{"a": 1}, {"protocol": "UDP"}, 3],
                "map": {"x": {}, "y": {"on": false}},
            })),
            json!({
                "mode": "auto", "spec": {"size": 2, "empty": null}, "ports": [{"a": 1, "protocol": "TCP"}, {"protocol": "UDP"}, 3],
                "map": {"x": {"on": true}, "y": {"on": false}},
            }),
        );
    }

    #[test]
    fn fields_that_the_schema_does_not_know_are_pruned_as_an_api_server_does() {
        let schema = json!({
            "properties": {
                "spec": {"properties": {
                    "known": {"type": "string"},
                    "list": {"items": {"properties": {"a": {}}}},
                    "map": {"additionalProperties": {"properties": {"a": {}}}},
                    "free": {"x-kubernetes-preserve-unknown-fields": true, "properties": {"o": {"properties": {"a": {}}}}},
                    "template": {"x-kubernetes-embedded-resource": true, "properties": {"spec": {"properties": {}}}},
                }},
            },
        });
        let mut object = json!({
            "apiVersion": "e.com/v1", "kind": "W", "metadata": {"name": "w"}, "status": {},
            "spec": {
                "known": "x", "unknown": 1, "list": [{"a": 1, "b": 2}, 3], "map": {"k": {"a": 1, "b": 2}},
                "free": {"any": {"b": 1}, "o": {"a": 1, "b": 2}},
                "template": {"apiVersion": "v1", "kind": "Pod", "metadata": {"labels": {}}, "spec": {"x": 1}, "other": 1},
            },
        });
        Schema::new(Some(&schema)).prune(&mut object);
        let expected = json!({
            "apiVersion": "e.com/v1", "kind": "W", "metadata": {"name": "w"},
            "spec": {
                "known": "x", "list": [{"a": 1}, 3], "map": {"k": {"a": 1}}, "free": {"any": {"b": 1}, "o": {"a": 1}},
                "template": {"apiVersion": "v1", "kind": "Pod", "metadata": {"labels": {}}, "spec": {}},
            },
        });
        assert_eq!(object, expected);
    }

    #[test]
    fn list_keys_are_those_of_the_schema_or_the_name() {
        let schema = json!({"x-kubernetes-list-map-keys": ["port", "protocol"]});
        assert_eq!(Schema::new(Some(&schema)).list_keys(), ["port", "protocol"]);
        assert_eq!(Schema::default().list_keys(), ["name"]);
    }
}
