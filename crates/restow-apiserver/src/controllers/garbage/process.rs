//! Processes one object: reads it and its owners again, and carries the decision out.

use std::sync::Arc;

use restow_store::Entry;
use serde_json::{Value, json};

use super::collector::Collector;
use super::follow::{Owner, owner};
use super::graph::digest;
use super::reference::{
    FOREGROUND, GarbageAction, ORPHAN, Owned, OwnerState, Reference, decide, is_orphaning, is_waiting,
    owner_state, references, unblocked, without, without_finalizer,
};
use crate::controllers::place::{namespace, path, resource_of};
use crate::controllers::writer::WriteResult;
use crate::http::status::StatusError;
use crate::object::meta::delete::Options;
use crate::object::meta::text;
use crate::object::stored::DecodeScope;
use crate::registry::resource::Resource;
use crate::registry::served::ServedResources;
use crate::verbs::delete::delete_stored;

/// How often an object that has changed is read again without a pause.
const TRIES: usize = 3;

/// Whether an object was processed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Processed {
    Done,
    Later,
}

/// Why an object could not be processed.
#[derive(Debug, thiserror::Error)]
enum CollectError {
    #[error("could not read the object: {}", .0.message())]
    Read(StatusError),
    #[error("could not write the object: {0}")]
    Write(#[from] kube::Error),
    #[error("could not delete the object: {}", .0.message())]
    Delete(StatusError),
    #[error("none of its versions is served")]
    NotServed,
    #[error("the object has changed")]
    Changed,
}

/// An object, and its location.
struct Found {
    resource: Arc<Resource>,
    entry: Entry,
    /// The path; none if no version is served: then it can be deleted but not changed.
    path: Option<String>,
    namespace: String,
    object: Value,
}

impl Collector {
    /// Processes the object under a key.
    pub(super) async fn process(&self, key: &Arc<str>) -> Processed {
        for _ in 0..TRIES {
            match self.try_process(key).await {
                Ok(()) => return Processed::Done,
                Err(CollectError::Changed) => {}
                Err(error) => {
                    tracing::debug!(%key, "could not process an owned object: {error}; retrying");
                    return Processed::Later;
                }
            }
        }
        Processed::Later
    }

    async fn try_process(&self, key: &Arc<str>) -> Result<(), CollectError> {
        let served = self.api.registry.served();
        let Some(found) = self.find(&served, key).await? else { return Ok(()) };
        if is_orphaning(&found.object) || is_waiting(&found.object) {
            return self.process_owner(&served, key, &found).await;
        }
        let Some(owners) = self.owners(&served, &found).await? else { return Ok(()) };
        let wrote = match decide(&found.object, &owners, self.owned(key, &found.object)) {
            GarbageAction::Leave => return Ok(()),
            GarbageAction::Disown { uids } => {
                let change = json!({ "ownerReferences": without(&found.object, &uids) });
                self.patch(&found, change).await?
            }
            // It is deleted the next time, because the patch changes its owners and so queues it again.
            GarbageAction::Delete { unblock: true, .. }
                if owners.iter().any(|(reference, _)| reference.blocks) =>
            {
                let change = json!({ "ownerReferences": unblocked(&found.object) });
                self.patch(&found, change).await?
            }
            GarbageAction::Delete { policy, .. } => self.delete(found, policy).await?,
        };
        settled(wrote)
    }

    /// Changes the metadata of an object, unless none of its versions is served.
    async fn patch(&self, found: &Found, change: Value) -> Result<WriteResult, CollectError> {
        match &found.path {
            Some(path) => Ok(self.writer.patch(path, &found.object["metadata"], change).await?),
            None => Err(CollectError::NotServed),
        }
    }

    async fn delete(&self, found: Found, policy: &str) -> Result<WriteResult, CollectError> {
        if let Some(path) = &found.path {
            return Ok(self.writer.delete(path, &found.object["metadata"], policy).await?);
        }
        let options = Options {
            propagation_policy: Some(policy.to_owned()),
            resource_version: Some(text(&found.object, "resourceVersion").to_owned()),
            ..Options::default()
        };
        match delete_stored(&self.api, &found.resource, found.entry, &options).await {
            Ok(_) => Ok(WriteResult::Gone),
            Err(failure) if failure.code() == 409 => Ok(WriteResult::Changed),
            Err(failure) => Err(CollectError::Delete(failure)),
        }
    }

