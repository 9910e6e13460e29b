//! Which resources a run migrates.

use restow_core::resource::inventory::{Need, Obstacle, Resource};
use restow_core::resource::name::GroupVersion;
use restow_core::rewrite::progress::Phase;
use restow_migrate::cluster::Inventory;

use super::flags::Migrate;
use crate::error::CliError;
use crate::render::report::{ResourceReport, Unavailable};
use crate::resources;
use crate::state_dir::StateDir;

/// The resources of a run.
#[derive(Default)]
pub(crate) struct Chosen<'a> {
    pub(crate) resources: Vec<&'a Resource>,
    /// Unfinished ones that cannot be resumed, because they are no longer served.
    pub(crate) lost: Vec<ResourceReport>,
}

pub(crate) fn choose<'a>(
    flags: &Migrate,
    inventory: &'a Inventory,
    dir: &StateDir,
) -> Result<Chosen<'a>, CliError> {
    let mut chosen = Chosen::default();
    if flags.resume && flags.resources.is_empty() {
        chosen = unfinished(inventory, dir)?;
    }
    if flags.all {
        let can_be_migrated = |resource: &&Resource| resource.obstacle.is_none();
        chosen.resources = inventory.resources.iter().filter(can_be_migrated).collect();
    } else if !flags.resources.is_empty() {
        chosen.resources = resources::named(inventory, &flags.resources)?;
    }
    Ok(chosen)
}

/// Every resource whose run has not ended, and those that the newest of these runs has finished: objects that it left
/// are not forgotten. One that is no longer served does not stop the others.
fn unfinished<'a>(inventory: &'a Inventory, dir: &StateDir) -> Result<Chosen<'a>, CliError> {
    let mut chosen = Chosen::default();
    for (path, progress) in dir.unfinished()? {
        let found = inventory.resources.iter().find(|resource| resource.name == progress.resource);
        match found {
            Some(resource) if resource.obstacle.is_none() => chosen.resources.push(resource),
            _ if progress.phase == Phase::Done => {}
            found => {
                let why = found.and_then(|resource| resource.obstacle.as_ref()).map(Obstacle::explain);
                let why = why.unwrap_or_else(|| "no API server that answered serves it".to_owned());
                let group = &progress.resource.group;
                let down = inventory.unavailable.iter().any(|(version, _)| version.group == *group);
                let advice = if down {
                    "try again when its API server answers".to_owned()
                } else {
                    format!("if the resource was deleted, delete {} too", path.display())
                };
                let error = format!("its unfinished run cannot be resumed: {why}; {advice}");
                chosen.lost.push(ResourceReport::lost(progress, error));
            }
        }
    }
    if chosen.resources.is_empty() && chosen.lost.is_empty() {
        return Err(CliError::usage("there is no unfinished run to resume on this cluster"));
    }
    Ok(chosen)
}

pub(crate) fn unavailable(inventory: &Inventory) -> Vec<Unavailable> {
    let each = |(version, obstacle): &(GroupVersion, Obstacle)| Unavailable {
        group_version: version.to_string(),
        message: obstacle.explain(),
    };
    // They need a migration and get none, so the run did not migrate everything.
    let unserved = |resource: &Resource| match &resource.obstacle {
        Some(why @ (Obstacle::Unserved(_) | Obstacle::Unregistered(_) | Obstacle::Converting))
            if resource.need() != Need::Unlikely =>
        {
            Some(Unavailable { group_version: resource.name.to_string(), message: why.explain() })
        }
        _ => None,
    };
    let unserved = inventory.resources.iter().filter_map(unserved);
    inventory.unavailable.iter().map(each).chain(unserved).collect()
}
