//! One migration, from its object to its end.

use std::time::Duration;

use k8s_openapi::api::core::v1::ObjectReference;
use kube::{Api, Resource as _};
use restow_api::{ConditionType, Reason, StorageVersionMigration, StorageVersionMigrationStatus};
use restow_core::controller::condition::{self, Stage};
use restow_core::controller::retry;
use restow_core::controller::troubleshooting::explained;
use restow_core::resource::inventory::{Obstacle, Resource};
use restow_core::resource::name::GroupResource;
use restow_core::rewrite::progress::{Phase, Progress, objects};
use restow_lease::Stop;
use restow_migrate::migration::{Failure, Migration, Settings};
use restow_migrate::pages::PageError;
use restow_migrate::rewrite::Unfinished;
use restow_migrate::server::plain;

use crate::context::{Context, changed};
use crate::in_tree::delegate::{Undelegated, backend, delegate};
use crate::observe::events::EventType;
use crate::observe::metrics::Ended;
use crate::observe::watcher::Watcher;
use crate::ownership::is_triggered;
use crate::record::{Lost, ObjectJournal, Record, checkpoint, put};
use crate::settings::Backend;
use crate::verdict::{ASK_AGAIN, Requeue, TRY_AGAIN, Verdict, after_loss, judge, superseded};

/// How often what is waited for is told.
const TELL_EVERY: Duration = Duration::from_secs(2);
/// One try at one migration.
pub(crate) struct Attempt<'a> {
    pub(crate) context: &'a Context,
    pub(crate) name: String,
    /// Stops when this controller must not write at all.
    pub(crate) lead: Stop,
    /// Stops when this migration is to stand still, too.
    pub(crate) stop: Stop,
}

