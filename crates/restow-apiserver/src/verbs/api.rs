//! What every handler uses: the store, the registry, and conversion.

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
use crate::http::status::StatusError;
use crate::object::stored::{DecodeScope, decode, refused};
use crate::registry::conversion::Converter;
use crate::registry::resource::Resource;
use crate::registry::served::Registry;
use crate::verbs::document_cache::DocumentCache;
use crate::verbs::store_health::StoreHealth;
use crate::verbs::workers::Workers;

/// The message of a write to a custom resource that is not registered.
pub(crate) const NOT_REGISTERED: &str = "the storage version of this resource is not registered yet";

/// What every handler uses.
pub(crate) struct Api {
    /// Users and their permissions.
    pub access: Arc<Access>,
    /// The store of objects.
    pub store: Arc<dyn Store>,
    /// The served resources.
    pub registry: Arc<Registry>,
    /// Admits writes once all storage versions are registered.
    pub gate: Gate,
    /// Calls conversion webhooks.
    pub converter: Arc<dyn Converter>,
    /// The encryption at rest; none for plain text.
    pub encryption: Arc<ArcSwapOption<Transformers>>,
    /// When the encryption configuration was last reloaded, in seconds; 0 for never.
    pub encryption_reloaded: AtomicI64,
    /// The last health check of the store.
    pub store_health: StoreHealth,
    pub server_id: String,
    /// The start time, in seconds.
    pub started: i64,
    /// Threads for work on large objects.
    pub workers: Workers,
    /// Cached OpenAPI documents.
    pub documents: DocumentCache,
    /// Cancelled when the server stops.
    pub stopped: CancellationToken,
}

impl Api {
    /// The entry under a key.
    pub(crate) async fn entry(&self, key: &str) -> Result<Option<Entry>, StatusError> {
        Ok(self.store.get(key).await.map_err(|error| refused(&error))?.entry)
    }

    /// Decrypts an entry, and returns whether it would be encrypted differently now.
    pub(crate) fn decrypt(&self, resource: &Resource, entry: &mut Entry) -> Result<bool, StatusError> {
        let Some(encryption) = &*self.encryption.load() else { return Ok(false) };
        let transformer = encryption.of(&resource.stored.group, &resource.name.resource);
        let decrypted = transformer.decrypt(&entry.key, std::mem::take(&mut entry.value));
        let decrypted = decrypted.map_err(|error| StatusError::internal(&error.to_string()))?;
        entry.value = decrypted.plain;
        Ok(decrypted.stale)
    }

    /// Encrypts the bytes of an object.
    pub(crate) fn encrypt(&self, resource: &Resource, key: &str, plain: Bytes) -> Result<Bytes, StatusError> {
        let Some(encryption) = &*self.encryption.load() else { return Ok(plain) };
        let transformer = encryption.of(&resource.stored.group, &resource.name.resource);
        transformer.encrypt(key, plain).map_err(|error| StatusError::internal(&error.to_string()))
    }

    /// The object of an entry.
    pub(crate) fn decode(
        &self,
        resource: &Resource,
        mut entry: Entry,
        decode_scope: DecodeScope,
    ) -> Result<Value, StatusError> {
        self.decrypt(resource, &mut entry)?;
        decode(&entry, decode_scope)
    }
}
