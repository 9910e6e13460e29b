//! Reads from a snapshot of the file, at its newest or at an older revision.

use std::ops::Bound;

use bytes::Bytes;
use redb::{Database, ReadOnlyTable, ReadTransaction, ReadableDatabase, ReadableTable};

use super::{
    errors::{damaged, failed},
    remaining::Remaining,
    tables::{
        COMPACTED, COUNTS, INDEX, LOG, META, NEWEST, Record, index_key, index_start, key_of, split_index_key,
    },
};
use crate::{Entry, Got, Listed, Range, StoreError};

/// How many versions of one key to step over before it is cheaper to search for the next key.
const STEPS: usize = 16;

/// A consistent view of the file.
pub(super) struct Snapshot {
    pub(super) index: ReadOnlyTable<&'static [u8], u64>,
    pub(super) log: ReadOnlyTable<u64, &'static [u8]>,
    reading: ReadTransaction,
    /// The newest revision.
    pub(super) newest: u64,
    /// The oldest readable revision.
    pub(super) compacted: u64,
}

/// Identifies a version of a key in the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Version {
    /// The revision that created it.
    pub(super) created: u64,
    /// The revision of the write.
    pub(super) revision: u64,
}

impl Version {
    /// Reads the entry from its record in the log.
    pub(super) fn entry(self, record: &[u8]) -> Result<Entry, StoreError> {
        let record = Record::decode(record)?;
        Ok(Entry {
            key: record.key.to_owned(),
            value: Bytes::copy_from_slice(record.value),
            create_revision: self.created,
            mod_revision: self.revision,
        })
    }
}

impl Snapshot {
    /// Takes a snapshot.
    pub(super) fn take(database: &Database) -> Result<Self, StoreError> {
        let reading = database.begin_read().map_err(failed)?;
        let meta = reading.open_table(META).map_err(failed)?;
        let number = |name| {
            let found = meta.get(name).map_err(failed)?;
            found.map(|number| number.value()).ok_or_else(|| damaged("a number about the store is missing"))
        };
        Ok(Self {
            index: reading.open_table(INDEX).map_err(failed)?,
            log: reading.open_table(LOG).map_err(failed)?,
            newest: number(NEWEST)?,
            compacted: number(COMPACTED)?,
            reading,
        })
    }

    /// Checks that a revision can be read.
    pub(super) fn check(&self, asked: u64) -> Result<(), StoreError> {
        check(asked, self.compacted, self.newest)
    }

    /// Reads one key.
    pub(super) fn get(&self, key: &str) -> Result<Got, StoreError> {
        let version = last_version(&self.index, key, u64::MAX)?;
        let entry = version.map(|version| self.entry(version)).transpose()?;
        Ok(Got { entry, revision: self.newest })
    }

    /// Reads many keys, and counts those that follow after the limit.
    pub(super) fn list(&self, range: &Range, known: &Remaining) -> Result<Listed, StoreError> {
        let revision = range.revision.unwrap_or(self.newest);
        self.check(revision)?;
        let start = range.start.as_deref().unwrap_or_default().max(range.prefix.as_str());
        let mut versions = self.live(&range.prefix, start, revision)?;
        let mut entries = Vec::new();
        let limit = if range.limit == 0 { usize::MAX } else { range.limit };
        while entries.len() < limit {
            let Some(version) = versions.next() else { break };
            entries.push(self.entry(version?)?);
        }
        let Some(next) = versions.next() else { return Ok(Listed { entries, remaining: 0, revision }) };
        next?;
        let before = match known.before(range, revision) {
            None if range.start.is_none() && revision == self.newest => self.count(&range.prefix)?,
            before => before,
        };
        let shown = entries.len() as u64;
        let remaining = match before.and_then(|before| before.checked_sub(shown)) {
            Some(remaining) => remaining,
            None => versions.count_rest()? + 1,
        };
        if let Some(last) = entries.last() {
            known.after(range, revision, &last.key, remaining);
        }
        Ok(Listed { entries, remaining, revision })
    }

    /// The entry that a revision of the log wrote.
    pub(super) fn entry(&self, version: Version) -> Result<Entry, StoreError> {
        let bytes = self.log.get(version.revision).map_err(failed)?;
        let bytes = bytes.ok_or_else(|| damaged("the log lacks a revision that the index has"))?;
        version.entry(bytes.value())
    }

    /// The entry that a revision wrote, unless it is compacted.
    pub(super) fn entry_at(&self, revision: u64) -> Result<Option<Entry>, StoreError> {
        let Some(bytes) = self.log.get(revision).map_err(failed)? else { return Ok(None) };
        let created = Record::decode(bytes.value())?.created;
        Version { created, revision }.entry(bytes.value()).map(Some)
    }

