//! Registers the versions in which a server handles its resources, before it handles any.

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
use restow_lease::request::{ObjectError, as_read, ask, find};

/// A resource, and the versions in which the server handles it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Resource {
    /// The resource.
    pub name: GroupResource,
    /// The versions in which it is stored, read and served.
    pub versions: Versions,
}

/// A token which proves that resources are registered. It is valid while the server counts as alive.
///
/// Only [`register`] creates it. A gate opens, and a handler is enabled, only with it.
#[derive(Debug)]
pub struct Registered {
    tenure: Tenure,
    resources: BTreeMap<GroupResource, Versions>,
}

impl Registered {
    /// Whether the registration is still valid.
    pub fn stands(&self) -> bool {
        self.tenure.is_valid()
    }

    /// The tenure in which it was registered.
    pub fn tenure(&self) -> &Tenure {
        &self.tenure
    }

    /// Whether this resource was registered with exactly these versions.
    pub fn covers(&self, resource: &Resource) -> bool {
        self.resources.get(&resource.name) == Some(&resource.versions)
    }
}

/// Why resources were not registered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unregistered {
    /// It was told to stop.
    #[error("stopped")]
    Stopped,
    /// The server may no longer count as alive: it has to become a member again first.
    #[error("the identity Lease was lost")]
    TenureEnded,
    /// The CRD of a custom resource changed while it was registered: it is not enabled.
    #[error("the CRD has changed meanwhile")]
    Redefined,
    /// StorageVersions are not served.
    #[error("StorageVersions are not served: enable the API internal.apiserver.k8s.io/v1alpha1")]
    NotServed,
}

/// Registers all resources; retries until it has succeeded.
pub async fn register(
    client: &Client,
    tenure: &Tenure,
    resources: &[Resource],
    stop: &Stop,
) -> Result<Registered, Unregistered> {
    let registrar = Registrar { client, tenure, storage_versions: Api::all(client.clone()) };
    // Concurrently, because a store that commits many writes together is much faster.
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

/// Removes the server's entry for a resource; retries until it has succeeded.
///
/// The resource must be drained: other servers no longer expect writes from this one.
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

/// Removes the server's entries for all resources that it no longer handles; retries until it has succeeded. An earlier
/// process of this server left them, and the other servers would wait for it to register again.
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

/// Why the server's entry was not written.
#[derive(Debug, thiserror::Error)]
enum UpdateError {
    #[error(transparent)]
    NotAMember(#[from] NotAMember),
    #[error(transparent)]
    Request(#[from] ObjectError),
}

struct Registrar<'a> {
    client: &'a Client,
    tenure: &'a Tenure,
    storage_versions: Api<StorageVersion>,
}

impl Registrar<'_> {
    /// Retries until the resource is registered.
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
            let Err(error) = result else { return Ok(()) };
            failures += 1;
            tracing::info!(%name, failures, "cannot register the storage version: {error}; retrying");
            tokio::time::sleep(backoff(failures, None)).await;
        }
    }

    /// Retries until the server's entry is removed.
    async fn until_gone(&self, name: &str) {
        let mut failures = 0;
        while let Err(error) = self.remove(name).await {
            failures += 1;
            tracing::info!(%name, failures, "cannot remove the registration: {error}; retrying");
            tokio::time::sleep(backoff(failures, None)).await;
        }
    }

    /// Retries until the server's entries for resources that it does not handle are removed.
    async fn until_swept(&self, handles: impl Fn(&GroupResource) -> bool) {
        let mut failures = 0;
        while let Err(error) = self.sweep(&handles).await {
            failures += 1;
            match failures {
                1 => tracing::warn!(
                    "cannot remove registrations of resources that this server no longer handles: {error}; retrying"
                ),
                _ => tracing::info!(failures, "cannot remove registrations: {error}"),
            }
            tokio::time::sleep(backoff(failures, None)).await;
        }
    }

    /// Tries once for each resource. If one fails, the others are still removed.
    async fn sweep(&self, handles: impl Fn(&GroupResource) -> bool) -> Result<(), ObjectError> {
        let mut swept = Ok(());
        for object in ask(self.storage_versions.list(&ListParams::default())).await? {
            let (name, entries) = (object.name_any(), storage_version::entries(object.status.as_ref()));
            if handles(&storage_version::resource(&name)) {
                continue;
            }
            if storage_version::own_entry_action(&entries, self.tenure.id(), None) == OwnEntryAction::Drop {
                tracing::info!(%name, "removing the registration of a resource that is no longer handled");
                swept = self.remove(&name).await.and(swept);
            }
        }
        swept
    }

    async fn remove(&self, name: &str) -> Result<(), ObjectError> {
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

    /// Reads or creates the object; `None` if StorageVersions are not served.
    async fn get_or_create(&self, name: &str) -> Result<Option<StorageVersion>, ObjectError> {
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

    /// Writes the server's entry, with the uid and resourceVersion that were read as preconditions.
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
            // Without the members no entry is removed, and registration still works.
            Err(error) => Membership::Unknown(error.to_string()),
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
