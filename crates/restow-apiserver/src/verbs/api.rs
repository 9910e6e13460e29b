//! What every handler works with: the store, what is served, and how to convert it.

use std::sync::Arc;
use std::sync::atomic::AtomicI64;
use std::time::Duration;

use arc_swap::ArcSwapOption;
use bytes::Bytes;
use restow_clock::Instant;
use restow_storageversion::Gate;
use restow_storageversion::custom::Write;
use restow_store::encryption::Transformers;
use restow_store::{Entry, Store};
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use crate::auth::access::Access;
use crate::docs::health::StoreHealth;
use crate::docs::openapi::Documents;
use crate::http::status::Failure;
use crate::object::stored::{Extent, decode, refused};
use crate::registry::conversion::Converter;
use crate::registry::served::{Registry, Resource};
use crate::verbs::objects::Call;
use crate::verbs::view::View;
use crate::verbs::workers::Workers;

/// How long a write waits for a definition whose version is being changed.
const PATIENCE: Duration = Duration::from_secs(5);
/// How often it looks.
const EVERY: Duration = Duration::from_millis(5);

/// Why nothing can be written of a custom resource now.
pub(crate) const NOT_REGISTERED: &str = "the storage version of this resource is not registered yet";

/// What every handler works with.
pub struct Api {
    /// Who there is and who may do what.
    pub access: Arc<Access>,
    /// Where objects are kept.
    pub store: Arc<dyn Store>,
    /// What is served.
    pub registry: Arc<Registry>,
    /// Lets writes in when all is registered.
    pub gate: Gate,
    /// Calls conversion webhooks.
    pub converter: Arc<dyn Converter>,
    /// How objects are sealed where they are kept; none for plain text.
    pub encryption: Arc<ArcSwapOption<Transformers>>,
    /// When that was last changed while the server ran, in seconds; 0 if it never was.
    pub encryption_reloaded: AtomicI64,
    /// What the store has said of itself.
    pub store_health: StoreHealth,
    /// The name of the server among others.
    pub server_id: String,
    /// When it started, in seconds.
    pub started: i64,
    /// Threads for long work on objects.
    pub workers: Workers,
    /// Schemas that were made for clients.
    pub documents: Documents,
    /// Ends watches when the server stops.
    pub stopped: CancellationToken,
}

impl Api {
    /// What is stored under a key.
    pub async fn entry(&self, key: &str) -> Result<Option<Entry>, Failure> {
        Ok(self.store.get(key).await.map_err(|error| refused(&error))?.entry)
    }

    /// Opens what is stored of an object, and tells whether it would be sealed in another way now.
    pub fn open(&self, resource: &Resource, entry: &mut Entry) -> Result<bool, Failure> {
        let Some(encryption) = &*self.encryption.load() else { return Ok(false) };
        let transformer = encryption.of(&resource.stored.group, &resource.name.resource);
        let opened = transformer.open(&entry.key, std::mem::take(&mut entry.value));
        let opened = opened.map_err(|error| Failure::internal(&error.to_string()))?;
        entry.value = opened.plain;
        Ok(opened.stale)
    }

    /// The bytes to store for those of an object.
    pub fn seal(&self, resource: &Resource, key: &str, plain: Bytes) -> Result<Bytes, Failure> {
        let Some(encryption) = &*self.encryption.load() else { return Ok(plain) };
        let transformer = encryption.of(&resource.stored.group, &resource.name.resource);
        transformer.seal(key, plain).map_err(|error| Failure::internal(&error.to_string()))
    }

    /// The object of an entry.
    pub fn decode(&self, resource: &Resource, mut entry: Entry, extent: Extent) -> Result<Value, Failure> {
        self.open(resource, &mut entry)?;
        decode(&entry, extent)
    }

    /// The right to write objects of a call's resource; it is to be held until they are stored.
    ///
    /// With it the call is of the definition as it is now: that was set before writes were let in again.
    pub async fn permit(&self, call: &mut Call) -> Result<Option<Write>, Failure> {
        let until = Instant::now() + PATIENCE;
        loop {
            let target = &call.target;
            let Some(resource) = self.registry.find(&target.group, &target.version, &target.resource) else {
                return Err(Failure::unknown_path());
            };
            let Some(custom) = resource.custom() else { return Ok(None) };
            if let Some(write) = custom.writer().write() {
                // It may have been changed while the permit was taken.
                let now = self.registry.find(&target.group, &target.version, &target.resource);
                let resource = now.ok_or_else(Failure::unknown_path)?;
                if !Arc::ptr_eq(&resource, &call.resource) {
                    let include = call.options.include_object;
                    call.view = View::new(&resource, &target.version, call.accepted, include);
                    call.resource = resource;
                }
                return Ok(Some(write));
            }
            if Instant::now() >= until {
                return Err(Failure::service_unavailable(NOT_REGISTERED));
            }
            tokio::time::sleep(EVERY).await;
        }
    }
}
