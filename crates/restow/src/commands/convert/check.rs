//! `restow convert check`: whether every live object survives the way to every other version and back.

mod live;
mod pairs;
mod rewrite;
mod server;
mod trip;

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use restow_convert::{Convertible as _, Pruning, Validation, try_on};
use restow_migrate::definition;
use serde_json::Value;

use self::live::Live;
use self::pairs::Pairs;
pub(in crate::commands) use self::rewrite::survival;
use self::trip::{Trip, Way};
use super::source::{Source, typed};
use super::test::take_accepted;
use crate::args::Connection;
use crate::connect::{connect, unanswered, unreached};
use crate::error::{CliError, chain};
use crate::output;
use crate::render::text::json;
use crate::resources;

/// Check that every live object survives the conversion to every other version and back; nothing is written
#[derive(Args)]
#[command(
    after_help = "Conversion is by --rules, else as the cluster converts: by the CRD's webhook, or by the API servers alone. The
report says which. A webhook that is a Service can be called through kubectl port-forward and --webhook-url; otherwise
the ConversionRules object for the kind is used, if there is one. Without any of these, objects are read in every
served version, and written back as a server-side dry run.

An object that would not fit the schema of the other version counts as one that cannot be converted.

restow reads whole objects here, page by page. It needs list on the resource; update too for dry runs.

Exit codes: 0 nothing would be lost; 1 failed; 2 wrong usage; 3 objects would lose something, or cannot be converted;
4 something could not be checked.

Examples:
  restow convert check widgets.example.com
  restow convert check widgets.example.com --rules rules.yaml -o json"
)]
pub(crate) struct Check {
    /// The resource, such as widgets.example.com
    #[arg(value_name = "CRD")]
    resource: String,
    /// The file with the ConversionRules
    #[arg(long, value_name = "FILE")]
    rules: Option<PathBuf>,
    /// Where the CRD's webhook can be reached from here
    #[arg(long, value_name = "URL", conflicts_with = "rules")]
    webhook_url: Option<String>,
    /// The format of the output
    #[arg(short, long, value_enum, value_name = "FORMAT", default_value_t = Format::Table)]
    output: Format,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Format {
    Table,
    Json,
}

/// Prints what would be lost.
pub(super) async fn run(connection: &Connection, flags: &Check) -> Result<u8, CliError> {
    let cluster = connect(connection).await?;
    let inventory = match cluster.inventory(false).await {
        Ok(inventory) => inventory,
        Err(error) => return Err(unanswered(&cluster, error).await),
    };
    let found = resources::named(&inventory, std::slice::from_ref(&flags.resource))?;
    let server = cluster.server();
    let undefined =
        || CliError::usage(format!("{} is not defined by a CustomResourceDefinition", flags.resource));
    let resource = found.first().filter(|resource| resource.crd.is_some()).ok_or_else(undefined)?;
    let read = definition::read(server, &resource.name).await.map_err(|error| unreached(server, &error))?;
    let definition = read.ok_or_else(undefined)?;
    let source =
        Source::of(server, &definition, flags.rules.as_deref(), flags.webhook_url.as_deref()).await?;
    source.explain();
    let mut pairs = Pairs::new(resource.name.to_string(), source.name());
    let mut live = Live::of(server, resource).ok_or_else(undefined)?;
    let crd = typed(&definition)?;
    let (pruning, validation) = (Pruning::of(&crd), Validation::of(&crd));
    match &source {
        Source::Rules { chain, rules, .. } => {
            while let Some(page) = live.next().await? {
                page.iter().for_each(|object| by_rules(&mut pairs, chain, rules, &validation, object));
            }
        }
        Source::Webhook(webhook) => {
            let versions: Vec<String> =
                definition.crd.versions.iter().map(|(name, _)| name.clone()).collect();
            let trip = Trip { way: Way::Webhook(webhook), pruning: &pruning, validation: &validation };
            while let Some(page) = live.next().await? {
                by_webhook(&mut pairs, &trip, &versions, page).await?;
            }
        }
        Source::Unreachable(why) => {
            pairs.not_checked(format!("the way from the storage version to another one and back: {why}"));
            server::check(&mut pairs, server, resource, live, false).await?;
        }
        Source::None { .. } => server::check(&mut pairs, server, resource, live, true).await?,
    }
    output::print(&match flags.output {
        Format::Json => json(&pairs),
        Format::Table => pairs.text(),
    });
    Ok(pairs.exit_code())
}

/// Tries one object in every version, to every other one and back.
fn by_rules(
    pairs: &mut Pairs,
    chain_of_rules: &restow_convert::Chain,
    rules: &restow_convert::rules::ConversionRules,
    validation: &Validation,
    object: &Value,
) {
    let name = live::name(object);
    let from = live::version(object);
    for version in chain_of_rules.versions() {
        let converted = match chain_of_rules.convert(object.clone(), version) {
            Ok(converted) => converted,
            Err(error) if *version == from => {
                pairs.refused(&from, version, &name, &chain(&error));
                continue;
            }
            // The pair of the object's own version and this one shows it.
            Err(_) => continue,
        };
        let problems = validation.new_problems((object, &from), (&converted, version));
        if !problems.is_empty() {
            let words: Vec<String> = problems.iter().map(ToString::to_string).collect();
            pairs.refused(&from, version, &name, &format!("in {version}, {}", words.join("; ")));
        }
        match try_on(chain_of_rules, vec![(name.clone(), converted)]) {
            Ok(trials) => {
                for mut trial in trials {
                    let accepted = take_accepted(rules, &mut trial);
                    pairs.tried(&name, &trial, accepted);
                }
            }
            Err((_, error)) => pairs.refused(version, version, &name, &chain(&error)),
        }
    }
}

/// Has the webhook convert a page to every version, and from there to every other one and back.
async fn by_webhook(
    pairs: &mut Pairs,
    trip: &Trip<'_>,
    versions: &[String],
    page: Vec<Value>,
) -> Result<(), CliError> {
    let stored = page.first().map(live::version).unwrap_or_default();
    for from in versions {
        let starts = match *from == stored {
            true => page.clone(),
            // What is refused here is shown for the pair of the stored version and this one.
            false => trip.convert(&page, from, |_, _| ()).await?,
        };
        for to in versions.iter().filter(|to| *to != from) {
            trip.make(pairs, (from, to), &starts).await?;
        }
    }
    Ok(())
}
