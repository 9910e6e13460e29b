//! The ships in the store: each is kept as JSON, in the storage version.

use std::sync::Arc;

use bytes::Bytes;
use futures::stream::BoxStream;
use jiff::Timestamp;
use restow_core::rewrite::token::{NEWEST, Token};
use restow_storageversion::Gate;
use restow_store::{Change, Entry, Range, Store, StoreError, Write, Written};

use crate::failure::Failure;
use crate::rules::{self, Preconditions};
use crate::ship::{GROUP, RESOURCE, Ship, Version};

/// Why nothing is stored now.
const CLOSED: &str = "the storage version is not registered any more";

/// All ships; clones are the same ones.
#[derive(Clone)]
pub struct Ships {
    store: Arc<dyn Store>,
    storage: Version,
    gate: Gate,
}

/// What to list.
#[derive(Clone, Debug, Default)]
pub struct Wanted {
    /// Only this namespace.
    pub namespace: Option<String>,
    /// At most so many; 0 for all.
    pub limit: usize,
    /// Where to go on.
    pub token: Option<String>,
    /// As they were then.
    pub revision: Option<u64>,
}

/// A page of a list.
#[derive(Debug)]
pub struct Page {
    /// The ships.
    pub ships: Vec<Ship>,
    /// The revision it shows.
    pub revision: u64,
    /// Where it goes on.
    pub next: Option<String>,
    /// How many come behind it.
    pub remaining: u64,
}

/// What a change of the store means to who watches.
#[derive(Debug)]
pub enum Event {
    /// A new one.
    Added(Ship),
    /// One has changed.
    Modified(Ship),
    /// One has gone.
    Deleted(Ship),
}

impl Ships {
    /// Those of a store, to be written in this version while the gate is open.
    pub fn new(store: Arc<dyn Store>, storage: Version, gate: Gate) -> Self {
        Self { store, storage, gate }
    }

    /// One of them.
    pub async fn get(&self, namespace: &str, name: &str) -> Result<Ship, Failure> {
        self.find(namespace, name).await.map(|(ship, _)| ship)
    }

    /// A page of them, in the order of their keys.
    pub async fn list(&self, wanted: &Wanted) -> Result<Page, Failure> {
        let token = match &wanted.token {
            Some(text) => {
                Some(Token::decode(text).ok_or_else(|| Failure::bad_request("continue key is not valid"))?)
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
            // What has been compacted away cannot be shown any more; what is there now can.
            let start = token.map(|token| token.start).unwrap_or_default();
            Failure::from(error).with_next(|| Token { resource_version: NEWEST, start }.encode())
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

    /// Stores a new one.
    pub async fn create(&self, ship: Ship, namespace: &str, dry_run: bool) -> Result<Ship, Failure> {
        let ship = rules::created(ship, namespace, fastrand::u128(..), Timestamp::now())?;
        let name = ship.metadata.name.clone().unwrap_or_default();
        let key = key(namespace, &name);
        if dry_run {
            let there = self.store.get(&key).await?.entry;
            return if there.is_some() { Err(Failure::exists(&name)) } else { Ok(ship) };
        }
        let value = Some(self.encode(&ship)?);
        match self.write(Write { key, expected: 0, value }).await? {
            Written::Done { revision } => Ok(at(ship, revision)),
            Written::Conflict { .. } => Err(Failure::exists(&name)),
        }
    }

    /// Changes one, from what it is now until nobody comes between.
    ///
    /// Bytes that would be just those that are stored are not written. So who sends a change that changes nothing has
    /// the object stored anew exactly when it is not kept in the storage version.
    pub async fn update(
        &self,
        namespace: &str,
        name: &str,
        dry_run: bool,
        change: impl Fn(&Ship) -> Result<Ship, Failure>,
    ) -> Result<Ship, Failure> {
        loop {
            let (current, entry) = self.find(namespace, name).await?;
            let ship = rules::updated(&current, change(&current)?)?;
            let goes = ship.metadata.deletion_timestamp.is_some() && rules::may_go(&ship);
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

    /// Deletes one, or marks it as to be deleted when its finalizers are gone.
    pub async fn delete(
        &self,
        namespace: &str,
        name: &str,
        dry_run: bool,
        preconditions: &Preconditions,
    ) -> Result<Ship, Failure> {
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

    /// All changes after a revision, those of one moment together.
    pub async fn watch(
        &self,
        namespace: Option<&str>,
        after: u64,
    ) -> Result<BoxStream<'static, Result<restow_store::Changes, StoreError>>, Failure> {
        Ok(self.store.watch(&prefix(namespace), after).await?)
    }

    /// Stores something if the version still is registered, and goes on though nobody waits for the answer any more:
    /// the server does not leave before.
    async fn write(&self, write: Write) -> Result<Written, Failure> {
        let writing = self.gate.write().ok_or_else(|| Failure::unavailable(CLOSED))?;
        let store = Arc::clone(&self.store);
        let stored = tokio::spawn(async move {
            let written = store.write(write).await;
            drop(writing);
            written
        });
        Ok(stored.await.map_err(Failure::internal)??)
    }

    async fn find(&self, namespace: &str, name: &str) -> Result<(Ship, Entry), Failure> {
        let entry = self.store.get(&key(namespace, name)).await?.entry;
        let entry = entry.ok_or_else(|| Failure::not_found(name))?;
        Ok((decode(&entry)?, entry))
    }

    /// The bytes to store. The resourceVersion is not among them: it is the revision at which they are stored.
    fn encode(&self, ship: &Ship) -> Result<Bytes, Failure> {
        let mut ship = ship.clone();
        ship.metadata.resource_version = None;
        let object = ship.encode(self.storage).map_err(Failure::internal)?;
        Ok(Bytes::from(format!("{object}\n")))
    }
}

/// What a change means; none when that cannot be told any more.
pub fn event(change: &Change) -> Option<Result<Event, Failure>> {
    let ship = |entry: &Entry| decode(entry).map(|ship| at(ship, change.revision));
    Some(match (&change.now, &change.before) {
        (Some(now), _) if now.create_revision == now.mod_revision => ship(now).map(Event::Added),
        (Some(now), _) => ship(now).map(Event::Modified),
        (None, Some(before)) => ship(before).map(Event::Deleted),
        (None, None) => return None,
    })
}

fn decode(entry: &Entry) -> Result<Ship, Failure> {
    let unreadable = |error: &dyn std::fmt::Display| {
        Failure::internal(format_args!("what is stored under {} cannot be read: {error}", entry.key))
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
