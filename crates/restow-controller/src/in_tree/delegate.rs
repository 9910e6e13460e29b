//! The first pass of a migration, handed to the built-in controller of Kubernetes.

use std::collections::BTreeMap;
use std::time::Duration;

use kube::api::PostParams;
use kube::{Resource as _, ResourceExt as _};
use restow_api::{DELEGATED_RUN, InTreeMigrationSpec, Reason, StorageVersionMigration};
use restow_clock::Instant;
use restow_core::controller::condition::{self, Stage};
use restow_core::controller::delegation::{Claim, Look, Step, claim, step};
use restow_core::resource::name::GroupResource;
use restow_core::rewrite::progress::Progress;
use restow_lease::Stop;
use restow_migrate::migration::{Failure, Migration, Observer};
use restow_migrate::rewrite::Unfinished;
use restow_migrate::server::plain;

use crate::context::Context;
use crate::in_tree::api::{GROUP, InTree, Object};
use crate::ownership::managed;
use crate::record::{Lost, Record, put};
use crate::requests::{code, delete};
use crate::settings::Backend;
use crate::verdict::{TRY_AGAIN, Verdict};

/// How often it is looked at.
const ASK_EVERY: Duration = Duration::from_secs(1);
/// How often the API servers' agreement is looked at meanwhile.
const CHECK_EVERY: Duration = Duration::from_secs(10);

/// Why a pass that was handed over did not end well.
pub(crate) enum Undelegated {
    /// As the migration's object tells it.
    Verdict(Verdict),
    /// As a pass of restow's own fails.
    Failure(Failure),
    /// The migration's object cannot be written any more.
    Lost(Lost),
}

impl From<Verdict> for Undelegated {
    fn from(verdict: Verdict) -> Self {
        Self::Verdict(verdict)
    }
}

impl From<Failure> for Undelegated {
    fn from(failure: Failure) -> Self {
        Self::Failure(failure)
    }
}

impl From<Lost> for Undelegated {
    fn from(lost: Lost) -> Self {
        Self::Lost(lost)
    }
}

impl Undelegated {
    /// Whether there is nothing left to be done for.
    fn is_over(&self) -> bool {
        use Failure::{Disagreement, Moved, Unfinished as NotFinished};
        match self {
            Self::Lost(lost) => matches!(lost, Lost::Gone),
            Self::Failure(failure) => {
                matches!(failure, Disagreement(_) | Moved(_) | NotFinished(Unfinished::Stopped))
            }
            Self::Verdict(_) => false,
        }
    }
}

/// Finds the API to hand the first pass over by; none where restow rewrites by itself.
pub(crate) async fn backend(context: &Context) -> Result<Option<InTree>, Verdict> {
    if context.settings.backend == Backend::Restow {
        return Ok(None);
    }
    match InTree::find(context).await {
        Ok(Ok(in_tree)) => Ok(Some(in_tree)),
        Ok(Err(why)) => {
            let message = format!("{why}, so nothing can be handed to its controller");
            Err(Verdict::waiting(Reason::BackendNotServed, message, TRY_AGAIN))
        }
        Err(error) => Err(Verdict::waiting(Reason::WaitingForServer, error, ASK_EVERY)),
    }
}

/// Has the built-in controller do the first pass; what is left then is to verify.
pub(crate) async fn delegate<O: Observer>(
    in_tree: InTree,
    migration: &Migration<'_, O>,
    record: &Record,
    progress: &mut Progress,
    lead: &Stop,
) -> Result<(), Undelegated> {
    let (owner, run) = (record.object().await, progress.started.to_string());
    // Kept before anything is made, so that a crash goes on with the same run.
    let now = restow_clock::now();
    record.update(|status| put(status, progress, (now, 0), now)).await?;
    let delegate = Delegate { in_tree, owner, run, record, lead };
    let ended = delegate.see_through(migration, progress).await;
    // Another leader would go on with it.
    if ended.as_ref().is_err_and(Undelegated::is_over) {
        delegate.take_back().await;
    }
    ended?;
    progress.begin_verifying();
    Ok(())
}

/// One run of a migration in the hands of the built-in controller.
struct Delegate<'a> {
    in_tree: InTree,
    owner: StorageVersionMigration,
    run: String,
    record: &'a Record,
    /// Stops when this controller must not write at all.
    lead: &'a Stop,
}

