//! Carries out the steps of a Conversion.

use std::time::Duration;

use kube::api::{ObjectMeta, PostParams};
use kube::runtime::reflector::ObjectRef;
use kube::{Api, Resource as _};
use restow_api::ConversionConditionType as Condition;
use restow_api::{
    CONVERSION, CREATED_BY, GroupVersionResource, Reason, StorageVersionMigration,
    StorageVersionMigrationSpec,
};
use restow_core::controller::condition::Stage;
use restow_core::controller::conversion::{
    self as decide, IN_PLACE, InPlace, Pass, Step, Work, patch_converted, patch_served, patch_storage,
    patch_storage_in_place,
};
use restow_migrate::client::access::{self, Missing};
use restow_migrate::cluster::AgreementError;
use restow_migrate::prune::{PruneError, prune_stored_versions};
use serde_json::Value;

use super::check::Check;
use super::definitions::{self, Found};
use super::error::RoundError;
use super::in_place;
use super::objects::Objects;
use super::round::Round;
use crate::observe::events::EventType;
use crate::ownership::managed;
use crate::record::checkpoint;
use crate::requests::code;

/// How soon to look again after a step.
const SOON: Duration = Duration::from_millis(100);
/// How soon to look again while something else is at work; changes wake the controller earlier.
const LATER: Duration = Duration::from_secs(3);
/// How long handlers may store the former version after discovery shows the new one.
const SETTLE_TIME: jiff::SignedDuration = jiff::SignedDuration::from_secs(6);

impl Round<'_, '_> {
    pub(super) async fn carry_out(
        &mut self,
        step: Step,
        found: Option<Found>,
    ) -> Result<Duration, RoundError> {
        let (new, old) = (self.spec.new_version.clone(), self.spec.old_version.clone());
        match (step, found) {
            (Step::Wait(refusal) | Step::Refuse(refusal), _) => self.wait_for(&refusal).await,
            (Step::Fail { reason, message }, _) => self.fail(reason, &message).await,
            (Step::EndTrial, _) => self.end_trial().await,
            (Step::RecordStorageVersion(mark), _) => self.record_storage_version(mark).await,
            (Step::AwaitTrigger, _) => {
                let message = "waits until the trigger has created a migration";
                self.record.working(Work::Rewriting, Reason::Queued, message).await?;
                Ok(LATER)
            }
            (Step::AwaitMigrations, _) => {
                let message = "waits until the migrations of the resource have ended";
                self.record.waits(Reason::Queued, message).await?;
                Ok(LATER)
            }
            (Step::Follow(name), _) => self.follow(&name).await,
            (Step::RecordProof(name), _) => self.record_proof(&name).await,
            (Step::ProveAgain(mark), _) => self.prove_again(mark).await,
            (Step::RecordPruned, _) => {
                let message = format!("storedVersions is {new}");
                self.done(Condition::Pruned, Reason::Pruned, &message, |_| {}).await
            }
            (Step::RecordServingStopped, _) => {
                let message = format!("{old} is no longer served");
                self.done(Condition::ServingStopped, Reason::ServingStopped, &message, |_| {}).await
            }
            (Step::Succeed, _) => {
                let message = format!("all objects are stored in {new}, and that was verified");
                self.record.ends(Stage::Succeeded, Reason::Converted, &message).await?;
                Ok(LATER)
            }
            (Step::AwaitSource { manager, change }, _) => self.await_source(&manager, &change).await,
            (Step::Check, Some(found)) => self.check(&Check::first(), &found).await,
            (Step::Recheck(since), Some(found)) => {
                // A rewrite would lose what the check looks for.
                self.hold(&found).await?;
                self.check(&Check::again(since), &found).await
            }
            (Step::SetBack, Some(found)) => self.set_back(&found).await,
            (Step::ConvertInPlace, Some(found)) => {
                if let Some(wait) = self.settling(&found).await? {
                    return Ok(wait);
                }
                let (rounds, name, object) = (self.rounds, self.name(), self.record.object.clone());
                in_place::convert(&mut self.record, &found, || rounds.goes_on(&name, &object)).await?;
                Ok(SOON)
            }
            (Step::EndInPlace, Some(found)) => {
                self.change(&found, patch_converted(&found.raw)).await.map(|_| SOON)
            }
            (Step::SetStorageVersion, Some(found)) => {
                let message = format!("{new} becomes the storage version");
                self.record.working(Work::SettingStorageVersion, Reason::StorageVersionSet, &message).await?;
                let patch = self.storage_patch(&found).await?;
                match self.change(&found, patch).await? {
                    // Recorded at once: of a later change of the definition nobody knows what else it changed.
                    Some(set) => self.record_storage_version(set.definition.mark()).await,
                    None => Ok(SOON),
                }
            }
            (Step::StopServing, Some(found)) => {
                let message = format!("{old} is no longer served");
                self.record.working(Work::StoppingServing, Reason::ServingStopped, &message).await?;
                self.change(&found, patch_served(&found.raw, &old, false)).await.map(|_| SOON)
            }
            (Step::Migrate, Some(found)) => self.migrate(&found).await,
            (Step::Prune(name), Some(found)) => self.prune(&name, &found).await,
            // These steps are decided only with a definition.
            (
                Step::Check
                | Step::Recheck(_)
                | Step::SetBack
                | Step::ConvertInPlace
                | Step::EndInPlace
                | Step::SetStorageVersion
                | Step::StopServing
                | Step::Migrate
                | Step::Prune(_),
                None,
            ) => Ok(LATER),
        }
    }

