//! All controllers of one process: they work while it leads, and leave what is under way to the next leader.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt as _;
use kube::runtime::{WatchStreamExt as _, reflector, watcher};
use kube::{Api, Client};
use restow_api::StorageVersionMigration;
use restow_core::rewrite::pace::Bounds;
use restow_lease::Stop;
use restow_lease::election::Election;
use restow_migrate::cluster::Cluster;
use restow_migrate::server::plain;
use restow_migrate::throttle::Throttle;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::context::{Context, changed};
use crate::in_tree::{adopter, undelegate};
use crate::observe::events::Events;
use crate::observe::health::Health;
use crate::observe::metrics::Metrics;
use crate::observe::serve;
use crate::settings::{Backend, Controllers, Settings};
use crate::watches::{self, WATCH};
use crate::{migrator, pruner, trigger};

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
/// Runs until it is told to stop, and gives the lead back.
pub async fn run(options: Options, stop: CancellationToken) {
    let (metrics, health) = (Arc::new(Metrics::default()), Arc::new(Health::default()));
    let serving = CancellationToken::new();
    let served = options.listener.map(|listener| {
        tokio::spawn(serve::serve(listener, Arc::clone(&health), Arc::clone(&metrics), serving.clone()))
    });
    let client = options.cluster.server().client().clone();
    let context = Context {
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
    told.unless(defined(&context, &client)).await;
    match options.election {
        None => {
            context.metrics.leading(true);
            work(&context, options.controllers, &told).await;
        }
        Some(election) => {
            context.metrics.leading(false);
            election.lead(&stop, |within| lead(&context, options.controllers, within)).await;
        }
    }
    context.events.finish().await;
    serving.cancel();
    if let Some(served) = served {
        let _ = served.await;
    }
}

/// Waits until the objects that are to be worked on can exist.
async fn defined(context: &Context, client: &Client) {
    let api = Api::<StorageVersionMigration>::all(client.clone());
    loop {
        context.health.beat(START, LOOK_FOR_DEFINITIONS * 12);
        match api.list(&kube::api::ListParams::default().limit(1)).await {
            Ok(_) => {
                context.health.rests(START);
                return context.health.ready();
            }
            Err(error) => {
                let why = unlisted(&error);
                tracing::warn!("waiting: {why}");
                context.health.waits_for(format!("migrations that can be listed: {why}"));
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
async fn lead(context: &Context, controllers: Controllers, within: Stop) {
    context.metrics.leading(true);
    work(context, controllers, &within).await;
    context.metrics.leading(false);
}

/// Does the work of all controllers until it is time to stop.
async fn work(context: &Context, controllers: Controllers, stop: &Stop) {
    let client = context.client();
    let (migrations, writer) = reflector::store::<StorageVersionMigration>();
    let watch_migrations = async {
        let api = Api::<StorageVersionMigration>::all(client.clone());
        let stream = watcher(api, watcher::Config::default().timeout(WATCH)).default_backoff();
        let mut finished: HashSet<Option<String>> = HashSet::new();
        let each = reflector(writer, stream).for_each(|event| {
            match event {
                Ok(_) => {
                    let all = migrations.state();
                    context.metrics.migrations(all.iter().map(Arc::as_ref));
                    changed(&context.migrations_changed);
                    // The trigger takes in what a migration has proven, whoever ended it.
                    let ended = all.iter().filter(|one| one.is_finished());
                    let ended: HashSet<_> = ended.map(|one| one.metadata.uid.clone()).collect();
                    if !ended.is_subset(&finished) {
                        changed(&context.storage_changed);
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
            migrator::run(context, &migrations, stop).await;
        }
    };
    let prune = async {
        let ready = stop.unless(migrations.wait_until_ready()).await;
        if controllers.pruner && ready.is_some() {
            pruner::run(context, &migrations, stop).await;
        }
    };
    let adopt = async {
        let ready = stop.unless(migrations.wait_until_ready()).await;
        if context.settings.adopt && ready.is_some() {
            adopter::run(context, &migrations, stop).await;
        }
    };
    let undelegate = async {
        let ready = stop.unless(migrations.wait_until_ready()).await;
        if controllers.migrator && context.settings.backend == Backend::InTree && ready.is_some() {
            undelegate::run(context, &migrations, stop).await;
        }
    };
    let look = async {
        if controllers.trigger || controllers.encryption {
            futures::join!(trigger::run(context, controllers, stop), stop.unless(watches::run(context)));
        }
    };
    futures::join!(watch_migrations, migrate, prune, adopt, undelegate, look);
    LOOPS.into_iter().for_each(|name| context.health.rests(name));
}

#[cfg(test)]
mod tests {
    use kube::core::Status;

    use super::*;

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
