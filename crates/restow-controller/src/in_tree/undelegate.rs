//! Deletes built-in migrations whose own migration was deleted or suspended while no attempt was running.

use std::collections::HashSet;
use std::time::Duration;

use kube::api::ListParams;
use kube::runtime::reflector::Store;
use kube::{Api, ResourceExt as _};
use restow_api::{MANAGED_BY, MANAGER, StorageVersionMigration};
use restow_core::controller::delegation::{is_wanted, owner};
use restow_lease::Stop;
use restow_migrate::client::plain;

use crate::context::Context;
use crate::in_tree::api::{Availability, InTree, Object};
use crate::requests::delete;

/// How often to check when nothing changes.
const IDLE_INTERVAL: Duration = Duration::from_secs(30);
/// The timeout of one check; the next check does the rest.
const CHECK_TIMEOUT: Duration = Duration::from_secs(75);

/// Why a check failed.
#[derive(Debug, thiserror::Error)]
enum CheckError {
    #[error(transparent)]
    Discovery(#[from] restow_migrate::client::RequestError),
    #[error(transparent)]
    Objects(#[from] kube::Error),
}

/// Checks whenever the set of unfinished migrations has changed, until it is time to stop.
pub(crate) async fn run(context: &Context, migrations: &Store<StorageVersionMigration>, stop: &Stop) {
    let mut changes = context.migrations_changed.subscribe();
    while !stop.is_stopped() {
        changes.mark_unchanged();
        context.health.beat("undelegate", IDLE_INTERVAL * 4);
        let wanted = wanted(migrations);
        match stop.unless(tokio::time::timeout(CHECK_TIMEOUT, check(context, &wanted, stop))).await {
            Some(Ok(Err(error))) => {
                tracing::info!(error = %plain(&error), "could not check the built-in migrations; retrying");
            }
            Some(Err(_)) => {
                tracing::info!(
                    "could not check the built-in migrations within {} s; retrying",
                    CHECK_TIMEOUT.as_secs()
                )
            }
            Some(Ok(Ok(()))) | None => {}
        }
        let another =
            async { while changes.changed().await.is_ok() && self::wanted(migrations) == wanted {} };
        stop.unless(async {
            tokio::select! {
                biased;
                () = another => {}
                () = tokio::time::sleep(IDLE_INTERVAL) => {}
            }
        })
        .await;
    }
}

/// The uids of unfinished migrations.
fn wanted(migrations: &Store<StorageVersionMigration>) -> HashSet<String> {
    let all = migrations.state();
    all.iter().filter(|migration| is_wanted(migration)).filter_map(|migration| migration.uid()).collect()
}

async fn check(context: &Context, wanted: &HashSet<String>, stop: &Stop) -> Result<(), CheckError> {
    let Availability::Served(in_tree) = InTree::find(context).await? else { return Ok(()) };
    let made = ListParams::default().labels(&format!("{MANAGED_BY}={MANAGER}"));
    for object in in_tree.api.list(&made).await? {
        let unwanted = owner(&object.metadata).is_some_and(|owner| !wanted.contains(&owner.uid));
        if unwanted && !is_still_wanted(context, &object).await? && !stop.is_stopped() {
            delete(&in_tree.api, &object).await?;
            tracing::info!(migration = object.name_any(), "deleted the built-in migration");
        }
    }
    Ok(())
}

/// Reads the migration from the server: the cache may be behind.
async fn is_still_wanted(context: &Context, object: &Object) -> Result<bool, kube::Error> {
    let Some(owner) = owner(&object.metadata) else { return Ok(true) };
    let api = Api::<StorageVersionMigration>::all(context.client().clone());
    let migration = api.get_opt(&owner.name).await?;
    Ok(migration
        .is_some_and(|migration| migration.uid().as_ref() == Some(&owner.uid) && is_wanted(&migration)))
}
