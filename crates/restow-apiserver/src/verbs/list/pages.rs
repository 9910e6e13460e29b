//! Reads what a list shows, a page at a time, all at one revision.

use std::sync::Arc;

use restow_core::rewrite::token::{NEWEST, Token};
use restow_store::{Entry, Listed, Range, StoreError};
use serde_json::Value;

use super::start::Start;
use crate::http::status::Failure;
use crate::object::stored;
use crate::verbs::api::Api;
use crate::verbs::query::Wanted;

/// How many entries are read at once, at most.
pub(super) const MOST_ENTRIES: usize = 500;
/// How many are read first, before their size is known.
const FIRST_ENTRIES: usize = 20;
/// How many times as many may be read as the time before.
const GROWTH: usize = 4;
/// How many bytes are to be read at once. Stores take a number of entries, so it is kept to by the size of those before.
pub(super) const PAGE_BYTES: usize = 4 * 1024 * 1024;

/// Some objects of a list, ready to be shown.
pub(crate) struct Page {
    /// The objects.
    pub objects: Vec<Value>,
    /// How many bytes were read for them.
    pub bytes: usize,
}

/// A list under way.
pub(crate) struct Pages {
    api: Arc<Api>,
    wanted: Wanted,
    start: Start,
    prefix: String,
    /// How many more are wanted; none for all.
    left: Option<usize>,
    /// How many entries are read next.
    at_once: usize,
    revision: u64,
    next: Option<String>,
    remaining: u64,
    done: bool,
}

impl Pages {
    /// A list that has not begun; a limit of 0 is none.
    pub(crate) fn new(api: Arc<Api>, wanted: Wanted, start: Start, limit: usize) -> Self {
        let prefix = wanted.prefix();
        let next = start.key.as_ref().map(|key| format!("{prefix}{key}"));
        let left = (limit > 0).then_some(limit);
        Self {
            api,
            wanted,
            start,
            prefix,
            left,
            at_once: FIRST_ENTRIES,
            revision: 0,
            next,
            remaining: 0,
            done: false,
        }
    }

    /// The next objects; none at the end.
    pub(crate) async fn next(&mut self) -> Result<Option<Page>, Failure> {
        if self.done {
            return Ok(None);
        }
        let listed = self.read().await?;
        let behind = listed.entries.last().map(|entry| format!("{}\0", entry.key));
        let bytes = listed.entries.iter().map(|entry| entry.value.len()).sum();
        self.at_once = next_count(listed.entries.len(), bytes);
        let (api, wanted, left) = (Arc::clone(&self.api), self.wanted.clone(), self.left);
        let work = move || take(&api, &wanted, left, listed.entries);
        let Taken { objects, left, cut } = self.api.workers.run(bytes, work).await?;
        self.left = left;
        self.remaining = listed.remaining;
        let more = listed.remaining > 0 || cut.is_some();
        self.done = !more || self.left == Some(0);
        self.next = if more { cut.or(behind) } else { None };
        let mut objects = self.wanted.view.converted(&self.api, objects).await?;
        let view = self.wanted.view.clone();
        let work = move || {
            view.cut(&mut objects);
            Ok(objects)
        };
        Ok(Some(Page { objects: self.api.workers.run(bytes, work).await?, bytes }))
    }

    /// Whether all of it was read.
    pub(crate) fn is_done(&self) -> bool {
        self.done
    }

    /// The revision it shows.
    pub(crate) fn revision(&self) -> u64 {
        self.revision
    }

    /// How the rest is asked for, and how much that is, if there is any.
    pub(crate) fn rest(&self) -> Option<(String, Option<u64>)> {
        let start = format!("/{}", self.next.as_ref()?.strip_prefix(&self.prefix)?);
        let resource_version = i64::try_from(self.revision).unwrap_or(NEWEST);
        let remaining = self.wanted.selection.is_all().then_some(self.remaining);
        Some((Token { resource_version, start }.encode(), remaining))
    }

    async fn read(&mut self) -> Result<Listed, Failure> {
        let begun = self.revision > 0;
        let limit = match self.left {
            Some(left) if self.wanted.selection.is_all() => left.min(self.at_once),
            _ => self.at_once,
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

/// How many entries to read after so many of so many bytes.
fn next_count(entries: usize, bytes: usize) -> usize {
    let fitting = PAGE_BYTES / (bytes / entries.max(1)).max(1);
    fitting.min(entries.saturating_mul(GROWTH)).clamp(1, MOST_ENTRIES)
}

/// What was taken of some entries.
struct Taken {
    objects: Vec<Value>,
    /// How many more are wanted; none for all.
    left: Option<usize>,
    /// The key to go on from, if there are enough and others follow.
    cut: Option<String>,
}

/// Those that are wanted, until there are enough.
fn take(api: &Api, wanted: &Wanted, mut left: Option<usize>, entries: Vec<Entry>) -> Result<Taken, Failure> {
    let mut objects = Vec::with_capacity(entries.len());
    let extent = wanted.view.extent(&wanted.selection);
    let mut behind = None;
    for entry in entries {
        if left == Some(0) {
            wanted.view.complete(&mut objects);
            return Ok(Taken { objects, left, cut: behind });
        }
        behind = Some(format!("{}\0", entry.key));
        let object = api.decode(&wanted.resource, entry, extent)?;
        if wanted.selection.matches(&object) {
            left = left.map(|left| left - 1);
            objects.push(object);
        }
    }
    wanted.view.complete(&mut objects);
    Ok(Taken { objects, left, cut: None })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_grow_as_far_as_their_bytes_allow() {
        for (entries, bytes, expected) in [
            (20, 20 * 1000, 80),
            (320, 320 * 1000, 500),
            (20, 20 * PAGE_BYTES, 1),
            (20, PAGE_BYTES, 20),
            (500, 2 * PAGE_BYTES, 250),
            (0, 0, 1),
            (3, 0, 12),
        ] {
            assert_eq!(next_count(entries, bytes), expected, "{entries} {bytes}");
        }
    }
}
