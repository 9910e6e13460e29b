//! The flags of `restow install`.

use std::time::Duration;

use clap::Args as ClapArgs;

use super::rules::{InTree, Listing};
use crate::args::{DEFAULT_NAMESPACE, List, PaceName, duration, period};
use crate::commands::controller::{Adopted, BackendName, Name as Controller};

/// Print all that the controllers need in a cluster, or apply it
///
/// Roles are made for the resources named, or for all that can be migrated now: list and patch on each, and nothing
/// else. Where restow is installed already, resources, image and flags stay as they are unless others are given.
#[derive(ClapArgs)]
#[command(after_help = "Examples:
  restow install secrets widgets.example.com --image IMAGE --apply  permissions for just these
  restow install --image IMAGE --apply --wait           permissions for all that can be migrated
  restow install --image IMAGE --dry-run                would the API server accept it, and what would change?
  restow install --image IMAGE > restow.yaml            to be read, kept and applied by other means
  restow install --image NEWER --apply --wait           upgrade; resources and flags stay as they were chosen
  restow install --apply                                once more, after new CRDs were defined
  restow install --crds --apply                         just the definitions of the API")]
pub(crate) struct Install {
    /// Resources that may be rewritten, such as secrets or widgets.example.com [default: as installed, else all]
    #[arg(value_name = "RESOURCE", value_delimiter = ',')]
    pub(crate) resources: Vec<String>,
    /// Every resource that can be migrated now
    #[arg(long, conflicts_with = "resources")]
    pub(crate) all: bool,
    /// Events too
    #[arg(long)]
    pub(crate) include_events: bool,
    /// The image to run, whose entrypoint is restow [default: as installed]
    #[arg(long, value_name = "IMAGE", value_parser = image)]
    pub(crate) image: Option<String>,
    /// The namespace to make and use
    #[arg(short, long, visible_alias = "namespace-name", value_name = "NAME", default_value = DEFAULT_NAMESPACE,
          value_parser = namespace)]
    pub(crate) namespace: String,
    /// Just the definitions of migrations and storage states
    #[arg(long, conflicts_with_all = ["resources", "all", "image", "without_deployment"])]
    pub(crate) crds: bool,
    /// Everything but what runs: the controllers are run by other means
    #[arg(long, conflicts_with = "image")]
    pub(crate) without_deployment: bool,
    /// Forget what an earlier install was given, and start from the defaults
    #[arg(long, conflicts_with = "crds")]
    pub(crate) reset: bool,
    /// Apply it, instead of printing it
    #[arg(long)]
    pub(crate) apply: bool,
    /// Send it as a server-side dry run: nothing is stored
    #[arg(long, conflicts_with = "wait")]
    pub(crate) dry_run: bool,
    /// Wait until the definitions are established and the Deployment is available
    #[arg(long, requires = "apply")]
    pub(crate) wait: bool,
    /// Wait no longer than this
    #[arg(long, requires = "wait", value_name = "DURATION", value_parser = duration, default_value = "5m")]
    pub(crate) timeout: Duration,
    #[command(flatten)]
    pub(crate) controller: ControllerFlags,
}

/// What the Deployment gives `restow controller`, beside the connection flags on how API servers are told apart.
#[derive(ClapArgs, Clone, Debug, Default, PartialEq)]
#[command(next_help_heading = "Controller")]
pub(crate) struct ControllerFlags {
    /// The controllers to run [default: all]
    #[arg(long, value_enum, value_delimiter = ',', value_name = "NAMES")]
    pub(crate) controllers: Vec<Controller>,
    /// How fast migrations go
    #[arg(long, value_enum, value_name = "PACE")]
    pub(crate) pace: Option<PaceName>,
    /// How objects are listed; streaming and auto, which streams from 10,000 objects on, grant watch too [default: chunks]
    #[arg(long, value_enum, value_name = "HOW")]
    pub(crate) list: Option<List>,
    /// How many migrations run at once
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100))]
    pub(crate) concurrent_migrations: Option<u32>,
    /// How often discovery is looked at
    #[arg(long, value_name = "DURATION", value_parser = period)]
    pub(crate) poll_interval: Option<Duration>,
    /// What your encryption configuration covers, such as secrets,configmaps or *.*, or none: it is rewritten when the
    /// configuration changes
    #[arg(long, value_delimiter = ',', value_name = "RESOURCES")]
    pub(crate) encryption_resources: Vec<String>,
    /// Who rewrites objects: restow, or Kubernetes' own controller
    #[arg(long, value_enum, value_name = "WHO")]
    pub(crate) backend: Option<BackendName>,
    /// Serve migrations of storagemigration.k8s.io too; it is defined where Kubernetes does not serve it
    #[arg(long, value_enum, value_name = "API", conflicts_with = "backend")]
    pub(crate) adopt: Option<Adopted>,
}

impl ControllerFlags {
    /// How lists come; what cannot be used is not granted.
    pub(crate) fn listing(&self) -> Listing {
        match self.list {
            Some(List::Streaming | List::Auto) => Listing::Streamed,
            Some(List::Chunked) | None => Listing::Chunked,
        }
    }

    pub(crate) fn in_tree(&self) -> InTree {
        match (self.backend, self.adopt) {
            (Some(BackendName::InTree), _) => InTree::Backend,
            (_, Some(Adopted::InTree)) => InTree::Adopted,
            _ => InTree::Unused,
        }
    }
}

fn image(text: &str) -> Result<String, String> {
    if text.is_empty() || text.contains(|c: char| c.is_whitespace() || c.is_control()) {
        return Err("give the name of an image, such as registry.example/restow:1.0".to_owned());
    }
    Ok(text.to_owned())
}

/// A name that can be a namespace, and is nobody else's.
pub(crate) fn namespace(text: &str) -> Result<String, String> {
    let word = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    let sound = !text.is_empty()
        && text.len() <= 63
        && text.starts_with(word)
        && text.ends_with(word)
        && text.chars().all(|c| word(c) || c == '-');
    if !sound {
        return Err("a namespace has up to 63 lowercase letters, digits and dashes in between".to_owned());
    }
    if text == "default" || text.starts_with("kube-") {
        return Err("restow has a namespace of its own, not one of the cluster's".to_owned());
    }
    Ok(text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn namespaces_and_images_are_taken_or_refused() {
        for (name, taken) in [
            ("restow-system", true),
            ("r2", true),
            ("kube-system", false),
            ("kube-public", false),
            ("default", false),
            ("Restow", false),
            ("-x", false),
            ("x-", false),
            ("a.b", false),
            ("a/b", false),
            ("", false),
        ] {
            assert_eq!(namespace(name).is_ok(), taken, "{name:?}");
        }
        assert!(namespace(&"x".repeat(64)).is_err() && namespace(&"x".repeat(63)).is_ok());
        assert!(image("registry.example/restow:1").is_ok() && image("").is_err() && image("a b").is_err());
    }
}