    /// The current number of keys with this prefix, if it is counted.
    fn count(&self, prefix: &str) -> Result<Option<u64>, StoreError> {
        if !prefix.ends_with('/') {
            return Ok(None);
        }
        let counts = self.reading.open_table(COUNTS).map_err(failed)?;
        Ok(counts.get(prefix.as_bytes()).map_err(failed)?.map(|count| count.value()))
    }

    /// The versions that existed at a revision, in the order of their keys.
    pub(super) fn live(&self, prefix: &str, start: &str, revision: u64) -> Result<Live<'_>, StoreError> {
        let range = self.index.range(index_start(start).as_slice()..).map_err(failed)?;
        Ok(Live { snapshot: self, prefix: index_start(prefix), revision, range, at: None, ended: false })
    }
}

/// The last version of a key up to a revision, unless that is a deletion.
pub(super) fn last_version(
    index: &impl ReadableTable<&'static [u8], u64>,
    key: &str,
    until: u64,
) -> Result<Option<Version>, StoreError> {
    let bound = index_key(key, until);
    // A cursor goes down the tree once, a range twice.
    let mut cursor = index.upper_bound(Bound::Included(bound.as_slice())).map_err(failed)?;
    let Some((found, created)) = cursor.prev().map_err(failed)? else { return Ok(None) };
    let (found, revision) = split_index_key(found.value())?;
    let is_same = bound.starts_with(found);
    let created = created.value();
    Ok((is_same && created != 0).then_some(Version { created, revision }))
}

/// Checks that a revision can be read.
pub(super) fn check(asked: u64, compacted: u64, newest: u64) -> Result<(), StoreError> {
    if asked < compacted {
        return Err(StoreError::Compacted { asked, oldest: compacted });
    }
    if asked > newest {
        return Err(StoreError::Future { asked, newest });
    }
    Ok(())
}

/// An iterator over the index.
pub(super) struct Live<'a> {
    snapshot: &'a Snapshot,
    prefix: Vec<u8>,
    revision: u64,
    range: redb::Range<'static, &'static [u8], u64>,
    at: Option<At>,
    ended: bool,
}

/// The current key of the iterator.
struct At {
    key: Vec<u8>,
    version: Option<Version>,
    steps: usize,
}

impl Live<'_> {
    /// Counts the remaining versions.
    fn count_rest(self) -> Result<u64, StoreError> {
        let mut count = 0;
        for version in self {
            version?;
            count += 1;
        }
        Ok(count)
    }

    /// Takes one step in the index. Returns the version of the previous key when the key changes.
    fn step(&mut self) -> Result<Option<Version>, StoreError> {
        let Some(next) = self.range.next().transpose().map_err(failed)? else { return Ok(self.end()) };
        let (key, revision) = split_index_key(next.0.value())?;
        if !key.starts_with(&self.prefix) {
            return Ok(self.end());
        }
        let created = next.1.value();
        let version = (created != 0 && revision <= self.revision).then_some(Version { created, revision });
        match &mut self.at {
            Some(at) if at.key == key => {
                at.steps += 1;
                if revision <= self.revision {
                    at.version = version;
                }
                if at.steps > STEPS {
                    return self.leap();
                }
                Ok(None)
            }
            at => {
                let left = at.replace(At { key: key.to_vec(), version, steps: 0 });
                Ok(left.and_then(|at| at.version))
            }
        }
    }

    /// Skips to the next key.
    fn leap(&mut self) -> Result<Option<Version>, StoreError> {
        let Some(at) = self.at.take() else { return Ok(None) };
        let key = key_of(&at.key)?;
        let range = self.snapshot.index.range(index_key(&key, u64::MAX).as_slice()..).map_err(failed)?;
        self.range = range;
        last_version(&self.snapshot.index, &key, self.revision)
    }

    fn end(&mut self) -> Option<Version> {
        self.ended = true;
        self.at.take().and_then(|at| at.version)
    }
}

impl Iterator for Live<'_> {
    type Item = Result<Version, StoreError>;

    fn next(&mut self) -> Option<Self::Item> {
        while !self.ended {
            match self.step() {
                Ok(None) => {}
                Ok(Some(version)) => return Some(Ok(version)),
                Err(error) => {
                    self.ended = true;
                    return Some(Err(error));
                }
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::check;
    use crate::StoreError;

    #[test]
    fn a_revision_is_compacted_readable_or_in_the_future() {
        for (asked, expected) in [
            (4, Err(StoreError::Compacted { asked: 4, oldest: 5 })),
            (5, Ok(())),
            (9, Ok(())),
            (10, Err(StoreError::Future { asked: 10, newest: 9 })),
        ] {
            assert_eq!(check(asked, 5, 9), expected);
        }
    }
}
