//! Rules from files, which are read again when they change.

use std::path::PathBuf;
use std::sync::Arc;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use restow_webhook::LiveConverters;
use restow_webhook::rules::plan::{Definition, RulesObject, Served, Validity, Verdict, plan};
use serde_json::Value;

use crate::commands::convert::files::{Document, read_all};
use crate::error::CliError;
use crate::output::say;
use crate::render::text::counted;

/// The rules and CRDs of some files.
pub(super) struct FileRules {
    rules: Vec<PathBuf>,
    crds: Vec<PathBuf>,
    live: Arc<LiveConverters>,
    served: Served,
    /// What was read last, and how often it has changed.
    seen: Vec<Value>,
    generation: i64,
}

impl FileRules {
    /// Reads the files, and serves the rules in them. All of them must fit their CRDs.
    pub(super) fn load(
        rules: &[PathBuf],
        crds: &[PathBuf],
        live: Arc<LiveConverters>,
    ) -> Result<Self, CliError> {
        let (rules, crds) = (rules.to_vec(), crds.to_vec());
        let mut files =
            Self { rules, crds, live, served: Served::default(), seen: Vec::new(), generation: 0 };
        let verdicts = files.read()?.unwrap_or_default();
        let wrong: Vec<_> = verdicts.iter().filter(|verdict| verdict.validity != Validity::Valid).collect();
        if wrong.is_empty() && !verdicts.is_empty() {
            return Ok(files);
        }
        for verdict in &wrong {
            say!("{}: {}", verdict.name, verdict.message.trim_end_matches("; nothing is served"));
        }
        let count = counted(wrong.len() as u64, "document");
        let message = if verdicts.is_empty() {
            "there are no ConversionRules in the files of --rules".to_owned()
        } else {
            format!("rules that cannot be used: {count}")
        };
        Err(CliError::failed(message).hint("to draft rules from the CRD, run: restow convert suggest CRD"))
    }

    /// Reads the files again. What is wrong is logged, and what was served before stays in use.
    pub(super) fn reload(&mut self) {
        match self.read() {
            Ok(None) => {}
            Ok(Some(verdicts)) => {
                for verdict in verdicts {
                    match verdict.validity {
                        Validity::Valid => {
                            tracing::info!(rules = verdict.name, "serving {}", verdict.message)
                        }
                        _ => tracing::warn!(
                            rules = verdict.name,
                            reason = verdict.reason,
                            "{}",
                            verdict.message
                        ),
                    }
                }
            }
            Err(error) => tracing::warn!("could not read rules again; keeping the current ones: {error}"),
        }
    }

    /// The verdicts on all rules, if anything has changed.
    fn read(&mut self) -> Result<Option<Vec<Verdict>>, CliError> {
        let (rules, crds) = (read_all(&self.rules)?, read_all(&self.crds)?);
        let now: Vec<_> = rules.iter().chain(&crds).map(|document| document.value.clone()).collect();
        if now == self.seen {
            return Ok(None);
        }
        let generation = self.generation + 1;
        let definitions: Vec<_> = of_kind(crds, "CustomResourceDefinition")
            .map(|document| definition(document, generation))
            .collect::<Result<_, _>>()?;
        let objects: Vec<_> = of_kind(rules, "ConversionRules")
            .enumerate()
            .map(|(place, document)| RulesObject {
                name: document.place,
                uid: String::new(),
                generation,
                created: i64::try_from(place).unwrap_or(i64::MAX),
                rules: serde_json::from_value(document.value).map_err(|error| error.to_string()),
                in_force: None,
            })
            .collect();
        let find = |group: &str, kind: &str| {
            let found = definitions.iter().find(|definition: &&CustomResourceDefinition| {
                (definition.spec.group.as_str(), definition.spec.names.kind.as_str()) == (group, kind)
            });
            found.map_or(Definition::Absent, Definition::Found)
        };
        let (served, verdicts) = plan(&objects, find, &self.served);
        self.live.replace(served.converters(&[]));
        (self.served, self.seen, self.generation) = (served, now, generation);
        Ok(Some(verdicts))
    }
}

fn of_kind(documents: Vec<Document>, kind: &'static str) -> impl Iterator<Item = Document> {
    documents.into_iter().filter(move |document| document.value["kind"] == kind)
}

fn definition(document: Document, generation: i64) -> Result<CustomResourceDefinition, CliError> {
    let Document { place, value } = document;
    let mut definition: CustomResourceDefinition = serde_json::from_value(value)
        .map_err(|error| CliError::failed(format!("{place}: not a CustomResourceDefinition: {error}")))?;
    definition.metadata.generation = Some(generation);
    Ok(definition)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use super::*;

    fn fixture(name: &str) -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/convert").join(name)
    }

    #[test]
    fn rules_that_change_are_used_and_broken_ones_keep_the_last_good() {
        let dir = tempfile::tempdir().unwrap();
        let rules = dir.path().join("rules.yaml");
        let good = fs::read_to_string(fixture("rules.yaml")).unwrap();
        fs::write(&rules, &good).unwrap();
        let live = Arc::new(LiveConverters::default());
        let mut files =
            FileRules::load(std::slice::from_ref(&rules), &[fixture("crd.yaml")], Arc::clone(&live)).unwrap();
        assert_eq!(live.load().kinds(), ["Backup.example.com"]);
        assert!(files.read().unwrap().is_none(), "nothing has changed");
        fs::write(&rules, good.replace("group: example.com", "group: example.com\n  unknown: 1")).unwrap();
        let verdicts = files.read().unwrap().unwrap();
        assert_eq!((verdicts[0].reason, verdicts[0].served.0), ("CannotBeRead", 1));
        assert_eq!(live.load().kinds(), ["Backup.example.com"]);
        fs::write(&rules, format!("{good}\n---\n{good}")).unwrap();
        let verdicts = files.read().unwrap().unwrap();
        let reasons: Vec<_> = verdicts.iter().map(|verdict| verdict.reason).collect();
        assert_eq!(reasons, ["Compiled", "AnotherIsServed"]);
        fs::write(&rules, "").unwrap();
        assert!(files.read().unwrap().unwrap().is_empty());
    }

    #[test]
    fn rules_that_cannot_be_used_at_the_start_are_an_error() {
        let live = Arc::new(LiveConverters::default());
        let load = |rules: PathBuf, crd: PathBuf| FileRules::load(&[rules], &[crd], Arc::clone(&live)).err();
        let error = load(fixture("rules.yaml"), fixture("objects.yaml")).unwrap().to_string();
        assert_eq!(error, "rules that cannot be used: 1 document");
        let error = load(fixture("crd.yaml"), fixture("crd.yaml")).unwrap().to_string();
        assert_eq!(error, "there are no ConversionRules in the files of --rules");
        assert!(load(fixture("absent.yaml"), fixture("crd.yaml")).is_some());
    }
}
