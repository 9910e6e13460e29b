//! All controllers of one process: they work while it leads, and leave what is under way to the next leader.

use std::collections::{HashMap, HashSet};
use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use futures::{StreamExt as _, TryStreamExt as _};
use k8s_openapi::api::apiserverinternal::v1alpha1::StorageVersion;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::core::PartialObjectMeta;
use kube::runtime::{WatchStreamExt as _, reflector, watcher};
use kube::{Api, Client};
use restow_api::{StorageState, StorageVersionMigration};
use restow_core::pace::Bounds;
use restow_core::retry;
use restow_lease::Stop;
use restow_lease::election::Election;
use restow_migrate::cluster::Cluster;
use restow_migrate::server::plain;
use restow_migrate::throttle::Throttle;
use serde::de::DeserializeOwned;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::events::Events;
use crate::metrics::Metrics;
use crate::serve::{self, Health};
use crate::shared::{Backend, Settings, Shared, changed};
use crate::{adopter, migrator, pruner, trigger, undelegate};

/// Which controllers run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Controllers {
    /// Runs migrations.
    pub migrator: bool,
    /// Makes migrations when storage versions change.
    pub trigger: bool,
    /// Makes migrations when encryption configurations change.
    pub encryption: bool,
    /// Prunes storedVersions after migrations.
    pub pruner: bool,
}

/// What a controller process is made of.
pub struct Options {
    /// The cluster.
    pub cluster: Cluster,
    /// Which controllers run.
    pub controllers: Controllers,
    /// How they work.
    pub settings: Settings,
    /// How fast they write.
    pub bounds: Bounds,
    /// Who this process is, in Events.
    pub identity: String,
    /// Who leads; none to lead without asking.
    pub election: Option<Election>,
    /// Where health and metrics are served.
    pub listener: Option<TcpListener>,
}

/// Those that beat while this process leads.
const LOOPS: [&str; 5] = ["migrator", "trigger", "pruner", "adopter", "undelegate"];
/// The loop before all others.
const START: &str = "start";
/// How often a cluster without the definitions is looked at.
const LOOK_FOR_DEFINITIONS: Duration = Duration::from_secs(5);
/// How often a cluster that serves no StorageVersions is asked for them.
const LOOK_FOR_REGISTRATIONS: Duration = Duration::from_secs(60);
/// Watches are opened anew after so many seconds, well before a silent one would be given up.
pub(crate) const WATCH: u32 = 55;

/// Runs until it is told to stop, and gives the lead back.
pub async fn run(options: Options, stop: CancellationToken) {
    let (metrics, health) = (Arc::new(Metrics::default()), Arc::new(Health::default()));
    let serving = CancellationToken::new();
    let served = options.listener.map(|listener| {
        tokio::spawn(serve::serve(listener, Arc::clone(&health), Arc::clone(&metrics), serving.clone()))
    });
    let client = options.cluster.server().client().clone();
    let shared = Shared {
        throttle: Throttle::new(options.bounds),
        events: Events::new(client.clone(), options.identity, Arc::clone(&metrics)),
        cluster: options.cluster,
        settings: options.settings,
        metrics,
        health,
        migrations_changed: watch::Sender::new(0),
        storage_changed: watch::Sender::new(0),
    };
    let told = Stop::from(stop.clone());
    told.unless(defined(&shared, &client)).await;
    match options.election {
        None => {
            shared.metrics.leading(true);
            work(&shared, options.controllers, &told).await;
        }
        Some(election) => {
            shared.metrics.leading(false);
            election.lead(&stop, |within| lead(&shared, options.controllers, within)).await;
        }
    }
    shared.events.finish().await;
    serving.cancel();
    if let Some(served) = served {
        let _ = served.await;
    }
}

/// Waits until the objects that are to be worked on can exist.
async fn defined(shared: &Shared, client: &Client) {
    let api = Api::<StorageVersionMigration>::all(client.clone());
    loop {
        shared.health.beat(START, LOOK_FOR_DEFINITIONS * 12);
        match api.list(&kube::api::ListParams::default().limit(1)).await {
            Ok(_) => {
                shared.health.rests(START);
                return shared.health.ready();
            }
            Err(error) => {
                let why = unlisted(&error);
                tracing::warn!("waiting: {why}");
                shared.health.waits_for(format!("migrations that can be listed: {why}"));
            }
        }
        tokio::time::sleep(LOOK_FOR_DEFINITIONS).await;
    }
}

