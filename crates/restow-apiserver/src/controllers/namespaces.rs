//! Empties terminating namespaces, then deletes them.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use futures::{StreamExt as _, TryStreamExt as _, stream};
use restow_store::{Entry, Range, StoreError};
use serde_json::{Value, json};

use super::place::path;
use super::writer::{WriteResult, Writer};
use crate::http::status::StatusError;
use crate::object::meta::delete::Options;
use crate::object::meta::{is_deleting, name};
use crate::object::stored::{DecodeScope, refused};
use crate::registry::resource::Resource;
use crate::verbs::api::Api;
use crate::verbs::delete::delete_stored;

const PREFIX: &str = "/registry/namespaces/";
/// The finalizer of a namespace that is not empty.
const FINALIZER: &str = "kubernetes";
/// The page size of lists.
const PAGE: usize = 500;
/// How many objects are deleted concurrently.
const AT_ONCE: usize = 16;
/// The interval of retries.
const EVERY: Duration = Duration::from_millis(500);

/// Why a namespace could not be emptied.
#[derive(Debug, thiserror::Error)]
enum EmptyError {
    #[error("could not list the objects of the namespace: {0}")]
    Read(StatusError),
    #[error("could not delete an object: {0}")]
    Write(#[from] kube::Error),
    #[error("could not delete an object: {0}")]
    Delete(StatusError),
}

impl From<StoreError> for EmptyError {
    fn from(error: StoreError) -> Self {
        Self::Read(refused(&error))
    }
}

/// Watches namespaces, and empties terminating ones; never ends.
pub(super) async fn run(api: Arc<Api>, writer: Writer) {
    loop {
        if let Err(error) = follow(&api, &writer).await {
            tracing::warn!("the watch of Namespaces ended: {error}; listing them again");
        }
        tokio::time::sleep(EVERY).await;
    }
}

async fn follow(api: &Api, writer: &Writer) -> Result<(), StoreError> {
    let range = Range { prefix: PREFIX.to_owned(), start: None, limit: 0, revision: None };
    let listed = api.store.list(range).await?;
    let mut dying: BTreeSet<String> =
        listed.entries.into_iter().filter_map(|entry| dying(api, entry)).collect();
    let mut changes = api.store.watch(PREFIX, listed.revision).await?;
    let mut tick = tokio::time::interval(EVERY);
    loop {
        tokio::select! {
            biased;
            event = changes.next() => {
                let Some(event) = event.transpose()? else { return Ok(()) };
                let entries = event.changes.into_iter().filter_map(|change| change.now);
                dying.extend(entries.filter_map(|entry| self::dying(api, entry)));
            }
            _ = tick.tick(), if !dying.is_empty() => {}
        }
        let keys: Vec<String> = dying.iter().cloned().collect();
        for key in keys {
            match finish(api, writer, &key).await {
                Ok(true) => drop(dying.remove(&key)),
                Ok(false) => {}
                Err(error) => tracing::debug!(%key, "could not empty a namespace: {error}; retrying"),
            }
        }
    }
}

/// The key of a namespace that has to be emptied.
fn dying(api: &Api, entry: Entry) -> Option<String> {
    let namespaces = api.registry.built_in("", "namespaces")?;
    let key = entry.key.clone();
    let namespace = api.decode(&namespaces, entry, DecodeScope::Whole).ok()?;
    is_to_be_emptied(&namespace).then_some(key)
}

/// Whether a namespace has to be emptied.
fn is_to_be_emptied(namespace: &Value) -> bool {
    let finalizers = namespace["spec"]["finalizers"].as_array();
    is_deleting(namespace) && finalizers.is_some_and(|all| all.iter().any(|one| one == FINALIZER))
}

/// The namespace without the finalizer.
fn emptied(mut namespace: Value) -> Value {
    if let Some(finalizers) = namespace["spec"]["finalizers"].as_array_mut() {
        finalizers.retain(|one| one != FINALIZER);
    }
    namespace
}

/// Empties a namespace, and removes its finalizer when nothing is left. Returns whether that is done.
async fn finish(api: &Api, writer: &Writer, key: &str) -> Result<bool, EmptyError> {
    let Some(namespaces) = api.registry.built_in("", "namespaces") else { return Ok(true) };
    let Some(entry) = api.entry(key).await.map_err(EmptyError::Read)? else { return Ok(true) };
    let namespace = api.decode(&namespaces, entry, DecodeScope::Whole).map_err(EmptyError::Read)?;
    if !is_to_be_emptied(&namespace) {
        return Ok(true);
    }
    let mut found = 0;
    // Creates that were admitted before the deletion may be stored after the first list.
    for _ in 0..2 {
        found = empty(api, writer, name(&namespace)).await?;
    }
    if found > 0 {
        return Ok(false);
    }
    let path = format!("/api/v1/namespaces/{}/finalize", name(&namespace));
    let mut namespace = emptied(namespace);
    namespace["apiVersion"] = json!("v1");
    namespace["kind"] = json!("Namespace");
    Ok(writer.replace(&path, &namespace).await? != WriteResult::Changed)
}

/// Deletes everything in a namespace, and returns how many objects were there.
async fn empty(api: &Api, writer: &Writer, namespace: &str) -> Result<usize, EmptyError> {
    let served = api.registry.served();
    let mut seen = BTreeSet::new();
    let mut found = 0;
    // Events of both groups are stored under the same keys.
    for resource in
        served.all().filter(|resource| resource.namespaced && seen.insert(resource.prefix.clone()))
    {
        found += empty_of(api, writer, resource, namespace).await?;
    }
    Ok(found)
}

async fn empty_of(
    api: &Api,
    writer: &Writer,
    resource: &Arc<Resource>,
    namespace: &str,
) -> Result<usize, EmptyError> {
    let mut range = Range { prefix: resource.key(namespace, ""), start: None, limit: PAGE, revision: None };
    let mut found = 0;
    loop {
        let listed = api.store.list(range.clone()).await?;
        found += listed.entries.len();
        range.start = listed.entries.last().map(|entry| format!("{}\0", entry.key));
        let deletes = listed.entries.into_iter().map(|entry| delete(api, writer, resource, entry));
        stream::iter(deletes).buffer_unordered(AT_ONCE).try_collect::<()>().await?;
        if listed.remaining == 0 {
            return Ok(found);
        }
    }
}

async fn delete(
    api: &Api,
    writer: &Writer,
    resource: &Arc<Resource>,
    entry: Entry,
) -> Result<(), EmptyError> {
    let Some(path) = path(resource, &entry.key) else {
        // No version is served, so it has no path.
        let deleted = delete_stored(api, resource, entry, &Options::default()).await;
        return deleted.map(drop).map_err(EmptyError::Delete);
    };
    let object = api.decode(resource, entry, DecodeScope::Metadata).map_err(EmptyError::Read)?;
    if !is_deleting(&object) {
        writer.delete(&path, &object["metadata"], "Background").await?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_terminating_namespaces_are_emptied() {
        for (deleted, finalizers, expected) in [
            (true, json!(["kubernetes"]), true),
            (true, json!(["x.example/f", "kubernetes"]), true),
            (false, json!(["kubernetes"]), false),
            (true, json!(["x.example/f"]), false),
            (true, json!([]), false),
            (true, Value::Null, false),
        ] {
            let at = deleted.then_some("2026-01-01T00:00:00Z");
            let namespace =
                json!({"metadata": {"deletionTimestamp": at}, "spec": {"finalizers": finalizers}});
            assert_eq!(is_to_be_emptied(&namespace), expected, "{namespace}");
            assert!(!is_to_be_emptied(&emptied(namespace)));
        }
    }

    #[test]
    fn finalizers_of_others_are_kept() {
        let namespace = json!({"spec": {"finalizers": ["kubernetes", "x.example/f"]}});
        assert_eq!(emptied(namespace), json!({"spec": {"finalizers": ["x.example/f"]}}));
    }
}
