//! The object of one migration: every write has the resourceVersion that was last read as its precondition.

use std::time::Duration;

use jiff::Timestamp;
use kube::Api;
use kube::api::{Patch, PatchParams, PostParams};
use restow_api::{Checkpoint, Reason, StorageVersionMigration, StorageVersionMigrationStatus};
use restow_core::controller::condition::{self, Stage};
use restow_core::rewrite::outcome::backoff;
use restow_core::rewrite::progress::{Phase, Progress, Quarantined};
use restow_lease::Stop;
use restow_migrate::client::plain;
use restow_migrate::migration::Journal;
use serde_json::json;
use tokio::sync::Mutex;

use crate::requests::code;

/// Why this process can no longer write an object.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Lost {
    /// It was deleted, or another object has its name.
    #[error("the migration was deleted")]
    Gone,
    /// Another process has written its progress.
    #[error("another controller took over the migration")]
    Taken,
    /// This process no longer leads, or stops.
    #[error("the controller is stopping")]
    Stopped,
    /// The server refuses the write.
    #[error("cannot write the migration: {0}")]
    Refused(String),
}

/// A migration's object, as it was last read or written.
pub(crate) struct Record {
    api: Api<StorageVersionMigration>,
    name: String,
    stop: Stop,
    object: Mutex<StorageVersionMigration>,
}

impl Record {
    /// Reads the object; none if it does not exist.
    pub(crate) async fn read(
        api: &Api<StorageVersionMigration>,
        name: &str,
        stop: &Stop,
    ) -> Result<Option<Self>, kube::Error> {
        let object = api.get_opt(name).await?;
        Ok(object.map(|object| Self {
            api: api.clone(),
            name: name.to_owned(),
            stop: stop.clone(),
            object: Mutex::new(object),
        }))
    }

    /// The object as it was last read or written.
    pub(crate) async fn object(&self) -> StorageVersionMigration {
        self.object.lock().await.clone()
    }

    /// Writes the status, unless that changes nothing. It retries after another client's write, unless that write changed
    /// the migration's progress.
    pub(crate) async fn update(
        &self,
        mut change: impl FnMut(&mut StorageVersionMigrationStatus),
    ) -> Result<(), Lost> {
        let mut object = self.object.lock().await;
        let mut tries = 0;
        loop {
            let mut new = object.clone();
            change(new.status.get_or_insert_default());
            if new.status == object.status {
                return Ok(());
            }
            if self.stop.is_stopped() {
                return Err(Lost::Stopped);
            }
            let error = match self.api.replace_status(&self.name, &PostParams::default(), &new).await {
                Ok(written) => {
                    *object = written;
                    return Ok(());
                }
                Err(error) => error,
            };
            self.refused(&error, &mut object, &new, &mut tries).await?;
        }
    }

    /// Decides after a refused write whether to retry, and reads the object again for that.
    async fn refused(
        &self,
        error: &kube::Error,
        object: &mut StorageVersionMigration,
        new: &StorageVersionMigration,
        tries: &mut u32,
    ) -> Result<(), Lost> {
        match code(error) {
            Some(409) => {
                let now = self.reread(object).await?;
                if now.metadata.resource_version == object.metadata.resource_version {
                    // Unchanged, so this is not a conflict but a denial.
                    return Err(Lost::Refused(error.to_string()));
                }
                // The write may have succeeded and only its answer been lost.
                let done = progress_of(&now) == progress_of(new);
                if !done && progress_of(&now) != progress_of(object) {
                    return Err(Lost::Taken);
                }
                *object = now;
                Ok(())
            }
            Some(404) => Err(Lost::Gone),
            Some(code @ 400..500) if code != 429 && code != 408 => Err(Lost::Refused(error.to_string())),
            _ => self.wait(tries, error).await,
        }
    }

    /// Reads the object again after a conflict.
    async fn reread(&self, before: &StorageVersionMigration) -> Result<StorageVersionMigration, Lost> {
        let mut tries = 0;
        loop {
            match self.api.get_opt(&self.name).await {
                Ok(Some(now)) if now.metadata.uid == before.metadata.uid => return Ok(now),
                Ok(_) => return Err(Lost::Gone),
                Err(error) => self.wait(&mut tries, &error).await?,
            }
        }
    }

    async fn wait(&self, tries: &mut u32, error: &kube::Error) -> Result<(), Lost> {
        *tries += 1;
        tracing::debug!(migration = self.name, error = %plain(error), "could not write the migration's status; retrying");
        let wait = backoff(*tries, None).min(Duration::from_secs(10));
        self.stop.unless(tokio::time::sleep(wait)).await.ok_or(Lost::Stopped)
    }