/// Why migrations cannot be listed, and what to do about it.
fn unlisted(error: &kube::Error) -> String {
    match error {
        kube::Error::Api(status) if status.code == 403 => format!(
            "no permission to list storageversionmigrations.migration.k8s.io: {}; `restow install` makes the roles that the \
             controllers need",
            status.message
        ),
        kube::Error::Api(status) if status.code == 404 => {
            "migration.k8s.io is not defined; `restow install --crds --apply` installs its definitions"
                .to_owned()
        }
        kube::Error::Api(status) => {
            format!("migration.k8s.io cannot be listed: {} ({})", status.message, status.code)
        }
        error => format!("migration.k8s.io cannot be listed: {}", plain(error)),
    }
}

/// Works while this process leads.
async fn lead(shared: &Shared, controllers: Controllers, within: Stop) {
    shared.metrics.leading(true);
    work(shared, controllers, &within).await;
    shared.metrics.leading(false);
}

/// Does the work of all controllers until it is time to stop.
async fn work(shared: &Shared, controllers: Controllers, stop: &Stop) {
    let client = shared.client();
    let (migrations, writer) = reflector::store::<StorageVersionMigration>();
    let watch_migrations = async {
        let api = Api::<StorageVersionMigration>::all(client.clone());
        let stream = watcher(api, watcher::Config::default().timeout(WATCH)).default_backoff();
        let mut finished: HashSet<Option<String>> = HashSet::new();
        let each = reflector(writer, stream).for_each(|event| {
            match event {
                Ok(_) => {
                    let all = migrations.state();
                    shared.metrics.migrations(all.iter().map(Arc::as_ref));
                    changed(&shared.migrations_changed);
                    // The trigger takes in what a migration has proven, whoever ended it.
                    let ended = all.iter().filter(|one| one.is_finished());
                    let ended: HashSet<_> = ended.map(|one| one.metadata.uid.clone()).collect();
                    if !ended.is_subset(&finished) {
                        changed(&shared.storage_changed);
                    }
                    finished = ended;
                }
                Err(error) => tracing::info!(error = %plain(&error), "watching migrations"),
            }
            std::future::ready(())
        });
        stop.unless(each).await;
    };
    let migrate = async {
        let ready = stop.unless(migrations.wait_until_ready()).await;
        if controllers.migrator && ready.is_some() {
            migrator::run(shared, &migrations, stop).await;
        }
    };
    let prune = async {
        let ready = stop.unless(migrations.wait_until_ready()).await;
        if controllers.pruner && ready.is_some() {
            pruner::run(shared, &migrations, stop).await;
        }
    };
    let adopt = async {
        let ready = stop.unless(migrations.wait_until_ready()).await;
        if shared.settings.adopt && ready.is_some() {
            adopter::run(shared, &migrations, stop).await;
        }
    };
    let undelegate = async {
        let ready = stop.unless(migrations.wait_until_ready()).await;
        if controllers.migrator && shared.settings.backend == Backend::InTree && ready.is_some() {
            undelegate::run(shared, &migrations, stop).await;
        }
    };
    let look = async {
        if controllers.trigger || controllers.encryption {
            let watches = async {
                futures::join!(definitions(shared), registrations(shared), members(shared), states(shared))
            };
            futures::join!(trigger::run(shared, controllers, stop), stop.unless(watches));
        }
    };
    futures::join!(watch_migrations, migrate, prune, adopt, undelegate, look);
    LOOPS.into_iter().for_each(|name| shared.health.rests(name));
}

/// A changed definition may have changed a storage version; a changed StorageVersion is what the API servers
/// themselves say of one.
async fn definitions(shared: &Shared) {
    wake_on_change::<CustomResourceDefinition>(shared).await;
}

