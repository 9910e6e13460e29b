//! The ships in the store, as JSON in the storage version.

use std::sync::Arc;

use bytes::Bytes;
use futures::stream::BoxStream;
use jiff::Timestamp;
use restow_core::rewrite::token::{NEWEST, Token};
use restow_storageversion::Gate;
use restow_store::{Change, Entry, Range, Store, StoreError, Write, Written};

use crate::error::ApiError;
use crate::rules::{self, Preconditions};
use crate::ship::{GROUP, RESOURCE, Ship, Version};

/// Why nothing can be stored now.
const CLOSED: &str = "the storage version is no longer registered";

/// All ships. Clones share the store.
#[derive(Clone)]
pub struct Ships {
    store: Arc<dyn Store>,
    storage: Version,
    gate: Gate,
}

/// Which ships a list shows, and how many.
#[derive(Clone, Debug, Default)]
pub struct ListOptions {
    /// Only ships of this namespace.
    pub namespace: Option<String>,
    /// The maximum number of ships; 0 for no limit.
    pub limit: usize,
    /// The continue token.
    pub token: Option<String>,
    /// The revision to read.
    pub revision: Option<u64>,
}

/// A page of a list.
#[derive(Debug)]
pub struct Page {
    /// The ships of this page.
    pub ships: Vec<Ship>,
    /// The revision of the list.
    pub revision: u64,
    /// The continue token of the next page.
    pub next: Option<String>,
    /// How many ships follow.
    pub remaining: u64,
}

/// An event of a watch.
#[derive(Debug)]
pub enum Event {
    /// A ship was created.
    Added(Ship),
    /// A ship was changed.
    Modified(Ship),
    /// A ship was deleted.
    Deleted(Ship),
}

impl Ships {
    /// The ships of a store. They are written in this version while the gate is open.
    pub fn new(store: Arc<dyn Store>, storage: Version, gate: Gate) -> Self {
        Self { store, storage, gate }
    }

    /// Reads one ship.
    pub async fn get(&self, namespace: &str, name: &str) -> Result<Ship, ApiError> {
        self.find(namespace, name).await.map(|(ship, _)| ship)
    }

    /// Lists a page of ships, in the order of their keys.
    pub async fn list(&self, wanted: &ListOptions) -> Result<Page, ApiError> {
        let token = match &wanted.token {
            Some(text) => {
                Some(Token::decode(text).ok_or_else(|| ApiError::bad_request("continue key is not valid"))?)
            }
            None => None,
        };
        let revision = match &token {
            Some(token) if token.resource_version != NEWEST => u64::try_from(token.resource_version).ok(),
            Some(_) => None,
            None => wanted.revision,
        };
        let range = Range {
            prefix: prefix(wanted.namespace.as_deref()),
            start: token.as_ref().map(|token| format!("{}{}", prefix(None), token.start)),
            limit: wanted.limit,
            revision,
        };
        let listed = self.store.list(range).await.map_err(|error| {
            // The old revision is compacted; the list can go on at the newest revision.
            let start = token.map(|token| token.start).unwrap_or_default();
            ApiError::from(error).with_next(|| Token { resource_version: NEWEST, start }.encode())
        })?;
        let last = listed.entries.last().map(|entry| entry.key.trim_start_matches(&prefix(None)).to_owned());
        let more = last.filter(|_| listed.remaining > 0);
        let version = i64::try_from(listed.revision).unwrap_or(NEWEST);
        Ok(Page {
            ships: listed.entries.iter().map(decode).collect::<Result<_, _>>()?,
            revision: listed.revision,
            next: more.map(|key| Token::behind(&key, version).encode()),
            remaining: listed.remaining,
        })
    }

    /// Stores a new ship.
    pub async fn create(&self, ship: Ship, namespace: &str, dry_run: bool) -> Result<Ship, ApiError> {
        let ship = rules::created(ship, namespace, fastrand::u128(..), Timestamp::now())?;
        let name = ship.metadata.name.clone().unwrap_or_default();
        let key = key(namespace, &name);
        if dry_run {
            let there = self.store.get(&key).await?.entry;
            return if there.is_some() { Err(ApiError::exists(&name)) } else { Ok(ship) };
        }
        let value = Some(self.encode(&ship)?);
        match self.write(Write { key, expected: 0, value }).await? {
            Written::Done { revision } => Ok(at(ship, revision)),
            Written::Conflict { .. } => Err(ApiError::exists(&name)),
        }
    }

