//! `restow convert`: converts files of custom resources between the versions of their CRD, and drafts rules for it.

mod carry_out;
mod check;
mod converter;
mod converters;
pub(super) mod files;
mod source;
mod suggest;
mod test;
mod webhook;

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use restow_convert::rules::ConversionRules;
use serde_json::Value;

use self::carry_out::Run;
use self::check::Check;
pub(super) use self::check::survival;
use self::converter::compile;
use self::converters::{Converters, Defined};
use self::files::{read, read_all};
use self::suggest::Suggest;
use self::test::Test;
use crate::args::Connection;
use crate::error::CliError;
use crate::output;
use crate::render::text::{json, yaml};

/// Convert files of custom resources to another version, with rules instead of code
#[derive(Args)]
#[command(
    args_conflicts_with_subcommands = true,
    subcommand_negates_reqs = true,
    after_help = "The rules are a ConversionRules document. They are checked against the CRD first: every field that
is not the same in both versions needs a rule. What the wanted version cannot express is kept in
the annotation restow.dev/conversion-data, and restored when the object is converted back.

Without --rules, objects are converted as the cluster does: by the CRD's webhook, which restow calls as an API server
does. A webhook that is a Service can be called through kubectl port-forward and --webhook-url; otherwise the
ConversionRules object for the kind is used, if there is one, and restow says so. Without a webhook only apiVersion
changes; an object that would lose fields is an error.

Objects of other kinds are printed as they are.

Examples:
  restow convert suggest crd.yaml                 draft rules between the versions of a CRD
  restow convert test --rules rules.yaml --crd crd.yaml     try them before you use them
  restow convert -f widget.yaml --to v1 --rules rules.yaml --crd crd.yaml
  restow convert -f - --to v1 --rules rules.yaml --crd crd.yaml -o json   reads stdin
  restow convert -f widget.yaml --to v1           as the cluster converts
  restow convert check widgets.example.com        would live objects lose something?
  restow convert run -f conversion.yaml           move the stored objects of a cluster to another version"
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
    /// The file with the ConversionRules [default: as the cluster converts]
    #[arg(long, value_name = "FILE")]
    rules: Option<PathBuf>,
    /// The file with the CustomResourceDefinition [default: from the cluster]
    #[arg(long, value_name = "FILE", requires = "rules")]
    crd: Option<PathBuf>,
    /// Where the CRD's webhook can be reached from here, if it is a Service
    #[arg(long, value_name = "URL", conflicts_with = "rules")]
    webhook_url: Option<String>,
    /// The format of the output
    #[arg(short, long, value_enum, value_name = "FORMAT", default_value_t = Format::Yaml)]
    output: Format,
}

#[derive(Subcommand)]
enum ConvertCommand {
    Suggest(Suggest),
    Test(Test),
    Check(Check),
    Run(Box<Run>),
}

impl Convert {
    /// Whether the command stops cleanly at a signal by itself.
    pub(crate) fn handles_signals(&self) -> bool {
        matches!(self.command, Some(ConvertCommand::Run(_)))
    }
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    Yaml,
    Json,
}

/// Runs the command, and returns its exit code.
pub(crate) async fn run(connection: &Connection, flags: &Convert) -> Result<u8, CliError> {
    match &flags.command {
        Some(ConvertCommand::Suggest(flags)) => return suggest::run(flags),
        Some(ConvertCommand::Test(flags)) => return test::run(flags),
        Some(ConvertCommand::Check(flags)) => return check::run(connection, flags).await,
        Some(ConvertCommand::Run(flags)) => return carry_out::run(connection, flags).await,
        None => {}
    }
    let Some(to) = &flags.to else { return Err(CliError::usage("--to is required")) };
    let documents = read_all(&flags.filename)?;
    let mut converters = converters(connection, flags, to).await?;
    let mut converted = Vec::new();
    for document in documents {
        converted.push(converters.convert(document, to).await?);
    }
    output::print(&written(&converted, flags.output));
    Ok(0)
}

/// Converters from the rules, with the CRD from its file or from the cluster; else those of the cluster.
async fn converters(connection: &Connection, flags: &Convert, to: &str) -> Result<Converters, CliError> {
    let Some(rules) = &flags.rules else {
        return Ok(Converters::of(Defined::connect(connection, flags.webhook_url.as_deref()).await?));
    };
    let rules: ConversionRules = read(rules)?;
    let definition: CustomResourceDefinition = match &flags.crd {
        Some(crd) => read(crd)?,
        None => {
            let (group, kind) = (&rules.spec.group, &rules.spec.kind);
            let cluster = Defined::connect(connection, None).await?;
            let undefined = || {
                CliError::failed(format!("the cluster has no CustomResourceDefinition for {kind} in {group}"))
                    .hint("give the CRD with --crd FILE")
            };
            source::typed(&cluster.definition(group, kind).await?.ok_or_else(undefined)?)?
        }
    };
    let chain = compile(&rules, &definition)?;
    if !chain.versions().iter().any(|version| version == to) {
        let known = chain.versions().join(", ");
        return Err(CliError::usage(format!("there is no version {to}; the rules are for {known}")));
    }
    Ok(Converters::only(chain))
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

    use super::files::Document;
    use super::*;

    fn fixture(name: &str) -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/convert").join(name)
    }

    fn converters() -> Converters {
        let (rules, crd) = (read(&fixture("rules.yaml")).unwrap(), read(&fixture("crd.yaml")).unwrap());
        Converters::only(compile(&rules, &crd).unwrap())
    }

    #[tokio::test]
    async fn objects_lists_and_other_kinds_are_converted_as_they_should_be() {
        let documents = read_all(&[fixture("objects.yaml")]).unwrap();
        let mut converted = Vec::new();
        for document in documents {
            converted.push(converters().convert(document, "v1").await.unwrap());
        }
        crate::snapshots::check("convert/yaml", &written(&converted, Format::Yaml));
        crate::snapshots::check("convert/json", &written(&converted, Format::Json));
    }

    #[tokio::test]
    async fn an_object_that_cannot_be_converted_is_named_with_its_place() {
        let value = json!({
            "apiVersion": "example.com/v1beta1", "kind": "Backup", "metadata": {"name": "b"}, "spec": {"retries": "x"},
        });
        let list = json!({"apiVersion": "v1", "kind": "List", "items": [{"kind": "Other"}, value]});
        for (value, place) in [(value, "f.yaml, document 1"), (list, "f.yaml, document 1, item 2")] {
            let document = Document { place: "f.yaml, document 1".to_owned(), value };
            let error = converters().convert(document, "v1").await.unwrap_err().to_string();
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
