//! The pruner: removes versions from a CRD's `status.storedVersions` after a verified migration.

use std::collections::HashSet;
use std::time::Duration;

use jiff::SignedDuration;
use k8s_openapi::api::core::v1::ObjectReference;
use kube::runtime::reflector::Store;
use kube::{Resource as _, ResourceExt as _};
use restow_api::{ConditionType, Reason, StorageVersionMigration};
use restow_core::controller::troubleshooting::explained;
use restow_lease::Stop;
use restow_migrate::client::plain;
use restow_migrate::prune::{PruneError, prune_stored_versions};

use crate::context::Context;
use crate::observe::events::EventType;
use crate::record::checkpoint;

/// How soon to retry after an error.
const RETRY_DELAY: Duration = Duration::from_secs(10);
/// A refusal is reported as an Event only if the migration ended within this time.
const REPORT_REFUSAL_WITHIN: SignedDuration = SignedDuration::from_mins(10);
/// How often to check when nothing changes, and the timeout of one attempt.
const IDLE_INTERVAL: Duration = Duration::from_secs(60);

/// Prunes after each migration that succeeded, until it is time to stop.
pub(crate) async fn run(context: &Context, migrations: &Store<StorageVersionMigration>, stop: &Stop) {
    let mut done: HashSet<String> = HashSet::new();
    let mut changes = context.migrations_changed.subscribe();
    while !stop.is_stopped() {
        changes.mark_unchanged();
        context.health.beat("pruner", IDLE_INTERVAL * 3);
        let objects = migrations.state();
        let uids: HashSet<String> = objects.iter().filter_map(|object| object.uid()).collect();
        done.retain(|uid| uids.contains(uid));
        let mut all = true;
        for object in objects.iter().filter(|object| object.is(ConditionType::Succeeded)) {
            let uid = object.uid().unwrap_or_default();
            if done.contains(&uid) || stop.is_stopped() {
                continue;
            }
            context.health.beat("pruner", IDLE_INTERVAL * 3);
            match stop.unless(tokio::time::timeout(IDLE_INTERVAL, prune(context, object))).await {
                Some(Ok(true)) => drop(done.insert(uid)),
                _ => all = false,
            }
        }
        let wait = if all { IDLE_INTERVAL } else { RETRY_DELAY };
        stop.unless(async {
            tokio::select! {
                biased;
                _ = changes.changed(), if all => {}
                () = tokio::time::sleep(wait) => {}
            }
        })
        .await;
    }
}

/// Prunes once; false if it must be retried.
async fn prune(context: &Context, object: &StorageVersionMigration) -> bool {
    let progress = object.status.as_ref().and_then(checkpoint);
    let Some(progress) = progress.filter(|progress| progress.definition.is_some()) else { return true };
    let reference: ObjectReference = object.object_ref(&());
    let result = prune_stored_versions(context.cluster.server(), &progress).await;
    context.metrics.pruned(&result);
    match result {
        Ok(None) => true,
        Ok(Some(pruned)) => {
            let message = format!(
                "storedVersions of {}: {} -> {}",
                progress.resource,
                pruned.before.join(", "),
                pruned.after.join(", ")
            );
            tracing::info!("{message}");
            context.events.publish(&reference, EventType::Normal, Reason::Pruned.as_str(), &message);
            true
        }
        Err(PruneError::Refused(why)) => {
            tracing::info!(resource = %progress.resource, %why, "storedVersions not pruned");
            // A refusal long after the migration's end is no news.
            if restow_clock::now().duration_since(progress.updated) < REPORT_REFUSAL_WITHIN {
                let message = format!("storedVersions of {} not pruned: {why}", progress.resource);
                let message = explained(Reason::NotPruned, &message);
                context.events.publish(&reference, EventType::Warning, Reason::NotPruned.as_str(), &message);
            }
            true
        }
        // The definition is gone, and its storedVersions too.
        Err(PruneError::Request(error)) if error.code() == Some(404) => true,
        Err(PruneError::Request(error)) => {
            tracing::info!(resource = %progress.resource, error = %plain(&error), "could not prune storedVersions; retrying");
            false
        }
    }
}
