//! A custom resource whose version changes while the server runs.
//!
//! The order is: new writes are refused, writes in flight end, the new version is registered, the CRD is checked again, and
//! writes in the new version start. Otherwise an object could be stored in a version that other servers no longer expect
//! (kubernetes#130235).

use std::sync::Arc;

use kube::Client;
use restow_core::protocol::storage_version::Versions;
use restow_core::resource::name::GroupResource;
use restow_lease::Stop;
use tokio::sync::{OwnedRwLockReadGuard, OwnedRwLockWriteGuard, RwLock};

use crate::registration::{Registered, Resource, Unregistered, register, unregister};
use restow_lease::identity::Tenure;

/// One custom resource of this server. Clones share the state.
#[derive(Clone, Debug)]
pub struct CustomResource {
    name: GroupResource,
    // Each write in flight holds a read lock.
    enabled: Arc<RwLock<Option<Enabled>>>,
}

#[derive(Debug)]
struct Enabled {
    versions: Versions,
    registered: Registered,
}

/// A write in flight. It must be held until the object is stored.
#[derive(Debug)]
pub struct Write(OwnedRwLockReadGuard<Option<Enabled>, Enabled>);

impl Write {
    /// The version to store in.
    pub fn encoding(&self) -> &str {
        self.0.versions.encoding()
    }
}

/// A resource without writes in flight. When this is dropped, the resource stays disabled.
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

    /// Starts a write. `None` while no version is registered: answer with [`unavailable`](crate::gate::unavailable).
    pub fn write(&self) -> Option<Write> {
        let enabled = Arc::clone(&self.enabled).try_read_owned().ok()?;
        let enabled = OwnedRwLockReadGuard::try_map(enabled, Option::as_ref).ok()?;
        enabled.registered.stands().then_some(Write(enabled))
    }

    /// Waits until all writes that are in flight now have ended.
    pub async fn settle(&self) {
        drop(self.enabled.write().await);
    }

    /// Refuses new writes, and waits until those in flight have ended.
    ///
    /// If this is cancelled before, nothing changes. Afterwards the resource stays disabled until it is registered.
    pub async fn drain(&self) -> Drained {
        let mut enabled = Arc::clone(&self.enabled).write_owned().await;
        *enabled = None;
        Drained { name: self.name.clone(), enabled }
    }
}

impl Drained {
    /// Registers the new versions, and enables writes if `still_defined` returns true.
    ///
    /// `still_defined` is called after the registration and has to read the CRD again. If the CRD has changed, a migration
    /// may already have started without this server's entry. Then the resource stays disabled, and the caller has to drain
    /// and register it again.
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

    /// Removes this server's entry of a resource whose CRD was deleted. The resource stays disabled.
    pub async fn unregister(self, client: &Client, tenure: &Tenure, stop: &Stop) -> Result<(), Unregistered> {
        unregister(client, tenure, &self.name, stop).await
    }
}
