//! Writes down in which versions a server handles its resources, before it handles any.

use std::collections::BTreeMap;

use futures::future::try_join_all;
use k8s_openapi::api::apiserverinternal::v1alpha1::{StorageVersion, StorageVersionSpec};
use kube::api::{ListParams, ObjectMeta, PostParams};
use kube::{Api, Client, ResourceExt as _};
use restow_core::protocol::storage_version::{
    self, CollectAction, Entry, Membership, NotAMember, OwnEntryAction, StatusContext, Versions,
};
use restow_core::resource::name::GroupResource;
use restow_core::rewrite::outcome::backoff;
use restow_lease::Stop;

use crate::collector;
use crate::membership;
use restow_lease::identity::Tenure;
use restow_lease::request::{RequestError, as_read, ask, find};

/// A resource, and how the server handles it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Resource {
    /// Its name.
    pub name: GroupResource,
    /// Its versions.
    pub versions: Versions,
}

/// The proof that resources are registered, good for as long as the server counts as alive.
///
/// Only [`register`] makes it, and only with it a gate opens or a handler is enabled.
#[derive(Debug)]
pub struct Registered {
    tenure: Tenure,
    resources: BTreeMap<GroupResource, Versions>,
}

impl Registered {
    /// Whether what was registered surely still is.
    pub fn stands(&self) -> bool {
        self.tenure.is_valid()
    }

    /// The life of the server that it was registered in.
    pub fn tenure(&self) -> &Tenure {
        &self.tenure
    }

    /// Whether this resource was registered, in just these versions.
    pub fn covers(&self, resource: &Resource) -> bool {
        self.resources.get(&resource.name) == Some(&resource.versions)
    }
}

/// Why resources were not registered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unregistered {
    /// It was time to stop.
    #[error("it was stopped")]
    Stopped,
    /// The server no longer counts as alive: it has to become a member again first.
    #[error("the identity Lease was lost")]
    TenureEnded,
    /// A custom resource was registered, and its definition is another by now: it is not enabled.
    #[error("the definition has changed meanwhile")]
    Redefined,
    /// There is nowhere to register.
    #[error("StorageVersions are not served: turn on the API internal.apiserver.k8s.io/v1alpha1")]
    NotServed,
}

/// Registers all resources, however long that takes.
pub async fn register(
    client: &Client,
    tenure: &Tenure,
    resources: &[Resource],
    stop: &Stop,
) -> Result<Registered, Unregistered> {
    let registrar = Registrar { client, tenure, storage_versions: Api::all(client.clone()) };
    // At once: a store that commits many writes together is done much sooner.
    let all = try_join_all(resources.iter().map(|resource| registrar.until_done(resource)));
    tokio::select! {
        biased;
        () = stop.stopped() => return Err(Unregistered::Stopped),
        () = tenure.ended() => return Err(Unregistered::TenureEnded),
        done = all => done.map(drop)?,
    }
    let each = |resource: &Resource| (resource.name.clone(), resource.versions.clone());
    Ok(Registered { tenure: tenure.clone(), resources: resources.iter().map(each).collect() })
}

/// Takes the server's own entry of a resource away, however long that takes.
///
/// Only for what is drained: who could still write would be a writer that nobody counts with.
pub(crate) async fn unregister(
    client: &Client,
    tenure: &Tenure,
    resource: &GroupResource,
    stop: &Stop,
) -> Result<(), Unregistered> {
    let registrar = Registrar { client, tenure, storage_versions: Api::all(client.clone()) };
    let name = storage_version::name(resource);
    tokio::select! {
        biased;
        () = stop.stopped() => Err(Unregistered::Stopped),
        () = tenure.ended() => Err(Unregistered::TenureEnded),
        () = registrar.until_gone(&name) => Ok(()),
    }
}

/// Takes the server's own entries away wherever `handles` says that it handles the resource no more, however long that
/// takes: those of a former life of the server, which others would wait for in vain.
pub async fn drop_unhandled(
    client: &Client,
    tenure: &Tenure,
    handles: impl Fn(&GroupResource) -> bool,
    stop: &Stop,
) -> Result<(), Unregistered> {
    let registrar = Registrar { client, tenure, storage_versions: Api::all(client.clone()) };
    tokio::select! {
        biased;
        () = stop.stopped() => Err(Unregistered::Stopped),
        () = tenure.ended() => Err(Unregistered::TenureEnded),
        () = registrar.until_swept(handles) => Ok(()),
    }
}

