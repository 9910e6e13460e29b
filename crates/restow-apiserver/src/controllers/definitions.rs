//! Follows CustomResourceDefinitions: what they define is served while they are there.
//!
//! Each server follows them by itself. A version is changed in the order that `restow-storageversion` asks for: no new
//! writes, those under way end, the new version is registered, the definition is found unchanged, writes under it begin.

mod cleanup;
mod registered;
mod status;

pub(crate) use cleanup::FINALIZER;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt as _;
use restow_core::resource::name::GroupResource;
use restow_lease::Stop;
use restow_storageversion::CustomResource;
use restow_store::{Change, Entry, Range, StoreError};
use serde_json::Value;
use tokio::task::JoinHandle;
use tokio::time::MissedTickBehavior;

use crate::object::meta::is_deleting;
use crate::object::stored::Extent;
use crate::registry::custom_resource::resource;
use crate::registry::served::Resource;
use crate::verbs::api::Api;

/// Where definitions are stored.
const PREFIX: &str = "/registry/apiextensions.k8s.io/customresourcedefinitions/";
/// How many are read at once.
const PAGE: usize = 100;
/// How long to wait after the store failed, and how often registrations are looked after.
const EVERY: Duration = Duration::from_secs(1);

/// The controller of definitions.
pub(crate) struct Definitions {
    api: Arc<Api>,
    client: kube::Client,
    stop: Stop,
    known: BTreeMap<String, Known>,
    holder: String,
}

/// What is followed.
enum Followed {
    Definitions,
    Registered,
}

/// A definition as it was last seen.
struct Known {
    object: Value,
    writer: CustomResource,
    /// Whether its status is to be written still.
    owes_status: bool,
    /// Deletes its objects, beside what becomes of other definitions.
    cleaning: Option<JoinHandle<()>>,
}

impl Definitions {
    pub(crate) fn new(api: Arc<Api>, client: kube::Client, stop: Stop) -> Self {
        Self { api, client, stop, known: BTreeMap::new(), holder: String::new() }
    }

    /// Serves what is defined now, and tells at which revision that was.
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

    /// Follows changes after a revision until told to stop.
    pub(crate) async fn run(mut self, mut after: u64) {
        let stop = self.stop.clone();
        let following = async {
            loop {
                let error = self.follow(after).await;
                tracing::warn!("definitions are read again: {error}");
                after = loop {
                    tokio::time::sleep(EVERY).await;
                    match self.load().await {
                        Ok(revision) => break revision,
                        Err(error) => tracing::warn!("definitions cannot be read: {error}"),
                    }
                };
                // What has become of the registrations meanwhile is looked at too.
                self.holder.clear();
            }
        };
        stop.unless(following).await;
    }