    /// Records that a step is done.
    async fn done(
        &mut self,
        condition: Condition,
        reason: Reason,
        message: &str,
        also: impl FnOnce(&mut restow_api::ConversionStatus),
    ) -> Result<Duration, RoundError> {
        let now = restow_clock::now();
        self.record
            .update(|status| {
                also(status);
                decide::record(status, condition, true, reason, message, now);
            })
            .await?;
        self.record.publish(EventType::Normal, reason, message);
        Ok(SOON)
    }

    async fn check(&mut self, check: &Check, found: &Found) -> Result<Duration, RoundError> {
        let (rounds, name, object) = (self.rounds, self.name(), self.record.object.clone());
        let resource = found.definition.name.to_string();
        // One that was created meanwhile is suspended in the next round.
        let is_held = || check.pass == Pass::First || rounds.at_work(&resource).is_empty();
        check.run(&mut self.record, found, || rounds.goes_on(&name, &object) && is_held()).await?;
        Ok(SOON)
    }

    /// Says what the source of a managed definition must change, and waits for it.
    async fn await_source(&mut self, manager: &str, change: &str) -> Result<Duration, RoundError> {
        let message = format!(
            "the CustomResourceDefinition is managed by {manager}; set {change} in its source, and the Conversion goes on when that has \
             arrived; or create it with changeManagedDefinition: true"
        );
        let running = self.status().condition(Condition::Running).map(|running| running.reason.clone());
        self.record.waits(Reason::DefinitionManaged, &message).await?;
        if running.as_deref() != Some(Reason::DefinitionManaged.as_str()) {
            self.record.publish(EventType::Warning, Reason::DefinitionManaged, &message);
        }
        Ok(LATER)
    }

    /// Sets the storage version back before an object is rewritten that would not survive, and ends the Conversion.
    async fn set_back(&mut self, found: &Found) -> Result<Duration, RoundError> {
        let old = self.spec.old_version.clone();
        if self.change(found, patch_storage(&found.raw, &old)).await?.is_none() {
            // Somebody else has changed the definition: it is decided again.
            return Ok(SOON);
        }
        let message =
            format!("{}; {old} is the storage version again", decide::rechecked_summary(&self.status()));
        self.record.ends(Stage::Failed, Reason::FieldsLost, &message).await?;
        Ok(LATER)
    }

    async fn record_storage_version(&mut self, mark: String) -> Result<Duration, RoundError> {
        let message = format!("{} is the storage version", self.spec.new_version);
        self.done(Condition::StorageVersionSet, Reason::StorageVersionSet, &message, |status| {
            status.definition = Some(mark);
        })
        .await
    }