async fn registrations(shared: &Shared) {
    let api = Api::<StorageVersion>::all(shared.client().clone());
    let mut tries = 0_u32;
    while let Err(error) = api.list_metadata(&kube::api::ListParams::default().limit(1)).await {
        tries = tries.saturating_add(1);
        tokio::time::sleep(until_registered(&error, tries)).await;
    }
    wake_on_change::<StorageVersion>(shared).await;
}

/// How soon to ask again for the StorageVersions. Most clusters do not serve them, but may after an upgrade; whatever
/// else went wrong passes.
fn until_registered(error: &kube::Error, tries: u32) -> Duration {
    match error {
        kube::Error::Api(status) if status.code == 404 => LOOK_FOR_REGISTRATIONS,
        _ => retry::again(tries),
    }
}

/// A deleted StorageState is made anew, and everything migrated: that is how people reset one.
async fn states(shared: &Shared) {
    wake_on::<StorageState>(shared, |event| matches!(event, watcher::Event::Delete(_))).await;
}

async fn wake_on_change<K>(shared: &Shared)
where
    K: kube::Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + Sync + 'static,
    K::Scope: Send,
{
    let changes = |event: &_| matches!(event, watcher::Event::Apply(_) | watcher::Event::Delete(_));
    wake_on::<K>(shared, changes).await;
}

async fn wake_on<K>(shared: &Shared, wakes: impl Fn(&watcher::Event<PartialObjectMeta<K>>) -> bool)
where
    K: kube::Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + Sync + 'static,
    K::Scope: Send,
{
    let api = Api::<PartialObjectMeta<K>>::all(shared.client().clone());
    let stream = watcher(api, watcher::Config::default().timeout(WATCH)).default_backoff();
    stream
        .for_each(|event| {
            if event.is_ok_and(|event| wakes(&event)) {
                changed(&shared.storage_changed);
            }
            std::future::ready(())
        })
        .await;
}

/// An API server that comes, goes or starts anew may store things otherwise; one that renews its Lease does not.
async fn members(shared: &Shared) {
    let api = Api::<Lease>::namespaced(shared.client().clone(), "kube-system");
    let config =
        watcher::Config::default().labels("apiserver.kubernetes.io/identity=kube-apiserver").timeout(WATCH);
    let mut holders: HashMap<String, Option<String>> = HashMap::new();
    let stream = watcher(api, config)
        .default_backoff()
        .map_err(|error| tracing::debug!(error = %plain(&error), "watching Leases"));
    stream
        .for_each(|event| {
            let moved = match event {
                Ok(watcher::Event::Apply(lease) | watcher::Event::InitApply(lease)) => {
                    let holder = lease.spec.and_then(|spec| spec.holder_identity);
                    let name = lease.metadata.name.unwrap_or_default();
                    holders.insert(name, holder.clone()) != Some(holder)
                }
                Ok(watcher::Event::Delete(lease)) => {
                    holders.remove(&lease.metadata.name.unwrap_or_default()).is_some()
                }
                _ => false,
            };
            if moved {
                changed(&shared.storage_changed);
            }
            std::future::ready(())
        })
        .await;
}

#[cfg(test)]
mod tests {
    use kube::core::Status;

    use super::*;

    #[test]
    fn registrations_are_asked_for_until_they_can_be_watched() {
        for (code, tries, seconds) in
            [(404, 1, 60), (404, 9, 60), (503, 1, 1), (503, 3, 4), (403, 9, 60), (500, u32::MAX, 60)]
        {
            let error = kube::Error::Api(Box::new(Status { code, ..Status::default() }));
            assert_eq!(until_registered(&error, tries).as_secs(), seconds, "{code} {tries}");
        }
    }

    #[test]
    fn a_missing_permission_is_not_a_missing_definition() {
        for (code, message, expected) in [
            (
                403,
                "user \"x\" cannot list",
                "no permission to list storageversionmigrations.migration.k8s.io: user \"x\"",
            ),
            (404, "the server could not find the requested resource", "migration.k8s.io is not defined"),
            (503, "starting", "migration.k8s.io cannot be listed: starting (503)"),
        ] {
            let error =
                kube::Error::Api(Box::new(Status { code, message: message.to_owned(), ..Status::default() }));
            assert!(unlisted(&error).starts_with(expected), "{}", unlisted(&error));
        }
    }
}