    /// Changes a ship; retries after a conflict with another writer.
    ///
    /// If the bytes are equal to the stored ones, nothing is written. So a patch that changes nothing rewrites the object
    /// exactly if it is not stored in the storage version.
    pub async fn update(
        &self,
        namespace: &str,
        name: &str,
        dry_run: bool,
        change: impl Fn(&Ship) -> Result<Ship, ApiError>,
    ) -> Result<Ship, ApiError> {
        loop {
            let (current, entry) = self.find(namespace, name).await?;
            let ship = rules::updated(&current, change(&current)?)?;
            let goes = ship.metadata.deletion_timestamp.is_some() && rules::has_no_finalizers(&ship);
            let value = self.encode(&ship)?;
            if dry_run || (value == entry.value && !goes) {
                return Ok(at(ship, entry.mod_revision));
            }
            let value = (!goes).then_some(value);
            match self.write(Write { key: entry.key, expected: entry.mod_revision, value }).await? {
                Written::Done { revision } => return Ok(at(ship, revision)),
                Written::Conflict { .. } => {}
            }
        }
    }

    /// Deletes a ship, or marks it as deleted if it has finalizers.
    pub async fn delete(
        &self,
        namespace: &str,
        name: &str,
        dry_run: bool,
        preconditions: &Preconditions,
    ) -> Result<Ship, ApiError> {
        loop {
            let (current, entry) = self.find(namespace, name).await?;
            let kept = rules::deleted(&current, preconditions, Timestamp::now())?;
            let value = kept.as_ref().map(|ship| self.encode(ship)).transpose()?;
            if dry_run || value.as_ref() == Some(&entry.value) {
                return Ok(current);
            }
            match self.write(Write { key: entry.key, expected: entry.mod_revision, value }).await? {
                Written::Done { revision } => return Ok(at(kept.unwrap_or(current), revision)),
                Written::Conflict { .. } => {}
            }
        }
    }

    /// Streams all changes after a revision.
    pub async fn watch(
        &self,
        namespace: Option<&str>,
        after: u64,
    ) -> Result<BoxStream<'static, Result<restow_store::Changes, StoreError>>, ApiError> {
        Ok(self.store.watch(&prefix(namespace), after).await?)
    }

    /// Stores something if the storage version is still registered. The write is completed even if the client disconnects,
    /// and the server does not stop before.
    async fn write(&self, write: Write) -> Result<Written, ApiError> {
        let writing = self.gate.write().ok_or_else(|| ApiError::unavailable(CLOSED))?;
        let store = Arc::clone(&self.store);
        let stored = tokio::spawn(async move {
            let written = store.write(write).await;
            drop(writing);
            written
        });
        Ok(stored.await.map_err(ApiError::internal)??)
    }

    async fn find(&self, namespace: &str, name: &str) -> Result<(Ship, Entry), ApiError> {
        let entry = self.store.get(&key(namespace, name)).await?.entry;
        let entry = entry.ok_or_else(|| ApiError::not_found(name))?;
        Ok((decode(&entry)?, entry))
    }

    /// The bytes to store, without the resourceVersion, which is the revision of the write.
    fn encode(&self, ship: &Ship) -> Result<Bytes, ApiError> {
        let mut ship = ship.clone();
        ship.metadata.resource_version = None;
        let object = ship.encode(self.storage).map_err(ApiError::internal)?;
        Ok(Bytes::from(format!("{object}\n")))
    }
}

/// The event for a change; `None` if the deleted object is unknown.
pub fn event(change: &Change) -> Option<Result<Event, ApiError>> {
    let ship = |entry: &Entry| decode(entry).map(|ship| at(ship, change.revision));
    Some(match (&change.now, &change.before) {
        (Some(now), _) if now.create_revision == now.mod_revision => ship(now).map(Event::Added),
        (Some(now), _) => ship(now).map(Event::Modified),
        (None, Some(before)) => ship(before).map(Event::Deleted),
        (None, None) => return None,
    })
}

fn decode(entry: &Entry) -> Result<Ship, ApiError> {
    let unreadable = |error: &dyn std::fmt::Display| {
        ApiError::internal(format_args!("cannot read the object stored under {}: {error}", entry.key))
    };
    let object = serde_json::from_slice(&entry.value).map_err(|error| unreadable(&error))?;
    let (_, ship) = Ship::decode(object).map_err(|error| unreadable(&error))?;
    Ok(at(ship, entry.mod_revision))
}

fn at(mut ship: Ship, revision: u64) -> Ship {
    ship.metadata.resource_version = Some(revision.to_string());
    ship
}

fn prefix(namespace: Option<&str>) -> String {
    let namespace = namespace.map(|namespace| format!("{namespace}/")).unwrap_or_default();
    format!("/registry/{GROUP}/{RESOURCE}/{namespace}")
}

fn key(namespace: &str, name: &str) -> String {
    format!("{}{name}", prefix(Some(namespace)))
}
