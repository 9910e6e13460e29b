//! One attempt at a migration: reads its object, runs it, and writes how it ended.

use std::time::Duration;

use k8s_openapi::api::core::v1::ObjectReference;
use kube::{Api, Resource as _};
use restow_api::{ConditionType, Reason, StorageVersionMigration, StorageVersionMigrationStatus};
use restow_core::controller::condition::{self, Stage};
use restow_core::controller::retry;
use restow_core::controller::troubleshooting::explained;
use restow_core::controller::verdict::{RETRY_LATER, RETRY_SOON, Requeue, Verdict, judge_completed};
use restow_core::resource::inventory::{Obstacle, Resource};
use restow_core::resource::name::GroupResource;
use restow_core::rewrite::progress::{Phase, Progress, objects};
use restow_lease::Stop;
use restow_migrate::client::plain;
use restow_migrate::list::PageError;
use restow_migrate::migration::{Migration, MigrationError, MigrationSettings};
use restow_migrate::rewrite::Unfinished;

use crate::context::{Context, changed};
use crate::in_tree::delegate::{backend, delegate};
use crate::observe::events::EventType;
use crate::observe::metrics::Ended;
use crate::observe::watcher::Watcher;
use crate::ownership::is_triggered;
use crate::record::{Lost, ObjectJournal, Record, checkpoint, put};
use crate::settings::Backend;
use crate::verdict::{AttemptError, judge, requeue_after, superseded};

/// How often the object's status says what the migration waits for.
const REPORT_WAIT_EVERY: Duration = Duration::from_secs(2);

/// One attempt at one migration.
pub(crate) struct Attempt<'a> {
    pub(crate) context: &'a Context,
    pub(crate) name: String,
    /// Stops when this process no longer leads.
    pub(crate) lead: Stop,
    /// Stops also when this migration is suspended or deleted.
    pub(crate) stop: Stop,
}