impl Attempt<'_> {
    /// Takes it as far as it goes.
    pub(crate) async fn run(&self) -> Requeue {
        let api = Api::<StorageVersionMigration>::all(self.context.client().clone());
        let record = match Record::read(&api, &self.name, &self.lead).await {
            Ok(Some(record)) => record,
            Ok(None) => return Requeue::Never,
            Err(error) => {
                tracing::warn!(migration = self.name, error = %plain(&error), "it cannot be read");
                return Requeue::After(ASK_AGAIN);
            }
        };
        let object = record.object().await;
        let over = object.is_finished() && !object.retry_requested();
        if over || object.is_suspended() || object.metadata.deletion_timestamp.is_some() {
            return Requeue::Never;
        }
        match self.migrate(&record, &object).await {
            Ok(verdict) => self.conclude(&record, &object, verdict).await,
            Err(lost) => self.leave(&lost),
        }
    }

    /// Leaves it, because its object cannot be written.
    fn leave(&self, lost: &Lost) -> Requeue {
        let after = after_loss(lost);
        match after {
            Requeue::After(_) => {
                tracing::warn!(migration = self.name, %lost, "its status cannot be written");
            }
            Requeue::Never => tracing::info!(migration = self.name, %lost, "left"),
        }
        after
    }

    /// Writes how it ended.
    async fn conclude(
        &self,
        record: &Record,
        object: &StorageVersionMigration,
        mut verdict: Verdict,
    ) -> Requeue {
        let now = restow_clock::now();
        let replaced = verdict.stage == Stage::Failed && retry::pause(verdict.reason, 0).is_some();
        if replaced && is_triggered(object) && self.context.is_watched(&object.spec.resource.group_resource())
        {
            verdict.message += "; the trigger replaces this migration after a pause";
        }
        if verdict.stage != Stage::Succeeded {
            verdict.message = explained(verdict.reason, &verdict.message);
        }
        let written = record.update(|status| {
            condition::set(status, verdict.stage, verdict.reason, &verdict.message, now);
            if verdict.forget {
                status.checkpoint = None;
                status.progress = None;
                status.quarantined.clear();
            }
        });
        if let Err(lost) = written.await {
            return self.leave(&lost);
        }
        tracing::info!(
            migration = self.name,
            reason = verdict.reason.as_str(),
            message = verdict.message,
            "{}",
            verdict.stage.name()
        );
        let kind = match verdict.stage {
            Stage::Failed | Stage::Waiting => EventType::Warning,
            _ => EventType::Normal,
        };
        self.tell(object, kind, verdict.reason, &verdict.message);
        let ended = match verdict.stage {
            Stage::Succeeded => Some(Ended::Succeeded),
            Stage::Failed if verdict.reason == Reason::StorageVersionChanged => Some(Ended::Superseded),
            Stage::Failed => Some(Ended::Failed),
            Stage::Waiting if verdict.forget => Some(Ended::Aborted),
            _ => None,
        };
        if let Some(how) = ended {
            self.context.metrics.ended(&object.spec.resource.name(), how);
        }
        changed(&self.context.storage_changed);
        verdict.after
    }

    fn tell(&self, object: &StorageVersionMigration, kind: EventType, reason: Reason, message: &str) {
        let reference: ObjectReference = object.object_ref(&());
        self.context.events.tell(&reference, kind, reason.as_str(), message);
    }

    async fn migrate(&self, record: &Record, object: &StorageVersionMigration) -> Result<Verdict, Lost> {
        let resource = match self.resource(object).await {
            Ok(resource) => resource,
            Err(verdict) => return Ok(verdict),
        };
        let watcher = Watcher::new(&self.context.metrics, &self.context.throttle, &resource.name.to_string());
        let migration = Migration {
            cluster: &self.context.cluster,
            resource: &resource,
            settings: Settings {
                encrypted: self.context.demand(&resource.name),
                ..self.context.settings.migration
            },
            throttle: &self.context.throttle,
            observer: &watcher,
            stop: &self.stop,
        };
        // Side by side: what tells must not hold up the writer of the same object.
        tokio::select! {
            biased;
            ended = self.work(&migration, record, object) => ended,
            lost = tell_waits(&watcher, record) => Err(lost),
        }
    }

    /// The resource that is meant, or why there is nothing to migrate.
    async fn resource(&self, object: &StorageVersionMigration) -> Result<Resource, Verdict> {
        let name = object.spec.resource.group_resource();
        // Events too: whoever makes a migration of them has asked for it.
        let inventory = match self.stop.unless(self.context.cluster.inventory(true)).await {
            Some(Ok(inventory)) => inventory,
            Some(Err(error)) => return Err(Verdict::waiting(Reason::WaitingForServer, error, ASK_AGAIN)),
            None => return Err(Verdict::waiting(Reason::Stopped, "it goes on later", Duration::ZERO)),
        };
        let find = |name: &GroupResource| inventory.resources.iter().find(|resource| resource.name == *name);
        let Some(found) = find(&name) else {
            let silent = inventory.unavailable.iter().find(|(version, _)| version.group == name.group);
            return Err(match silent {
                Some((_, why)) => Verdict::waiting(Reason::WaitingForServer, why.explain(), ASK_AGAIN),
                None => self.not_served(&name).await,
            });
        };
        match &found.obstacle {
            None => Ok(found.clone()),
            Some(Obstacle::SharedWith(owner)) => match find(owner) {
                Some(owner) => Ok(owner.clone()),
                None => Err(self.not_served(owner).await),
            },
            Some(why @ Obstacle::Unavailable(_)) => {
                Err(Verdict::waiting(Reason::WaitingForServer, why.explain(), ASK_AGAIN))
            }
            Some(why @ Obstacle::Unregistered(_)) => {
                Err(Verdict::waiting(Reason::Forbidden, why.explain(), TRY_AGAIN))
            }
            Some(why) => Err(Verdict::failed(Reason::NotMigratable, why.explain())),
        }
    }

    /// What becomes of a migration whose resource one API server does not have: it may be starting.
    async fn not_served(&self, name: &GroupResource) -> Verdict {
        match self.stop.unless(self.context.cluster.is_served_nowhere(name)).await {
            Some(Ok(true)) => {
                Verdict::failed(Reason::NotServed, format!("the API servers have no resource {name}"))
            }
            Some(Ok(false)) => {
                let message = format!(
                    "the API server has no resource {name}; it is waited for until every API server is ready and has none"
                );
                Verdict::waiting(Reason::WaitingForServer, message, ASK_AGAIN)
            }
            Some(Err(error)) => Verdict::waiting(Reason::WaitingForServer, error, ASK_AGAIN),
            None => Verdict::waiting(Reason::Stopped, "it goes on later", Duration::ZERO),
        }
    }

    async fn work(
        &self,
        migration: &Migration<'_, Watcher<'_>>,
        record: &Record,
        object: &StorageVersionMigration,
    ) -> Result<Verdict, Lost> {
        let status = object.status.clone().unwrap_or_default();
        let in_tree = match backend(self.context).await {
            Ok(in_tree) => in_tree,
            Err(verdict) => return Ok(verdict),
        };
        let mut begun = self.begin(migration, record, object, &status).await?;
        if let (Ok(progress), Some(in_tree)) = (&mut begun, in_tree)
            && progress.phase == Phase::Rewriting
        {
            match delegate(in_tree, migration, record, progress, &self.lead).await {
                Ok(()) => {}
                Err(Undelegated::Verdict(verdict)) => return Ok(verdict),
                Err(Undelegated::Lost(lost)) => return Err(lost),
                Err(Undelegated::Failure(failure)) => begun = Err(failure),
            }
        }
        let result = match begun {
            Ok(mut progress) => {
                let mut journal = ObjectJournal::new(record, &progress);
                let result = migration.run(&mut progress, &mut journal).await;
                result.map(|()| progress)
            }
            Err(failure) => Err(failure),
        };
        match result {
            Err(Failure::Unfinished(Unfinished::Stopped)) => self.stopped(record).await,
            // Its object told why it can no longer be written.
            Err(Failure::Journal(error)) => {
                Err(error.downcast::<Lost>().unwrap_or_else(|error| Lost::Refused(error.to_string())))
            }
            Err(Failure::Page(PageError::Vanished(name))) => Ok(self.not_served(&name).await),
            result => Ok(judge(result, object)),
        }
    }

    /// The progress to go on with: kept, to be tried once more, or new.
    async fn begin(
        &self,
        migration: &Migration<'_, Watcher<'_>>,
        record: &Record,
        object: &StorageVersionMigration,
        status: &StorageVersionMigrationStatus,
    ) -> Result<Result<Progress, Failure>, Lost> {
        let hash = migration.resource.hash.clone().unwrap_or_default();
        let kept = checkpoint(status).filter(|progress| progress.storage_version_hash == hash);
        if let Some(progress) = kept {
            let all = progress.counts.quarantined + progress.verify.quarantined;
            if !object.is_finished() && (progress.phase != Phase::Done || all == 0) {
                return Ok(Ok(progress));
            }
            if let Some(left) = condition::named_left(status, all).filter(|left| !left.is_empty()) {
                return self.retry(migration, record, progress, left).await;
            }
        }
        let begun = migration.begin().await;
        if let Ok(mut progress) = begun {
            if let Some(verdict) = superseded(object, &progress) {
                return Ok(Err(verdict));
            }
            // What a predecessor had begun is taken up; the second pass proves it.
            if object.is(ConditionType::Running) && status.checkpoint.is_none() {
                progress.continue_token =
                    object.spec.continue_token.clone().filter(|token| !token.is_empty());
            }
            let now = restow_clock::now();
            let (reason, message) = match self.context.settings.backend {
                Backend::Restow => (Reason::Rewriting, "every object is sent a write that changes nothing"),
                Backend::InTree => (Reason::Delegated, "the built-in controller is to rewrite every object"),
            };
            record
                .update(|status| {
                    status.checkpoint = None;
                    status.quarantined.clear();
                    condition::set(status, Stage::Running, reason, message, now);
                })
                .await?;
            if object.retry_requested() {
                record.retry_begun().await?;
            }
            let message = format!("to storage version {}", progress.storage_version);
            self.tell(object, EventType::Normal, Reason::Started, &message);
            return Ok(Ok(progress));
        }
        Ok(begun)
    }

    /// Tries just those objects once more that were left.
    async fn retry(
        &self,
        migration: &Migration<'_, Watcher<'_>>,
        record: &Record,
        mut progress: Progress,
        left: Vec<restow_core::rewrite::progress::Quarantined>,
    ) -> Result<Result<Progress, Failure>, Lost> {
        let now = restow_clock::now();
        let message = format!("trying {} once more", objects(left.len() as u64));
        record
            .update(|status| condition::set(status, Stage::Running, Reason::Retrying, &message, now))
            .await?;
        record.retry_begun().await?;
        let still = match migration.retry(&mut progress, left).await {
            Ok(still) => still,
            Err(failure) => return Ok(Err(failure)),
        };
        record
            .update(|status| {
                put(status, &progress, (now, 0), restow_clock::now());
                status.quarantined.clear();
                condition::name_left(status, &still);
            })
            .await?;
        Ok(Ok(progress))
    }

    /// It was told to stop: suspended, deleted, or because this controller ends.
    async fn stopped(&self, record: &Record) -> Result<Verdict, Lost> {
        if self.lead.is_stopped() {
            return Err(Lost::Stopped);
        }
        let now = restow_clock::now();
        let message = "spec.suspend is true; it goes on from here when that is taken back";
        record
            .update(|status| condition::set(status, Stage::Suspended, Reason::Suspended, message, now))
            .await?;
        Err(Lost::Stopped)
    }
}

/// Tells in the object what its migration waits for, again and again; ends only when the object is lost.
async fn tell_waits(watcher: &Watcher<'_>, record: &Record) -> Lost {
    loop {
        tokio::time::sleep(TELL_EVERY).await;
        let Some(why) = watcher.waits_for() else { continue };
        let now = restow_clock::now();
        let told = record
            .update(|status| condition::set(status, Stage::Running, Reason::WaitingForServer, &why, now));
        if let Err(lost) = told.await {
            return lost;
        }
    }
}
