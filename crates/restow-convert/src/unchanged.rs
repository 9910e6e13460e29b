//! The conversion of a CRD without a webhook (strategy None): nothing but apiVersion changes.

use std::collections::BTreeSet;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use serde_json::Value;

use crate::convertible::{set_version, version_of};
use crate::schema::schemas;
use crate::untouched::Untouched;
use crate::{Convertible, Error};

/// Converts by changing apiVersion alone, which is right when all versions have the same schema.
#[derive(Debug)]
pub struct Unchanged {
    group: String,
    kind: String,
    versions: Vec<String>,
    untouched: Untouched,
}

/// Two versions of a CRD have different schemas, so changing apiVersion alone would lose or break something.
#[derive(Debug, PartialEq, thiserror::Error)]
#[error("the schemas of {one} and {other} differ at {path}: a conversion is needed")]
pub struct SchemasDiffer {
    /// The first version of the CRD.
    pub one: String,
    /// The first one whose schema is not the same.
    pub other: String,
    /// The first field that differs.
    pub path: String,
}

impl Unchanged {
    /// The conversion for a CRD, if all its versions have the same schema. Descriptions may differ.
    ///
    /// # Errors
    /// When two schemas differ.
    pub fn of(definition: &CustomResourceDefinition) -> Result<Self, SchemasDiffer> {
        let spec = &definition.spec;
        let schemas = schemas(definition);
        let mut schemas = spec.versions.iter().map(|version| (&version.name, schemas.get(&version.name)));
        if let Some((one, first)) = schemas.next() {
            for (other, schema) in schemas {
                if let Some(path) =
                    difference(first.unwrap_or(&Value::Null), schema.unwrap_or(&Value::Null), "")
                {
                    return Err(SchemasDiffer { one: one.clone(), other: other.clone(), path });
                }
            }
        }
        let versions = spec.versions.iter().map(|version| version.name.clone()).collect();
        let (group, kind) = (spec.group.clone(), spec.names.kind.clone());
        Ok(Self { group, kind, versions, untouched: Untouched::everything() })
    }

    /// The API group of the kind.
    pub fn group(&self) -> &str {
        &self.group
    }

    /// The kind of the objects that it converts, such as Widget.
    pub fn kind(&self) -> &str {
        &self.kind
    }

    /// The versions of the CRD.
    pub fn versions(&self) -> &[String] {
        &self.versions
    }

    /// The fields that a conversion does not touch.
    pub(crate) fn untouched(&self) -> &Untouched {
        &self.untouched
    }
}

impl Convertible for Unchanged {
    fn convert(&self, mut object: Value, version: &str) -> Result<Value, Error> {
        let from = version_of(&object, &self.group, &self.kind)?;
        for version in [&from, version] {
            if !self.versions.iter().any(|known| known == version) {
                return Err(Error::UnknownVersion {
                    version: version.to_owned(),
                    known: self.versions.clone(),
                });
            }
        }
        set_version(&mut object, &self.group, version);
        Ok(object)
    }
}

/// The first place at which two schemas differ, as the path of a field of the object.
fn difference(one: &Value, other: &Value, path: &str) -> Option<String> {
    let (Some(one), Some(other)) = (one.as_object(), other.as_object()) else {
        return (one != other).then(|| path.to_owned());
    };
    let keywords: BTreeSet<_> =
        one.keys().chain(other.keys()).filter(|word| *word != "description").collect();
    keywords.into_iter().find_map(|keyword| match (keyword.as_str(), one.get(keyword), other.get(keyword)) {
        ("properties", Some(Value::Object(one)), Some(Value::Object(other))) => {
            let names: BTreeSet<_> = one.keys().chain(other.keys()).collect();
            names.into_iter().find_map(|name| {
                let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
                match (one.get(name), other.get(name)) {
                    (Some(one), Some(other)) => difference(one, other, &path),
                    _ => Some(path),
                }
            })
        }
        ("items", Some(one), Some(other)) => difference(one, other, &format!("{path}[]")),
        ("additionalProperties", Some(one), Some(other)) => difference(one, other, &format!("{path}.*")),
        (_, one, other) => (one != other).then(|| path.to_owned()),
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn definition(schemas: [Value; 2]) -> CustomResourceDefinition {
        let versions: Vec<_> = ["v1beta1", "v1"]
            .iter()
            .zip(schemas)
            .map(|(name, schema)| {
                json!({"name": name, "served": true, "storage": *name == "v1", "schema": {"openAPIV3Schema": schema}})
            })
            .collect();
        serde_json::from_value(json!({
            "metadata": {"name": "widgets.example.com"},
            "spec": {
                "group": "example.com",
                "scope": "Namespaced",
                "names": {"kind": "Widget", "plural": "widgets"},
                "versions": versions,
            },
        }))
        .unwrap()
    }

    fn object(spec: Value) -> Value {
        json!({"type": "object", "properties": {"spec": {"type": "object", "properties": spec}}})
    }

    #[test]
    fn only_api_version_changes() {
        let schema = object(json!({"size": {"type": "integer"}}));
        let described = object(json!({"size": {"type": "integer", "description": "how large"}}));
        let unchanged = Unchanged::of(&definition([schema, described])).unwrap();
        let widget = json!({
            "apiVersion": "example.com/v1beta1", "kind": "Widget",
            "metadata": {"name": "w", "labels": {"a": "b"}}, "spec": {"size": 3, "unknown": [1.0]},
        });
        let mut expected = widget.clone();
        expected["apiVersion"] = json!("example.com/v1");
        let converted = unchanged.convert(widget.clone(), "v1").unwrap();
        assert_eq!(converted, expected);
        assert_eq!(unchanged.convert(converted, "v1beta1").unwrap(), widget);
        let error = unchanged.convert(widget, "v2").unwrap_err();
        assert_eq!(error.to_string(), "unknown version v2; known versions: v1beta1, v1");
    }

    #[test]
    fn schemas_that_differ_are_refused_with_the_path() {
        let integer = json!({"type": "integer"});
        let list = |items: Value| json!({"type": "array", "items": items});
        let cases = [
            (json!({"size": integer}), json!({"size": {"type": "string"}}), "spec.size"),
            (json!({"size": integer}), json!({"size": integer, "new": integer}), "spec.new"),
            (json!({"a": list(integer.clone())}), json!({"a": list(json!({"type": "string"}))}), "spec.a[]"),
            (json!({"description": integer}), json!({}), "spec.description"),
            (
                json!({"m": {"additionalProperties": integer}}),
                json!({"m": {"additionalProperties": {"type": "integer", "minimum": 1}}}),
                "spec.m.*",
            ),
        ];
        for (one, other, path) in cases {
            let error = Unchanged::of(&definition([object(one), object(other)])).unwrap_err();
            assert_eq!(error.path, path);
        }
    }
}
