//! Attends to one object: reads it and its owners anew, and does what has been decided.

use std::sync::Arc;

use restow_store::Entry;
use serde_json::{Value, json};

use super::collector::Collector;
use super::follow::{Owner, owner};
use super::graph::digest;
use super::reference::{
    Act, FOREGROUND, ORPHAN, Owned, Reference, Standing, decide, is_orphaning, is_waiting, let_go,
    references, standing, unblocked, without,
};
use crate::controllers::place::{namespace, path, resource_of};
use crate::controllers::writer::Wrote;
use crate::http::status::Failure;
use crate::object::meta::delete::Options;
use crate::object::meta::text;
use crate::object::stored::Extent;
use crate::registry::resource::Resource;
use crate::registry::served::Served;
use crate::verbs::delete::delete_stored;

/// How often an object is read anew at once because it has changed meanwhile.
const TRIES: usize = 3;

/// Whether an object has been attended to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Attended {
    Done,
    Later,
}

/// Why it could not be.
#[derive(Debug, thiserror::Error)]
enum Hindered {
    #[error("it cannot be read: {}", .0.message())]
    Read(Failure),
    #[error("it cannot be written: {0}")]
    Write(#[from] kube::Error),
    #[error("it cannot be deleted: {}", .0.message())]
    Delete(Failure),
    #[error("none of its versions is served")]
    NotServed,
    #[error("it has changed")]
    Changed,
}

/// An object, and where it is.
struct Found {
    resource: Arc<Resource>,
    entry: Entry,
    /// None if none of its versions is served: it can be deleted, and not be changed.
    path: Option<String>,
    namespace: String,
    object: Value,
}

impl Collector {
    /// Attends to the object under a key.
    pub(super) async fn attend(&self, key: &Arc<str>) -> Attended {
        for _ in 0..TRIES {
            match self.try_attend(key).await {
                Ok(()) => return Attended::Done,
                Err(Hindered::Changed) => {}
                Err(error) => {
                    tracing::debug!(%key, "an owned object is taken up again later: {error}");
                    return Attended::Later;
                }
            }
        }
        Attended::Later
    }

    async fn try_attend(&self, key: &Arc<str>) -> Result<(), Hindered> {
        let served = self.api.registry.served();
        let Some(found) = self.find(&served, key).await? else { return Ok(()) };
        if is_orphaning(&found.object) || is_waiting(&found.object) {
            return self.attend_owner(&served, key, &found).await;
        }
        let Some(owners) = self.owners(&served, &found).await? else { return Ok(()) };
        let wrote = match decide(&found.object, &owners, self.owned(key, &found.object)) {
            Act::Leave => return Ok(()),
            Act::Disown { uids } => {
                let change = json!({ "ownerReferences": without(&found.object, &uids) });
                self.patch(&found, change).await?
            }
            // It is deleted when it is attended to the next time, because its owners are new then.
            Act::Delete { unblock: true, .. } if owners.iter().any(|(reference, _)| reference.blocks) => {
                let change = json!({ "ownerReferences": unblocked(&found.object) });
                self.patch(&found, change).await?
            }
            Act::Delete { policy, .. } => self.delete(found, policy).await?,
        };
        settled(wrote)
    }

    /// Changes the metadata of an object, unless none of its versions is served.
    async fn patch(&self, found: &Found, change: Value) -> Result<Wrote, Hindered> {
        match &found.path {
            Some(path) => Ok(self.writer.patch(path, &found.object["metadata"], change).await?),
            None => Err(Hindered::NotServed),
        }
    }

    async fn delete(&self, found: Found, policy: &str) -> Result<Wrote, Hindered> {
        if let Some(path) = &found.path {
            return Ok(self.writer.delete(path, &found.object["metadata"], policy).await?);
        }
        let options = Options {
            propagation_policy: Some(policy.to_owned()),
            resource_version: Some(text(&found.object, "resourceVersion").to_owned()),
            ..Options::default()
        };
        match delete_stored(&self.api, &found.resource, found.entry, &options).await {
            Ok(_) => Ok(Wrote::Gone),
            Err(failure) if failure.code() == 409 => Ok(Wrote::Changed),
            Err(failure) => Err(Hindered::Delete(failure)),
        }
    }

    async fn find(&self, served: &Served, key: &str) -> Result<Option<Found>, Hindered> {
        let Some(resource) = resource_of(served, key) else { return Ok(None) };
        let Some(entry) = self.api.entry(key).await.map_err(Hindered::Read)? else { return Ok(None) };
        let object = self.api.decode(resource, entry.clone(), Extent::Metadata).map_err(Hindered::Read)?;
        let namespace = namespace(resource, key).to_owned();
        Ok(Some(Found {
            resource: Arc::clone(resource),
            entry,
            path: path(resource, key),
            namespace,
            object,
        }))
    }

    /// How the owners of an object stand; none if that cannot be told of all of them.
    async fn owners(
        &self,
        served: &Served,
        found: &Found,
    ) -> Result<Option<Vec<(Reference, Standing)>>, Hindered> {
        let mut owners = Vec::new();
        for reference in references(&found.object) {
            let Owner::At(resource, key) = owner(served, &reference, &found.namespace) else {
                return Ok(None);
            };
            let entry = self.api.entry(&key).await.map_err(Hindered::Read)?;
            let read = entry.map(|entry| self.api.decode(&resource, entry, Extent::Metadata)).transpose();
            let standing = standing(&reference, read.map_err(Hindered::Read)?.as_ref());
            owners.push((reference, standing));
        }
        Ok(Some(owners))
    }

    /// What an object owns.
    fn owned(&self, key: &str, object: &Value) -> Owned {
        let state = self.state();
        let mut owned = Owned::default();
        for (dependent, _) in state.graph.dependents(key, digest(text(object, "uid"))) {
            owned.any = true;
            owned.waiting |= state.graph.waits(dependent);
        }
        owned
    }

    /// Lets an owner go when nothing it owns keeps it.
    async fn attend_owner(&self, served: &Served, key: &str, found: &Found) -> Result<(), Hindered> {
        let uid = text(&found.object, "uid");
        let revision: u64 = text(&found.object, "resourceVersion").parse().unwrap_or(u64::MAX);
        let dependents: Vec<(Arc<str>, bool)> = {
            let state = self.state();
            if revision > state.graph.revision {
                // Not all that it owns may be known; it is attended to when this change has been told.
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
                let waits = |key: &Arc<str>| self.state().graph.waits(key);
                self.enqueue(blocking.into_iter().filter(|key| !waits(key)).collect::<Vec<_>>());
                return Ok(());
            }
            FOREGROUND
        };
        let change = let_go(&found.object, finalizer);
        settled(self.patch(found, change).await?)
    }

    /// Takes an owner away from an object that stays.
    async fn release(&self, served: &Served, key: &str, uid: &str) -> Result<(), Hindered> {
        let Some(found) = self.find(served, key).await? else { return Ok(()) };
        if !references(&found.object).iter().any(|reference| reference.uid == uid) {
            return Ok(());
        }
        let change = json!({ "ownerReferences": without(&found.object, &[uid.to_owned()]) });
        settled(self.patch(&found, change).await?)
    }
}

fn settled(wrote: Wrote) -> Result<(), Hindered> {
    match wrote {
        Wrote::Done(_) | Wrote::Gone => Ok(()),
        Wrote::Changed => Err(Hindered::Changed),
    }
}
