//! Delegates the first pass of a migration to the built-in controller of Kubernetes.

use std::collections::BTreeMap;
use std::time::Duration;

use kube::api::PostParams;
use kube::{Resource as _, ResourceExt as _};
use restow_api::{DELEGATED_RUN, InTreeMigrationSpec, Reason, StorageVersionMigration};
use restow_clock::Instant;
use restow_core::controller::condition::{self, Stage};
use restow_core::controller::delegation::{Claim, DelegateObservation, Step, claim, step};
use restow_core::controller::verdict::{RETRY_LATER, Verdict};
use restow_core::resource::name::GroupResource;
use restow_core::rewrite::progress::Progress;
use restow_lease::Stop;
use restow_migrate::client::plain;
use restow_migrate::migration::{Migration, MigrationError, Observer};
use restow_migrate::rewrite::Unfinished;

use crate::context::Context;
use crate::in_tree::api::{Availability, GROUP, InTree, Object};
use crate::ownership::managed;
use crate::record::{Lost, Record, put};
use crate::requests::{code, delete};
use crate::settings::Backend;
use crate::verdict::AttemptError;

/// How often the built-in migration is read.
const POLL_INTERVAL: Duration = Duration::from_secs(1);
/// How often the API servers' agreement is checked meanwhile.
const AGREEMENT_CHECK_INTERVAL: Duration = Duration::from_secs(10);

/// Whether the delegated pass serves no purpose any more.
fn is_obsolete(error: &AttemptError) -> bool {
    use MigrationError::{Disagreement, Moved, Unfinished as NotFinished};
    match error {
        AttemptError::Lost(lost) => matches!(lost, Lost::Gone),
        AttemptError::Failure(failure) => {
            matches!(failure, Disagreement(_) | Moved(_) | NotFinished(Unfinished::Stopped))
        }
        AttemptError::Verdict(_) => false,
    }
}

/// Finds the built-in API if the first pass is delegated; none if restow rewrites by itself.
pub(crate) async fn backend(context: &Context) -> Result<Option<InTree>, Verdict> {
    if context.settings.backend == Backend::Restow {
        return Ok(None);
    }
    match InTree::find(context).await {
        Ok(Availability::Served(in_tree)) => Ok(Some(*in_tree)),
        Ok(Availability::NotServed(why)) => {
            let message = format!("cannot delegate to the built-in controller: {why}");
            Err(Verdict::waiting(Reason::BackendNotServed, message, RETRY_LATER))
        }
        Err(error) => Err(Verdict::waiting(Reason::WaitingForServer, error, POLL_INTERVAL)),
    }
}

/// Has the built-in controller do the first pass. restow verifies afterwards.
pub(crate) async fn delegate<O: Observer>(
    in_tree: InTree,
    migration: &Migration<'_, O>,
    record: &Record,
    progress: &mut Progress,
    lead: &Stop,
) -> Result<(), AttemptError> {
    let (owner, run) = (record.object().await, progress.started.to_string());
    // Saved before the built-in migration is created, so that after a crash the same run is resumed.
    let now = restow_clock::now();
    record.update(|status| put(status, progress, (now, 0), now)).await?;
    let delegate = Delegate { in_tree, owner, run, record, lead };
    let ended = delegate.wait_for_end(migration, progress).await;
    // Another leader would otherwise resume it.
    if ended.as_ref().is_err_and(is_obsolete) {
        delegate.take_back().await;
    }
    ended?;
    progress.begin_verifying();
    Ok(())
}

/// One run of a migration that the built-in controller does.
struct Delegate<'a> {
    in_tree: InTree,
    owner: StorageVersionMigration,
    run: String,
    record: &'a Record,
    /// Stops when this process no longer leads.
    lead: &'a Stop,
}

