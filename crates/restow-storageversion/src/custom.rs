//! A custom resource whose version changes while the server runs.
//!
//! The order is: no new writes, those under way end, the new version is registered, the definition is found to be still
//! the one it was registered for, writes under it begin. Otherwise an object may be stored in a version that nobody counts
//! with any more (kubernetes#130235).

use std::sync::Arc;

use kube::Client;
use restow_core::protocol::storage_version::Versions;
use restow_core::resource::name::GroupResource;
use restow_lease::Stop;
use tokio::sync::{OwnedRwLockReadGuard, OwnedRwLockWriteGuard, RwLock};

use crate::registration::{Registered, Resource, Unregistered, register, unregister};
use restow_lease::identity::Tenure;

/// One custom resource of this server; clones are the same one.
#[derive(Clone, Debug)]
pub struct CustomResource {
    name: GroupResource,
    // Each write under way holds it shared.
    enabled: Arc<RwLock<Option<Enabled>>>,
}

#[derive(Debug)]
struct Enabled {
    versions: Versions,
    registered: Registered,
}

/// A write under way: it must be held until the object is stored.
#[derive(Debug)]
pub struct Write(OwnedRwLockReadGuard<Option<Enabled>, Enabled>);

impl Write {
    /// The version to store in.
    pub fn encoding(&self) -> &str {
        self.0.versions.encoding()
    }
}

/// A resource that nobody writes; dropped, it stays so.
#[derive(Debug)]
pub struct Drained {
    name: GroupResource,
    enabled: OwnedRwLockWriteGuard<Option<Enabled>>,
}

impl CustomResource {
    /// A resource that cannot be written yet.
    pub fn disabled(name: GroupResource) -> Self {
        Self { name, enabled: Arc::default() }
    }

    /// Begins a write; none while there is no registered version to write in: answer
    /// [`unavailable`](crate::gate::unavailable).
    pub fn write(&self) -> Option<Write> {
        let enabled = Arc::clone(&self.enabled).try_read_owned().ok()?;
        let enabled = OwnedRwLockReadGuard::try_map(enabled, Option::as_ref).ok()?;
        enabled.registered.stands().then_some(Write(enabled))
    }

    /// Waits until the writes that are under way now have ended; those that begin later are not waited for.
    pub async fn settle(&self) {
        drop(self.enabled.write().await);
    }

    /// Lets no new write begin, and waits until those under way have ended.
    ///
    /// Given up before, it changes nothing; after, the resource stays disabled until it is registered.
    pub async fn drain(&self) -> Drained {
        let mut enabled = Arc::clone(&self.enabled).write_owned().await;
        *enabled = None;
        Drained { name: self.name.clone(), enabled }
    }
}

impl Drained {
    /// Registers the new versions, and lets writes begin in them if `still_defined` then says so.
    ///
    /// `still_defined` is asked when they are registered, and is to read the definition anew. One that has changed by
    /// then may already be migrated away from by those who did not count with this server's late word; the resource stays
    /// disabled, and is to be drained and registered as it is defined now.
    pub async fn register(
        mut self,
        client: &Client,
        tenure: &Tenure,
        versions: Versions,
        still_defined: impl AsyncFnOnce() -> bool,
        stop: &Stop,
    ) -> Result<(), Unregistered> {
        let resource = Resource { name: self.name, versions };
        let registered = register(client, tenure, std::slice::from_ref(&resource), stop).await?;
        match stop.unless(still_defined()).await {
            None => return Err(Unregistered::Stopped),
            Some(false) => return Err(Unregistered::Redefined),
            Some(true) => {}
        }
        *self.enabled = Some(Enabled { versions: resource.versions, registered });
        Ok(())
    }

    /// Takes back what this server has registered, of a resource whose definition was deleted; it stays disabled.
    pub async fn unregister(self, client: &Client, tenure: &Tenure, stop: &Stop) -> Result<(), Unregistered> {
        unregister(client, tenure, &self.name, stop).await
    }
}
