//! Keeps the graph as what is stored: one scan, then every change in order.

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
use crate::object::stored::Extent;
use crate::registry::resource::Resource;
use crate::registry::served::Served;

const PREFIX: &str = "/registry/";
/// Events own nothing and are owned by nobody that matters: they expire.
const EVENTS: &str = "/registry/events/";
/// How many entries are read at once.
const PAGE: usize = 500;
/// How often owners of unknown kinds are looked for, if other kinds are served by then.
const EVERY: Duration = Duration::from_secs(5);
/// What every sealed value begins with.
const SEALED: &[u8] = b"k8s:enc:";

/// What an object that matters here says; all others are not read.
static MARK: LazyLock<Option<Regex>> =
    LazyLock::new(|| Regex::new(r#""(?:ownerReferences|deletionTimestamp)""#).ok());

/// Where an owner is.
pub(super) enum Owner {
    /// It would be here.
    At(Arc<Resource>, String),
    /// Nobody knows its kind, for now.
    Unknown,
    /// An object outside of namespaces cannot be owned by one in a namespace.
    Nowhere,
}

/// Where the owner of an object in a namespace is.
pub(super) fn owner(served: &Served, reference: &Reference, namespace: &str) -> Owner {
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
    /// Follows what is stored; never ends.
    pub(super) async fn follow(&self) {
        loop {
            if let Err(error) = self.follow_on().await {
                tracing::warn!("owners are read again: {error}");
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
                told = changes.next() => {
                    let Some(told) = told.transpose()? else { return Ok(()) };
                    for change in told.changes {
                        self.take(&mut unknown, &change.key, change.now);
                    }
                    self.state().graph.revision = told.revision;
                    self.more.notify_one();
                }
            }
        }
    }

    /// Reads everything once; nothing is acted on before all of it is known.
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

    /// Takes an object as it is now, and puts into the queue whom that concerns.
    fn take(&self, unknown: &mut BTreeSet<Arc<str>>, key: &str, now: Option<Entry>) {
        if key.starts_with(EVENTS) {
            return;
        }
        let Some(entry) = now else {
            unknown.remove(key);
            let mut state = self.state();
            let attend = state.graph.remove(key);
            return attend.into_iter().for_each(|key| state.queue.push(key));
        };
        let served = self.api.registry.served();
        let object = self.read(&served, entry);
        let mut state = self.state();
        if object.is_none() && !state.graph.is_owned(key) && !state.graph.waits(key) {
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
        let mut attend = state.graph.own(&key, links);
        attend.extend(state.graph.wait(&key, is_waiting(&object)));
        attend.extend(is_orphaning(&object).then(|| Arc::clone(&key)));
        attend.into_iter().for_each(|key| state.queue.push(key));
    }

    /// The metadata of an object, if it matters.
    fn read(&self, served: &Served, mut entry: Entry) -> Option<Value> {
        let resource = || resource_of(served, &entry.key).cloned();
        if entry.value.starts_with(SEALED) {
            let resource = resource()?;
            self.api.open(&resource, &mut entry).ok()?;
        }
        let matters = MARK.as_ref().is_none_or(|mark| mark.is_match(&entry.value));
        matters.then(|| crate::object::stored::decode(&entry, Extent::Metadata).ok()).flatten()
    }
}

/// The owners of an object whose kinds are known, and whether those are all.
fn links(served: &Served, state: &State, key: &str, object: &Value) -> (Vec<Link>, bool) {
    let mut all_known = true;
    let Some(resource) = resource_of(served, key) else {
        // It is read again when it is served.
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
    fn owners_are_found_where_they_would_be() {
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
    fn few_objects_matter() {
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