impl Delegate<'_> {
    /// Waits until the built-in controller has finished.
    async fn wait_for_end<O: Observer>(
        &self,
        migration: &Migration<'_, O>,
        progress: &mut Progress,
    ) -> Result<(), AttemptError> {
        let (began, mut checked) = (Instant::now(), Instant::now());
        let mut woken: Option<Instant> = None;
        loop {
            if migration.stop.is_stopped() {
                return Err(MigrationError::from(Unfinished::Stopped).into());
            }
            let status = match self.get_or_create(migration).await? {
                Some(object) => object.status.unwrap_or_default(),
                None => Default::default(),
            };
            let woken_ago = woken.map(|woken| woken.elapsed());
            match step(&DelegateObservation { status: &status, waited: began.elapsed(), woken: woken_ago }) {
                Step::Verify => return Ok(()),
                Step::Fail(message) => return Err(Verdict::failed(Reason::DelegateFailed, message).into()),
                Step::Wait(why) => self.report(why).await?,
                Step::Wake => {
                    woken = Some(Instant::now());
                    self.wake(migration, progress).await?;
                }
            }
            if checked.elapsed() >= AGREEMENT_CHECK_INTERVAL {
                migration.check(progress).await?;
                checked = Instant::now();
            }
            migration.stop.unless(tokio::time::sleep(POLL_INTERVAL)).await;
        }
    }

    /// The built-in migration, created if it is missing; none while an old one is being deleted or the server does not answer.
    async fn get_or_create<O: Observer>(
        &self,
        migration: &Migration<'_, O>,
    ) -> Result<Option<Object>, AttemptError> {
        let api = &self.in_tree.api;
        let found = api.get_opt(&self.owner.name_any()).await;
        if migration.stop.is_stopped() {
            return Err(MigrationError::from(Unfinished::Stopped).into());
        }
        let done = match found {
            Ok(Some(found)) if found.metadata.deletion_timestamp.is_some() => Ok(None),
            Ok(Some(found)) => {
                match claim(&found.metadata, &self.owner.uid().unwrap_or_default(), &self.run) {
                    Claim::Own => Ok(Some(found)),
                    Claim::Stale => delete(api, &found).await.map(|()| None),
                    Claim::Others => return Err(self.name_taken().into()),
                }
            }
            Ok(None) => self.create(&migration.resource.name).await,
            Err(error) => Err(error),
        };
        match done {
            Ok(found) => Ok(found),
            Err(error) => match code(&error) {
                Some(401 | 403) => Err(Verdict::waiting(Reason::Forbidden, error, RETRY_LATER).into()),
                Some(400 | 422) => Err(Verdict::failed(Reason::DelegateRefused, error).into()),
                Some(404) => Err(Verdict::waiting(Reason::BackendNotServed, error, RETRY_LATER).into()),
                _ => {
                    migration.observer.waiting(&error.to_string(), POLL_INTERVAL);
                    Ok(None)
                }
            },
        }
    }

    async fn create(&self, of: &GroupResource) -> Result<Option<Object>, kube::Error> {
        let resource = restow_api::GroupResource { group: of.group.clone(), resource: of.resource.clone() };
        let name = self.owner.name_any();
        let mut object = Object::new(&name, &self.in_tree.resource, InTreeMigrationSpec { resource });
        object.metadata.labels = Some(managed());
        object.metadata.annotations = Some(BTreeMap::from([(DELEGATED_RUN.to_owned(), self.run.clone())]));
        object.metadata.owner_references = self.owner.controller_owner_ref(&()).map(|owner| vec![owner]);
        match self.in_tree.api.create(&PostParams::default(), &object).await {
            Ok(made) => {
                tracing::info!(
                    migration = name,
                    api = self.in_tree.resource.api_version,
                    "delegated to the built-in controller"
                );
                Ok(Some(made))
            }
            Err(error) if code(&error) == Some(409) => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn name_taken(&self) -> Verdict {
        let message = format!(
            "{GROUP} already has a migration named {} that restow did not create",
            self.owner.name_any()
        );
        Verdict::waiting(Reason::DelegateNameTaken, message, RETRY_LATER)
    }

    async fn report(&self, why: &str) -> Result<(), Lost> {
        let (now, name) = (restow_clock::now(), self.owner.name_any());
        let message = format!("{why} ({GROUP} {name})");
        self.record
            .update(|status| condition::set(status, Stage::Running, Reason::Delegated, &message, now))
            .await
    }

    /// Writes one object. The built-in controller waits until its cache is as new as the resource's list, and in an idle
    /// cluster only a write of the resource brings that about soon.
    async fn wake<O: Observer>(
        &self,
        migration: &Migration<'_, O>,
        progress: &mut Progress,
    ) -> Result<(), MigrationError> {
        let stored = migration.touch(progress).await?;
        let name = self.owner.name_any();
        if stored {
            tracing::info!(migration = name, "wrote one object to wake the built-in controller");
        } else {
            tracing::info!(
                migration = name,
                "could not wake the built-in controller: no write changed an object"
            );
        }
        Ok(())
    }

    /// Deletes the built-in migration.
    async fn take_back(&self) {
        let (api, name) = (&self.in_tree.api, self.owner.name_any());
        let found = api.get_opt(&name).await;
        if self.lead.is_stopped() {
            return;
        }
        let done = match found {
            Ok(Some(found))
                if claim(&found.metadata, &self.owner.uid().unwrap_or_default(), &self.run) == Claim::Own =>
            {
                delete(api, &found).await
            }
            Ok(_) => Ok(()),
            Err(error) => Err(error),
        };
        match done {
            Ok(()) => tracing::info!(migration = name, "deleted the built-in migration"),
            Err(error) => {
                tracing::info!(migration = name, error = %plain(&error), "could not delete the built-in migration yet")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use http::{Method, Request, Response};
    use kube::Api;
    use kube::client::{Body, Client};
    use kube::core::{ApiResource, GroupVersionKind};
    use restow_api::{MANAGED_BY, MANAGER};
    use serde_json::{Value, json};
    use tokio_util::sync::CancellationToken;

    use super::*;

    /// A server that has one object, and reports each request before it answers.
    fn server(object: Value, on_request: impl Fn(Method) + Clone + Send + 'static) -> Client {
        let answer = move |request: Request<Body>| {
            on_request(request.method().clone());
            let body = Body::from(object.to_string().into_bytes());
            std::future::ready(Ok::<_, std::io::Error>(Response::new(body)))
        };
        Client::new(tower::service_fn(answer), "default")
    }

    #[tokio::test]
    async fn a_process_that_no_longer_leads_deletes_nothing() {
        let migration = json!({
            "apiVersion": "migration.k8s.io/v1alpha1", "kind": "StorageVersionMigration",
            "metadata": {"name": "m", "uid": "u"}, "spec": {"resource": {"resource": "secrets"}},
        });
        let delegated = json!({
            "apiVersion": "storagemigration.k8s.io/v1beta1", "kind": "StorageVersionMigration",
            "metadata": {
                "name": "m", "uid": "x", "labels": {MANAGED_BY: MANAGER}, "annotations": {DELEGATED_RUN: "run"},
                "ownerReferences": [{
                    "apiVersion": "migration.k8s.io/v1alpha1", "kind": "StorageVersionMigration", "name": "m", "uid": "u",
                }],
            },
            "spec": {"resource": {"resource": "secrets"}},
        });
        for (lost, expected) in [(false, vec![Method::GET, Method::DELETE]), (true, vec![Method::GET])] {
            let lost_lead = CancellationToken::new();
            let (lead, sent) = (Stop::from(lost_lead.clone()), Arc::new(Mutex::new(Vec::new())));
            let log = Arc::clone(&sent);
            let client = server(delegated.clone(), move |method| {
                log.lock().unwrap().push(method);
                if lost {
                    lost_lead.cancel();
                }
            });
            let kind = GroupVersionKind::gvk(GROUP, "v1beta1", "StorageVersionMigration");
            let resource = ApiResource::from_gvk_with_plural(&kind, "storageversionmigrations");
            let in_tree = InTree { api: Api::all_with(client, &resource), resource };
            let own = Api::all(server(migration.clone(), |_| ()));
            let record = Record::read(&own, "m", &lead).await.unwrap().unwrap();
            let owner = record.object().await;
            let delegate = Delegate { in_tree, owner, run: "run".to_owned(), record: &record, lead: &lead };
            delegate.take_back().await;
            assert_eq!(*sent.lock().unwrap(), expected);
        }
    }
}