    async fn find(&self, served: &ServedResources, key: &str) -> Result<Option<Found>, CollectError> {
        let Some(resource) = resource_of(served, key) else { return Ok(None) };
        let Some(entry) = self.api.entry(key).await.map_err(CollectError::Read)? else { return Ok(None) };
        let object =
            self.api.decode(resource, entry.clone(), DecodeScope::Metadata).map_err(CollectError::Read)?;
        let namespace = namespace(resource, key).to_owned();
        Ok(Some(Found {
            resource: Arc::clone(resource),
            entry,
            path: path(resource, key),
            namespace,
            object,
        }))
    }

    /// The states of an object's owners; none if not all are known.
    async fn owners(
        &self,
        served: &ServedResources,
        found: &Found,
    ) -> Result<Option<Vec<(Reference, OwnerState)>>, CollectError> {
        let mut owners = Vec::new();
        for reference in references(&found.object) {
            let Owner::At(resource, key) = owner(served, &reference, &found.namespace) else {
                return Ok(None);
            };
            let entry = self.api.entry(&key).await.map_err(CollectError::Read)?;
            let read =
                entry.map(|entry| self.api.decode(&resource, entry, DecodeScope::Metadata)).transpose();
            let owner_state = owner_state(&reference, read.map_err(CollectError::Read)?.as_ref());
            owners.push((reference, owner_state));
        }
        Ok(Some(owners))
    }

    /// The dependents of an object.
    fn owned(&self, key: &str, object: &Value) -> Owned {
        let state = self.state();
        let mut owned = Owned::default();
        for (dependent, _) in state.graph.dependents(key, digest(text(object, "uid"))) {
            owned.any = true;
            owned.waiting |= state.graph.is_waiting(dependent);
        }
        owned
    }

    /// Removes the finalizer of an owner when no dependent blocks it.
    async fn process_owner(
        &self,
        served: &ServedResources,
        key: &str,
        found: &Found,
    ) -> Result<(), CollectError> {
        let uid = text(&found.object, "uid");
        let revision: u64 = text(&found.object, "resourceVersion").parse().unwrap_or(u64::MAX);
        let dependents: Vec<(Arc<str>, bool)> = {
            let state = self.state();
            if revision > state.graph.revision {
                // Not all dependents may be known yet; it is processed when the graph has this change.
                return Ok(());
            }
            let all = state.graph.dependents(key, digest(uid));
            all.map(|(key, blocks)| (Arc::clone(key), blocks)).collect()
        };
        let finalizer = if is_orphaning(&found.object) {
            for (dependent, _) in &dependents {
                self.release(served, dependent, uid).await?;
            }
            ORPHAN
        } else {
            let blocking: Vec<Arc<str>> =
                dependents.into_iter().filter(|(_, blocks)| *blocks).map(|(key, _)| key).collect();
            if !blocking.is_empty() {
                let waits = |key: &Arc<str>| self.state().graph.is_waiting(key);
                self.enqueue(blocking.into_iter().filter(|key| !waits(key)).collect::<Vec<_>>());
                return Ok(());
            }
            FOREGROUND
        };
        let change = without_finalizer(&found.object, finalizer);
        settled(self.patch(found, change).await?)
    }

    /// Removes an owner from an object that stays.
    async fn release(&self, served: &ServedResources, key: &str, uid: &str) -> Result<(), CollectError> {
        let Some(found) = self.find(served, key).await? else { return Ok(()) };
        if !references(&found.object).iter().any(|reference| reference.uid == uid) {
            return Ok(());
        }
        let change = json!({ "ownerReferences": without(&found.object, &[uid.to_owned()]) });
        settled(self.patch(&found, change).await?)
    }
}

fn settled(wrote: WriteResult) -> Result<(), CollectError> {
    match wrote {
        WriteResult::Done(_) | WriteResult::Gone => Ok(()),
        WriteResult::Changed => Err(CollectError::Changed),
    }
}