impl Attempt<'_> {
    /// Runs the migration as far as possible.
    pub(crate) async fn run(&self) -> Requeue {
        let api = Api::<StorageVersionMigration>::all(self.context.client().clone());
        let record = match Record::read(&api, &self.name, &self.lead).await {
            Ok(Some(record)) => record,
            Ok(None) => return Requeue::Never,
            Err(error) => {
                tracing::warn!(migration = self.name, error = %plain(&error), "cannot read the migration; retrying");
                return Requeue::After(RETRY_SOON);
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

    /// Ends the attempt because the object can no longer be written.
    fn leave(&self, lost: &Lost) -> Requeue {
        let requeue = requeue_after(lost);
        match requeue {
            Requeue::After(_) => {
                tracing::warn!(migration = self.name, %lost, "cannot write the migration's status; retrying later");
            }
            Requeue::Never => tracing::info!(migration = self.name, %lost, "attempt ended"),
        }
        requeue
    }

    /// Writes and reports how the attempt ended.
    async fn conclude(
        &self,
        record: &Record,
        object: &StorageVersionMigration,
        mut verdict: Verdict,
    ) -> Requeue {
        let now = restow_clock::now();
        let replaced =
            verdict.stage == Stage::Failed && retry::replacement_delay(verdict.reason, 0).is_some();
        if replaced && is_triggered(object) && self.context.is_watched(&object.spec.resource.group_resource())
        {
            verdict.message += "; the trigger will replace this migration";
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
        self.report(object, kind, verdict.reason, &verdict.message);
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
        verdict.requeue
    }

    fn report(&self, object: &StorageVersionMigration, kind: EventType, reason: Reason, message: &str) {
        let reference: ObjectReference = object.object_ref(&());
        self.context.events.publish(&reference, kind, reason.as_str(), message);
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
            settings: MigrationSettings {
                encrypted: self.context.key_requirement(&resource.name),
                ..self.context.settings.migration
            },
            throttle: &self.context.throttle,
            observer: &watcher,
            stop: &self.stop,
        };
        // Concurrently: reporting a wait must not delay the writer of the same object.
        tokio::select! {
            biased;
            ended = self.work(&migration, record, object) => ended,
            lost = report_waits(&watcher, record) => Err(lost),
        }
    }

    /// The resource to migrate, or why it cannot be migrated.
    async fn resource(&self, object: &StorageVersionMigration) -> Result<Resource, Verdict> {
        let name = object.spec.resource.group_resource();
        // Events too: a migration of them was asked for explicitly.
        let inventory = match self.stop.unless(self.context.cluster.inventory(true)).await {
            Some(Ok(inventory)) => inventory,
            Some(Err(error)) => return Err(Verdict::waiting(Reason::WaitingForServer, error, RETRY_SOON)),
            None => {
                return Err(Verdict::waiting(
                    Reason::Stopped,
                    "the attempt was stopped and will resume",
                    Duration::ZERO,
                ));
            }
        };
        let find = |name: &GroupResource| inventory.resources.iter().find(|resource| resource.name == *name);
        let Some(found) = find(&name) else {
            let silent = inventory.unavailable.iter().find(|(version, _)| version.group == name.group);
            return Err(match silent {
                Some((_, why)) => Verdict::waiting(Reason::WaitingForServer, why.explain(), RETRY_SOON),
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
                Err(Verdict::waiting(Reason::WaitingForServer, why.explain(), RETRY_SOON))
            }
            Some(why @ Obstacle::Converting) => {
                Err(Verdict::waiting(Reason::ConvertingInPlace, why.explain(), RETRY_SOON))
            }
            Some(why @ Obstacle::Unregistered(_)) => {
                Err(Verdict::waiting(Reason::Forbidden, why.explain(), RETRY_LATER))
            }
            Some(why) => Err(Verdict::failed(Reason::NotMigratable, why.explain())),
        }
    }

    /// The verdict if one API server does not serve the resource: it may be starting.
    async fn not_served(&self, name: &GroupResource) -> Verdict {
        match self.stop.unless(self.context.cluster.is_served_nowhere(name)).await {
            Some(Ok(true)) => Verdict::failed(Reason::NotServed, format!("no API server serves {name}")),
            Some(Ok(false)) => {
                let message = format!(
                    "an API server does not serve {name}; waiting until every API server is ready and none serves it"
                );
                Verdict::waiting(Reason::WaitingForServer, message, RETRY_SOON)
            }
            Some(Err(error)) => Verdict::waiting(Reason::WaitingForServer, error, RETRY_SOON),
            None => {
                Verdict::waiting(Reason::Stopped, "the attempt was stopped and will resume", Duration::ZERO)
            }
        }
    }

    async fn work(
        &self,
        migration: &Migration<'_, Watcher<'_>>,
        record: &Record,
        object: &StorageVersionMigration,
    ) -> Result<Verdict, Lost> {
        let failure = match self.run_migration(migration, record, object).await {
            Ok(progress) => {
                return Ok(judge_completed(&progress, object.metadata.name.as_deref().unwrap_or_default()));
            }
            Err(AttemptError::Verdict(verdict)) => return Ok(verdict),
            Err(AttemptError::Lost(lost)) => return Err(lost),
            Err(AttemptError::Failure(failure)) => failure,
        };
        match failure {
            MigrationError::Unfinished(Unfinished::Stopped) => self.stopped(record).await,
            // The journal's error says why the object can no longer be written.
            MigrationError::Journal(error) => {
                Err(error.downcast::<Lost>().unwrap_or_else(|error| Lost::Refused(error.to_string())))
            }
            MigrationError::Page(PageError::Vanished(name)) => Ok(self.not_served(&name).await),
            failure => Ok(judge(failure, object)),
        }
    }

    /// Begins or resumes the run, delegates its first pass if the settings say so, and runs it to its end.
    async fn run_migration(
        &self,
        migration: &Migration<'_, Watcher<'_>>,
        record: &Record,
        object: &StorageVersionMigration,
    ) -> Result<Progress, AttemptError> {
        let status = object.status.clone().unwrap_or_default();
        let in_tree = backend(self.context).await?;
        let mut progress = self.begin(migration, record, object, &status).await?;
        if let Some(in_tree) = in_tree
            && progress.phase == Phase::Rewriting
        {
            delegate(in_tree, migration, record, &mut progress, &self.lead).await?;
        }
        let mut journal = ObjectJournal::new(record, &progress);
        migration.run(&mut progress, &mut journal).await?;
        Ok(progress)
    }

    /// The progress to run with: resumed, retried, or new.
    async fn begin(
        &self,
        migration: &Migration<'_, Watcher<'_>>,
        record: &Record,
        object: &StorageVersionMigration,
        status: &StorageVersionMigrationStatus,
    ) -> Result<Progress, AttemptError> {
        let hash = migration.resource.hash.clone().unwrap_or_default();
        let kept = checkpoint(status).filter(|progress| progress.storage_version_hash == hash);
        if let Some(progress) = kept {
            let all = progress.counts.quarantined + progress.verify.quarantined;
            if !object.is_finished() && (progress.phase != Phase::Done || all == 0) {
                return Ok(progress);
            }
            if let Some(left) = condition::named_left(status, all).filter(|left| !left.is_empty()) {
                return self.retry(migration, record, progress, left).await;
            }
        }
        let mut progress = migration.begin().await?;
        if let Some(failure) = superseded(object, &progress) {
            return Err(failure.into());
        }
        // What kube-storage-version-migrator had begun is resumed; the second pass proves it.
        if object.is(ConditionType::Running) && status.checkpoint.is_none() {
            progress.continue_token = object.spec.continue_token.clone().filter(|token| !token.is_empty());
        }
        let now = restow_clock::now();
        let (reason, message) = match self.context.settings.backend {
            Backend::Restow => (Reason::Rewriting, "sending every object a write that changes nothing"),
            Backend::InTree => (Reason::Delegated, "the built-in controller rewrites every object"),
        };
        record
            .update(|status| {
                status.checkpoint = None;
                status.quarantined.clear();
                condition::set(status, Stage::Running, reason, message, now);
            })
            .await?;
        if object.retry_requested() {
            record.clear_retry_request().await?;
        }
        let message = format!("to storage version {}", progress.storage_version);
        self.report(object, EventType::Normal, Reason::Started, &message);
        Ok(progress)
    }

    /// Retries only the quarantined objects.
    async fn retry(
        &self,
        migration: &Migration<'_, Watcher<'_>>,
        record: &Record,
        mut progress: Progress,
        left: Vec<restow_core::rewrite::progress::Quarantined>,
    ) -> Result<Progress, AttemptError> {
        let now = restow_clock::now();
        let message = format!("retrying {}", objects(left.len() as u64));
        record
            .update(|status| condition::set(status, Stage::Running, Reason::Retrying, &message, now))
            .await?;
        record.clear_retry_request().await?;
        let still = migration.retry(&mut progress, left).await?;
        record
            .update(|status| {
                put(status, &progress, (now, 0), restow_clock::now());
                status.quarantined.clear();
                condition::name_left(status, &still);
            })
            .await?;
        Ok(progress)
    }

    /// Reports that the run was stopped: the migration was suspended or deleted, or this process stops.
    async fn stopped(&self, record: &Record) -> Result<Verdict, Lost> {
        if self.lead.is_stopped() {
            return Err(Lost::Stopped);
        }
        let now = restow_clock::now();
        let message = "spec.suspend is true; the migration resumes from here when it is false";
        record
            .update(|status| condition::set(status, Stage::Suspended, Reason::Suspended, message, now))
            .await?;
        Err(Lost::Stopped)
    }
}

/// Reports in the object what its migration waits for; returns only when the object can no longer be written.
async fn report_waits(watcher: &Watcher<'_>, record: &Record) -> Lost {
    loop {
        tokio::time::sleep(REPORT_WAIT_EVERY).await;
        let Some(why) = watcher.waits_for() else { continue };
        let now = restow_clock::now();
        let written = record
            .update(|status| condition::set(status, Stage::Running, Reason::WaitingForServer, &why, now));
        if let Err(lost) = written.await {
            return lost;
        }
    }
}