    /// How long to wait before objects are written in the new version: an API server that still stores the old one would drop
    /// every field that only the new one has.
    async fn settling(&mut self, found: &Found) -> Result<Option<Duration>, RoundError> {
        let cluster = &self.rounds.context.cluster;
        let inventory = cluster.inventory(false).await?;
        let name = &found.definition.name;
        let agreed = match inventory.resources.iter().find(|resource| resource.name == *name) {
            Some(resource) => match Box::pin(cluster.agreement(resource)).await {
                Ok(agreement) => agreement.hash == self.hash,
                Err(AgreementError::Request(error)) => return Err(error.into()),
                Err(_) => false,
            },
            None => false,
        };
        let set = self.status().condition(Condition::StorageVersionSet).map(|set| set.last_transition_time.0);
        let age = set.map(|set| restow_clock::now().duration_since(set)).unwrap_or_default();
        if agreed && age > SETTLE_TIME {
            return Ok(None);
        }
        let message = "waits until every API server stores the new version";
        self.record.working(Work::ConvertingInPlace, Reason::WaitingForAgreement, message).await?;
        Ok(Some(Duration::from_secs(1)))
    }

    /// The patch that sets the storage version; a conversion in place is marked in the same write.
    async fn storage_patch(&self, found: &Found) -> Result<Option<Value>, RoundError> {
        let new = &self.spec.new_version;
        if self.status().check.is_none_or(|check| check.converter != IN_PLACE) {
            return Ok(patch_storage(&found.raw, new));
        }
        let server = self.rounds.context.cluster.server();
        let missing = access::missing(server, &found.definition.name, &["get", "list", "update"]).await?;
        if !missing.is_empty() {
            return Err(RoundError::Missing(Missing::grant(&missing)));
        }
        let objects = Objects::new(self.rounds.context.client(), &found.crd, &self.spec, new)?;
        // Objects that were converted before have that mark.
        let begun = found.definition.converting.as_ref().filter(|begun| begun.version == *new);
        let since = match begun {
            Some(begun) => begun.since,
            None => objects.resource_version().await?,
        };
        Ok(patch_storage_in_place(&found.raw, &InPlace { version: new.clone(), since }))
    }

