//! A CRD with two versions, and rules of every kind between them.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use restow_convert::Chain;
use restow_convert::rules::{ConversionRules, ConversionRulesSpec, compile};
use serde_json::{Value, json};

pub(crate) fn definition() -> CustomResourceDefinition {
    serde_saphyr::from_str(include_str!("fixtures/crd.yaml")).unwrap()
}

pub(crate) fn rules() -> ConversionRulesSpec {
    serde_saphyr::from_str::<ConversionRules>(include_str!("fixtures/rules.yaml")).unwrap().spec
}

pub(crate) fn chain() -> Chain {
    compile(&rules(), &definition()).unwrap()
}

pub(crate) fn backup(version: &str, spec: Value) -> Value {
    json!({
        "apiVersion": format!("example.com/{version}"), "kind": "Backup",
        "metadata": {"name": "b", "namespace": "default", "uid": "u"}, "spec": spec,
    })
}
