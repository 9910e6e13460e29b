//! What every handler works with: the store, what is served, and how to convert it.

use std::sync::Arc;
use std::sync::atomic::AtomicI64;

use arc_swap::ArcSwapOption;
use bytes::Bytes;
use restow_storageversion::Gate;
use restow_store::encryption::Transformers;
use restow_store::{Entry, Store};
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use crate::auth::access::Access;
use crate::http::status::Failure;
use crate::object::stored::{Extent, decode, refused};
use crate::registry::conversion::Converter;
use crate::registry::resource::Resource;
use crate::registry::served::Registry;
use crate::verbs::document_cache::DocumentCache;
use crate::verbs::store_health::StoreHealth;
use crate::verbs::workers::Workers;

/// Why nothing can be written of a custom resource now.
pub(crate) const NOT_REGISTERED: &str = "the storage version of this resource is not registered yet";

/// What every handler works with.
pub(crate) struct Api {
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
    pub documents: DocumentCache,
    /// Ends watches when the server stops.
    pub stopped: CancellationToken,
}

impl Api {
    /// What is stored under a key.
    pub(crate) async fn entry(&self, key: &str) -> Result<Option<Entry>, Failure> {
        Ok(self.store.get(key).await.map_err(|error| refused(&error))?.entry)
    }

    /// Opens what is stored of an object, and tells whether it would be sealed in another way now.
    pub(crate) fn open(&self, resource: &Resource, entry: &mut Entry) -> Result<bool, Failure> {
        let Some(encryption) = &*self.encryption.load() else { return Ok(false) };
        let transformer = encryption.of(&resource.stored.group, &resource.name.resource);
        let opened = transformer.open(&entry.key, std::mem::take(&mut entry.value));
        let opened = opened.map_err(|error| Failure::internal(&error.to_string()))?;
        entry.value = opened.plain;
        Ok(opened.stale)
    }

    /// The bytes to store for those of an object.
    pub(crate) fn seal(&self, resource: &Resource, key: &str, plain: Bytes) -> Result<Bytes, Failure> {
        let Some(encryption) = &*self.encryption.load() else { return Ok(plain) };
        let transformer = encryption.of(&resource.stored.group, &resource.name.resource);
        transformer.seal(key, plain).map_err(|error| Failure::internal(&error.to_string()))
    }

    /// The object of an entry.
    pub(crate) fn decode(
        &self,
        resource: &Resource,
        mut entry: Entry,
        extent: Extent,
    ) -> Result<Value, Failure> {
        self.open(resource, &mut entry)?;
        decode(&entry, extent)
    }
}
