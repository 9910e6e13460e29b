//! Keeps this server's registrations: another client may delete them, and a former run of the server may have registered
//! resources that this one does not serve.

use std::collections::BTreeSet;

use k8s_openapi::api::apiserverinternal::v1alpha1::StorageVersion;
use restow_core::protocol::storage_version::{self, OwnEntryAction, Versions};
use restow_core::resource::name::GroupResource;
use restow_storageversion::registration::Resource as Registration;
use restow_storageversion::{CustomResource, Tenure, register};
use restow_store::Range;

use super::controller::DefinitionController;
use super::stored::PAGE;
use crate::http::status::StatusError;
use crate::object::stored::{DecodeScope, refused};
use crate::registry::resource::Resource;

/// The prefix of the keys of StorageVersions.
pub(super) const PREFIX: &str = "/registry/storageversions/";

impl DefinitionController {
    /// Checks all StorageVersions that exist or should exist.
    pub(super) async fn check_all(&mut self) {
        match self.keys().await {
            Ok(keys) => {
                for key in keys {
                    self.check(&key).await;
                }
            }
            Err(failure) => {
                tracing::warn!("could not list StorageVersions: {failure}; retrying");
                self.holder.clear();
            }
        }
    }

    /// Checks this server's entry in one StorageVersion.
    pub(super) async fn check(&mut self, key: &str) {
        // A server that is not a member registers everything when it becomes one.
        let Some(tenure) = self.api.gate.tenure() else { return };
        let resource = storage_version::resource(key.strip_prefix(PREFIX).unwrap_or(key));
        let entries = match self.entries(key).await {
            Ok(entries) => entries,
            Err(failure) => {
                tracing::warn!(%key, "could not read a StorageVersion: {failure}; retrying");
                return self.holder.clear();
            }
        };
        let handled = self.handled(&resource);
        match storage_version::own_entry_action(&entries, &self.api.server_id, handled.as_ref()) {
            OwnEntryAction::Keep => {}
            OwnEntryAction::Register => self.register_again(resource, handled, &tenure).await,
            OwnEntryAction::Drop => {
                tracing::info!(%resource, "removing the registration of a resource that this server does not serve");
                let drained = CustomResource::disabled(resource).drain().await;
                if drained.unregister(&self.client, &tenure, &self.stop).await.is_err() {
                    self.holder.clear();
                }
            }
        }
    }

    async fn register_again(&self, name: GroupResource, versions: Option<Versions>, tenure: &Tenure) {
        let definition = format!("{}.{}", name.resource, name.group);
        // A built-in resource is served even if a definition has its name.
        let built_in = self.api.registry.built_in(&name.group, &name.resource);
        if let Some(known) = self.known.get(&definition).filter(|_| built_in.is_none()) {
            // A resource without writes is registered before writes are admitted.
            if known.writer.write().is_some() {
                tracing::warn!(resource = %name, "the registration of the resource is missing; registering it again");
                self.serve(&definition, &known.object, known.writer.clone(), true).await;
            }
        } else if let Some(versions) = versions {
            tracing::warn!(resource = %name, "the registration of the resource is missing; registering it again");
            let resource = Registration { name, versions };
            if let Err(error) = register(&self.client, tenure, &[resource], &self.stop).await {
                tracing::warn!("could not register a built-in resource again: {error}");
            }
        }
    }

    /// How this server handles a resource; none if it does not.
    fn handled(&self, name: &GroupResource) -> Option<Versions> {
        let served = self.api.registry.served();
        let named = |resource: &&std::sync::Arc<Resource>| resource.name == *name;
        served.all().find(named).and_then(|resource| resource.registered().ok())
    }

    /// The keys of all StorageVersions that exist or should exist.
    async fn keys(&self) -> Result<BTreeSet<String>, StatusError> {
        let served = self.api.registry.served();
        let should_be =
            served.all().map(|resource| format!("{PREFIX}{}", storage_version::name(&resource.name)));
        let mut keys: BTreeSet<String> = should_be.collect();
        let mut range = Range { prefix: PREFIX.to_owned(), start: None, limit: PAGE, revision: None };
        loop {
            let listed = self.api.store.list(range.clone()).await.map_err(|error| refused(&error))?;
            range.start = listed.entries.last().map(|entry| format!("{}\0", entry.key));
            keys.extend(listed.entries.into_iter().map(|entry| entry.key));
            if listed.remaining == 0 {
                return Ok(keys);
            }
        }
    }

    async fn entries(&self, key: &str) -> Result<Vec<storage_version::Entry>, StatusError> {
        let kind = self.api.registry.built_in(storage_version::GROUP, storage_version::RESOURCE);
        let (Some(entry), Some(kind)) = (self.api.entry(key).await?, kind) else { return Ok(Vec::new()) };
        let object = self.api.decode(&kind, entry, DecodeScope::Whole)?;
        let object: StorageVersion =
            serde_json::from_value(object).map_err(|error| StatusError::internal(&error.to_string()))?;
        Ok(storage_version::entries(object.status.as_ref()))
    }
}