    /// Shows the continue token as kube-storage-version-migrator did; restow itself resumes from the checkpoint.
    async fn show_token(&self, token: Option<&str>) {
        let mut object = self.object.lock().await;
        if object.spec.continue_token.as_deref() == token || self.stop.is_stopped() {
            return;
        }
        let patch = Patch::Merge(json!({
            "metadata": {"uid": object.metadata.uid, "resourceVersion": object.metadata.resource_version},
            "spec": {"continueToken": token},
        }));
        if let Ok(written) = self.api.patch(&self.name, &PatchParams::default(), &patch).await {
            *object = written;
        }
    }

    /// Removes the annotation that asked for a retry, once the retry has begun.
    pub(crate) async fn clear_retry_request(&self) -> Result<(), Lost> {
        let mut object = self.object.lock().await;
        let mut tries = 0;
        while object.retry_requested() {
            if self.stop.is_stopped() {
                return Err(Lost::Stopped);
            }
            let patch = Patch::Merge(json!({"metadata": {
                "uid": object.metadata.uid,
                "resourceVersion": object.metadata.resource_version,
                "annotations": {restow_api::RETRY: null},
            }}));
            let error = match self.api.patch(&self.name, &PatchParams::default(), &patch).await {
                Ok(written) => {
                    *object = written;
                    return Ok(());
                }
                Err(error) => error,
            };
            let new = object.clone();
            self.refused(&error, &mut object, &new, &mut tries).await?;
        }
        Ok(())
    }
}

fn progress_of(object: &StorageVersionMigration) -> Option<Progress> {
    object.status.as_ref().and_then(checkpoint)
}

/// The saved progress of a migration.
pub(crate) fn checkpoint(status: &StorageVersionMigrationStatus) -> Option<Progress> {
    let checkpoint = status.checkpoint.clone()?;
    serde_json::from_value(serde_json::Value::Object(checkpoint.0)).ok()
}

/// Writes progress into a status: counts for users, and the checkpoint to resume from.
pub(crate) fn put(
    status: &mut StorageVersionMigrationStatus,
    progress: &Progress,
    began: (Timestamp, u64),
    now: Timestamp,
) {
    status.progress = Some(condition::counts(progress, Some(began), now));
    status.checkpoint = match serde_json::to_value(progress) {
        Ok(serde_json::Value::Object(map)) => Some(Checkpoint(map)),
        _ => None,
    };
}

/// Saves a migration's progress in its object.
pub(crate) struct ObjectJournal<'a> {
    record: &'a Record,
    /// The current pass, when it began, and how many objects were done by then.
    pass: (u32, Timestamp, u64),
}

impl<'a> ObjectJournal<'a> {
    pub(crate) fn new(record: &'a Record, progress: &Progress) -> Self {
        Self { record, pass: (progress.passes, restow_clock::now(), progress.pass().done()) }
    }
}

