//! A converter from a ConversionRules document, and which objects it is for.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use restow_convert::Chain;
use restow_convert::rules::{self, ConversionRules};
use serde_json::Value;

use crate::error::CliError;
use crate::output::say;
use crate::render::text::counted;

/// Makes a converter of rules. All problems are shown.
pub(super) fn compile(
    rules: &ConversionRules,
    definition: &CustomResourceDefinition,
) -> Result<Chain, CliError> {
    rules::compile(&rules.spec, definition).map_err(|problems| {
        for problem in &problems {
            say!("{problem}");
        }
        let count = counted(problems.len() as u64, "problem");
        CliError::failed(format!("the rules do not fit the CRD: {count}"))
            .hint("to draft rules from the CRD, run: restow convert suggest CRD")
    })
}

/// Whether an object is of the converter's group and of this kind.
pub(super) fn is_of(converter: &Chain, object: &Value, kind: &str) -> bool {
    let group =
        object["apiVersion"].as_str().and_then(|version| version.split_once('/')).map(|(group, _)| group);
    group == Some(converter.group()) && object["kind"] == kind
}
