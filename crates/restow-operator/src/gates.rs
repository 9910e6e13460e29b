//! What must hold before a CRD calls the operator's webhook: every replica converts its versions, and all live objects survive.

use std::sync::Arc;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use restow_convert::{Converter, Convertible as _, lost_fields};
use restow_webhook::LiveConverters;
use restow_webhook::certificates::CrdTrust;
use restow_webhook::registration::ConverterGates;
use serde_json::Value;

use crate::admission::Admission;
use crate::coverage::unknown_versions;
use crate::error::causes;
use crate::replicas::Replicas;

/// How many problems a message has at most.
const SHOWN: usize = 5;

/// The gates of an operator's converters.
#[derive(Clone)]
pub(crate) struct Gates {
    pub(crate) crds: Vec<String>,
    pub(crate) live: Arc<LiveConverters>,
    pub(crate) replicas: Arc<Replicas>,
    pub(crate) admission: Arc<Admission>,
}

impl ConverterGates for Gates {
    fn crds(&self) -> Vec<String> {
        self.crds.clone()
    }

    async fn is_served(&self, crd: &CustomResourceDefinition) -> Result<(), String> {
        let converters = self.live.load();
        let (group, kind) = (&crd.spec.group, &crd.spec.names.kind);
        let converter = converters.get(group, kind);
        let converter =
            converter.ok_or_else(|| format!("this release has no converter for {kind}.{group}"))?;
        let unknown = unknown_versions(crd, converter);
        if !unknown.is_empty() {
            return Err(format!("this release cannot convert {}", unknown.join(", ")));
        }
        self.replicas.all_convert().await
    }

    fn try_on(&self, crd: &CustomResourceDefinition, objects: Vec<(String, Value)>) -> Result<(), String> {
        let converters = self.live.load();
        let (group, kind) = (&crd.spec.group, &crd.spec.names.kind);
        let converter = converters.get(group, kind);
        let converter =
            converter.ok_or_else(|| format!("this release has no converter for {kind}.{group}"))?;
        let mut problems: Vec<String> =
            objects.into_iter().flat_map(|(name, object)| problems(converter, &name, &object)).collect();
        if problems.is_empty() {
            return Ok(());
        }
        let more = problems.len().saturating_sub(SHOWN);
        problems.truncate(SHOWN);
        let more = if more == 0 { String::new() } else { format!("; and {more} more") };
        Err(format!(
            "live objects would not survive the conversion: {}{more}; change the converter, or the objects",
            problems.join("; ")
        ))
    }

    async fn others(&self) -> Result<Vec<CrdTrust>, String> {
        self.admission.keep().await
    }
}

/// What goes wrong with an object on its way to every other version and back.
fn problems(converter: &Converter, name: &str, object: &Value) -> Vec<String> {
    let from = object["apiVersion"].as_str().and_then(|text| text.rsplit('/').next()).unwrap_or_default();
    let others = converter.versions().iter().filter(|version| *version != from);
    others.filter_map(|to| problem(converter, name, object, from, to)).collect()
}

fn problem(converter: &Converter, name: &str, object: &Value, from: &str, to: &str) -> Option<String> {
    let refused = |from: &str, to: &str, error: restow_convert::Error| {
        format!("{name} cannot be converted from {from} to {to}: {}", causes(&error))
    };
    let there = match converter.convert(object.clone(), to) {
        Ok(there) => there,
        Err(error) => return Some(refused(from, to, error)),
    };
    let back = match converter.convert(there, from) {
        Ok(back) => back,
        Err(error) => return Some(refused(to, from, error)),
    };
    let lost = lost_fields(object, &back);
    if lost.is_empty() {
        return None;
    }
    Some(format!("{name} comes back from {to} to {from} without {}", lost.join(", ")))
}

#[cfg(test)]
mod tests {
    use restow_convert::{Convertible, Error};
    use serde_json::json;

    use super::*;

    /// Forgets `spec.note` in v2, and refuses `spec.bad`.
    struct Forgetful;

    impl Convertible for Forgetful {
        fn convert(&self, mut object: Value, version: &str) -> Result<Value, Error> {
            if object["spec"]["bad"] == true {
                return Err(Error::NotAnObject("it is bad"));
            }
            if version == "v2"
                && let Some(spec) = object["spec"].as_object_mut()
            {
                spec.remove("note");
            }
            object["apiVersion"] = json!(format!("example.com/{version}"));
            Ok(object)
        }
    }

    #[test]
    fn an_object_that_is_refused_or_loses_a_field_is_a_problem() {
        let converter = Converter::new("example.com", "Widget", ["v1", "v2"], Forgetful);
        let problems = |spec: Value| {
            problems(
                &converter,
                "default/w",
                &json!({"apiVersion": "example.com/v1", "kind": "Widget", "spec": spec}),
            )
        };
        assert_eq!(problems(json!({"size": 1})), Vec::<String>::new());
        assert_eq!(problems(json!({"note": 1})), ["default/w comes back from v2 to v1 without spec.note"]);
        let refused = problems(json!({"bad": true}));
        assert!(refused[0].starts_with("default/w cannot be converted from v1 to v2: "), "{refused:?}");
    }
}
