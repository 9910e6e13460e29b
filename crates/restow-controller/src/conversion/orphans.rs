//! Deletes migrations whose Conversion is gone, and resumes those that it had suspended: not every cluster runs a garbage collector
//! that follows owners.

use std::collections::HashSet;

use kube::api::{ListParams, Patch, PatchParams};
use kube::runtime::reflector::Store;
use kube::{Api, ResourceExt as _};
use restow_api::{Conversion, SUSPENDED_BY, StorageVersionMigration};
use restow_migrate::client::plain;
use serde_json::json;

use super::round::Rounds;
use crate::ownership::conversion_of;
use crate::requests::delete;

impl Rounds<'_> {
    /// Deletes migrations whose Conversion is gone.
    pub(super) async fn delete_orphans(&self) {
        for migration in orphans(self.migrations, self.conversions) {
            if self.stop.is_stopped() {
                return;
            }
            let name = migration.name_any();
            // The cache may be behind: the object itself shows whether its Conversion exists.
            if !self.is_gone(&migration).await {
                continue;
            }
            let api = Api::<StorageVersionMigration>::all(self.context.client().clone());
            match delete(&api, &migration).await {
                Ok(()) => tracing::info!(migration = name, "deleted a migration whose Conversion is gone"),
                Err(error) => {
                    tracing::info!(migration = name, error = %plain(&error), "could not delete a migration; retrying");
                }
            }
        }
    }

    /// Resumes migrations of others that a Conversion had suspended which is gone.
    pub(super) async fn resume_abandoned(&self) {
        let uids: HashSet<String> =
            self.conversions.state().iter().filter_map(|object| object.uid()).collect();
        let by = |one: &StorageVersionMigration| one.annotations().get(SUSPENDED_BY).cloned();
        let all = self.migrations.state();
        let abandoned = all.iter().filter(|one| by(one).is_some_and(|uid| !uids.contains(&uid)));
        let abandoned: Vec<_> = abandoned.filter(|one| conversion_of(one).is_none()).cloned().collect();
        if abandoned.is_empty() || self.stop.is_stopped() {
            return;
        }
        // The cache may be behind.
        let Ok(listed) = self.api().list_metadata(&ListParams::default()).await else { return };
        let exists: HashSet<String> = listed.items.iter().filter_map(|object| object.uid()).collect();
        for migration in abandoned.iter().filter(|one| by(one).is_some_and(|uid| !exists.contains(&uid))) {
            let patch = Patch::Merge(json!({
                "metadata": {
                    "uid": migration.uid(),
                    "resourceVersion": migration.resource_version(),
                    "annotations": {SUSPENDED_BY: null},
                },
                "spec": {"suspend": null},
            }));
            let api = Api::<StorageVersionMigration>::all(self.context.client().clone());
            let name = migration.name_any();
            match api.patch(&name, &PatchParams::default(), &patch).await {
                Ok(_) => tracing::info!(migration = name, "resumed a migration whose Conversion is gone"),
                Err(error) => {
                    tracing::info!(migration = name, error = %plain(&error), "could not resume a migration; retrying");
                }
            }
        }
    }

    async fn is_gone(&self, migration: &StorageVersionMigration) -> bool {
        let Some((name, uid)) = conversion_of(migration) else { return false };
        match self.api().get_opt(&name).await {
            Ok(found) => found.is_none_or(|found| found.uid().as_deref() != Some(&uid)),
            Err(_) => false,
        }
    }
}

/// The unfinished migrations of Conversions that the cache does not have.
fn orphans(
    migrations: &Store<StorageVersionMigration>,
    conversions: &Store<Conversion>,
) -> Vec<StorageVersionMigration> {
    let uids: HashSet<String> = conversions.state().iter().filter_map(|object| object.uid()).collect();
    let is_orphan = |migration: &&std::sync::Arc<StorageVersionMigration>| {
        !migration.is_finished()
            && migration.metadata.deletion_timestamp.is_none()
            && conversion_of(migration).is_some_and(|(_, uid)| !uids.contains(&uid))
    };
    migrations.state().iter().filter(is_orphan).map(|migration| migration.as_ref().clone()).collect()
}
