//! Compaction: decides up to which revision, and removes superseded writes from the file in small steps.
#![allow(clippy::disallowed_methods)] // its thread waits in real time

use std::{
    collections::VecDeque,
    time::{Duration, Instant},
};

use redb::ReadableTable;

use super::{errors::failed, tables::Record, write::Tables};
use crate::StoreError;

/// How much history a store keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Keep {
    /// Changes younger than this; `None` to keep all changes until a compaction is requested.
    pub time: Option<Duration>,
    /// At most this many changes.
    pub changes: u64,
}

impl Default for Keep {
    fn default() -> Self {
        Self { time: Some(Duration::from_secs(5 * 60)), changes: 1_000_000 }
    }
}

/// Remembers which revision was the newest at which time.
#[derive(Debug)]
pub(super) struct Retention {
    keep: Keep,
    seen: VecDeque<(Instant, u64)>,
}

impl Retention {
    /// Starts without a history.
    pub(super) fn new(keep: Keep) -> Self {
        Self { keep, seen: VecDeque::new() }
    }

    /// How often to check.
    pub(super) fn interval(&self) -> Duration {
        let time = self.keep.time.unwrap_or(Duration::from_secs(60));
        (time / 20).clamp(Duration::from_millis(10), Duration::from_secs(10))
    }

    /// The revision to compact to, if any, given the newest revision.
    pub(super) fn due(&mut self, now: Instant, newest: u64, compacted: u64) -> Option<u64> {
        let interval = self.interval();
        if self.seen.back().is_none_or(|(last, _)| now.duration_since(*last) >= interval) {
            self.seen.push_back((now, newest));
        }
        let mut due = 0;
        if let Some(time) = self.keep.time {
            let old = self.seen.partition_point(|(then, _)| now.duration_since(*then) >= time);
            due = self.seen.drain(..old).next_back().map_or(0, |(_, revision)| revision);
        } else {
            self.seen.clear();
        }
        // Not for every change beyond the limit, but in steps of a fraction of it.
        let slack = self.keep.changes / 64;
        if newest.saturating_sub(compacted) > self.keep.changes.saturating_add(slack) {
            due = due.max(newest - self.keep.changes);
        }
        (due > compacted).then_some(due)
    }
}

/// Removes superseded writes from the log up to a revision, and returns how far it came.
pub(super) fn sweep(tables: &mut Tables<'_>, swept: u64, to: u64, most: usize) -> Result<u64, StoreError> {
    let mut superseded = Vec::new();
    let mut reached = to;
    let mut seen = 0;
    for next in tables.log.range(swept + 1..=to).map_err(failed)? {
        let (revision, record) = next.map_err(failed)?;
        let (revision, record) = (revision.value(), Record::decode(record.value())?);
        if record.previous != 0 {
            superseded.push((record.key.to_owned(), record.previous));
        }
        if record.created == 0 {
            superseded.push((record.key.to_owned(), revision));
        }
        seen += 1;
        if seen == most {
            reached = revision;
            break;
        }
    }
    tables.forget(superseded)?;
    Ok(reached)
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::{Keep, Retention};

    #[test]
    fn history_is_kept_for_the_configured_time() {
        let start = Instant::now();
        let mut retention = Retention::new(Keep { time: Some(Duration::from_secs(100)), changes: u64::MAX });
        let mut due = |seconds, newest, compacted| {
            retention.due(start + Duration::from_secs(seconds), newest, compacted)
        };
        assert_eq!(due(0, 10, 0), None);
        assert_eq!(due(5, 20, 0), None);
        assert_eq!(due(6, 25, 0), None, "seen too soon after the last one to be remembered");
        assert_eq!(due(99, 90, 0), None);
        assert_eq!(due(100, 90, 0), Some(10));
        assert_eq!(due(106, 90, 10), Some(20));
        assert_eq!(due(300, 90, 95), None, "compacted further already");
    }

    #[test]
    fn history_is_limited_to_the_configured_number_of_changes() {
        let now = Instant::now();
        for time in [None, Some(Duration::from_secs(100))] {
            let mut retention = Retention::new(Keep { time, changes: 640 });
            assert_eq!(retention.due(now, 650, 0), None);
            assert_eq!(retention.due(now, 651, 0), Some(11));
            assert_eq!(retention.due(now, 651, 11), None);
        }
    }
}
