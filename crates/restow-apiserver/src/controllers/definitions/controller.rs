//! The known definitions: how each is accepted, served and dropped.

use std::collections::BTreeMap;
use std::sync::Arc;

use restow_lease::Stop;
use restow_storageversion::CustomResource;
use restow_store::{Entry, Range, StoreError};
use serde_json::Value;
use tokio::task::JoinHandle;

use super::stored::{PAGE, PREFIX, is_built_in, name, resource_name};
use crate::object::meta::is_deleting;
use crate::object::stored::DecodeScope;
use crate::registry::resource::resource;
use crate::verbs::api::Api;

use super::{cleanup, status};

pub(crate) struct DefinitionController {
    pub(super) api: Arc<Api>,
    pub(super) client: kube::Client,
    pub(super) stop: Stop,
    pub(super) known: BTreeMap<String, KnownDefinition>,
    pub(super) holder: String,
}

/// A definition as it was last seen.
pub(super) struct KnownDefinition {
    pub(super) object: Value,
    pub(super) writer: CustomResource,
    /// Whether its status still has to be written.
    pub(super) owes_status: bool,
    /// Deletes its objects, concurrently with the work on other definitions.
    pub(super) cleaning: Option<JoinHandle<()>>,
}

impl DefinitionController {
    pub(crate) fn new(api: Arc<Api>, client: kube::Client, stop: Stop) -> Self {
        Self { api, client, stop, known: BTreeMap::new(), holder: String::new() }
    }

    /// Lists and serves all definitions, and returns the revision of the list.
    pub(crate) async fn load(&mut self) -> Result<u64, StoreError> {
        let mut range = Range { prefix: PREFIX.to_owned(), start: None, limit: PAGE, revision: None };
        let mut seen = Vec::new();
        loop {
            let listed = self.api.store.list(range.clone()).await?;
            range.start = listed.entries.last().map(|entry| format!("{}\0", entry.key));
            range.revision = Some(listed.revision);
            for entry in listed.entries {
                seen.push(name(&entry.key).to_owned());
                self.take(name(&entry.key).to_owned(), Some(entry)).await;
            }
            if listed.remaining == 0 {
                break;
            }
        }
        let gone: Vec<String> = self.known.keys().filter(|name| !seen.contains(name)).cloned().collect();
        for name in gone {
            self.take(name, None).await;
        }
        Ok(range.revision.unwrap_or_default())
    }

    /// Handles the current state of a definition.
    pub(super) async fn take(&mut self, name: String, entry: Option<Entry>) {
        let Some(definitions) =
            self.api.registry.built_in("apiextensions.k8s.io", "customresourcedefinitions")
        else {
            return;
        };
        let decoded = entry.map(|entry| self.api.decode(&definitions, entry, DecodeScope::Whole));
        let object = match decoded.transpose() {
            Ok(object) => object,
            Err(failure) => {
                return tracing::warn!(%name, "could not read a CustomResourceDefinition: {failure}");
            }
        };
        let Some(object) = object else {
            self.drop(&name).await;
            // Other definitions may wait for its names.
            self.holder.clear();
            return;
        };
        let (settled, has_objects) = if is_deleting(&object) {
            let has_objects = cleanup::has_objects(&self.api, &object).await;
            let accepted = matches!(has_objects, Ok(true)).then(|| status::accepted(&object));
            (accepted.unwrap_or_else(|| object.clone()), has_objects)
        } else {
            let others = self.known.iter().filter(|(other, _)| **other != name);
            (status::settled(&object, others.map(|(_, known)| &known.object)), Ok(true))
        };
        let (writer, cleaning) = match self.known.remove(&name) {
            Some(known) => (known.writer, known.cleaning),
            None => (CustomResource::disabled(resource_name(&object)), None),
        };
        let cleaning = cleaning.filter(|cleaning| !cleaning.is_finished());
        let is_cleaning = cleaning.is_some();
        let known =
            KnownDefinition { object: settled.clone(), writer: writer.clone(), owes_status: false, cleaning };
        self.known.insert(name.clone(), known);
        if status::is_accepted(&settled) && !is_built_in(&self.api, &settled) {
            self.serve(&name, &settled, writer, false).await;
        }
        let Some(known) = self.known.get_mut(&name) else { return };
        if !is_deleting(&object) {
            known.owes_status = settled != object && !status::write(&self.client, &settled).await;
            return;
        }
        match has_objects {
            Ok(_) if is_cleaning => {}
            Ok(has_objects) => {
                let (api, client, stop) = (Arc::clone(&self.api), self.client.clone(), self.stop.clone());
                let cleaning = cleanup::clean(api, client, settled, has_objects, stop);
                known.cleaning = Some(tokio::spawn(cleaning));
            }
            Err(failure) => {
                tracing::warn!(%name, "could not list the objects of a deleted CustomResourceDefinition: {failure}")
            }
        }
    }

    pub(super) async fn drop(&mut self, name: &str) {
        if let Some(known) = self.known.remove(name) {
            self.api.registry.set(name, None);
            // No more writes: the resource is no longer defined, and other servers must not wait for this registration.
            let drained = known.writer.drain().await;
            if let Some(tenure) = self.api.gate.tenure()
                && let Err(error) = drained.unregister(&self.client, &tenure, &self.stop).await
            {
                tracing::info!(%name, "could not remove the registration of a deleted CustomResourceDefinition: {error}; retrying");
                self.holder.clear();
            }
        }
    }

    /// Whether a definition, read again, is unchanged. If it cannot be read, it is retried later.
    async fn is_defined_so(&self, name: &str, definition: &Value) -> bool {
        let entry = self.api.entry(&format!("{PREFIX}{name}")).await.ok().flatten();
        let definitions = self.api.registry.built_in("apiextensions.k8s.io", "customresourcedefinitions");
        entry.zip(definitions).is_some_and(|(entry, definitions)| {
            let now = self.api.decode(&definitions, entry, DecodeScope::Whole);
            now.is_ok_and(|now| now["spec"] == definition["spec"])
        })
    }

    /// Serves a resource under its current definition. `again` registers it even if it is known to be registered.
    pub(super) async fn serve(&self, name: &str, definition: &Value, writer: CustomResource, again: bool) {
        let before = self.api.registry.served().custom.get(name).cloned();
        let custom = before.as_ref().and_then(|before| before.custom()).map(|before| &**before);
        let Some(resource) = resource(definition, writer.clone(), custom).map(Arc::new) else { return };
        let versions = match resource.registered() {
            Ok(versions) => versions,
            Err(error) => return tracing::warn!(%name, "could not serve a CustomResourceDefinition: {error}"),
        };
        let same = before.is_some_and(|before| before.registered().ok().as_ref() == Some(&versions));
        if same && !again && writer.write().is_some() {
            self.api.registry.set(name, Some(resource));
            return;
        }
        let Some(tenure) = self.api.gate.tenure() else {
            // It can be read. Writes are admitted when the server is a member.
            self.api.registry.set(name, Some(resource));
            return;
        };
        let drained = writer.drain().await;
        self.api.registry.set(name, Some(resource));
        let still_defined = async || self.is_defined_so(name, definition).await;
        if let Err(error) = drained.register(&self.client, &tenure, versions, still_defined, &self.stop).await
        {
            tracing::warn!(%name, "could not register a custom resource: {error}");
        }
    }
}