    async fn follow(&mut self, after: u64) -> StoreError {
        let mut changes = match self.api.store.watch(PREFIX, after).await {
            Ok(changes) => changes,
            Err(error) => return error,
        };
        // Somebody may delete what this server has registered.
        let mut registered = match self.api.store.watch(registered::PREFIX, after).await {
            Ok(registered) => registered,
            Err(error) => return error,
        };
        let mut tick = tokio::time::interval(EVERY);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            let readiness = self.api.gate.readiness();
            let is_new = self.api.gate.tenure().is_none_or(|tenure| tenure.holder() != self.holder);
            let told = tokio::select! {
                biased;
                // First, because changes may come without a pause.
                _ = tick.tick() => {
                    self.look_after().await;
                    continue;
                }
                // Writes of custom resources begin as soon as the server is a member.
                () = readiness.ready(), if is_new => {
                    self.look_after().await;
                    continue;
                }
                told = changes.next() => told.map(|told| (told, Followed::Definitions)),
                told = registered.next() => told.map(|told| (told, Followed::Registered)),
            };
            match told {
                Some((Ok(told), Followed::Definitions)) => {
                    for Change { key, now, .. } in told.changes {
                        self.take(name(&key).to_owned(), now).await;
                    }
                }
                Some((Ok(told), Followed::Registered)) => {
                    for Change { key, .. } in told.changes {
                        self.attend(&key).await;
                    }
                }
                Some((Err(error), _)) => return error,
                None => return StoreError::Unavailable("the watch has ended".to_owned()),
            }
        }
    }

    /// Registers everything again after this server was taken for gone, and ends what was begun.
    async fn look_after(&mut self) {
        let Some(tenure) = self.api.gate.tenure() else { return };
        let renewed = self.holder != tenure.holder();
        tenure.holder().clone_into(&mut self.holder);
        let names: Vec<String> = self.known.keys().cloned().collect();
        for name in names {
            let unfinished = self.known.get(&name).is_some_and(|known| {
                known.writer.write().is_none() || known.owes_status || is_deleting(&known.object)
            });
            if renewed || unfinished {
                let entry = self.api.entry(&format!("{PREFIX}{name}")).await;
                if let Ok(entry) = entry {
                    self.take(name, entry).await;
                }
            }
        }
        if renewed {
            self.attend_all().await;
        }
    }

    /// Takes a definition as it is now.
    async fn take(&mut self, name: String, entry: Option<Entry>) {
        let Some(definitions) =
            self.api.registry.built_in("apiextensions.k8s.io", "customresourcedefinitions")
        else {
            return;
        };
        let decoded = entry.map(|entry| self.api.decode(&definitions, entry, Extent::Whole));
        let object = match decoded.transpose() {
            Ok(object) => object,
            Err(failure) => return tracing::warn!(%name, "a definition cannot be read: {failure}"),
        };
        let Some(object) = object else {
            self.drop(&name).await;
            // Names that it had may be what others wait for.
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
        let known = Known { object: settled.clone(), writer: writer.clone(), owes_status: false, cleaning };
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
                tracing::warn!(%name, "the objects of a deleted definition cannot be read: {failure}")
            }
        }
    }

    async fn drop(&mut self, name: &str) {
        if let Some(known) = self.known.remove(name) {
            self.api.registry.set(name, None);
            // Nobody writes what is not defined any more, and nobody is to wait for this server's word on it.
            let drained = known.writer.drain().await;
            if let Some(tenure) = self.api.gate.tenure()
                && let Err(error) = drained.unregister(&self.client, &tenure, &self.stop).await
            {
                tracing::info!(%name, "what was registered is taken back later: {error}");
                self.holder.clear();
            }
        }
    }

    /// Whether a definition, read anew, is still the same; what cannot be read is taken up again later.
    async fn is_defined_so(&self, name: &str, definition: &Value) -> bool {
        let entry = self.api.entry(&format!("{PREFIX}{name}")).await.ok().flatten();
        let definitions = self.api.registry.built_in("apiextensions.k8s.io", "customresourcedefinitions");
        entry.zip(definitions).is_some_and(|(entry, definitions)| {
            let now = self.api.decode(&definitions, entry, Extent::Whole);
            now.is_ok_and(|now| now["spec"] == definition["spec"])
        })
    }

    /// Serves a resource as its definition says now; `again` registers it though it is registered, as far as is known.
    async fn serve(&self, name: &str, definition: &Value, writer: CustomResource, again: bool) {
        let before = self.api.registry.served().custom.get(name).cloned();
        let custom = before.as_ref().and_then(|before| before.custom()).map(|before| &**before);
        let Some(resource) = resource(definition, writer.clone(), custom).map(Arc::new) else { return };
        let versions = match resource.registered() {
            Ok(versions) => versions,
            Err(error) => return tracing::warn!(%name, "a definition cannot be served: {error}"),
        };
        let same = before.is_some_and(|before| before.registered().ok().as_ref() == Some(&versions));
        if same && !again && writer.write().is_some() {
            self.api.registry.set(name, Some(resource));
            return;
        }
        let Some(tenure) = self.api.gate.tenure() else {
            // It can be read; writes begin when the server is a member.
            self.api.registry.set(name, Some(resource));
            return;
        };
        let drained = writer.drain().await;
        self.api.registry.set(name, Some(resource));
        let still_defined = async || self.is_defined_so(name, definition).await;
        if let Err(error) = drained.register(&self.client, &tenure, versions, still_defined, &self.stop).await
        {
            tracing::warn!(%name, "a custom resource is not registered: {error}");
        }
    }
}

fn name(key: &str) -> &str {
    key.strip_prefix(PREFIX).unwrap_or(key)
}

fn resource_name(definition: &Value) -> GroupResource {
    let spec = &definition["spec"];
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    GroupResource::new(text(&spec["group"]), text(&spec["names"]["plural"]))
}

/// Whether a definition has the name of a built-in resource, which goes on to be served in its stead, as kube-apiserver
/// has it.
fn is_built_in(api: &Api, definition: &Value) -> bool {
    let name = resource_name(definition);
    api.registry.built_in(&name.group, &name.resource).is_some()
}

/// Whether a resource takes new objects: not while its definition is being deleted.
pub(crate) fn takes_new(resource: &Resource) -> bool {
    resource.custom().is_none_or(|custom| !is_deleting(&custom.object))
}
