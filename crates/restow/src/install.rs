//! `restow install`: what the controllers need in a cluster, printed or applied.

pub(crate) mod apply;
mod changes;
mod choice;
mod first;
mod flow;
pub(crate) mod manifest;
pub(crate) mod manifests;
pub(crate) mod ready;
pub(crate) mod rules;
pub(crate) mod workload;

use std::time::Duration;

use clap::Args as ClapArgs;
use restow_core::inventory::{NameError, Resource, find};
use restow_core::resource::GroupResource;
use restow_migrate::cluster::{Cluster, Inventory};

use crate::args::{Connection, List, PaceName, duration};
use crate::connect::{connect, unanswered};
use crate::controller::{Adopted, BackendName, Name as Controller};
use crate::failure::Failure;
use crate::output;
use crate::predecessor;
use crate::select;
use choice::{Choice, Earlier};
use manifests::Setup;
use rules::{InTree, Listing};
use workload::Workload;

/// Where restow is installed unless told otherwise.
pub(crate) const NAMESPACE: &str = "restow-system";

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
    resources: Vec<String>,
    /// Every resource that can be migrated now
    #[arg(long, conflicts_with = "resources")]
    all: bool,
    /// Events too
    #[arg(long)]
    include_events: bool,
    /// The image to run, whose entrypoint is restow [default: as installed]
    #[arg(long, value_name = "IMAGE", value_parser = image)]
    image: Option<String>,
    /// The namespace to make and use
    #[arg(short, long, visible_alias = "namespace-name", value_name = "NAME", default_value = NAMESPACE,
          value_parser = namespace)]
    namespace: String,
    /// Just the definitions of migrations and storage states
    #[arg(long, conflicts_with_all = ["resources", "all", "image", "without_deployment"])]
    crds: bool,
    /// Everything but what runs: the controllers are run by other means
    #[arg(long, conflicts_with = "image")]
    without_deployment: bool,
    /// Forget what an earlier install was given, and start from the defaults
    #[arg(long, conflicts_with = "crds")]
    reset: bool,
    /// Apply it, instead of printing it
    #[arg(long)]
    apply: bool,
    /// Send it as a server-side dry run: nothing is stored
    #[arg(long, conflicts_with = "wait")]
    dry_run: bool,
    /// Wait until the definitions are established and the Deployment is available
    #[arg(long, requires = "apply")]
    wait: bool,
    /// Wait no longer than this
    #[arg(long, requires = "wait", value_name = "DURATION", value_parser = duration, default_value = "5m")]
    timeout: Duration,
    #[command(flatten)]
    controller: ControllerFlags,
}

/// What the Deployment gives `restow controller`, beside the connection flags on how API servers are told apart.
#[derive(ClapArgs, Clone, Debug, Default, PartialEq)]
#[command(next_help_heading = "Controller")]
pub(crate) struct ControllerFlags {
    /// The controllers to run [default: all]
    #[arg(long, value_enum, value_delimiter = ',', value_name = "NAMES")]
    controllers: Vec<Controller>,
    /// How fast migrations go
    #[arg(long, value_enum, value_name = "PACE")]
    pace: Option<PaceName>,
    /// How objects are listed; streaming and auto, which streams from 10,000 objects on, grant watch too [default: chunks]
    #[arg(long, value_enum, value_name = "HOW")]
    list: Option<List>,
    /// How many migrations run at once
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100))]
    concurrent_migrations: Option<u32>,
    /// How often discovery is looked at
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    poll_interval: Option<Duration>,
    /// Resources that are rewritten when the encryption configuration changes
    #[arg(long, value_delimiter = ',', value_name = "RESOURCES")]
    encryption_resources: Vec<String>,
    /// Who rewrites objects: restow, or Kubernetes' own controller
    #[arg(long, value_enum, value_name = "WHO")]
    backend: Option<BackendName>,
    /// Serve migrations of storagemigration.k8s.io too; it is defined where Kubernetes does not serve it
    #[arg(long, value_enum, value_name = "API", conflicts_with = "backend")]
    adopt: Option<Adopted>,
}

impl ControllerFlags {
    /// How lists come; what cannot be used is not granted.
    fn listing(&self) -> Listing {
        match self.list {
            Some(List::Streaming | List::Auto) => Listing::Streamed,
            Some(List::Chunked) | None => Listing::Chunked,
        }
    }

