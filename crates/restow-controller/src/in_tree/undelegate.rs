//! Takes back from the built-in controller what was handed to it for migrations that were deleted or suspended
//! while nobody was at them.

use std::collections::HashSet;
use std::time::Duration;

use kube::api::ListParams;
use kube::runtime::reflector::Store;
use kube::{Api, ResourceExt as _};
use restow_api::{MANAGED_BY, MANAGER, StorageVersionMigration};
use restow_core::controller::delegation::{is_wanted, owner};
use restow_lease::Stop;
use restow_migrate::server::plain;

use crate::context::Context;
use crate::in_tree::api::{InTree, Object};
use crate::requests::delete;

/// How often it looks when nothing happens.
const IDLE: Duration = Duration::from_secs(30);
/// How long one look may take; what it did not come to is looked at the next time.
const PATIENCE: Duration = Duration::from_secs(75);

/// Why a look could not be finished.
#[derive(Debug, thiserror::Error)]
enum LookError {
    #[error(transparent)]
    Discovery(#[from] restow_migrate::server::RequestError),
    #[error(transparent)]
    Objects(#[from] kube::Error),
}

/// Looks whenever the set of migrations that go on has changed, until it is time to stop.
pub(crate) async fn run(context: &Context, migrations: &Store<StorageVersionMigration>, stop: &Stop) {
    let mut changes = context.migrations_changed.subscribe();
    while !stop.is_stopped() {
        changes.mark_unchanged();
        context.health.beat("undelegate", IDLE * 4);
        let wanted = wanted(migrations);
        match stop.unless(tokio::time::timeout(PATIENCE, look(context, &wanted, stop))).await {
            Some(Ok(Err(error))) => {
                tracing::info!(error = %plain(&error), "what was handed to the built-in controller could not be looked at");
            }
            Some(Err(_)) => tracing::info!(
                "what was handed to the built-in controller could not be looked at in {PATIENCE:?}"
            ),
            Some(Ok(Ok(()))) | None => {}
        }
        let another =
            async { while changes.changed().await.is_ok() && self::wanted(migrations) == wanted {} };
        stop.unless(async {
            tokio::select! {
                biased;
                () = another => {}
                () = tokio::time::sleep(IDLE) => {}
            }
        })
        .await;
    }
}

/// The uids of those that go on.
fn wanted(migrations: &Store<StorageVersionMigration>) -> HashSet<String> {
    let all = migrations.state();
    all.iter().filter(|migration| is_wanted(migration)).filter_map(|migration| migration.uid()).collect()
}

async fn look(context: &Context, wanted: &HashSet<String>, stop: &Stop) -> Result<(), LookError> {
    let Ok(in_tree) = InTree::find(context).await? else { return Ok(()) };
    let made = ListParams::default().labels(&format!("{MANAGED_BY}={MANAGER}"));
    for object in in_tree.api.list(&made).await? {
        let unwanted = owner(&object.metadata).is_some_and(|owner| !wanted.contains(&owner.uid));
        if unwanted && !is_wanted_after_all(context, &object).await? && !stop.is_stopped() {
            delete(&in_tree.api, &object).await?;
            tracing::info!(migration = object.name_any(), "taken back from the built-in controller");
        }
    }
    Ok(())
}

/// Asks the server itself: the cache may not have heard yet.
async fn is_wanted_after_all(context: &Context, object: &Object) -> Result<bool, kube::Error> {
    let Some(owner) = owner(&object.metadata) else { return Ok(true) };
    let api = Api::<StorageVersionMigration>::all(context.client().clone());
    let migration = api.get_opt(&owner.name).await?;
    Ok(migration
        .is_some_and(|migration| migration.uid().as_ref() == Some(&owner.uid) && is_wanted(&migration)))
}
