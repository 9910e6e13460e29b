//! `restow install`: what the controllers need in a cluster, printed or applied.

pub(crate) mod apply;
mod changes;
mod choice;
mod first;
pub(crate) mod flags;
mod flow;
mod job;
pub(crate) mod manifest;
pub(crate) mod manifests;
pub(crate) mod ready;
pub(crate) mod rules;
pub(crate) mod webhook;
pub(crate) mod webhook_crds;
pub(crate) mod workload;

use std::collections::BTreeSet;

use restow_core::agreement::encryption::Pattern;
use restow_core::controller::unmatched::is_gone;
use restow_core::resource::inventory::Resource;
use restow_core::resource::name::GroupResource;
use restow_migrate::cluster::{Cluster, Inventory};

use crate::args::Connection;
use crate::connect::{connect, unanswered};
use crate::error::CliError;
use crate::output;
use crate::predecessor;
use crate::resources;
use choice::{ExistingInstall, InstallChoice};
use flags::Install;
use manifests::Setup;
use workload::Workload;

pub(crate) async fn run(connection: &Connection, flags: &Install) -> Result<u8, CliError> {
    if flags.job {
        output::print(&job::yaml(&job::manifests(&job::JobSetup::of(connection, flags)?)));
        return Ok(0);
    }
    if flags.webhook {
        return webhook::run(connection, flags).await;
    }
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
        if let Err(running) = predecessor::refuse(cluster.server()).await {
            running.warn();
        }
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

async fn setup(cluster: &Cluster, connection: &Connection, flags: &Install) -> Result<Setup, CliError> {
    let earlier = ExistingInstall::find(cluster.server(), flags).await?;
    let given = InstallChoice::given(connection, flags);
    let (mut choice, image) = earlier.keep(given.clone(), flags.image.as_ref())?;
    let image = image.filter(|_| !flags.without_deployment);
    if image.is_none() && !flags.without_deployment {
        return Err(flags::no_image());
    }
    let inventory = match cluster.inventory(choice.include_events).await {
        Ok(inventory) => inventory,
        Err(error) => return Err(unanswered(cluster, error).await),
    };
    choice.drop_gone(&given, |name| is_gone(&inventory.resources, &inventory.unavailable, name))?;
    choice.controller.encryption_resources = resources::encryption_patterns(
        &inventory,
        &choice.controller.encryption_resources,
        "--encryption-resources",
    )?;
    let resources = choose(&inventory, &given, &choice)?;
    // Recorded by their full names, which stay unambiguous when other resources are defined.
    let named = resources::named(&inventory, choice.named())?;
    choice.resources = Some(named.into_iter().map(|resource| resource.name.to_string()).collect());
    let encrypted = &choice.controller.encryption_resources;
    let mut arguments = choice.arguments();
    if !choice.named().is_empty() {
        // It need not watch resources that it has no permissions on.
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
        encrypted: (!encrypted.is_empty()).then(|| encrypted.iter().map(|text| Pattern::new(text)).collect()),
        given: choice.words(),
        workload: image.map(|image| Workload { image, flags: arguments }),
    })
}

/// Whether Kubernetes itself serves the API of the built-in migrator.
fn serves_in_tree(inventory: &Inventory) -> bool {
    let name = GroupResource::new("storagemigration.k8s.io", "storageversionmigrations");
    inventory.resources.iter().any(|resource| resource.name == name && resource.crd.is_none())
}

/// The resources that may be rewritten; those of the encryption controller are always included.
fn choose(
    inventory: &Inventory,
    given: &InstallChoice,
    choice: &InstallChoice,
) -> Result<Vec<GroupResource>, CliError> {
    // Resources of an earlier install may have an obstacle that goes away.
    resources::migratable(&resources::named(inventory, &given.all_named())?)?;
    let named = resources::named(inventory, &choice.all_named())?;
    if !choice.named().is_empty() {
        return Ok(named.into_iter().map(|resource| resource.name.clone()).collect());
    }
    resources::warn_left_out(inventory);
    let migratable = |resource: &&Resource| resource.obstacle.is_none();
    let served = inventory.resources.iter().filter(migratable).map(|resource| resource.name.clone());
    // restow's own are not served before the first install has created their CRDs.
    let all: BTreeSet<GroupResource> = served.chain(manifests::own_resources()).collect();
    Ok(all.into_iter().collect())
}
