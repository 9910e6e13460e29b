//! Which resources are to be migrated: one answer for `plan` and `init`.

use std::collections::BTreeMap;
use std::path::Path;

use futures::{StreamExt as _, stream};
use kube::ResourceExt as _;
use restow_api::StorageState;
use restow_core::inventory::{Needed, Resource};
use restow_core::progress::Progress;
use restow_migrate::cluster::Cluster;
use restow_migrate::lookup;
use restow_migrate::pages::Target;

use crate::objects;
use crate::state;

/// How many resources are counted at once.
const AT_ONCE: usize = 8;

/// A resource, and whether it is to be migrated.
pub(crate) struct Assessed<'r> {
    pub(crate) resource: &'r Resource,
    /// How many objects it has, where its server tells.
    pub(crate) objects: Option<u64>,
    /// Why its objects cannot be listed.
    pub(crate) unlisted: Option<String>,
    pub(crate) needed: Needed,
}

/// Counts the objects of resources, and tells which of them are to be migrated.
pub(crate) async fn assess<'r>(
    cluster: &Cluster,
    resources: impl IntoIterator<Item = &'r Resource>,
    state_dir: Option<&Path>,
) -> Vec<Assessed<'r>> {
    let proofs = &Proofs::read(cluster, state_dir).await;
    let each = async |resource: &'r Resource| {
        let (objects, unlisted) = count(cluster, resource).await;
        let proof = proofs.of(resource);
        Assessed { resource, objects, unlisted, needed: resource.needed(objects, proof.as_deref()) }
    };
    stream::iter(resources).map(each).buffered(AT_ONCE).collect().await
}

async fn count(cluster: &Cluster, resource: &Resource) -> (Option<u64>, Option<String>) {
    let Some(target) = Target::of(resource).filter(|_| resource.obstacle.is_none()) else {
        return (None, None);
    };
    match lookup::count(cluster.server(), &target).await {
        Ok(objects) => (objects, None),
        Err(refusal) => (None, Some(format!("cannot be listed: {} ({})", refusal.message, refusal.code))),
    }
}

/// What has proven before that all objects of a resource are stored as they should be.
#[derive(Default)]
struct Proofs {
    /// The storage version hash that a StorageState is settled on.
    settled: BTreeMap<String, String>,
    /// The hash that a run of this user has verified, and when.
    verified: BTreeMap<String, (String, String)>,
}

impl Proofs {
    /// Reads what there is; what cannot be read proves nothing.
    async fn read(cluster: &Cluster, state_dir: Option<&Path>) -> Self {
        let states: Vec<StorageState> = objects::list_if_defined(cluster.server()).await.unwrap_or_default();
        let runs = state::finished(state_dir, &cluster.identity().await);
        Self::new(&states, &runs)
    }

    fn new(states: &[StorageState], runs: &[Progress]) -> Self {
        let settled = states.iter().filter_map(|state| {
            let status = state.status.as_ref().filter(|status| status.is_settled())?;
            Some((state.name_any(), status.current_storage_version_hash.clone()?))
        });
        let verified = runs.iter().filter(|progress| progress.verified).map(|progress| {
            let day = progress.updated.strftime("%F").to_string();
            (progress.resource.to_string(), (progress.storage_version_hash.clone(), day))
        });
        Self { settled: settled.collect(), verified: verified.collect() }
    }

    /// The proof for a resource as it is stored now.
    fn of(&self, resource: &Resource) -> Option<String> {
        let (name, hash) = (resource.name.to_string(), resource.hash.as_ref()?);
        if self.settled.get(&name) == Some(hash) {
            return Some("its StorageState is settled".to_owned());
        }
        let (verified, day) = self.verified.get(&name)?;
        (verified == hash).then(|| format!("verified on {day}"))
    }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use restow_core::inventory::{Document, Served, inventory};
    use restow_core::resource::{GroupResource, GroupVersion, storage_version_hash};
    use serde_json::json;

    use super::*;

    #[test]
    fn a_proof_is_for_the_storage_version_of_now() {
        let hash = storage_version_hash(&GroupVersion::parse("v1"), "Secret");
        let served = Served {
            name: "secrets".to_owned(),
            kind: "Secret".to_owned(),
            verbs: vec!["list".to_owned(), "patch".to_owned()],
            hash: Some(hash.clone()),
            ..Served::default()
        };
        let version = GroupVersion::parse("v1");
        let secrets =
            &inventory(&[Document { version, aggregated: false, resources: Ok(vec![served]) }], &[], false)
                [0];
        let state = |current: &str, persisted: &[&str]| -> StorageState {
            serde_json::from_value(json!({
                "apiVersion": "migration.k8s.io/v1alpha1", "kind": "StorageState", "metadata": {"name": "secrets"},
                "spec": {"resource": {"resource": "secrets"}},
                "status": {"currentStorageVersionHash": current, "persistedStorageVersionHashes": persisted},
            }))
            .unwrap()
        };
        let run = |hash: &str, verified: bool| Progress {
            verified,
            ..Progress::new(GroupResource::parse("secrets"), "v1", hash, Timestamp::default())
        };
        let settled = Some("its StorageState is settled");
        for (states, runs, expected) in [
            (vec![], vec![], None),
            (vec![state(&hash, &[&hash])], vec![], settled),
            (vec![state(&hash, &["Unknown", &hash])], vec![], None),
            (vec![state("old", &["old"])], vec![], None),
            (vec![], vec![run(&hash, true)], Some("verified on 1970-01-01")),
            (vec![], vec![run(&hash, false)], None),
            (vec![], vec![run("old", true)], None),
        ] {
            assert_eq!(Proofs::new(&states, &runs).of(secrets).as_deref(), expected);
        }
    }
}