/// Why the own entry was not written.
#[derive(Debug, thiserror::Error)]
enum UpdateError {
    #[error(transparent)]
    NotAMember(#[from] NotAMember),
    #[error(transparent)]
    Request(#[from] RequestError),
}

struct Registrar<'a> {
    client: &'a Client,
    tenure: &'a Tenure,
    storage_versions: Api<StorageVersion>,
}

impl Registrar<'_> {
    /// Tries until it is done: a conflict at once from what is read anew, an error after a while.
    async fn until_done(&self, resource: &Resource) -> Result<(), Unregistered> {
        let name = storage_version::name(&resource.name);
        let mut failures = 0;
        loop {
            let Some(object) = self.get_or_create(&name).await.transpose() else {
                return Err(Unregistered::NotServed);
            };
            let result = match object {
                Ok(object) => self.update(&name, object, resource).await,
                Err(error) => Err(error.into()),
            };
            let Err(trouble) = result else { return Ok(()) };
            failures += 1;
            tracing::info!(%name, failures, "not registered yet: {trouble}");
            tokio::time::sleep(backoff(failures, None)).await;
        }
    }

    /// Tries until the own entry is gone.
    async fn until_gone(&self, name: &str) {
        let mut failures = 0;
        while let Err(trouble) = self.remove(name).await {
            failures += 1;
            tracing::info!(%name, failures, "still registered: {trouble}");
            tokio::time::sleep(backoff(failures, None)).await;
        }
    }

    /// Tries until the own entries of what is not handled are gone.
    async fn until_swept(&self, handles: impl Fn(&GroupResource) -> bool) {
        let mut failures = 0;
        while let Err(trouble) = self.sweep(&handles).await {
            failures += 1;
            match failures {
                1 => tracing::warn!(
                    "could not drop what this server no longer handles from StorageVersions: {trouble}"
                ),
                _ => tracing::info!(failures, "still not dropped from StorageVersions: {trouble}"),
            }
            tokio::time::sleep(backoff(failures, None)).await;
        }
    }

    /// Tries once for each; one that fails does not keep the others.
    async fn sweep(&self, handles: impl Fn(&GroupResource) -> bool) -> Result<(), RequestError> {
        let mut swept = Ok(());
        for object in ask(self.storage_versions.list(&ListParams::default())).await? {
            let (name, entries) = (object.name_any(), storage_version::entries(object.status.as_ref()));
            if handles(&storage_version::resource(&name)) {
                continue;
            }
            if storage_version::own_entry_action(&entries, self.tenure.id(), None) == OwnEntryAction::Drop {
                tracing::info!(%name, "no longer handled; its registration is taken back");
                swept = self.remove(&name).await.and(swept);
            }
        }
        swept
    }

    async fn remove(&self, name: &str) -> Result<(), RequestError> {
        let Some(object) = find(self.storage_versions.get(name)).await? else { return Ok(()) };
        let entries = storage_version::entries(object.status.as_ref());
        match storage_version::unregister(&entries, self.tenure.id()) {
            CollectAction::Keep => Ok(()),
            CollectAction::Update(entries) => {
                collector::update(&self.storage_versions, object, &entries).await
            }
            CollectAction::Delete => collector::delete(&self.storage_versions, object).await,
        }
    }

    /// The object; none where there can be none.
    async fn get_or_create(&self, name: &str) -> Result<Option<StorageVersion>, RequestError> {
        if let Some(object) = find(self.storage_versions.get(name)).await? {
            return Ok(Some(object));
        }
        let object = StorageVersion {
            metadata: ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() },
            spec: Some(StorageVersionSpec(serde_json::json!({}))),
            status: None,
        };
        find(self.storage_versions.create(&PostParams::default(), &object)).await
    }

    /// Writes the own entry, on condition of the uid and resourceVersion of what was read.
    async fn update(
        &self,
        name: &str,
        mut object: StorageVersion,
        resource: &Resource,
    ) -> Result<(), UpdateError> {
        as_read(&object.metadata)?;
        let own = Entry { server: self.tenure.id().to_owned(), versions: resource.versions.clone() };
        let membership = match membership::leases(self.client).await {
            Ok(leases) => Membership::Known(membership::live(&leases)),
            // It drops nobody, and hinders nobody.
            Err(trouble) => Membership::Unknown(trouble.to_string()),
        };
        let read = object.status.take();
        let entries = storage_version::register(&storage_version::entries(read.as_ref()), &membership, &own)?;
        let context = StatusContext {
            generation: object.metadata.generation,
            registrant: Some(self.tenure.holder()),
            now: restow_clock::now(),
        };
        object.status = Some(storage_version::status(read.as_ref(), &entries, context));
        ask(self.storage_versions.replace_status(name, &PostParams::default(), &object)).await?;
        Ok(())
    }
}