impl Journal for ObjectJournal<'_> {
    async fn save(&mut self, progress: &Progress, left: &[Quarantined]) -> std::io::Result<()> {
        let now = restow_clock::now();
        if self.pass.0 != progress.passes {
            self.pass = (progress.passes, progress.updated, 0);
        }
        let began = (self.pass.1, self.pass.2);
        let (reason, message) = match progress.phase {
            Phase::Rewriting => (Reason::Rewriting, "sending every object a write that changes nothing"),
            Phase::Verifying | Phase::Done => {
                (Reason::Verifying, "a second pass must find nothing to rewrite")
            }
        };
        let keep = |status: &mut StorageVersionMigrationStatus| {
            put(status, progress, began, now);
            condition::name_left(status, left);
            condition::set(status, Stage::Running, reason, message, now);
        };
        self.record.update(keep).await.map_err(std::io::Error::other)?;
        let token = progress.continue_token.as_deref().filter(|_| progress.phase == Phase::Rewriting);
        self.record.show_token(token).await;
        Ok(())
    }

    /// A migration that is suspended keeps what was done of its page; a controller that no longer leads writes nothing.
    fn can_save_after_stop(&self) -> bool {
        !self.record.stop.is_stopped()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex as SyncMutex};

    use http::{Method, Request, Response};
    use http_body_util::BodyExt as _;
    use kube::client::Body;
    use serde_json::Value;
    use tokio_util::sync::CancellationToken;

    use super::*;

    type Sent = Arc<SyncMutex<Vec<(Method, Value)>>>;

    fn object(version: &str, retry: bool) -> Value {
        let annotations = if retry { json!({restow_api::RETRY: "yes"}) } else { json!({}) };
        json!({
            "apiVersion": "migration.k8s.io/v1alpha1", "kind": "StorageVersionMigration",
            "metadata": {"name": "m", "uid": "u", "resourceVersion": version, "annotations": annotations},
            "spec": {"resource": {"resource": "secrets"}},
        })
    }

    /// A record of version 1, at a server that has version 2.
    async fn record(stop: Stop) -> (Record, Sent) {
        record_at("2", stop).await
    }

    /// A record of version 1, at a server that has `version` and accepts only writes of version 2.
    async fn record_at(version: &'static str, stop: Stop) -> (Record, Sent) {
        let sent = Sent::default();
        let log = Arc::clone(&sent);
        let answer = move |request: Request<Body>| {
            let log = Arc::clone(&log);
            async move {
                let (parts, body) = request.into_parts();
                let bytes = body.collect().await.unwrap().to_bytes();
                let body: Value = serde_json::from_slice(&bytes).unwrap_or_default();
                let reads = log.lock().unwrap().iter().filter(|(method, _)| method == Method::GET).count();
                log.lock().unwrap().push((parts.method.clone(), body.clone()));
                let (code, answer) = match (parts.method, body["metadata"]["resourceVersion"].as_str()) {
                    (Method::GET, _) if reads == 0 => (200, object("1", true)),
                    (Method::GET, _) => (200, object(version, true)),
                    (_, Some("2")) => (200, object("3", false)),
                    _ => (
                        409,
                        json!({"kind": "Status", "status": "Failure", "reason": "Conflict", "code": 409}),
                    ),
                };
                let response =
                    Response::builder().status(code).body(Body::from(answer.to_string().into_bytes()));
                Ok::<_, std::io::Error>(response.unwrap())
            }
        };
        let client = kube::Client::new(tower::service_fn(answer), "default");
        let record = Record::read(&Api::all(client), "m", &stop).await.unwrap().unwrap();
        (record, sent)
    }

    #[tokio::test]
    async fn a_retry_request_is_removed_with_a_precondition() {
        let (record, sent) = record(Stop::from(CancellationToken::new())).await;
        record.clear_retry_request().await.unwrap();
        let versions: Vec<(Method, Value)> = sent.lock().unwrap().clone();
        let versions: Vec<(Method, Value)> = versions
            .into_iter()
            .map(|(method, body)| (method, body["metadata"]["resourceVersion"].clone()))
            .collect();
        let expected = [
            (Method::GET, Value::Null),
            (Method::PATCH, json!("1")),
            (Method::GET, Value::Null),
            (Method::PATCH, json!("2")),
        ];
        assert_eq!(versions, expected);
        assert!(!record.object().await.retry_requested());
        // There is nothing left to remove.
        record.clear_retry_request().await.unwrap();
        assert_eq!(sent.lock().unwrap().len(), expected.len());
    }

    #[tokio::test]
    async fn a_conflict_on_an_unchanged_object_is_a_denial() {
        let (record, sent) = record_at("1", Stop::from(CancellationToken::new())).await;
        assert!(matches!(record.clear_retry_request().await, Err(Lost::Refused(_))));
        let change = |status: &mut StorageVersionMigrationStatus| status.phase = Some("Running".to_owned());
        assert!(matches!(record.update(change).await, Err(Lost::Refused(_))));
        let methods: Vec<Method> = sent.lock().unwrap().iter().map(|(method, _)| method.clone()).collect();
        let expected = [Method::GET, Method::PATCH, Method::GET, Method::PUT, Method::GET];
        assert_eq!(methods, expected);
    }

    #[test]
    fn a_resumed_migration_knows_how_many_objects_the_list_announced() {
        let resource = restow_core::resource::name::GroupResource::new("", "secrets");
        let mut progress = Progress::new(resource, "v1", "hash", Timestamp::UNIX_EPOCH);
        progress.continue_token = Some("token".to_owned());
        progress.announced = Some(40);
        let mut status = StorageVersionMigrationStatus::default();
        put(&mut status, &progress, (Timestamp::UNIX_EPOCH, 0), Timestamp::UNIX_EPOCH);
        let kept: StorageVersionMigrationStatus =
            serde_json::from_str(&serde_json::to_string(&status).unwrap()).unwrap();
        assert_eq!(checkpoint(&kept), Some(progress));
    }

    #[tokio::test]
    async fn a_process_that_no_longer_leads_removes_no_retry_request() {
        let lost_lead = CancellationToken::new();
        let (record, sent) = record(Stop::from(lost_lead.clone())).await;
        lost_lead.cancel();
        assert!(matches!(record.clear_retry_request().await, Err(Lost::Stopped)));
        assert_eq!(sent.lock().unwrap().len(), 1, "{sent:?}");
    }
}
