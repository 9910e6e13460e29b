//! `restow convert suggest`: a first draft of rules from the schemas of a CRD.

use std::path::PathBuf;

use clap::Args;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use restow_convert::rules::{self, ConversionRules, ConversionRulesSpec};

use super::files::read;
use crate::error::CliError;
use crate::output::{self, say};
use crate::render::text::yaml;

/// Draft rules between the versions of a CRD, from their schemas
#[derive(Args)]
#[command(
    after_help = "Read the draft before you use it: restow cannot know what a field means. It takes a field that one
version has and a similar one that the other version has for renamed, and keeps what it cannot
relate in the annotation. Rules are used only if they cover all versions of the CRD.

Examples:
  restow convert suggest crd.yaml > rules.yaml
  restow convert suggest crd.yaml --from v1beta1 --to v1"
)]
pub(crate) struct Suggest {
    /// The file with the CustomResourceDefinition; - is stdin
    crd: PathBuf,
    /// The oldest version [default: the oldest of the CRD]
    #[arg(long, value_name = "VERSION")]
    from: Option<String>,
    /// The newest version [default: the newest of the CRD]
    #[arg(long, value_name = "VERSION")]
    to: Option<String>,
}

/// Prints the draft.
pub(super) fn run(flags: &Suggest) -> Result<u8, CliError> {
    let mut definition: CustomResourceDefinition = read(&flags.crd)?;
    select(&mut definition, flags.from.as_deref(), flags.to.as_deref())?;
    let draft = rules::suggest(&definition);
    if draft.hops.is_empty() {
        return Err(CliError::failed("there is only one version, so there is nothing to convert"));
    }
    if draft.hops.iter().all(|hop| hop.rules.is_empty()) {
        say!("the schemas do not differ: no rules are needed, and the CRD needs no conversion webhook");
    }
    output::print(&document(&definition, draft));
    Ok(0)
}

/// Leaves only the versions from one to another.
fn select(
    definition: &mut CustomResourceDefinition,
    from: Option<&str>,
    to: Option<&str>,
) -> Result<(), CliError> {
    let versions = &mut definition.spec.versions;
    for wanted in from.iter().chain(&to) {
        if !versions.iter().any(|version| version.name == *wanted) {
            let known: Vec<_> = versions.iter().map(|version| version.name.as_str()).collect();
            return Err(CliError::usage(format!(
                "there is no version {wanted}; the CRD has {}",
                known.join(", ")
            )));
        }
    }
    let is_within = |name: &str| {
        from.is_none_or(|from| restow_convert::version_order(name, from).is_ge())
            && to.is_none_or(|to| restow_convert::version_order(name, to).is_le())
    };
    versions.retain(|version| is_within(&version.name));
    Ok(())
}

fn document(definition: &CustomResourceDefinition, draft: ConversionRulesSpec) -> String {
    let name = definition.metadata.name.as_deref().unwrap_or("conversion");
    yaml(&ConversionRules::new(name, draft))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn definition() -> CustomResourceDefinition {
        read(&Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/convert/crd.yaml")).unwrap()
    }

    #[test]
    fn the_draft_is_as_reviewed() {
        let definition = definition();
        let draft = rules::suggest(&definition);
        crate::snapshots::check("convert/suggest", &document(&definition, draft));
    }

    #[test]
    fn versions_are_selected_by_their_order() {
        let mut one = definition();
        select(&mut one, Some("v1"), None).unwrap();
        assert_eq!(one.spec.versions.len(), 1);
        let error = select(&mut definition(), None, Some("v3")).unwrap_err();
        assert_eq!(error.to_string(), "there is no version v3; the CRD has v1beta1, v1");
    }
}
