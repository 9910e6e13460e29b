//! Which resources need a migration, for `plan` and `init`.

use std::collections::BTreeMap;
use std::path::Path;

use futures::{StreamExt as _, stream};
use kube::ResourceExt as _;
use restow_api::{StorageState, StorageStateStatus};
use restow_core::agreement::encryption::Encryption;
use restow_core::controller::evidence::{CurrentStorage, of_run, of_state};
use restow_core::resource::inventory::Evidence;
use restow_core::resource::inventory::{Recommendation, Resource};
use restow_core::rewrite::progress::Progress;
use restow_migrate::cluster::Cluster;
use restow_migrate::cluster::Survey;
use restow_migrate::list::Target;
use restow_migrate::list::lookup;

use crate::objects;
use crate::output::say;
use crate::state_dir;

/// How many resources are counted concurrently.
const AT_ONCE: usize = 8;

/// A resource, and whether a migration is recommended.
pub(crate) struct Assessed<'r> {
    pub(crate) resource: &'r Resource,
    /// The number of its objects, if its server reports that.
    pub(crate) objects: Option<u64>,
    /// Why its objects cannot be listed.
    pub(crate) unlisted: Option<String>,
    pub(crate) needed: Recommendation,
}

/// Counts the objects of resources, and decides for which of them a migration is recommended.
pub(crate) async fn assess<'r>(
    cluster: &Cluster,
    resources: impl IntoIterator<Item = &'r Resource>,
    state_dir: Option<&Path>,
) -> Vec<Assessed<'r>> {
    let resources: Vec<&Resource> = resources.into_iter().collect();
    let known = &Known::read(cluster, &resources, state_dir).await;
    let each = async |resource: &'r Resource| {
        let (objects, unlisted) = count(cluster, resource).await;
        Assessed { resource, objects, unlisted, needed: resource.recommend(objects, known.of(resource)) }
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

/// What is known about how resources are stored, by name.
struct Known {
    states: BTreeMap<String, StorageStateStatus>,
    /// The last completed run of this user.
    runs: BTreeMap<String, Progress>,
    /// What the API servers report now, to compare runs with.
    survey: Result<Survey, String>,
    keys: Result<Encryption, String>,
}

impl Known {
    /// Reads everything that is available; anything unreadable counts as unknown.
    async fn read(cluster: &Cluster, resources: &[&Resource], state_dir: Option<&Path>) -> Self {
        let states = match objects::list_if_defined::<StorageState>(cluster.server()).await {
            Ok(states) => states,
            Err(failure) => {
                say!("warning: cannot read the StorageStates: {failure}");
                Vec::new()
            }
        };
        let status = |state: StorageState| Some((state.name_any(), state.status?));
        let states = states.into_iter().filter_map(status).collect();
        let runs = state_dir::finished(state_dir, &cluster.identity().await).into_iter();
        let runs: BTreeMap<String, Progress> = runs.map(|run| (run.resource.to_string(), run)).collect();
        // Nothing else is needed if a CRD shows it, or if the run proved nothing.
        let worth = |resource: &&Resource| {
            let run = runs.get(&resource.name.to_string());
            resource.crd.is_none() && run.is_some_and(|run| run.verified)
        };
        let worth: Vec<_> = resources.iter().copied().filter(worth).collect();
        let sealed = |resource: &&Resource| runs[&resource.name.to_string()].fingerprint.is_some();
        let unasked = || "they were not asked".to_owned();
        let survey = match worth.is_empty() {
            true => Err(unasked()),
            false => cluster.survey(true).await.map_err(|error| error.to_string()),
        };
        let keys = match worth.iter().any(sealed) {
            true => cluster.encryption_if_reported().await.map_err(|error| error.to_string()),
            false => Err(unasked()),
        };
        Self { states, runs, survey, keys }
    }

    /// What shows how a resource is stored now.
    fn of(&self, resource: &Resource) -> Evidence {
        let Some(hash) = &resource.hash else { return Evidence::Nothing };
        let name = resource.name.to_string();
        let state = self.states.get(&name).map(|state| of_state(state, hash, restow_clock::now()));
        let run = self.runs.get(&name).map(|run| of_run(run, hash, &self.present(resource)));
        state.unwrap_or(Evidence::Nothing).or(run.unwrap_or(Evidence::Nothing))
    }

    fn present(&self, resource: &Resource) -> CurrentStorage {
        let agreement =
            self.survey.as_ref().map_err(String::clone).and_then(|survey| {
                survey.consensus(resource).1.map_err(|disagreement| disagreement.to_string())
            });
        CurrentStorage { agreement, keys: self.keys.clone() }
    }
}
