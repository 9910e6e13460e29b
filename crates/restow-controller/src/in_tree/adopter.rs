//! The adopter: for each migration of the built-in API it creates one that the migrator runs, and reports its status back.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt as _;
use kube::api::{DynamicObject, ListParams, ObjectMeta, PostParams};
use kube::core::{ApiResource, GroupVersionKind};
use kube::runtime::reflector::{ObjectRef, Store, store::Writer};
use kube::runtime::{WatchStreamExt as _, reflector, watcher};
use kube::{Api, Resource as _, ResourceExt as _};
use restow_api::{
    ADOPTED, ADOPTED_AT, GroupVersionResource, InTreeMigrationStatus, StorageVersionMigration,
    StorageVersionMigrationSpec,
};
use restow_core::controller::adoption::{AdoptionCandidate, Step, is_orphan, name_for, step};
use restow_core::controller::delegation::is_delegate;
use restow_lease::Stop;
use restow_migrate::client::plain;
use tokio::sync::watch;

use crate::context::{Context, changed};
use crate::in_tree::api::{Availability, GROUP, InTree, Object};
use crate::ownership::managed;
use crate::requests::{code, delete};
use crate::watches::WATCH_TIMEOUT;

/// How often to check whether the cluster serves the API.
const API_CHECK_INTERVAL: Duration = Duration::from_secs(5);
/// How often to check all migrations when nothing changes.
const IDLE_INTERVAL: Duration = Duration::from_secs(60);
/// How soon to check again after an error.
const RETRY_DELAY: Duration = Duration::from_secs(5);
/// How long to wait for the resourceVersion of a list; the status has none if that takes longer.
const LIST_TIMEOUT: Duration = Duration::from_secs(30);

/// Serves the built-in API's migrations until it is time to stop.
pub(crate) async fn run(context: &Context, migrations: &Store<StorageVersionMigration>, stop: &Stop) {
    let mut warned = false;
    while !stop.is_stopped() {
        context.health.beat("adopter", IDLE_INTERVAL * 3);
        match stop.unless(InTree::find(context)).await {
            Some(Ok(Availability::Served(in_tree))) => {
                tracing::info!(api = in_tree.resource.api_version, "serving migrations of this API");
                warned = false;
                stop.unless(serve(context, &in_tree, migrations, stop)).await;
            }
            Some(Ok(Availability::NotServed(why))) if !warned => {
                tracing::warn!(
                    "cannot serve built-in migrations: {why}; `restow install --adopt in-tree` installs the API where Kubernetes does not serve it"
                );
                warned = true;
            }
            Some(Err(error)) => {
                tracing::warn!(error = %plain(&error), "could not find out whether {GROUP} is served; retrying")
            }
            _ => {}
        }
        stop.unless(tokio::time::sleep(API_CHECK_INTERVAL)).await;
    }
}

/// Serves built-in migrations while the cluster serves the API in this version.
async fn serve(
    context: &Context,
    in_tree: &InTree,
    migrations: &Store<StorageVersionMigration>,
    stop: &Stop,
) {
    let writer = Writer::<Object>::new(in_tree.resource.clone());
    let built_in = writer.as_reader();
    let heard = watch::Sender::new(0);
    let stream =
        watcher(in_tree.api.clone(), watcher::Config::default().timeout(WATCH_TIMEOUT)).default_backoff();
    let watched = reflector(writer, stream)
        .take_while(|event| std::future::ready(!event.as_ref().is_err_and(is_gone)))
        .for_each(|event| {
            match event {
                Ok(_) => changed(&heard),
                Err(error) => {
                    tracing::info!(error = %plain(&error), "the watch of {GROUP} failed; reopening it")
                }
            }
            std::future::ready(())
        });
    let adopter = Adopter { context, in_tree, built_in: &built_in, migrations, stop };
    let work = async {
        if built_in.wait_until_ready().await.is_ok() {
            adopter.work(heard.subscribe()).await;
        }
    };
    tokio::select! {
        biased;
        () = watched => {}
        () = work => {}
    }
}

/// Whether the API is no longer served in the watched version.
fn is_gone(error: &watcher::Error) -> bool {
    match error {
        watcher::Error::InitialListFailed(error) | watcher::Error::WatchStartFailed(error) => {
            code(error) == Some(404)
        }
        _ => false,
    }
}

struct Adopter<'a> {
    context: &'a Context,
    in_tree: &'a InTree,
    built_in: &'a Store<Object>,
    migrations: &'a Store<StorageVersionMigration>,
    stop: &'a Stop,
}