    /// Changes the definition, on the condition that nobody else has; returns it as it is then.
    async fn change(&mut self, found: &Found, patch: Option<Value>) -> Result<Option<Found>, RoundError> {
        let Some(patch) = patch else { return Ok(None) };
        if self.record.stop.is_stopped() {
            return Err(RoundError::Changed);
        }
        let server = self.rounds.context.cluster.server();
        let name = found.definition.name.to_string();
        match definitions::patch(server, &name, &patch).await {
            Ok(changed) => {
                // If somebody changed it since it was read, the next round reads it again.
                if changed.is_some() {
                    tracing::info!(conversion = self.name(), definition = name, "changed the definition");
                }
                Ok(changed)
            }
            Err(RoundError::Request(error)) if error.code() == Some(422) => {
                let message = format!("the API server refused to change {name}: {error}");
                self.record.ends(Stage::Failed, Reason::ConversionRefused, &message).await?;
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    async fn fail(&mut self, reason: Option<Reason>, message: &str) -> Result<Duration, RoundError> {
        if let Some(migration) = self.migration(&self.own_migration(&self.status())) {
            self.record
                .update(|status| {
                    decide::mirror(status, &migration);
                })
                .await?;
        }
        self.record.ends(Stage::Failed, reason.unwrap_or(Reason::Unverified), message).await?;
        Ok(LATER)
    }

    async fn end_trial(&mut self) -> Result<Duration, RoundError> {
        let message = format!(
            "{}; this was a trial: nothing was changed, verified or pruned; create a Conversion without namespace and \
             selector to convert all objects",
            decide::summary(&self.status())
        );
        self.record.ends(Stage::Succeeded, Reason::Tried, &message).await?;
        Ok(LATER)
    }

    fn migration(&self, name: &str) -> Option<std::sync::Arc<StorageVersionMigration>> {
        self.rounds.migrations.get(&ObjectRef::new(name))
    }

    /// Creates the migration, once the API server says in discovery that it stores in the new version.
    async fn migrate(&mut self, found: &Found) -> Result<Duration, RoundError> {
        let name = &found.definition.name;
        let inventory = self.rounds.context.cluster.inventory(false).await?;
        let listed = inventory.resources.iter().find(|resource| resource.name == *name);
        if listed.and_then(|resource| resource.hash.as_ref()) != Some(&self.hash) {
            let message = "waits until discovery shows the new storage version";
            self.record.working(Work::Rewriting, Reason::WaitingForAgreement, message).await?;
            return Ok(Duration::from_secs(1));
        }
        let mut labels = managed();
        labels.insert(CREATED_BY.to_owned(), CONVERSION.to_owned());
        let own = self.own_migration(&self.status());
        let migration = StorageVersionMigration {
            metadata: ObjectMeta {
                name: Some(own.clone()),
                labels: Some(labels),
                owner_references: self.record.object.controller_owner_ref(&()).map(|owner| vec![owner]),
                ..ObjectMeta::default()
            },
            spec: StorageVersionMigrationSpec {
                resource: GroupVersionResource {
                    group: name.group.clone(),
                    version: self.spec.new_version.clone(),
                    resource: name.resource.clone(),
                },
                storage_version_hash: Some(self.hash.clone()),
                ..StorageVersionMigrationSpec::default()
            },
            status: None,
        };
        if self.record.stop.is_stopped() {
            return Err(RoundError::Changed);
        }
        let api = Api::<StorageVersionMigration>::all(self.rounds.context.client().clone());
        match api.create(&PostParams::default(), &migration).await {
            Ok(_) => tracing::info!(conversion = self.name(), migration = own, "created a migration"),
            // The cache is behind, or an earlier one is still being deleted.
            Err(error) if code(&error) == Some(409) => {}
            Err(error) => return Err(error.into()),
        }
        let message = format!("the migration {own} rewrites all objects");
        self.record.working(Work::Rewriting, Reason::Rewriting, &message).await?;
        Ok(LATER)
    }

    /// Shows the progress of the migration that is at work.
    async fn follow(&mut self, name: &str) -> Result<Duration, RoundError> {
        let Some(migration) = self.migration(name) else { return Ok(SOON) };
        let now = restow_clock::now();
        self.record
            .update(|status| {
                let work = decide::mirror(status, &migration);
                let reason = if work == Work::Verifying { Reason::Verifying } else { Reason::Rewriting };
                let message = format!("the migration {name} is at work");
                decide::report(status, (Stage::Running, Some(work)), reason, &message, now);
            })
            .await?;
        Ok(LATER)
    }

    async fn record_proof(&mut self, name: &str) -> Result<Duration, RoundError> {
        let Some(migration) = self.migration(name) else { return Ok(SOON) };
        let message =
            format!("the migration {name} has found every object stored in {}", self.spec.new_version);
        let now = restow_clock::now();
        self.done(Condition::Verified, Reason::Verified, &message, |status| {
            decide::mirror(status, &migration);
            let rewritten = format!("the migration {name} has rewritten all objects");
            decide::record(status, Condition::Rewritten, true, Reason::Migrated, &rewritten, now);
            decide::report(status, (Stage::Running, Some(Work::Pruning)), Reason::Verified, &message, now);
        })
        .await
    }

    async fn prove_again(&mut self, mark: String) -> Result<Duration, RoundError> {
        let message = "the definition was changed meanwhile, so all objects are verified again";
        let now = restow_clock::now();
        self.record
            .update(|status| {
                status.definition = Some(mark);
                for condition in [Condition::Verified, Condition::Pruned] {
                    if status.condition(condition).is_some() {
                        decide::record(status, condition, false, Reason::DefinitionChanged, message, now);
                    }
                }
                let work = (Stage::Running, Some(Work::Verifying));
                decide::report(status, work, Reason::DefinitionChanged, message, now);
            })
            .await?;
        self.record.publish(EventType::Normal, Reason::DefinitionChanged, message);
        Ok(SOON)
    }

    /// Prunes storedVersions; the same preconditions hold as after any migration.
    async fn prune(&mut self, name: &str, found: &Found) -> Result<Duration, RoundError> {
        let progress = self.migration(name).and_then(|one| one.status.as_ref().and_then(checkpoint));
        let Some(progress) = progress else { return Ok(SOON) };
        if self.record.stop.is_stopped() {
            return Err(RoundError::Changed);
        }
        let context = self.rounds.context;
        let result = prune_stored_versions(context.cluster.server(), &progress).await;
        context.metrics.pruned(&result);
        match result {
            Ok(_) => Ok(SOON),
            // The next round decides by the definition as it is now.
            Err(PruneError::Refused(why)) => {
                tracing::info!(definition = %found.definition.name, %why, "storedVersions not pruned");
                Ok(Duration::from_secs(1))
            }
            Err(PruneError::Request(error)) => Err(error.into()),
        }
    }
}
