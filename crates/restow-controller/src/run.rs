//! Runs all controllers of one process while it leads; the next leader resumes what they leave unfinished.

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
use restow_migrate::client::Throttle;
use restow_migrate::client::plain;
use restow_migrate::cluster::Cluster;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::context::{Context, changed};
use crate::in_tree::{adopter, undelegate};
use crate::observe::events::Events;
use crate::observe::health::Health;
use crate::observe::metrics::Metrics;
use crate::observe::serve;
use crate::settings::{Backend, ControllerSettings, Controllers};
use crate::watches::{self, WATCH_TIMEOUT};
use crate::{conversion, migrator, pruner, trigger};

/// The parts of a controller process.
pub struct Options {
    /// The cluster that is migrated.
    pub cluster: Cluster,
    /// Which controllers run.
    pub controllers: Controllers,
    /// How they work.
    pub settings: ControllerSettings,
    /// The bounds of the write rate.
    pub bounds: Bounds,
    /// The name of this process in Events.
    pub identity: String,
    /// The leader election; none to run without one.
    pub election: Option<Election>,
    /// Where health and metrics are served.
    pub listener: Option<TcpListener>,
}

/// The loops that report health while this process leads.
const LOOPS: [&str; 6] = ["migrator", "trigger", "pruner", "adopter", "undelegate", "conversion"];
/// The health name of the wait for the definitions.
const START: &str = "start";
/// How often to check whether the definitions are installed.
const DEFINITIONS_CHECK_INTERVAL: Duration = Duration::from_secs(5);
/// Runs the controllers until `stop` is cancelled, and then releases the leader Lease.
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
    let until_stop = Stop::from(stop.clone());
    until_stop.unless(wait_for_definitions(&context, &client)).await;
    match options.election {
        None => {
            context.metrics.leading(true);
            work(&context, options.controllers, &until_stop).await;
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

/// Waits until migrations can be listed.
async fn wait_for_definitions(context: &Context, client: &Client) {
    let api = Api::<StorageVersionMigration>::all(client.clone());
    loop {
        context.health.beat(START, DEFINITIONS_CHECK_INTERVAL * 12);
        match api.list(&kube::api::ListParams::default().limit(1)).await {
            Ok(_) => {
                context.health.ended(START);
                return context.health.ready();
            }
            Err(error) => {
                let why = list_error(&error);
                tracing::warn!("cannot list migrations: {why}; retrying");
                context.health.waits_for(format!("migrations that can be listed: {why}"));
            }
        }
        tokio::time::sleep(DEFINITIONS_CHECK_INTERVAL).await;
    }
}

/// Why migrations cannot be listed, and what to do about it.
fn list_error(error: &kube::Error) -> String {
    match error {
        kube::Error::Api(status) if status.code == 403 => format!(
            "no permission to list storageversionmigrations.migration.k8s.io: {}; `restow install` creates the roles that the \
             controllers need",
            status.message
        ),
        kube::Error::Api(status) if status.code == 404 => {
            "migration.k8s.io is not served; `restow install --crds --apply` installs its CRDs".to_owned()
        }
        kube::Error::Api(status) => {
            format!("cannot list migration.k8s.io: {} ({})", status.message, status.code)
        }
        error => format!("cannot list migration.k8s.io: {}", plain(error)),
    }
}

/// Runs the controllers while this process leads.
async fn lead(context: &Context, controllers: Controllers, within: Stop) {
    context.metrics.leading(true);
    work(context, controllers, &within).await;
    context.metrics.leading(false);
}

/// Runs all controllers until it is time to stop.
async fn work(context: &Context, controllers: Controllers, stop: &Stop) {
    let client = context.client();
    let (migrations, writer) = reflector::store::<StorageVersionMigration>();
    let watch_migrations = async {
        let api = Api::<StorageVersionMigration>::all(client.clone());
        let stream = watcher(api, watcher::Config::default().timeout(WATCH_TIMEOUT)).default_backoff();
        let mut finished: HashSet<Option<String>> = HashSet::new();
        let each = reflector(writer, stream).for_each(|event| {
            match event {
                Ok(_) => {
                    let all = migrations.state();
                    context.metrics.migrations(all.iter().map(Arc::as_ref));
                    changed(&context.migrations_changed);
                    // The trigger reads what a migration has proven, whichever controller ended it.
                    let ended = all.iter().filter(|one| one.is_finished());
                    let ended: HashSet<_> = ended.map(|one| one.metadata.uid.clone()).collect();
                    if !ended.is_subset(&finished) {
                        changed(&context.storage_changed);
                    }
                    finished = ended;
                }
                Err(error) => {
                    tracing::info!(error = %plain(&error), "the watch of migrations failed; reopening it")
                }
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
    let convert = async {
        let ready = stop.unless(migrations.wait_until_ready()).await;
        if controllers.conversion && ready.is_some() {
            conversion::run(context, controllers, &migrations, stop).await;
        }
    };
    let look = async {
        if controllers.trigger || controllers.encryption {
            futures::join!(trigger::run(context, controllers, stop), stop.unless(watches::run(context)));
        }
    };
    futures::join!(watch_migrations, migrate, prune, adopt, undelegate, convert, look);
    LOOPS.into_iter().for_each(|name| context.health.ended(name));
}

#[cfg(test)]
mod tests {
    use kube::core::Status;

    use super::*;

    #[test]
    fn a_missing_permission_is_told_apart_from_a_missing_definition() {
        for (code, message, expected) in [
            (
                403,
                "user \"x\" cannot list",
                "no permission to list storageversionmigrations.migration.k8s.io: user \"x\"",
            ),
            (404, "the server could not find the requested resource", "migration.k8s.io is not served"),
            (503, "starting", "cannot list migration.k8s.io: starting (503)"),
        ] {
            let error =
                kube::Error::Api(Box::new(Status { code, message: message.to_owned(), ..Status::default() }));
            assert!(list_error(&error).starts_with(expected), "{}", list_error(&error));
        }
    }
}