impl Adopter<'_> {
    /// Checks all built-in migrations whenever one of them, or a migration of restow, has changed.
    async fn work(&self, mut heard: watch::Receiver<u64>) {
        let mut changes = self.context.migrations_changed.subscribe();
        while !self.stop.is_stopped() {
            heard.mark_unchanged();
            changes.mark_unchanged();
            self.beat();
            let wait = if self.check().await { IDLE_INTERVAL } else { RETRY_DELAY };
            tokio::select! {
                biased;
                _ = heard.changed() => {}
                _ = changes.changed() => {}
                () = tokio::time::sleep(wait) => {}
            }
        }
    }

    fn beat(&self) {
        self.context.health.beat("adopter", IDLE_INTERVAL * 3);
    }

    /// Checks all once; false if something must be retried.
    async fn check(&self) -> bool {
        let objects = self.built_in.state();
        let all: Vec<AdoptionCandidate> = objects.iter().map(|object| candidate(object)).collect();
        let mut complete = true;
        let mut note = |name: &str, done: Result<(), kube::Error>| {
            if let Err(error) = done {
                tracing::info!(adopted = name, error = %plain(&error), "could not follow a built-in migration; retrying");
                complete = false;
            }
        };
        for ours in self.migrations.state().iter().filter(|ours| is_orphan(ours, &all)) {
            if self.stop.is_stopped() {
                return true;
            }
            self.beat();
            tracing::info!(
                migration = ours.name_any(),
                "deleting a migration whose built-in migration is gone"
            );
            note(&ours.name_any(), delete(&self.ours(), ours.as_ref()).await);
        }
        for (object, built_in) in objects.iter().zip(&all) {
            self.beat();
            let ours = self.migrations.get(&ObjectRef::new(&name_for(&built_in.name)));
            let done = match step(built_in, ours.as_deref(), restow_clock::now()) {
                _ if self.stop.is_stopped() => return true,
                Step::Leave => Ok(()),
                Step::Make => self.create(object).await,
                Step::UpdateStatus(status) => self.write_status(object, status).await,
            };
            note(&built_in.name, done);
        }
        complete
    }

    fn ours(&self) -> Api<StorageVersionMigration> {
        Api::all(self.context.client().clone())
    }

    /// Creates a migration for a built-in one.
    async fn create(&self, object: &Arc<Object>) -> Result<(), kube::Error> {
        let of = &object.spec.resource;
        let at = tokio::time::timeout(LIST_TIMEOUT, self.listed_at(&of.group, &of.resource));
        let at = at.await.ok().flatten();
        if self.stop.is_stopped() {
            return Ok(());
        }
        let mut labels = managed();
        labels.insert(ADOPTED.to_owned(), "true".to_owned());
        let migration = StorageVersionMigration {
            metadata: ObjectMeta {
                name: Some(name_for(&object.name_any())),
                labels: Some(labels),
                annotations: at.map(|at| BTreeMap::from([(ADOPTED_AT.to_owned(), at)])),
                owner_references: object
                    .controller_owner_ref(&self.in_tree.resource)
                    .map(|owner| vec![owner]),
                ..ObjectMeta::default()
            },
            spec: StorageVersionMigrationSpec {
                resource: GroupVersionResource {
                    group: of.group.clone(),
                    version: String::new(),
                    resource: of.resource.clone(),
                },
                ..StorageVersionMigrationSpec::default()
            },
            status: None,
        };
        match self.ours().create(&PostParams::default(), &migration).await {
            Ok(made) => tracing::info!(adopted = object.name_any(), migration = made.name_any(), "adopted"),
            // The cache is behind, or an earlier one is still being deleted.
            Err(error) if code(&error) == Some(409) => {}
            Err(error) => return Err(error),
        }
        Ok(())
    }

    /// The resourceVersion of a resource's list, if it can be listed.
    async fn listed_at(&self, group: &str, resource: &str) -> Option<String> {
        let inventory = self.context.cluster.inventory(true).await.ok()?;
        let named = |found: &&restow_core::resource::inventory::Resource| {
            found.name.group == group && found.name.resource == resource
        };
        let found = inventory.resources.iter().find(named)?;
        let version = found.endpoint()?;
        let kind = GroupVersionKind::gvk(&version.group, &version.version, &found.kind);
        let resource = ApiResource::from_gvk_with_plural(&kind, resource);
        let api = Api::<DynamicObject>::all_with(self.context.client().clone(), &resource);
        let page = api.list_metadata(&ListParams::default().limit(1)).await.ok()?;
        page.metadata.resource_version
    }

    /// Writes a status, with what was read as the precondition.
    async fn write_status(
        &self,
        object: &Arc<Object>,
        status: InTreeMigrationStatus,
    ) -> Result<(), kube::Error> {
        let mut new = Object::clone(object);
        new.types = Some(kube::core::TypeMeta {
            api_version: self.in_tree.resource.api_version.clone(),
            kind: self.in_tree.resource.kind.clone(),
        });
        new.status = Some(status);
        match self.in_tree.api.replace_status(&object.name_any(), &PostParams::default(), &new).await {
            Ok(_) => Ok(()),
            // The next watch event shows what changed.
            Err(error) if matches!(code(&error), Some(404 | 409)) => Ok(()),
            Err(error) => Err(error),
        }
    }
}

fn candidate(object: &Object) -> AdoptionCandidate {
    AdoptionCandidate {
        name: object.name_any(),
        uid: object.uid().unwrap_or_default(),
        generation: object.metadata.generation,
        deleting: object.metadata.deletion_timestamp.is_some(),
        delegate: is_delegate(&object.metadata),
        status: object.status.clone().unwrap_or_default(),
    }
}
