//! `restow convert test`: tries rules on samples and on objects made from the schemas.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};
use restow_convert::rules::{self, ConversionRules};
use restow_convert::{Chain, Trial, try_on};
use serde_json::Value;

use super::converter::{compile, is_of};
use super::files::{read, read_all};
use crate::error::{CliError, chain};
use crate::output::{self, say};
use crate::render::text::{counted, json};

/// Try rules on samples and on objects made from the schemas: every version to every other one and back
#[derive(Args)]
#[command(
    after_help = "Nothing is written, and no cluster is needed. Exit code 1 means that an object could not be converted, or did
not come back as it was. A loss that a rule accepts with a reason does not count.

Examples:
  restow convert test --rules rules.yaml --crd crd.yaml
  restow convert test --rules rules.yaml --crd crd.yaml --samples ./samples --generate 0
  kubectl get widgets -A -o yaml | restow convert test --rules rules.yaml --crd crd.yaml --samples -"
)]
pub(crate) struct Test {
    /// The file with the ConversionRules
    #[arg(long, value_name = "FILE")]
    rules: PathBuf,
    /// The file with the CustomResourceDefinition
    #[arg(long, value_name = "FILE")]
    crd: PathBuf,
    /// A file of objects, or a folder of such files; - is stdin (may be repeated)
    #[arg(long, value_name = "PATH")]
    samples: Vec<PathBuf>,
    /// How many objects of each version to make from its schema
    #[arg(long, value_name = "N", default_value_t = 100)]
    generate: usize,
    /// The seed of these objects: the same seed makes the same objects
    #[arg(long, value_name = "N", default_value_t = 0)]
    seed: u64,
    /// The format of the output
    #[arg(short, long, value_enum, value_name = "FORMAT", default_value_t = Format::Text)]
    output: Format,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Format {
    Text,
    Json,
}

/// Prints what came of the trials.
pub(super) fn run(flags: &Test) -> Result<u8, CliError> {
    let rules: ConversionRules = read(&flags.rules)?;
    let converter = compile(&rules, &read(&flags.crd)?)?;
    let mut objects = samples(&converter, &flags.samples)?;
    objects.extend(rules::generate(&rules.spec, &converter, flags.generate, flags.seed));
    if objects.is_empty() {
        return Err(CliError::usage("there is nothing to try: give --samples, or --generate more than 0"));
    }
    let mut trials = try_on(&converter, objects)
        .map_err(|(place, error)| CliError::failed(format!("{place}: {}", chain(&error))))?;
    let accepted: Vec<_> = trials.iter_mut().map(|trial| take_accepted(&rules, trial)).collect();
    output::print(&match flags.output {
        Format::Json => json(&serde_json::json!({"trials": trials, "accepted": accepted})),
        Format::Text => trials.iter().zip(&accepted).map(|(trial, accepted)| text(trial, accepted)).collect(),
    });
    Ok(u8::from(!trials.iter().all(Trial::is_clean)))
}

/// The objects of the converter's kind in some files and folders.
fn samples(converter: &Chain, paths: &[PathBuf]) -> Result<Vec<(String, Value)>, CliError> {
    let mut files = Vec::new();
    for path in paths {
        files.extend(if path.is_dir() { files_in(path)? } else { vec![path.clone()] });
    }
    let mut objects = Vec::new();
    for document in read_all(&files)? {
        let items = match document.value {
            Value::Object(mut list) if list.get("items").is_some_and(Value::is_array) => {
                list.remove("items").and_then(|items| items.as_array().cloned()).unwrap_or_default()
            }
            object => vec![object],
        };
        for item in items {
            let name = item["metadata"]["name"].as_str().unwrap_or("an object without a name").to_owned();
            if is_of(converter, &item, converter.kind()) {
                objects.push((format!("{} ({name})", document.place), item));
            } else {
                say!("{}: {name} is not a {}; skipped", document.place, converter.kind());
            }
        }
    }
    Ok(objects)
}

fn files_in(folder: &Path) -> Result<Vec<PathBuf>, CliError> {
    let failed =
        |error: std::io::Error| CliError::failed(format!("cannot read {}: {error}", folder.display()));
    let mut files = Vec::new();
    for entry in std::fs::read_dir(folder).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        if path.extension().is_some_and(|end| ["yaml", "yml", "json"].iter().any(|known| end == *known)) {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}

/// Takes the losses out of a trial that the rules accept.
pub(super) fn take_accepted(rules: &ConversionRules, trial: &mut Trial) -> Vec<String> {
    let accepted = rules::accepted_losses(&rules.spec, &trial.from, &trial.to);
    let lost: Vec<_> = trial.lost.keys().filter(|place| accepted.contains(place)).cloned().collect();
    trial.lost.retain(|place, _| !lost.contains(place));
    lost
}

fn text(trial: &Trial, accepted: &[String]) -> String {
    let mut text = format!(
        "{} to {} and back: {}, {} refused, {} lost\n",
        trial.from,
        trial.to,
        counted(trial.objects as u64, "object"),
        trial.refused.len(),
        counted(trial.lost.len() as u64, "field"),
    );
    for refusal in trial.refused.iter().take(SHOWN) {
        let _ = writeln!(text, "  refused: {}: {}", refusal.object, refusal.message);
    }
    if trial.refused.len() > SHOWN {
        let _ = writeln!(text, "  and {} more; -o json shows all", trial.refused.len() - SHOWN);
    }
    for (place, count) in &trial.lost {
        let _ = writeln!(text, "  lost: {place} (in {})", counted(*count as u64, "object"));
    }
    for place in accepted {
        let _ = writeln!(text, "  lost, as the rules accept: {place}");
    }
    for (place, count) in &trial.kept {
        let _ = writeln!(text, "  kept in the annotation: {place} (in {})", counted(*count as u64, "object"));
    }
    text
}

/// How many refusals are shown to a person.
const SHOWN: usize = 5;

#[cfg(test)]
mod tests {
    use super::*;

    fn fixture(name: &str) -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/convert").join(name)
    }

    fn trials(generate: usize, paths: &[PathBuf]) -> Vec<(Trial, Vec<String>)> {
        let rules: ConversionRules = read(&fixture("rules.yaml")).unwrap();
        let converter = compile(&rules, &read(&fixture("crd.yaml")).unwrap()).unwrap();
        let mut objects = samples(&converter, paths).unwrap();
        objects.extend(rules::generate(&rules.spec, &converter, generate, 0));
        let mut trials = try_on(&converter, objects).unwrap();
        let accepted: Vec<_> = trials.iter_mut().map(|trial| take_accepted(&rules, trial)).collect();
        trials.into_iter().zip(accepted).collect()
    }

    #[test]
    fn the_report_is_as_reviewed() {
        let report: String = trials(40, &[]).iter().map(|(trial, accepted)| text(trial, accepted)).collect();
        crate::snapshots::check("convert/test", &report);
    }

    #[test]
    fn samples_are_read_from_files_lists_and_folders() {
        let tried = |path: PathBuf| trials(0, &[path]).iter().map(|(trial, _)| trial.objects).sum::<usize>();
        assert_eq!(tried(fixture("objects.yaml")), 3);
        assert_eq!(tried(fixture("samples")), 2);
        assert!(trials(0, &[fixture("samples")])[0].0.is_clean());
    }

    #[test]
    fn a_refusal_is_reported() {
        let report: String = trials(0, &[fixture("refused.yaml")])
            .iter()
            .map(|(trial, accepted)| text(trial, accepted))
            .collect();
        assert!(
            report.starts_with("v1beta1 to v1 and back: 1 object, 1 refused, 0 fields lost\n  refused: "),
            "{report}"
        );
        assert!(
            report.contains(
                "(wrong): cannot convert from v1beta1 to v1: spec.retries: not an integer: \"many\""
            )
        );
    }
}
