//! The controller of Conversions: it takes one step after the other, as `restow_core::controller::conversion` decides.
//!
//! The objects are rewritten and verified by migrations, so whatever holds for those holds here too. Only the check reads
//! the content of objects.

mod carry_out;
mod check;
mod converter;
mod definitions;
mod error;
mod in_place;
mod objects;
mod orphans;
mod record;
mod review;
mod round;
mod suspension;

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt as _;
use futures::future::LocalBoxFuture;
use futures::stream::FuturesUnordered;
use kube::runtime::reflector::Store;
use kube::runtime::{WatchStreamExt as _, reflector, watcher};
use kube::{Api, ResourceExt as _};
use restow_api::{Conversion, StorageVersionMigration};
use restow_clock::Instant;
use restow_lease::Stop;
use restow_migrate::client::plain;
use tokio::sync::watch;

use self::round::Rounds;
use crate::context::{Context, changed};
use crate::settings::Controllers;
use crate::watches::WATCH_TIMEOUT;

/// How often to look at a Conversion when nothing changes.
const IDLE_INTERVAL: Duration = Duration::from_secs(10);

/// Carries out Conversions until it is time to stop. The next leader resumes those that are unfinished.
pub(crate) async fn run(
    context: &Context,
    controllers: Controllers,
    migrations: &Store<StorageVersionMigration>,
    stop: &Stop,
) {
    let (conversions, writer) = reflector::store::<Conversion>();
    let heard = watch::Sender::new(0);
    let api = Api::<Conversion>::all(context.client().clone());
    let stream = watcher(api, watcher::Config::default().timeout(WATCH_TIMEOUT)).default_backoff();
    let each = reflector(writer, stream).for_each(|event| {
        match event {
            Ok(_) => {
                context.metrics.conversions(conversions.state().iter().map(Arc::as_ref));
                changed(&heard);
            }
            Err(error) => {
                tracing::info!(error = %plain(&error), "the watch of conversions failed; reopening it");
            }
        }
        std::future::ready(())
    });
    let rounds = Rounds::new(context, controllers, migrations, &conversions, stop);
    let work = async {
        context.health.beat("conversion", IDLE_INTERVAL * 6);
        while stop
            .unless(tokio::time::timeout(IDLE_INTERVAL, conversions.wait_until_ready()))
            .await
            .is_some_and(|waited| waited.is_err())
        {
            context.health.beat("conversion", IDLE_INTERVAL * 6);
        }
        schedule(&rounds, &conversions, heard.subscribe()).await;
    };
    futures::join!(stop.unless(each), work);
}

/// Gives each unfinished Conversion one round after the other.
async fn schedule(rounds: &Rounds<'_>, conversions: &Store<Conversion>, mut heard: watch::Receiver<u64>) {
    let (context, stop) = (rounds.context, rounds.stop);
    let mut under_way: FuturesUnordered<LocalBoxFuture<'_, (String, Duration)>> = FuturesUnordered::new();
    let mut running: HashSet<String> = HashSet::new();
    let mut due: HashMap<String, Instant> = HashMap::new();
    let mut changes = context.migrations_changed.subscribe();
    while !stop.is_stopped() {
        heard.mark_unchanged();
        changes.mark_unchanged();
        context.health.beat("conversion", IDLE_INTERVAL * 6);
        let objects = conversions.state();
        due.retain(|name, _| objects.iter().any(|object| object.name_any() == *name));
        for object in objects.iter().filter(|object| rounds.is_mine(object) && !object.is_finished()) {
            let name = object.name_any();
            let resting = due.get(&name).is_some_and(|due| *due > Instant::now());
            if !resting && running.insert(name.clone()) {
                under_way.push(Box::pin(async move { (name.clone(), rounds.round(&name).await) }));
            }
        }
        stop.unless(rounds.delete_orphans()).await;
        stop.unless(rounds.resume_abandoned()).await;
        let next = due.values().min().map(|due| due.saturating_duration_since(Instant::now()));
        let next = next.unwrap_or(IDLE_INTERVAL).clamp(Duration::from_millis(100), IDLE_INTERVAL);
        tokio::select! {
            biased;
            Some((name, wait)) = under_way.next(), if !under_way.is_empty() => {
                running.remove(&name);
                due.insert(name, Instant::now() + wait);
            }
            () = stop.stopped() => {}
            _ = heard.changed() => due.clear(),
            _ = changes.changed() => due.clear(),
            () = tokio::time::sleep(next) => {}
        }
    }
    // Each stops within its page.
    while under_way.next().await.is_some() {}
}
