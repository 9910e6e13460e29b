//! Finds the resources that a user named.

use std::time::Duration;

use restow_core::agreement::encryption::Pattern;
use restow_core::resource::inventory::{NameError, Obstacle, Resource, find};
use restow_core::resource::name::{GroupResource, GroupVersion};
use restow_migrate::client::access;
use restow_migrate::cluster::{Cluster, Inventory};

use crate::error::CliError;
use crate::output::say;
use crate::program::program;

/// The resources with these names, each once; a resource that shares its storage is replaced by the one that stores it.
pub(crate) fn named<'a>(inventory: &'a Inventory, names: &[String]) -> Result<Vec<&'a Resource>, CliError> {
    let mut chosen: Vec<&Resource> = Vec::new();
    for name in names {
        let mut resource =
            find(&inventory.resources, name).map_err(|error| unknown(inventory, name, &error))?;
        if let Some(Obstacle::SharedWith(owner)) = &resource.obstacle
            && let Some(other) = inventory.resources.iter().find(|resource| resource.name == *owner)
        {
            resource = other;
        }
        if !chosen.iter().any(|other| other.name == resource.name) {
            chosen.push(resource);
        }
    }
    Ok(chosen)
}

/// The resources declared as encrypted, if any. An unknown name is an error, because the requested check would be skipped.
pub(crate) fn encrypted(inventory: &Inventory, given: &[String]) -> Result<Option<Vec<Pattern>>, CliError> {
    let patterns = encryption_patterns(inventory, given, "--encrypted")?;
    let patterns = patterns.iter().filter(|text| *text != NONE).map(|text| Pattern::new(text)).collect();
    Ok((!given.is_empty()).then_some(patterns))
}

/// The value for no resource, in flags that declare what is encrypted.
const NONE: &str = "none";

/// Whether a value of such a flag names a resource and is not a pattern.
pub(crate) fn is_name(word: &str) -> bool {
    let word = word.trim();
    !word.starts_with("*.") && word != NONE
}

/// The patterns that a flag declares: those of an EncryptionConfiguration unchanged, full names for other names of
/// resources, and `none` alone.
pub(crate) fn encryption_patterns(
    inventory: &Inventory,
    given: &[String],
    flag: &str,
) -> Result<Vec<String>, CliError> {
    let mut patterns = Vec::new();
    for text in given.iter().map(|text| text.trim()) {
        if is_name(text) || (text == NONE && given.len() > 1) {
            let found = named(inventory, &[text.to_owned()]).map_err(|failure| failure.about(flag))?;
            patterns.extend(found.iter().map(|resource| resource.name.to_string()));
        } else {
            patterns.push(text.to_owned());
        }
    }
    Ok(patterns)
}

/// The error for a resource that was not found. If an API server is down, the resource may exist there, so this is not incorrect
/// usage.
fn unknown(inventory: &Inventory, name: &str, error: &NameError) -> CliError {
    let group = name.split_once('.').map(|(_, group)| group.to_lowercase());
    let mut may_have_it: Vec<_> = inventory.unavailable.iter().collect();
    may_have_it.retain(|(version, _)| group.as_ref().is_none_or(|group| version.group == *group));
    may_have_it.dedup_by(|(next, _), (version, _)| next.group == version.group);
    let near = match error {
        NameError::Unknown { near, .. } if !may_have_it.is_empty() => near,
        _ => return CliError::usage(error).hint(format!("to see them all, run: {} plan", program())),
    };
    let each = |(version, obstacle): &&(GroupVersion, Obstacle)| {
        format!("{version} may have it, but {}", obstacle.explain())
    };
    let mut which: Vec<String> = may_have_it.iter().map(each).collect();
    if !near.is_empty() {
        which.push(format!("or did you mean {}?", near.join(" or ")));
    }
    CliError::failed(format!("no API server that answers has a resource {name:?}")).hint(which.join("; "))
}

/// Warns about versions whose discovery failed; returns whether there are any.
pub(crate) fn warn_left_out(inventory: &Inventory) -> bool {
    for (version, obstacle) in &inventory.unavailable {
        say!("warning: skipped {version}: {}", obstacle.explain());
    }
    !inventory.unavailable.is_empty()
}

/// Fails unless each resource can be migrated.
pub(crate) fn migratable(resources: &[&Resource]) -> Result<(), CliError> {
    match resources.iter().find_map(|resource| resource.obstacle.as_ref().map(|why| (resource, why))) {
        Some((resource, why)) => {
            let told = format!("{} cannot be migrated: {}", resource.name, why.explain());
            // A temporary obstacle is not incorrect usage.
            let passes =
                matches!(why, Obstacle::Unavailable(_) | Obstacle::Unregistered(_) | Obstacle::Converting);
            Err(if passes { CliError::failed(told) } else { CliError::usage(told) })
        }
        None => Ok(()),
    }
}

/// Fails unless the user may list and patch each resource, and prune if that was requested.
pub(crate) async fn permitted(
    cluster: &Cluster,
    resources: &[&Resource],
    prune: bool,
) -> Result<(), CliError> {
    let mut missing = Vec::new();
    for resource in resources {
        missing.extend(lacking(cluster, "", &resource.name, &["list", "patch"]).await?);
        if let Some(crd) = resource.crd.as_ref().filter(|_| prune) {
            let status = GroupResource::new("apiextensions.k8s.io", "customresourcedefinitions/status");
            missing.extend(lacking(cluster, &crd.name.to_string(), &status, &["patch"]).await?);
        }
    }
    missing.dedup();
    if missing.is_empty() {
        return Ok(());
    }
    let what: Vec<String> = missing.iter().map(ToString::to_string).collect();
    Err(CliError::failed(format!("no permission: {}", what.join("; ")))
        .hint(access::Missing::grant(&missing)))
}

/// How often a permission check is retried: one lost answer among thousands must not end the run.
const TRIES: u32 = 20;

async fn lacking(
    cluster: &Cluster,
    object: &str,
    resource: &GroupResource,
    verbs: &[&'static str],
) -> Result<Vec<access::Missing>, CliError> {
    let mut tries = 1;
    loop {
        match access::missing_on(cluster.server(), object, resource, verbs).await {
            Ok(missing) => return Ok(missing),
            Err(error) if error.is_final() || tries == TRIES => {
                return Err(CliError::failed(format!("cannot check permissions: {error}")));
            }
            Err(_) => tokio::time::sleep(Duration::from_secs(1)).await,
        }
        tries += 1;
    }
}
