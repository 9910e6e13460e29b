//! Reads from the cluster what decides the next step.

use std::time::Duration;

use restow_clock::Instant;
use restow_convert::version_order;
use restow_core::controller::crd_manager::{CrdManager, crd_manager};
use restow_core::controller::retirement::{Accepted, Observed, Survival};
use restow_core::resource::inventory::{Crd, Resource};
use restow_core::resource::name::{GroupResource, GroupVersion};
use restow_migrate::client::access::{self, Missing};
use restow_migrate::definition::{self, Definition};
use restow_migrate::list::Waiting;
use restow_migrate::owners::{FieldOwners, field_owners};

use super::retirement::{Halt, Retirement};
use crate::connect::{unanswered, unreached};
use crate::error::{CliError, chain};
use crate::output::say;
use crate::render::retire::Shown;
use crate::resources;

/// How long discovery may take to follow a change of the CRD.
const DISCOVERY_TIMEOUT: Duration = Duration::from_secs(120);
const ASK_EVERY: Duration = Duration::from_secs(1);

/// What the cluster shows now.
pub(super) struct Look {
    pub(super) resource: Resource,
    pub(super) definition: Definition,
    pub(super) observed: Observed,
    pub(super) owners: FieldOwners,
    pub(super) manager: Option<CrdManager>,
}

impl Look {
    pub(super) fn shown(&self) -> Shown<'_> {
        Shown {
            observed: &self.observed,
            versions: self.definition.versions(),
            owners: &self.owners,
            manager: self.manager.as_ref(),
        }
    }
}

/// Says why a list waits.
struct Patience;

impl Waiting for Patience {
    fn waiting(&self, why: &str, wait: Duration) {
        tracing::info!(?wait, "waiting: {why}");
    }
}