impl Delegate<'_> {
    /// Waits for its end.
    async fn see_through<O: Observer>(
        &self,
        migration: &Migration<'_, O>,
        progress: &mut Progress,
    ) -> Result<(), Undelegated> {
        let (began, mut checked) = (Instant::now(), Instant::now());
        let mut woken: Option<Instant> = None;
        loop {
            if migration.stop.is_stopped() {
                return Err(Failure::from(Unfinished::Stopped).into());
            }
            let status = match self.look(migration).await? {
                Some(object) => object.status.unwrap_or_default(),
                None => Default::default(),
            };
            let woken_ago = woken.map(|woken| woken.elapsed());
            match step(&Look { status: &status, waited: began.elapsed(), woken: woken_ago }) {
                Step::Verify => return Ok(()),
                Step::Fail(message) => return Err(Verdict::failed(Reason::DelegateFailed, message).into()),
                Step::Wait(why) => self.tell(why).await?,
                Step::Wake => {
                    woken = Some(Instant::now());
                    self.wake(migration, progress).await?;
                }
            }
            if checked.elapsed() >= CHECK_EVERY {
                migration.check(progress).await?;
                checked = Instant::now();
            }
            migration.stop.unless(tokio::time::sleep(ASK_EVERY)).await;
        }
    }

    /// The object as it is, made where it is missing; none while one has to go first, or the server is silent.
    async fn look<O: Observer>(&self, migration: &Migration<'_, O>) -> Result<Option<Object>, Undelegated> {
        let api = &self.in_tree.api;
        let found = api.get_opt(&self.owner.name_any()).await;
        if migration.stop.is_stopped() {
            return Err(Failure::from(Unfinished::Stopped).into());
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
            Ok(None) => self.make(&migration.resource.name).await,
            Err(error) => Err(error),
        };
        match done {
            Ok(found) => Ok(found),
            Err(error) => match code(&error) {
                Some(401 | 403) => Err(Verdict::waiting(Reason::Forbidden, error, TRY_AGAIN).into()),
                Some(400 | 422) => Err(Verdict::failed(Reason::DelegateRefused, error).into()),
                Some(404) => Err(Verdict::waiting(Reason::BackendNotServed, error, TRY_AGAIN).into()),
                _ => {
                    migration.observer.waiting(&error.to_string(), ASK_EVERY);
                    Ok(None)
                }
            },
        }
    }

    async fn make(&self, of: &GroupResource) -> Result<Option<Object>, kube::Error> {
        let resource = of.clone();
        let name = self.owner.name_any();
        let mut object = Object::new(&name, &self.in_tree.resource, InTreeMigrationSpec { resource });
        object.metadata.labels = Some(managed());
        object.metadata.annotations = Some(BTreeMap::from([(DELEGATED_RUN.to_owned(), self.run.clone())]));
        object.metadata.owner_references = self.owner.controller_owner_ref(&()).map(|owner| vec![owner]);
        match self.in_tree.api.create(&PostParams::default(), &object).await {
            Ok(made) => {
                tracing::info!(migration = name, api = self.in_tree.resource.api_version, "handed over");
                Ok(Some(made))
            }
            Err(error) if code(&error) == Some(409) => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn name_taken(&self) -> Verdict {
        let message = format!("{GROUP} has a {} already that restow did not make", self.owner.name_any());
        Verdict::waiting(Reason::DelegateNameTaken, message, TRY_AGAIN)
    }

    async fn tell(&self, why: &str) -> Result<(), Lost> {
        let (now, name) = (restow_clock::now(), self.owner.name_any());
        let message = format!("{why} ({GROUP} {name})");
        self.record
            .update(|status| condition::set(status, Stage::Running, Reason::Delegated, &message, now))
            .await
    }

    /// Its controller waits until its cache is as new as the resource's list; in an idle cluster only a write
    /// of the resource brings that about soon.
    async fn wake<O: Observer>(
        &self,
        migration: &Migration<'_, O>,
        progress: &mut Progress,
    ) -> Result<(), Failure> {
        let stored = migration.touch(progress).await?;
        let name = self.owner.name_any();
        if stored {
            tracing::info!(migration = name, "one object was written, to wake the built-in controller");
        } else {
            tracing::info!(
                migration = name,
                "no write had an effect that would wake the built-in controller"
            );
        }
        Ok(())
    }

    /// Deletes what was handed over.
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
            Ok(()) => tracing::info!(migration = name, "taken back from the built-in controller"),
            Err(error) => tracing::info!(migration = name, error = %plain(&error), "not taken back yet"),
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

    /// A server that has one object, and tells of each request before it answers.
    fn server(object: Value, asked: impl Fn(Method) + Clone + Send + 'static) -> Client {
        let answer = move |request: Request<Body>| {
            asked(request.method().clone());
            let body = Body::from(object.to_string().into_bytes());
            std::future::ready(Ok::<_, std::io::Error>(Response::new(body)))
        };
        Client::new(tower::service_fn(answer), "default")
    }

    #[tokio::test]
    async fn who_has_lost_the_lead_meanwhile_takes_nothing_back() {
        let migration = json!({
            "apiVersion": "migration.k8s.io/v1alpha1", "kind": "StorageVersionMigration",
            "metadata": {"name": "m", "uid": "u"}, "spec": {"resource": {"resource": "secrets"}},
        });
        let handed_over = json!({
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
            let told = CancellationToken::new();
            let (lead, sent) = (Stop::from(told.clone()), Arc::new(Mutex::new(Vec::new())));
            let log = Arc::clone(&sent);
            let client = server(handed_over.clone(), move |method| {
                log.lock().unwrap().push(method);
                if lost {
                    told.cancel();
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
