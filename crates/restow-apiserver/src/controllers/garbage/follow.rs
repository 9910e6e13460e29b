//! Keeps the graph in step with the store: one scan, then every change in order.

use std::collections::BTreeSet;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use futures::StreamExt as _;
use regex::bytes::Regex;
use restow_store::{Entry, Range, StoreError};
use serde_json::Value;

use super::collector::{Collector, PAUSE, State};
use super::graph::{Link, digest};
use super::reference::{Reference, is_orphaning, is_waiting, references};
use crate::controllers::place::{namespace, resource_of};
use crate::object::stored::DecodeScope;
use crate::registry::resource::Resource;
use crate::registry::served::ServedResources;

const PREFIX: &str = "/registry/";
/// Events are skipped: they expire on their own.
const EVENTS: &str = "/registry/events/";
/// The page size of lists.
const PAGE: usize = 500;
/// How often owners of unknown kinds are looked up again, if the served kinds have changed.
const EVERY: Duration = Duration::from_secs(5);
/// The prefix of encrypted values.
const SEALED: &[u8] = b"k8s:enc:";

/// Matches objects with owners or with a finalizer of the garbage collector. All others are skipped.
static MARK: LazyLock<Option<Regex>> =
    LazyLock::new(|| Regex::new(r#""(?:ownerReferences|deletionTimestamp)""#).ok());

/// The location of an owner.
pub(super) enum Owner {
    /// The key that the owner would have.
    At(Arc<Resource>, String),
    /// Its kind is not served now.
    Unknown,
    /// A cluster-scoped object cannot have a namespaced owner.
    Nowhere,
}

/// The location of an owner of an object in a namespace.
pub(super) fn owner(served: &ServedResources, reference: &Reference, namespace: &str) -> Owner {
    let (group, version) = reference.api_version.rsplit_once('/').unwrap_or(("", &reference.api_version));
    let is_kind = |resource: &&Arc<Resource>| {
        resource.name.group == group
            && resource.kind == reference.kind
            && resource.versions.iter().any(|served| served.name == version)
    };
    match served.all().find(is_kind) {
        None => Owner::Unknown,
        Some(resource) if resource.namespaced && namespace.is_empty() => Owner::Nowhere,
        Some(resource) => Owner::At(Arc::clone(resource), resource.key(namespace, &reference.name)),
    }
}

impl Collector {
    /// Follows the store; never ends.
    pub(super) async fn follow(&self) {
        loop {
            if let Err(error) = self.follow_on().await {
                tracing::warn!("the garbage collector lost its watch: {error}; listing all objects again");
            }
            tokio::time::sleep(PAUSE).await;
        }
    }

    async fn follow_on(&self) -> Result<(), StoreError> {
        let mut unknown = BTreeSet::new();
        let mut served = self.api.registry.served();
        let revision = self.scan(&mut unknown).await?;
        let mut changes = self.api.store.watch(PREFIX, revision).await?;
        let mut tick = tokio::time::interval(EVERY);
        loop {
            tokio::select! {
                biased;
                _ = tick.tick() => {
                    let before = std::mem::replace(&mut served, self.api.registry.served());
                    if Arc::ptr_eq(&before, &served) {
                        continue;
                    }
                    for key in std::mem::take(&mut unknown) {
                        let entry = self.api.store.get(&key).await?.entry;
                        self.take(&mut unknown, &key, entry);
                    }
                    self.more.notify_one();
                }
                event = changes.next() => {
                    let Some(event) = event.transpose()? else { return Ok(()) };
                    for change in event.changes {
                        self.take(&mut unknown, &change.key, change.now);
                    }
                    self.state().graph.revision = event.revision;
                    self.more.notify_one();
                }
            }
        }
    }

    /// Lists everything once. Nothing is processed before the scan is complete.
    async fn scan(&self, unknown: &mut BTreeSet<Arc<str>>) -> Result<u64, StoreError> {
        *self.state() = State::default();
        let mut range = Range { prefix: PREFIX.to_owned(), start: None, limit: PAGE, revision: None };
        loop {
            let listed = self.api.store.list(range.clone()).await?;
            range.start = listed.entries.last().map(|entry| format!("{}\0", entry.key));
            range.revision = Some(listed.revision);
            for entry in listed.entries {
                self.take(unknown, &entry.key.clone(), Some(entry));
            }
            if listed.remaining == 0 {
                self.state().graph.revision = listed.revision;
                self.more.notify_one();
                return Ok(listed.revision);
            }
        }
    }

    /// Records the current state of an object, and queues the objects that it affects.
    fn take(&self, unknown: &mut BTreeSet<Arc<str>>, key: &str, now: Option<Entry>) {
        if key.starts_with(EVENTS) {
            return;
        }
        let Some(entry) = now else {
            unknown.remove(key);
            let mut state = self.state();
            let affected = state.graph.remove(key);
            return affected.into_iter().for_each(|key| state.queue.push(key));
        };
        let served = self.api.registry.served();
        let object = self.read(&served, entry);
        let mut state = self.state();
        if object.is_none() && !state.graph.is_owned(key) && !state.graph.is_waiting(key) {
            return;
        }
        let key: Arc<str> = state.graph.owner(key).unwrap_or_else(|| Arc::from(key));
        let object = object.unwrap_or_default();
        let (links, all_known) = links(&served, &state, &key, &object);
        if all_known {
            unknown.remove(&key);
        } else {
            unknown.insert(Arc::clone(&key));
        }
        let mut affected = state.graph.set_owners(&key, links);
        affected.extend(state.graph.set_waiting(&key, is_waiting(&object)));
        affected.extend(is_orphaning(&object).then(|| Arc::clone(&key)));
        affected.into_iter().for_each(|key| state.queue.push(key));
    }

    /// The metadata of an object, if the garbage collector needs it.
    fn read(&self, served: &ServedResources, mut entry: Entry) -> Option<Value> {
        let resource = || resource_of(served, &entry.key).cloned();
        if entry.value.starts_with(SEALED) {
            let resource = resource()?;
            self.api.decrypt(&resource, &mut entry).ok()?;
        }
        let matters = MARK.as_ref().is_none_or(|mark| mark.is_match(&entry.value));
        matters.then(|| crate::object::stored::decode(&entry, DecodeScope::Metadata).ok()).flatten()
    }
}

/// The owners of known kinds, and whether those are all owners.
fn links(served: &ServedResources, state: &State, key: &str, object: &Value) -> (Vec<Link>, bool) {
    let mut all_known = true;
    let Some(resource) = resource_of(served, key) else {
        // It is read again when its resource is served.
        return (Vec::new(), references(object).is_empty());
    };
    let mut links = Vec::new();
    for reference in references(object) {
        match owner(served, &reference, namespace(resource, key)) {
            Owner::At(_, owner) => links.push(Link {
                owner: state.graph.owner(&owner).unwrap_or_else(|| Arc::from(owner)),
                uid: digest(&reference.uid),
                blocks: reference.blocks,
            }),
            Owner::Unknown => all_known = false,
            Owner::Nowhere => {}
        }
    }
    (links, all_known)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::registry::served::Registry;

    #[test]
    fn an_owner_is_looked_up_by_kind_name_and_namespace() {
        let served = Registry::default().served();
        for (api_version, kind, namespace, expected) in [
            ("v1", "ConfigMap", "x", "/registry/configmaps/x/o"),
            ("apps/v1", "Deployment", "x", "/registry/deployments/x/o"),
            ("v1", "Namespace", "x", "/registry/namespaces/o"),
            ("v1", "Namespace", "", "/registry/namespaces/o"),
            ("v1", "ConfigMap", "", "nowhere"),
            ("apps/v2", "Deployment", "x", "unknown"),
            ("v1", "Deployment", "x", "unknown"),
        ] {
            let object = json!({"metadata": {"ownerReferences": [
                {"apiVersion": api_version, "kind": kind, "name": "o", "uid": "u"},
            ]}});
            let found = match owner(&served, &references(&object)[0], namespace) {
                Owner::At(_, key) => key,
                Owner::Unknown => "unknown".to_owned(),
                Owner::Nowhere => "nowhere".to_owned(),
            };
            assert_eq!(found, expected, "{api_version} {kind} in {namespace:?}");
        }
    }

    #[test]
    fn objects_without_owners_or_finalizers_are_skipped() {
        let mark = MARK.as_ref().unwrap();
        for (text, expected) in [
            (r#"{"metadata":{"ownerReferences":[]}}"#, true),
            (r#"{"metadata":{"deletionTimestamp":"x"}}"#, true),
            (r#"{"metadata":{"managedFields":[{"fieldsV1":{"f:ownerReferences":{}}}]}}"#, false),
            (r#"{"metadata":{"name":"a"}}"#, false),
        ] {
            assert_eq!(mark.is_match(text.as_bytes()), expected, "{text}");
        }
    }
}