impl Retirement<'_> {
    /// Reads the CRD, waits until discovery shows it, and counts field owners where that matters.
    pub(super) async fn look(&mut self) -> Result<Look, Halt> {
        let stop = self.stop.clone();
        let (resource, definition) = stop.unless(self.settled()).await.ok_or(Halt::Stopped)??;
        let proven = self.proof.as_ref() == Some(&definition.crd.definition());
        // Behind a webhook owners move by themselves, and restow waits for them before it stops serving the version.
        let matters = self.owners.is_none() || proven || definition.crd.webhook;
        let owners = match &self.owners {
            Some(owners) if !matters => owners.clone(),
            _ => self.count_owners(&resource).await?,
        };
        self.owners = Some(owners.clone());
        let manager = crd_manager(&definition.object);
        let observed = self.observed(&definition, &owners);
        self.seen = Some(observed.clone());
        Ok(Look { resource, definition, observed, owners, manager })
    }

    fn observed(&self, definition: &Definition, owners: &FieldOwners) -> Observed {
        let version = &self.flags.version;
        let crd = definition.crd.clone();
        let deprecated = definition
            .versions()
            .iter()
            .any(|one| one["name"] == version.as_str() && one["deprecated"] == true);
        let checked = self.survival.as_ref().filter(|(checked, _)| *checked == crd.definition());
        let retired = definition.object["metadata"]["annotations"][restow_api::RETIRED].as_str();
        Observed {
            version: version.clone(),
            deprecated,
            to: self.flags.to.clone(),
            others: others(&crd, version),
            survival: checked.map_or(Survival::Unchecked, |(_, survival)| survival.clone()),
            retired: retired.is_some_and(|all| all.split(',').any(|one| one.trim() == version)),
            owned: owners.owned,
            unreadable: owners.unreadable,
            proof: self.proof.clone(),
            requests: self.requests.clone(),
            accepted: Accepted {
                undeprecated: self.flags.undeprecated_ok,
                losses: self.flags.lost_fields_ok,
                requests: self.flags.ignore_requests,
            },
            crd,
        }
    }

    /// The resource and its CRD, once discovery serves what the CRD says.
    async fn settled(&self) -> Result<(Resource, Definition), Halt> {
        let since = Instant::now();
        let mut said = false;
        loop {
            let (resource, definition) = self.read().await?;
            let Some(definition) = definition else {
                return Err(CliError::failed(format!(
                    "the CustomResourceDefinition {} was deleted",
                    resource.name
                ))
                .into());
            };
            let crd = &definition.crd;
            let published = resource.crd.as_ref().is_some_and(|known| known.definition() == crd.definition());
            if published && serves_the_same(&resource, crd) {
                return Ok((resource, definition));
            }
            if since.elapsed() > DISCOVERY_TIMEOUT {
                return Err(CliError::failed(format!(
                    "{}: the API server has not served the versions of its CRD for {} s",
                    crd.name,
                    DISCOVERY_TIMEOUT.as_secs()
                ))
                .hint("look at the conditions of the CRD, then run the same command again")
                .into());
            }
            if !said {
                said = true;
                say!("{}: waiting for the API server to serve the versions of the CRD", crd.name);
            }
            tokio::time::sleep(ASK_EVERY).await;
        }
    }

    async fn read(&self) -> Result<(Resource, Option<Definition>), Halt> {
        let inventory = match self.cluster.inventory(false).await {
            Ok(inventory) => inventory,
            Err(error) => return Err(unanswered(self.cluster, error).await.into()),
        };
        let found = resources::named(&inventory, std::slice::from_ref(&self.flags.resource))?;
        let Some(resource) = found.into_iter().next().filter(|resource| resource.crd.is_some()) else {
            let text = format!("{} is not defined by a CustomResourceDefinition", self.flags.resource);
            return Err(CliError::usage(text)
                .hint("only versions of custom resources can be retired")
                .into());
        };
        let read = definition::read(self.cluster.server(), &resource.name).await;
        let definition = read.map_err(|error| unreached(self.cluster.server(), &error))?;
        Ok((resource.clone(), definition))
    }

    async fn count_owners(&self, resource: &Resource) -> Result<FieldOwners, Halt> {
        let version = GroupVersion::new(&resource.name.group, &self.flags.version);
        match field_owners(self.cluster.server(), resource, &version, &Patience, &self.stop).await {
            Ok(Some(owners)) => Ok(owners),
            Ok(None) => Err(Halt::Stopped),
            Err(error) => {
                let missing = access::missing(self.cluster.server(), &resource.name, &["list"]).await;
                let failure = CliError::failed(format!(
                    "cannot see who owns fields of {}: {}",
                    resource.name,
                    chain(&error)
                ));
                Err(match missing {
                    Ok(missing) if !missing.is_empty() => failure.hint(Missing::grant(&missing)),
                    _ => failure,
                }
                .into())
            }
        }
    }

    /// Whether the CRD is changed elsewhere: in a manifest, or by the tool that manages it.
    pub(super) fn is_elsewhere(&self, look: &Look) -> bool {
        self.flags.manifest.is_some() || look.manager.is_some() && !self.flags.change_managed_crd
    }

    /// Fails unless the user may take all steps, before the first one is taken.
    pub(super) async fn permitted(&self, look: &Look) -> Result<(), Halt> {
        resources::migratable(&[&look.resource])?;
        resources::permitted(self.cluster, &[&look.resource], true).await?;
        if self.is_elsewhere(look) {
            return Ok(());
        }
        let crds = GroupResource::new("apiextensions.k8s.io", "customresourcedefinitions");
        let name = look.resource.name.to_string();
        let missing = access::missing_on(self.cluster.server(), &name, &crds, &["patch"]).await;
        let missing =
            missing.map_err(|error| CliError::failed(format!("cannot check permissions: {error}")))?;
        match missing.first() {
            None => Ok(()),
            Some(one) => {
                Err(CliError::failed(format!("no permission: {one}")).hint(Missing::grant(&missing)).into())
            }
        }
    }
}

/// The other served versions, the newest first.
fn others(crd: &Crd, version: &str) -> Vec<String> {
    let served = crd.versions.iter().filter(|(name, served)| *served && name != version);
    let mut others: Vec<String> = served.map(|(name, _)| name.clone()).collect();
    others.sort_by(|one, other| version_order(other, one));
    others
}

fn serves_the_same(resource: &Resource, crd: &Crd) -> bool {
    let mut published: Vec<&str> = resource.served.iter().map(|version| version.version.as_str()).collect();
    let mut defined: Vec<&str> =
        crd.versions.iter().filter(|(_, served)| *served).map(|(name, _)| name.as_str()).collect();
    published.sort_unstable();
    defined.sort_unstable();
    published == defined
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_served_version_comes_first() {
        let crd = Crd {
            converting: false,
            name: GroupResource::parse("widgets.example.com"),
            resource_version: String::new(),
            uid: String::new(),
            generation: 1,
            storage_version: "v1beta1".to_owned(),
            versions: [("v1beta1", true), ("v1", true), ("v2alpha1", true), ("v10", false), ("v2", true)]
                .map(|(name, served)| (name.to_owned(), served))
                .to_vec(),
            stored_versions: Vec::new(),
            changed: None,
            webhook: false,
        };
        assert_eq!(others(&crd, "v1beta1"), ["v2", "v1", "v2alpha1"]);
    }
}
