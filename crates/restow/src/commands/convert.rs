//! `restow convert`: converts files of custom resources between the versions of their CRD, and drafts rules for it.

mod converter;
mod files;
mod suggest;
mod test;

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use restow_convert::rules::ConversionRules;
use restow_convert::{Chain, Convertible};
use serde_json::Value;

use self::converter::{compile, is_of};
use self::files::{Document, read, read_all};
use self::suggest::Suggest;
use self::test::Test;
use crate::error::{CliError, chain};
use crate::output::{self, say};
use crate::render::text::{json, yaml};

/// Convert files of custom resources to another version, with rules instead of code
#[derive(Args)]
#[command(
    args_conflicts_with_subcommands = true,
    subcommand_negates_reqs = true,
    after_help = "The rules are a ConversionRules document. They are checked against the CRD first: every field that
is not the same in both versions needs a rule. What the wanted version cannot express is kept in
the annotation restow.dev/conversion-data, and restored when the object is converted back.

Objects of other kinds are printed as they are.

Examples:
  restow convert suggest crd.yaml                 draft rules between the versions of a CRD
  restow convert test --rules rules.yaml --crd crd.yaml     try them before you use them
  restow convert -f widget.yaml --to v1 --rules rules.yaml --crd crd.yaml
  restow convert -f - --to v1 --rules rules.yaml --crd crd.yaml -o json   reads stdin"
)]
pub(crate) struct Convert {
    #[command(subcommand)]
    command: Option<ConvertCommand>,
    /// A file of objects, as YAML or JSON; - is stdin (may be repeated)
    #[arg(short, long, value_name = "FILE", required = true)]
    filename: Vec<PathBuf>,
    /// The version to convert to, such as v1
    #[arg(long, value_name = "VERSION", required = true)]
    to: Option<String>,
    /// The file with the ConversionRules
    #[arg(long, value_name = "FILE", required = true)]
    rules: Option<PathBuf>,
    /// The file with the CustomResourceDefinition
    #[arg(long, value_name = "FILE", required = true)]
    crd: Option<PathBuf>,
    /// The format of the output
    #[arg(short, long, value_enum, value_name = "FORMAT", default_value_t = Format::Yaml)]
    output: Format,
}

#[derive(Subcommand)]
enum ConvertCommand {
    Suggest(Suggest),
    Test(Test),
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    Yaml,
    Json,
}

/// Runs the command, and returns its exit code.
pub(crate) fn run(flags: &Convert) -> Result<u8, CliError> {
    match &flags.command {
        Some(ConvertCommand::Suggest(flags)) => return suggest::run(flags),
        Some(ConvertCommand::Test(flags)) => return test::run(flags),
        None => {}
    }
    let (Some(to), Some(rules), Some(crd)) = (&flags.to, &flags.rules, &flags.crd) else {
        return Err(CliError::usage("--to, --rules and --crd are required"));
    };
    let definition: CustomResourceDefinition = read(crd)?;
    let rules: ConversionRules = read(rules)?;
    let converter = compile(&rules, &definition)?;
    if !converter.versions().contains(to) {
        let known = converter.versions().join(", ");
        return Err(CliError::usage(format!("there is no version {to}; the rules are for {known}")));
    }
    let documents = read_all(&flags.filename)?;
    let converted: Result<Vec<_>, _> =
        documents.into_iter().map(|document| convert(&converter, document, to)).collect();
    output::print(&written(&converted?, flags.output));
    Ok(0)
}

/// An object in the wanted version. A list has all its items converted; an object of another kind stays as it is.
fn convert(converter: &Chain, document: Document, to: &str) -> Result<Value, CliError> {
    let Document { place, mut value } = document;
    let failed =
        |place: &str, error: &dyn std::error::Error| CliError::failed(format!("{place}: {}", chain(error)));
    if is_of(converter, &value, converter.kind()) {
        return converter.convert(value, to).map_err(|error| failed(&place, &error));
    }
    let own_list = is_of(converter, &value, &format!("{}List", converter.kind()));
    let any_list = value["apiVersion"] == "v1" && value["kind"] == "List";
    let version = value["apiVersion"].clone();
    if let (true, Some(Value::Array(items))) = (own_list || any_list, value.get_mut("items")) {
        for (index, item) in items.iter_mut().enumerate() {
            // Items of a typed list may leave out what the list says of them.
            if own_list && item.is_object() && item.get("kind").is_none() {
                item["apiVersion"] = version.clone();
                item["kind"] = Value::from(converter.kind());
            }
            if is_of(converter, item, converter.kind()) {
                let place = format!("{place}, item {}", index + 1);
                *item = converter.convert(item.take(), to).map_err(|error| failed(&place, &error))?;
            }
        }
        if own_list {
            value["apiVersion"] = Value::from(format!("{}/{to}", converter.group()));
        }
        return Ok(value);
    }
    let kind = value.get("kind").and_then(Value::as_str).unwrap_or("no kind");
    say!("{place}: {kind} is not a {}; printed as it is", converter.kind());
    Ok(value)
}

/// All objects as one text.
fn written(objects: &[Value], format: Format) -> String {
    match (format, objects) {
        (Format::Json, [object]) => json(object),
        (Format::Json, objects) => {
            json(&serde_json::json!({"apiVersion": "v1", "kind": "List", "items": objects}))
        }
        (Format::Yaml, objects) => objects.iter().map(yaml).collect::<Vec<_>>().join("---\n"),
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use serde_json::json;

    use super::*;

    fn fixture(name: &str) -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/convert").join(name)
    }

    fn converter() -> Chain {
        compile(&read(&fixture("rules.yaml")).unwrap(), &read(&fixture("crd.yaml")).unwrap()).unwrap()
    }

    #[test]
    fn objects_lists_and_other_kinds_are_converted_as_they_should_be() {
        let documents = read_all(&[fixture("objects.yaml")]).unwrap();
        let converted: Vec<_> =
            documents.into_iter().map(|document| convert(&converter(), document, "v1").unwrap()).collect();
        crate::snapshots::check("convert/yaml", &written(&converted, Format::Yaml));
        crate::snapshots::check("convert/json", &written(&converted, Format::Json));
    }

    #[test]
    fn an_object_that_cannot_be_converted_is_named_with_its_place() {
        let value = json!({
            "apiVersion": "example.com/v1beta1", "kind": "Backup", "metadata": {"name": "b"}, "spec": {"retries": "x"},
        });
        let list = json!({"apiVersion": "v1", "kind": "List", "items": [{"kind": "Other"}, value]});
        for (value, place) in [(value, "f.yaml, document 1"), (list, "f.yaml, document 1, item 2")] {
            let document = Document { place: "f.yaml, document 1".to_owned(), value };
            let error = convert(&converter(), document, "v1").unwrap_err().to_string();
            let expected =
                format!("{place}: cannot convert from v1beta1 to v1: spec.retries: not an integer: \"x\"");
            assert_eq!(error, expected);
        }
    }

    #[test]
    fn rules_that_do_not_fit_are_refused() {
        let mut rules: ConversionRules = read(&fixture("rules.yaml")).unwrap();
        rules.spec.hops[0].rules.truncate(3);
        let error = compile(&rules, &read(&fixture("crd.yaml")).unwrap()).map(drop).unwrap_err();
        assert!(error.to_string().starts_with("the rules do not fit the CRD: "), "{error}");
    }
}
