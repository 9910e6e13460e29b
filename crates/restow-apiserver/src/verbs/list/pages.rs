//! Reads what a list shows, a page at a time, all at one revision.

use std::sync::Arc;

use restow_core::rewrite::token::{NEWEST, Token};
use restow_store::{Entry, Listed, Range, StoreError};
use serde_json::Value;

use crate::http::status::Failure;
use crate::object::stored;
use crate::verbs::api::Api;
use crate::verbs::list::{Start, Wanted};

/// How many entries are read at once.
const AT_ONCE: usize = 500;

/// Some objects of a list, ready to be shown.
pub struct Page {
    /// The objects.
    pub objects: Vec<Value>,
}

/// A list under way.
pub struct Pages {
    api: Arc<Api>,
    wanted: Wanted,
    start: Start,
    prefix: String,
    /// How many more are wanted; none for all.
    left: Option<usize>,
    revision: u64,
    next: Option<String>,
    remaining: u64,
    done: bool,
}

impl Pages {
    /// A list that has not begun; a limit of 0 is none.
    pub fn new(api: Arc<Api>, wanted: Wanted, start: Start, limit: usize) -> Self {
        let prefix = wanted.prefix();
        let next = start.key.as_ref().map(|key| format!("{prefix}{key}"));
        let left = (limit > 0).then_some(limit);
        Self { api, wanted, start, prefix, left, revision: 0, next, remaining: 0, done: false }
    }

    /// The next objects; none at the end.
    pub async fn next(&mut self) -> Result<Option<Page>, Failure> {
        if self.done {
            return Ok(None);
        }
        let listed = self.read().await?;
        let behind = listed.entries.last().map(|entry| format!("{}\0", entry.key));
        let (objects, cut) = self.take(listed.entries)?;
        self.remaining = listed.remaining;
        let more = listed.remaining > 0 || cut.is_some();
        self.done = !more || self.left == Some(0);
        self.next = if more { cut.or(behind) } else { None };
        Ok(Some(Page { objects: self.wanted.view.objects(&self.api, objects).await? }))
    }

    /// Whether all of it was read.
    pub fn is_done(&self) -> bool {
        self.done
    }

    /// The revision it shows.
    pub fn revision(&self) -> u64 {
        self.revision
    }

    /// How the rest is asked for, and how much that is, if there is any.
    pub fn rest(&self) -> Option<(String, Option<u64>)> {
        let start = format!("/{}", self.next.as_ref()?.strip_prefix(&self.prefix)?);
        let resource_version = i64::try_from(self.revision).unwrap_or(NEWEST);
        let remaining = self.wanted.selection.is_all().then_some(self.remaining);
        Some((Token { resource_version, start }.encode(), remaining))
    }

    async fn read(&mut self) -> Result<Listed, Failure> {
        let begun = self.revision > 0;
        let limit = match self.left {
            Some(left) if self.wanted.selection.is_all() => left.min(AT_ONCE),
            _ => AT_ONCE,
        };
        let range = Range {
            prefix: self.wanted.range(),
            start: self.next.clone(),
            limit,
            revision: if begun { Some(self.revision) } else { self.start.revision },
        };
        let listed = self.api.store.list(range).await.map_err(|error| self.refused(&error))?;
        if listed.revision < self.start.at_least {
            return Err(Failure::version_too_large(self.start.at_least, listed.revision));
        }
        self.revision = listed.revision;
        Ok(listed)
    }

    /// Those that are wanted, until there are enough; then also the key to go on from, if others follow.
    fn take(&mut self, entries: Vec<Entry>) -> Result<(Vec<Value>, Option<String>), Failure> {
        let mut taken = Vec::with_capacity(entries.len());
        let extent = self.wanted.view.extent(&self.wanted.selection);
        let mut behind = None;
        for entry in entries {
            if self.left == Some(0) {
                return Ok((taken, behind));
            }
            behind = Some(format!("{}\0", entry.key));
            let object = self.api.decode(&self.wanted.resource, entry, extent)?;
            if self.wanted.selection.matches(&object) {
                self.left = self.left.map(|left| left - 1);
                taken.push(object);
            }
        }
        Ok((taken, None))
    }

    fn refused(&self, error: &StoreError) -> Failure {
        match error {
            StoreError::Compacted { .. } if self.start.continued => {
                let start = self.start.key.clone().unwrap_or_default();
                let token = Token { resource_version: NEWEST, start };
                Failure::continue_expired(Some(token.encode()))
            }
            StoreError::Compacted { .. } => Failure::list_expired(),
            other => stored::refused(other),
        }
    }
}
