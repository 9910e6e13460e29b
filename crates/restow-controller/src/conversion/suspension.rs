//! Suspends the migration of a suspended Conversion, and resumes it with the Conversion.

use kube::api::{Patch, PatchParams};
use kube::{Api, ResourceExt as _};
use restow_api::{Reason, SUSPENDED_BY, StorageVersionMigration};
use restow_core::controller::condition::Stage;
use restow_core::controller::conversion as decide;
use serde_json::{Value, json};

use super::definitions::Found;
use super::error::RoundError;
use super::round::{Round, Rounds};
use crate::requests::code;

fn runs(migration: &StorageVersionMigration) -> bool {
    !migration.is_finished() && !migration.is_suspended()
}

impl Rounds<'_> {
    /// The migrations of a resource that are at work, or about to be, as far as the cache shows.
    pub(super) fn at_work(&self, resource: &str) -> Vec<String> {
        let all = self.migrations.state();
        let of = all.iter().filter(|one| one.spec.resource.name() == resource && runs(one));
        of.map(|one| one.name_any()).collect()
    }
}

impl Round<'_, '_> {
    /// Suspends what is at work, and reports that.
    pub(super) async fn suspend(&mut self) -> Result<(), RoundError> {
        if let Some(name) = self.status().migration {
            let uid = self.record.object.uid().unwrap_or_default();
            self.steer(&name, runs, json!(uid), json!(true)).await?;
        }
        let now = restow_clock::now();
        let message = "spec.suspend is true; the Conversion resumes from here when it is false";
        self.record
            .update(|status| {
                decide::report(status, (Stage::Suspended, None), Reason::Suspended, message, now)
            })
            .await
    }

    /// Suspends every migration of the resource that is at work, until this Conversion goes on.
    pub(super) async fn hold(&self, found: &Found) -> Result<(), RoundError> {
        let uid = self.record.object.uid().unwrap_or_default();
        for name in self.rounds.at_work(&found.definition.name.to_string()) {
            self.steer(&name, runs, json!(uid), json!(true)).await?;
        }
        Ok(())
    }

    /// Resumes what was suspended with this Conversion, and nothing that a user has suspended.
    pub(super) async fn resume(&mut self) -> Result<(), RoundError> {
        let uid = self.record.object.uid().unwrap_or_default();
        let suspended = |one: &StorageVersionMigration| {
            let annotations = one.metadata.annotations.as_ref();
            annotations.and_then(|all| all.get(SUSPENDED_BY)) == Some(&uid)
        };
        let all = self.rounds.migrations.state();
        for name in all.iter().filter(|one| suspended(one)).map(|one| one.name_any()) {
            self.steer(&name, suspended, Value::Null, Value::Null).await?;
        }
        Ok(())
    }

    /// Changes `spec.suspend` of a migration, if it is as expected.
    async fn steer(
        &self,
        name: &str,
        expected: impl Fn(&StorageVersionMigration) -> bool,
        by: Value,
        suspend: Value,
    ) -> Result<(), RoundError> {
        let api = Api::<StorageVersionMigration>::all(self.rounds.context.client().clone());
        let Some(now) = api.get_opt(name).await? else { return Ok(()) };
        if !expected(&now) || self.record.stop.is_stopped() {
            return Ok(());
        }
        let patch = Patch::Merge(json!({
            "metadata": {
                "uid": now.metadata.uid,
                "resourceVersion": now.metadata.resource_version,
                "annotations": {SUSPENDED_BY: by},
            },
            "spec": {"suspend": suspend},
        }));
        match api.patch(name, &PatchParams::default(), &patch).await {
            Ok(_) => Ok(()),
            // A running migration is written after each page: the next round tries again.
            Err(error) if matches!(code(&error), Some(404 | 409)) => Err(RoundError::Changed),
            Err(error) => Err(error.into()),
        }
    }
}
