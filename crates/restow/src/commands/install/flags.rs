//! The flags of `restow install`.

use std::time::Duration;

use clap::Args as ClapArgs;

use super::rules::{InTree, Listing};
use crate::args::{DEFAULT_NAMESPACE, List, PaceName, duration, period};
use crate::commands::controller::{Adopted, BackendName, Name as Controller};
use crate::error::CliError;

/// Print the manifests that the controllers need in a cluster, or apply them
///
/// The roles allow list and patch on the named resources, or on all that can be migrated now, and nothing else. If
/// restow is installed already, its resources, image and flags are kept unless you give others.
#[derive(ClapArgs)]
#[command(after_help = "Examples:
  restow install secrets widgets.example.com --image IMAGE --apply  permissions for only these
  restow install --image IMAGE --apply --wait           permissions for all that can be migrated
  restow install --image IMAGE --dry-run                would the API server accept it, and what would change?
  restow install --image IMAGE > restow.yaml            to review, store and apply by other means
  restow install --image NEWER --apply --wait           upgrade; resources and flags are kept
  restow install --apply                                again, after new CRDs were created
  restow install --crds --apply                         only the CRDs
  restow install --job widgets.example.com --image IMAGE -n widgets    a Job, to be run after an upgrade
  restow install --job widgets.example.com --image IMAGE --helm-hook   the same as a hook of a Helm chart
  restow install --webhook widgets.example.com --image IMAGE --apply   the conversion webhook")]
pub(crate) struct Install {
    /// Resources that restow may rewrite, such as secrets or widgets.example.com [default: as installed, else all]
    #[arg(value_name = "RESOURCE", value_delimiter = ',')]
    pub(crate) resources: Vec<String>,
    /// Every resource that can be migrated now
    #[arg(long, conflicts_with = "resources")]
    pub(crate) all: bool,
    /// Include events
    #[arg(long)]
    pub(crate) include_events: bool,
    /// The image to run; its entrypoint must be restow [default: as installed]
    #[arg(long, value_name = "IMAGE", value_parser = image)]
    pub(crate) image: Option<String>,
    /// The namespace to create and use
    #[arg(short, long, visible_alias = "namespace-name", value_name = "NAME", default_value = DEFAULT_NAMESPACE,
          value_parser = namespace)]
    pub(crate) namespace: String,
    /// Only the CRDs of migrations and storage states
    #[arg(long, conflicts_with_all = ["resources", "all", "image", "without_deployment"])]
    pub(crate) crds: bool,
    /// Everything except the Deployment: you run the controllers by other means
    #[arg(long, conflicts_with = "image")]
    pub(crate) without_deployment: bool,
    /// Ignore the settings of an earlier install, and start from the defaults
    #[arg(long, conflicts_with = "crds")]
    pub(crate) reset: bool,
    /// Apply the manifests instead of printing them
    #[arg(long)]
    pub(crate) apply: bool,
    /// Send the manifests as a server-side dry run: nothing is stored
    #[arg(long, conflicts_with = "wait")]
    pub(crate) dry_run: bool,
    /// Wait until the CRDs are established and the Deployment is available
    #[arg(long, requires = "apply")]
    pub(crate) wait: bool,
    /// How long to wait
    #[arg(long, requires = "wait", value_name = "DURATION", value_parser = duration, default_value = "5m")]
    pub(crate) timeout: Duration,
    /// Print a Job instead, which migrates just the named custom resources once; no cluster is needed
    #[arg(long, requires_all = ["resources", "image"], conflicts_with_all = ["all", "crds", "without_deployment", "reset",
          "apply", "dry_run", "wait", "include_events", "ControllerFlags"])]
    pub(crate) job: bool,
    /// Print it as a hook of a Helm chart, which runs after each upgrade and rollback
    #[arg(long, requires = "job")]
    pub(crate) helm_hook: bool,
    /// The conversion webhook instead of the controllers, with permissions on just the named CRDs; name all of them
    #[arg(long, requires = "resources", conflicts_with_all = ["all", "crds", "job", "reset", "include_events",
          "ControllerFlags"])]
    pub(crate) webhook: bool,
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
    /// How fast migrations run
    #[arg(long, value_enum, value_name = "PACE")]
    pub(crate) pace: Option<PaceName>,
    /// How to list objects; streaming, and auto, which streams from 10,000 objects on, need and grant permission to
    /// watch [default: chunked]
    #[arg(long, value_enum, value_name = "HOW")]
    pub(crate) list: Option<List>,
    /// How many migrations run at the same time
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100))]
    pub(crate) concurrent_migrations: Option<u32>,
    /// How often to check all storage versions
    #[arg(long, value_name = "DURATION", value_parser = period)]
    pub(crate) poll_interval: Option<Duration>,
    /// What your encryption configuration covers, such as secrets,configmaps or *.*, or none: it is rewritten when the
    /// configuration changes
    #[arg(long, value_delimiter = ',', value_name = "RESOURCES")]
    pub(crate) encryption_resources: Vec<String>,
    /// Who rewrites objects: restow, or Kubernetes' own controller
    #[arg(long, value_enum, value_name = "WHO")]
    pub(crate) backend: Option<BackendName>,
    /// Serve migrations of storagemigration.k8s.io too; its CRD is created if Kubernetes does not serve that API
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

/// The image is missing.
pub(super) fn no_image() -> CliError {
    CliError::usage("--image IMAGE is missing: the image that the Deployment runs").hint(
        "give an image whose entrypoint is restow; use --without-deployment to omit the Deployment, or --crds for \
        only the CRDs",
    )
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
        return Err("give up to 63 lowercase letters, digits and dashes, with a letter or digit at both \
        ends"
            .to_owned());
    }
    if text == "default" || text.starts_with("kube-") {
        return Err("restow needs a namespace of its own, not one of the cluster's".to_owned());
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
