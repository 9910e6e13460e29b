//! Reads a list page by page, all at one revision.

use std::sync::Arc;

use restow_core::rewrite::token::{NEWEST, Token};
use restow_store::{Entry, Listed, Range, StoreError};
use serde_json::Value;

use super::start::ListStart;
use crate::http::status::StatusError;
use crate::object::stored;
use crate::verbs::api::Api;
use crate::verbs::query::ListQuery;

/// The most entries of a page.
pub(super) const MOST_ENTRIES: usize = 500;
/// The entries of the first page, before their size is known.
const FIRST_ENTRIES: usize = 20;
/// How much larger than the previous page a page may be.
const GROWTH: usize = 4;
/// The target size of a page in bytes. Stores take a number of entries, which follows from the size of the previous ones.
pub(super) const PAGE_BYTES: usize = 4 * 1024 * 1024;

/// Some objects of a list.
pub(crate) struct Page {
    pub objects: Vec<Value>,
    /// How many bytes were read from the store.
    pub bytes: usize,
}

/// A list that is being read.
pub(crate) struct Pages {
    api: Arc<Api>,
    query: ListQuery,
    start: ListStart,
    prefix: String,
    /// How many more objects are requested; none for all.
    left: Option<usize>,
    /// How many entries the next page reads.
    at_once: usize,
    revision: u64,
    next: Option<String>,
    remaining: u64,
    done: bool,
}

impl Pages {
    /// Starts a list. A limit of 0 means no limit.
    pub(crate) fn new(api: Arc<Api>, query: ListQuery, start: ListStart, limit: usize) -> Self {
        let prefix = query.prefix();
        let next = start.key.as_ref().map(|key| format!("{prefix}{key}"));
        let left = (limit > 0).then_some(limit);
        Self {
            api,
            query,
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
    pub(crate) async fn next(&mut self) -> Result<Option<Page>, StatusError> {
        if self.done {
            return Ok(None);
        }
        let listed = self.read().await?;
        let behind = listed.entries.last().map(|entry| format!("{}\0", entry.key));
        let bytes = listed.entries.iter().map(|entry| entry.value.len()).sum();
        self.at_once = next_count(listed.entries.len(), bytes);
        let (api, query, left) = (Arc::clone(&self.api), self.query.clone(), self.left);
        let work = move || take(&api, &query, left, listed.entries);
        let PageEntries { objects, left, cut } = self.api.workers.run(bytes, work).await?;
        self.left = left;
        self.remaining = listed.remaining;
        let more = listed.remaining > 0 || cut.is_some();
        self.done = !more || self.left == Some(0);
        self.next = if more { cut.or(behind) } else { None };
        let mut objects = self.query.view.converted(&self.api, objects).await?;
        let view = self.query.view.clone();
        let work = move || {
            view.prune(&mut objects);
            Ok(objects)
        };
        Ok(Some(Page { objects: self.api.workers.run(bytes, work).await?, bytes }))
    }

    /// Whether all pages were read.
    pub(crate) fn is_done(&self) -> bool {
        self.done
    }

    /// The revision of the list.
    pub(crate) fn revision(&self) -> u64 {
        self.revision
    }

    /// The continue token and the number of remaining objects, if there are more.
    pub(crate) fn rest(&self) -> Option<(String, Option<u64>)> {
        let start = format!("/{}", self.next.as_ref()?.strip_prefix(&self.prefix)?);
        let resource_version = i64::try_from(self.revision).unwrap_or(NEWEST);
        let remaining = self.query.selection.is_all().then_some(self.remaining);
        Some((Token { resource_version, start }.encode(), remaining))
    }

    async fn read(&mut self) -> Result<Listed, StatusError> {
        let begun = self.revision > 0;
        let limit = match self.left {
            Some(left) if self.query.selection.is_all() => left.min(self.at_once),
            _ => self.at_once,
        };
        let range = Range {
            prefix: self.query.range(),
            start: self.next.clone(),
            limit,
            revision: if begun { Some(self.revision) } else { self.start.revision },
        };
        let listed = self.api.store.list(range).await.map_err(|error| self.refused(&error))?;
        if listed.revision < self.start.at_least {
            return Err(StatusError::version_too_large(self.start.at_least, listed.revision));
        }
        self.revision = listed.revision;
        Ok(listed)
    }

    fn refused(&self, error: &StoreError) -> StatusError {
        match error {
            StoreError::Compacted { .. } if self.start.continued => {
                let start = self.start.key.clone().unwrap_or_default();
                let token = Token { resource_version: NEWEST, start };
                StatusError::continue_expired(Some(token.encode()))
            }
            StoreError::Compacted { .. } => StatusError::list_expired(),
            other => stored::refused(other),
        }
    }
}

/// The number of entries of the next page, from the size of the previous one.
fn next_count(entries: usize, bytes: usize) -> usize {
    let fitting = PAGE_BYTES / (bytes / entries.max(1)).max(1);
    fitting.min(entries.saturating_mul(GROWTH)).clamp(1, MOST_ENTRIES)
}

/// The selected objects of some entries.
struct PageEntries {
    objects: Vec<Value>,
    /// How many more objects are requested; none for all.
    left: Option<usize>,
    /// The key to continue from, if the limit is reached and more follow.
    cut: Option<String>,
}

/// Selects objects until the limit is reached.
fn take(
    api: &Api,
    query: &ListQuery,
    mut left: Option<usize>,
    entries: Vec<Entry>,
) -> Result<PageEntries, StatusError> {
    let mut objects = Vec::with_capacity(entries.len());
    let decode_scope = query.view.decode_scope(&query.selection);
    let mut behind = None;
    for entry in entries {
        if left == Some(0) {
            query.view.set_defaults(&mut objects);
            return Ok(PageEntries { objects, left, cut: behind });
        }
        behind = Some(format!("{}\0", entry.key));
        let object = api.decode(&query.resource, entry, decode_scope)?;
        if query.selection.matches(&object) {
            left = left.map(|left| left - 1);
            objects.push(object);
        }
    }
    query.view.set_defaults(&mut objects);
    Ok(PageEntries { objects, left, cut: None })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_grow_until_their_bytes_reach_the_limit() {
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
