//! `restow install`: what the controllers need in a cluster, printed or applied.

pub(crate) mod apply;
mod first;
mod flow;
pub(crate) mod manifest;
pub(crate) mod manifests;
pub(crate) mod ready;
pub(crate) mod rules;
pub(crate) mod workload;

use std::time::Duration;

use clap::{Args as ClapArgs, ValueEnum as _};
use restow_core::inventory::Resource;
use restow_core::resource::GroupResource;
use restow_migrate::cluster::{Cluster, Inventory};

use crate::args::{Connection, PaceName, duration};
use crate::connect::{connect, unanswered};
use crate::controller::{ALL, Adopted, BackendName, Name as Controller};
use crate::failure::Failure;
use crate::output;
use crate::predecessor;
use crate::select;
use manifests::Setup;
use rules::InTree;
use workload::Workload;

/// Where restow is installed unless told otherwise.
pub(crate) const NAMESPACE: &str = "restow-system";

/// Print all that the controllers need in a cluster, or apply it
///
/// Roles are made for the resources named, or for all that can be migrated now: list and patch on each, and nothing
/// else.
#[derive(ClapArgs)]
#[command(after_help = "Examples:
  restow install --image IMAGE > restow.yaml            to be read, kept and applied by other means
  restow install --image IMAGE --apply --wait           now; again after new CRDs, or to upgrade
  restow install secrets widgets.example.com --image IMAGE  roles for just these
  restow install --image IMAGE --dry-run                would the API server accept it?
  restow install --crds --apply                         just the definitions of the API")]
pub(crate) struct Install {
    /// Resources that may be rewritten, such as secrets or widgets.example.com [default: all that can be now]
    #[arg(value_name = "RESOURCE")]
    resources: Vec<String>,
    /// Every resource that can be migrated now
    #[arg(long, conflicts_with = "resources")]
    all: bool,
    /// Events too
    #[arg(long)]
    include_events: bool,
    /// The image to run, whose entrypoint is restow
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
#[derive(ClapArgs)]
#[command(next_help_heading = "Controller")]
struct ControllerFlags {
    /// The controllers to run
    #[arg(long, value_enum, value_delimiter = ',', value_name = "NAMES", default_values_t = ALL)]
    controllers: Vec<Controller>,
    /// How fast migrations go
    #[arg(long, value_enum, value_name = "PACE")]
    pace: Option<PaceName>,
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
    if flags.image.is_none() && !flags.without_deployment && !flags.crds {
        return Err(Failure::usage("--image IMAGE is missing: what the Deployment runs").hint(
            "give an image whose entrypoint is restow; --without-deployment leaves the Deployment out, --crds all \
             but the definitions",
        ));
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
    let inventory = match cluster.inventory(flags.include_events).await {
        Ok(inventory) => inventory,
        Err(error) => return Err(unanswered(cluster, error).await),
    };
    let mut flag = controller_flags(connection, &flags.controller);
    let image = flags.image.clone();
    let resources = choose(&inventory, flags)?;
    if !flags.resources.is_empty() {
        // What it has no rights on it need not watch.
        let names: Vec<String> = resources.iter().map(ToString::to_string).collect();
        flag.push(format!("--resources={}", names.join(",")));
    }
    Ok(Setup {
        namespace: flags.namespace.clone(),
        resources,
        controllers: flags.controller.controllers.clone(),
        in_tree: flags.controller.in_tree(),
        define_in_tree: flags.controller.adopt.is_some() && !serves_in_tree(&inventory),
        workload: image.map(|image| Workload { image, flags: flag }),
    })
}

/// Whether Kubernetes itself serves the API of the built-in migrator.
fn serves_in_tree(inventory: &Inventory) -> bool {
    let name = GroupResource::new("storagemigration.k8s.io", "storageversionmigrations");
    inventory.resources.iter().any(|resource| resource.name == name && resource.crd.is_none())
}

/// What may be rewritten; what the encryption controller is to rewrite is always part of it.
fn choose(inventory: &Inventory, flags: &Install) -> Result<Vec<GroupResource>, Failure> {
    let mut names = flags.resources.clone();
    names.extend(flags.controller.encryption_resources.iter().cloned());
    let named = select::named(inventory, &names)?;
    select::migratable(&named)?;
    if !flags.resources.is_empty() {
        return Ok(named.into_iter().map(|resource| resource.name.clone()).collect());
    }
    select::warn_left_out(inventory);
    let migratable = |resource: &&Resource| resource.obstacle.is_none();
    Ok(inventory.resources.iter().filter(migratable).map(|resource| resource.name.clone()).collect())
}

/// The flags of `restow controller` that were not left at their defaults, and always which controllers run.
fn controller_flags(connection: &Connection, flags: &ControllerFlags) -> Vec<String> {
    let name = |value: Option<clap::builder::PossibleValue>| value.map(|value| value.get_name().to_owned());
    let controllers: Vec<String> =
        flags.controllers.iter().filter_map(|controller| name(controller.to_possible_value())).collect();
    let mut all = vec![format!("--controllers={}", controllers.join(","))];
    all.extend(
        flags.pace.and_then(|pace| name(pace.to_possible_value())).map(|pace| format!("--pace={pace}")),
    );
    all.extend(flags.concurrent_migrations.map(|count| format!("--concurrent-migrations={count}")));
    all.extend(flags.poll_interval.map(|period| format!("--poll-interval={}s", period.as_secs())));
    if !flags.encryption_resources.is_empty() {
        all.push(format!("--encryption-resources={}", flags.encryption_resources.join(",")));
    }
    all.extend(
        flags
            .backend
            .and_then(|backend| name(backend.to_possible_value()))
            .map(|who| format!("--backend={who}")),
    );
    all.extend(flags.adopt.and_then(|api| name(api.to_possible_value())).map(|api| format!("--adopt={api}")));
    all.extend(connection.api_server.iter().map(|url| format!("--api-server={url}")));
    all.extend(connection.assume_single_server.then(|| "--assume-single-server".to_owned()));
    all.extend(connection.sample_servers.map(|period| format!("--sample-servers={}s", period.as_secs())));
    all
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
