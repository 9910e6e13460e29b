//! What API servers do to objects without a conversion webhook: they change apiVersion, and drop what the schema of the
//! other version does not have.

use std::collections::BTreeMap;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use serde_json::Value;

use crate::convertible::{set_version, version_of};
use crate::schema::{Schema, schemas};
use crate::{Convertible, Error};

/// Converts as an API server does for a CRD with the strategy `None`.
#[derive(Clone, Debug)]
pub struct Pruning {
    group: String,
    kind: String,
    versions: Vec<String>,
    schemas: BTreeMap<String, Value>,
}

impl Pruning {
    /// The schemas of a CRD.
    pub fn of(definition: &CustomResourceDefinition) -> Self {
        let spec = &definition.spec;
        // Such a CRD prunes nothing. Only those that were created as v1beta1 can have this.
        let preserves = spec.preserve_unknown_fields == Some(true);
        Self {
            group: spec.group.clone(),
            kind: spec.names.kind.clone(),
            versions: spec.versions.iter().map(|version| version.name.clone()).collect(),
            schemas: if preserves { BTreeMap::new() } else { schemas(definition) },
        }
    }

    /// Drops the fields that the schema of a version does not have, as API servers do after every conversion.
    pub fn prune(&self, object: &mut Value, version: &str) {
        Schema::new(self.schemas.get(version)).prune(object);
    }
}

impl Convertible for Pruning {
    fn convert(&self, mut object: Value, version: &str) -> Result<Value, Error> {
        version_of(&object, &self.group, &self.kind)?;
        if !self.versions.iter().any(|known| known == version) {
            return Err(Error::UnknownVersion { version: version.to_owned(), known: self.versions.clone() });
        }
        set_version(&mut object, &self.group, version);
        self.prune(&mut object, version);
        Ok(object)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::lost_fields;

    fn definition(preserves: bool) -> CustomResourceDefinition {
        let schema = |spec: Value| {
            json!({"openAPIV3Schema": {"type": "object", "properties": {
                "spec": {"type": "object", "properties": spec},
            }}})
        };
        let integer = json!({"type": "integer"});
        serde_json::from_value(json!({
            "metadata": {"name": "widgets.example.com"},
            "spec": {
                "group": "example.com", "scope": "Namespaced", "preserveUnknownFields": preserves,
                "names": {"kind": "Widget", "plural": "widgets"},
                "versions": [
                    {"name": "v1", "served": true, "storage": true,
                     "schema": schema(json!({"size": integer, "colour": {"type": "string"}}))},
                    {"name": "v2", "served": true, "storage": false, "schema": schema(json!({"size": integer}))},
                ],
            },
        }))
        .unwrap()
    }

    fn widget() -> Value {
        json!({
            "apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "w", "uid": "u"},
            "spec": {"size": 3, "colour": "blue"},
        })
    }

    #[test]
    fn what_the_other_schema_does_not_have_is_lost() {
        let pruning = Pruning::of(&definition(false));
        let there = pruning.convert(widget(), "v2").unwrap();
        assert_eq!(there["spec"], json!({"size": 3}));
        assert_eq!(there["metadata"], widget()["metadata"]);
        let back = pruning.convert(there, "v1").unwrap();
        assert_eq!(lost_fields(&widget(), &back), ["spec.colour"]);
        assert!(pruning.convert(widget(), "v3").is_err());
    }

    #[test]
    fn a_crd_that_preserves_unknown_fields_loses_nothing() {
        let pruning = Pruning::of(&definition(true));
        let there = pruning.convert(widget(), "v2").unwrap();
        assert_eq!(there["spec"], widget()["spec"]);
    }
}
