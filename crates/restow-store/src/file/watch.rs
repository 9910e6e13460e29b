//! One watch: first the history from the file, then new writes, without gaps or repetitions.

use std::{
    sync::{Arc, Weak},
    time::Duration,
};

use futures::stream::{self, BoxStream, StreamExt};
use tokio::{task, time};

use super::{
    errors::{closed, failed, guarded},
    feed::{Taken, Watcher},
    handle::Handle,
    read::{Snapshot, Version},
    shared::Shared,
    tables::Record,
};
use crate::{Change, Changes, StoreError};

/// How often a watch without changes reports progress.
const PROGRESS: Duration = Duration::from_secs(1);

/// The maximum number of revisions in one read.
const PAGE: usize = 4096;

/// The maximum number of changes in one read.
const PAGE_CHANGES: usize = 512;

/// The state of a watch.
pub(super) struct Watch {
    shared: Weak<Shared>,
    watcher: Arc<Watcher>,
    /// All changes up to this revision have been delivered.
    told: u64,
    stage: Stage,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// It reads the history; up to this revision if the feed continues from there.
    History(Option<u64>),
    /// It reads from the feed.
    Live,
}

/// A part of the history.
struct Page {
    changes: Vec<Change>,
    /// All changes up to this revision are in this page or an earlier one.
    until: u64,
}

impl Watch {
    /// All changes to keys with a prefix after a revision.
    pub(super) fn start(
        shared: &Arc<Shared>,
        prefix: &str,
        after: u64,
    ) -> BoxStream<'static, Result<Changes, StoreError>> {
        let watcher = shared.feed.join(prefix);
        let watch =
            Self { shared: Arc::downgrade(shared), watcher, told: after, stage: Stage::History(None) };
        // After an error the watch is dropped and the stream ends.
        let next = |watch: Option<Self>| async move {
            let mut watch = watch?;
            match watch.next().await {
                Ok(changes) => Some((Ok(changes), Some(watch))),
                Err(error) => Some((Err(error), None)),
            }
        };
        stream::unfold(Some(watch), next).boxed()
    }

    async fn next(&mut self) -> Result<Changes, StoreError> {
        loop {
            let changes = match self.stage {
                Stage::History(until) => self.history(until).await?,
                Stage::Live => self.live().await?,
            };
            if let Some(changes) = changes {
                return Ok(changes);
            }
        }
    }

    /// Reads the next page of the history, and switches to the feed at its end.
    async fn history(&mut self, until: Option<u64>) -> Result<Option<Changes>, StoreError> {
        let shared = self.shared.upgrade().ok_or_else(closed)?;
        let (watcher, told) = (Arc::clone(&self.watcher), self.told);
        let read = move || {
            let (page, ended) = page(&shared.handle, watcher.prefix(), told, until)?;
            let stage = match until {
                _ if !ended => Stage::History(until),
                Some(_) => Stage::Live,
                None => match shared.feed.resume(&watcher) {
                    resumed if resumed <= page.until => Stage::Live,
                    resumed => Stage::History(Some(resumed)),
                },
            };
            Ok((page, stage))
        };
        let read = task::spawn_blocking(|| guarded(read)).await.map_err(|_| closed())?;
        let (page, stage) = read?;
        self.stage = stage;
        Ok(self.tell(page.changes, page.until))
    }

    /// Waits for the feed.
    async fn live(&mut self) -> Result<Option<Changes>, StoreError> {
        let waited = time::timeout(PROGRESS, self.watcher.woken()).await;
        match self.watcher.take() {
            Taken::Closed => Err(closed()),
            Taken::Behind => {
                self.stage = Stage::History(None);
                Ok(None)
            }
            Taken::Changes(changes, until) => {
                let new = changes.iter().filter(|change| change.revision > self.told);
                let changes: Vec<Change> = new.map(|change| Change::clone(change)).collect();
                if changes.is_empty() && waited.is_ok() {
                    return Ok(None);
                }
                Ok(self.tell(changes, until))
            }
        }
    }

    fn tell(&mut self, changes: Vec<Change>, until: u64) -> Option<Changes> {
        if until <= self.told {
            return None;
        }
        self.told = until;
        Some(Changes { changes, revision: until })
    }
}

/// Reads the history after a revision, and returns whether that was its end.
fn page(handle: &Handle, prefix: &str, told: u64, until: Option<u64>) -> Result<(Page, bool), StoreError> {
    let snapshot = handle.snapshot()?;
    snapshot.check(told)?;
    let end = until.unwrap_or(snapshot.newest);
    let mut page = Page { changes: Vec::new(), until: told };
    if end <= told {
        return Ok((page, true));
    }
    let mut seen = 0;
    for next in snapshot.log.range(told + 1..=end).map_err(failed)? {
        let (revision, record) = next.map_err(failed)?;
        let revision = revision.value();
        page.changes.extend(change(&snapshot, prefix, revision, record.value())?);
        page.until = revision;
        seen += 1;
        if seen == PAGE || page.changes.len() == PAGE_CHANGES {
            return Ok((page, revision == end));
        }
    }
    page.until = end;
    Ok((page, true))
}

/// The change of a revision, if its key has the prefix.
fn change(
    snapshot: &Snapshot,
    prefix: &str,
    revision: u64,
    bytes: &[u8],
) -> Result<Option<Change>, StoreError> {
    let record = Record::decode(bytes)?;
    if !record.key.starts_with(prefix) {
        return Ok(None);
    }
    let now = (record.created != 0)
        .then(|| Version { created: record.created, revision }.entry(bytes))
        .transpose()?;
    let before = match record.previous {
        0 => None,
        previous => snapshot.entry_at(previous)?,
    };
    Ok(Some(Change { key: record.key.to_owned(), revision, now, before }))
}