    fn in_tree(&self) -> InTree {
        match (self.backend, self.adopt) {
            (Some(BackendName::InTree), _) => InTree::Backend,
            (_, Some(Adopted::InTree)) => InTree::Adopted,
            _ => InTree::Unused,
        }
    }
}

pub(crate) async fn run(connection: &Connection, flags: &Install) -> Result<u8, Failure> {
    if flags.crds && !flags.apply && !flags.dry_run {
        output::print(&manifests::yaml(&manifests::crds()));
        return Ok(0);
    }
    let cluster = connect(connection).await?;
    let all = if flags.crds {
        manifests::crds()
    } else {
        let setup = setup(&cluster, connection, flags).await?;
        first::announce(cluster.server(), &setup).await;
        manifests::manifests(&setup)
    };
    if !flags.apply && !flags.dry_run {
        output::print(&manifests::yaml(&all));
        return Ok(0);
    }
    if !flags.crds {
        predecessor::refuse(cluster.server()).await?;
    }
    apply::apply(cluster.server(), all.clone(), flags.dry_run).await?;
    if flags.wait {
        ready::ready(cluster.server(), &all, flags.timeout).await?;
    }
    Ok(0)
}

async fn setup(cluster: &Cluster, connection: &Connection, flags: &Install) -> Result<Setup, Failure> {
    let earlier = Earlier::find(cluster.server(), flags).await?;
    let given = Choice::given(connection, flags);
    let (mut choice, image) = earlier.keep(given.clone(), flags.image.as_ref())?;
    let image = image.filter(|_| !flags.without_deployment);
    if image.is_none() && !flags.without_deployment {
        return Err(no_image());
    }
    let inventory = match cluster.inventory(choice.include_events).await {
        Ok(inventory) => inventory,
        Err(error) => return Err(unanswered(cluster, error).await),
    };
    choice.drop_gone(&given, |name| is_gone(&inventory, name))?;
    let resources = choose(&inventory, &given, &choice)?;
    // Remembered by their full names, which stay clear when other resources are defined.
    let named = select::named(&inventory, choice.named())?;
    choice.resources = Some(named.into_iter().map(|resource| resource.name.to_string()).collect());
    let mut arguments = choice.arguments();
    if !choice.named().is_empty() {
        // What it has no rights on it need not watch.
        let names: Vec<String> = resources.iter().map(ToString::to_string).collect();
        arguments.push(format!("--resources={}", names.join(",")));
    }
    Ok(Setup {
        namespace: flags.namespace.clone(),
        resources,
        controllers: choice.controllers(),
        in_tree: choice.controller.in_tree(),
        listing: choice.controller.listing(),
        define_in_tree: choice.controller.adopt.is_some() && !serves_in_tree(&inventory),
        given: choice.words(),
        workload: image.map(|image| Workload { image, flags: arguments }),
    })
}

fn no_image() -> Failure {
    Failure::usage("--image IMAGE is missing: what the Deployment runs").hint(
        "give an image whose entrypoint is restow; --without-deployment leaves the Deployment out, --crds all but the \
         definitions",
    )
}

/// Whether Kubernetes itself serves the API of the built-in migrator.
fn serves_in_tree(inventory: &Inventory) -> bool {
    let name = GroupResource::new("storagemigration.k8s.io", "storageversionmigrations");
    inventory.resources.iter().any(|resource| resource.name == name && resource.crd.is_none())
}

/// Whether nobody serves a resource that an earlier install was for, and nobody is silent who may.
fn is_gone(inventory: &Inventory, name: &str) -> bool {
    let group = GroupResource::parse(name).group;
    let silent = inventory.unavailable.iter().any(|(version, _)| version.group == group);
    !silent && matches!(find(&inventory.resources, name), Err(NameError::Unknown { .. }))
}

/// What may be rewritten; what the encryption controller is to rewrite is always part of it.
fn choose(inventory: &Inventory, given: &Choice, choice: &Choice) -> Result<Vec<GroupResource>, Failure> {
    // What an earlier install was for may have an obstacle that passes.
    select::migratable(&select::named(inventory, &given.all_named())?)?;
    let named = select::named(inventory, &choice.all_named())?;
    if !choice.named().is_empty() {
        return Ok(named.into_iter().map(|resource| resource.name.clone()).collect());
    }
    select::warn_left_out(inventory);
    let migratable = |resource: &&Resource| resource.obstacle.is_none();
    Ok(inventory.resources.iter().filter(migratable).map(|resource| resource.name.clone()).collect())
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
