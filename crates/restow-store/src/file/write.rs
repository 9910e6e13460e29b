//! Applies a group of writes to the tables, in one transaction.

use std::collections::HashMap;

use bytes::Bytes;
use redb::{ReadableTable, Table, WriteTransaction};

use super::{
    errors::{damaged, failed},
    read::{Version, last_version},
    tables::{COUNTS, INDEX, LOG, META, Record, index_key},
};
use crate::{Entry, StoreError, Unchanged, Write, Written};

/// The tables, open for writing.
pub(super) struct Tables<'t> {
    index: Table<'t, &'static [u8], u64>,
    pub(super) log: Table<'t, u64, &'static [u8]>,
    counts: Table<'t, &'static [u8], u64>,
    meta: Table<'t, u8, u64>,
}

/// A completed write, for watchers.
#[derive(Clone, Debug)]
pub(super) struct Done {
    pub(super) key: String,
    /// The revision of the write.
    pub(super) revision: u64,
    /// The revision that created the entry.
    pub(super) created: u64,
    /// The new value; `None` if it was deleted.
    pub(super) value: Option<Bytes>,
    /// The previous version.
    pub(super) before: Option<Version>,
}

impl<'t> Tables<'t> {
    /// Opens the tables, and creates missing ones.
    pub(super) fn open(writing: &'t WriteTransaction) -> Result<Self, StoreError> {
        Ok(Self {
            index: writing.open_table(INDEX).map_err(failed)?,
            log: writing.open_table(LOG).map_err(failed)?,
            counts: writing.open_table(COUNTS).map_err(failed)?,
            meta: writing.open_table(META).map_err(failed)?,
        })
    }

    /// Reads a number of the meta table.
    pub(super) fn number(&self, name: u8) -> Result<Option<u64>, StoreError> {
        Ok(self.meta.get(name).map_err(failed)?.map(|number| number.value()))
    }

    /// Writes a number of the meta table.
    pub(super) fn set_number(&mut self, name: u8, number: u64) -> Result<(), StoreError> {
        self.meta.insert(name, number).map(drop).map_err(failed)
    }

    /// Makes one change under the next revision, if the key has the expected mod revision.
    pub(super) fn write(&mut self, newest: u64, write: Write) -> Result<(Written, Option<Done>), StoreError> {
        let Write { key, expected, value } = write;
        let before = self.current(&key)?;
        let nothing_to_delete = before.is_none() && value.is_none();
        if before.map_or(0, |before| before.revision) != expected || nothing_to_delete {
            let current = before.map(|version| self.entry(version)).transpose()?;
            return Ok((Written::Conflict { current }, None));
        }
        let revision = newest + 1;
        let created = match &value {
            None => 0,
            Some(_) => before.map_or(revision, |before| before.created),
        };
        let previous = before.map_or(0, |before| before.revision);
        let record = Record { key: &key, created, previous, value: value.as_deref().unwrap_or_default() };
        self.log.insert(revision, record.encode().as_slice()).map_err(failed)?;
        self.index.insert(index_key(&key, revision).as_slice(), created).map_err(failed)?;
        Ok((Written::Done { revision }, Some(Done { key, revision, created, value, before })))
    }

    /// Updates the number of keys below each prefix.
    pub(super) fn count(&mut self, done: &[Done]) -> Result<(), StoreError> {
        let mut changes: HashMap<&str, i64> = HashMap::new();
        for done in done {
            let change = match (&done.before, &done.value) {
                (None, Some(_)) => 1,
                (Some(_), None) => -1,
                _ => continue,
            };
            for (at, _) in done.key.match_indices('/') {
                *changes.entry(&done.key[..=at]).or_default() += change;
            }
        }
        for (prefix, change) in changes {
            let prefix = prefix.as_bytes();
            let count = self.counts.get(prefix).map_err(failed)?.map_or(0, |count| count.value());
            match count.saturating_add_signed(change) {
                0 => self.counts.remove(prefix).map(drop),
                count => self.counts.insert(prefix, count).map(drop),
            }
            .map_err(failed)?;
        }
        Ok(())
    }

    /// Removes versions of keys, in the order of each table, so that neighbours are removed together.
    pub(super) fn forget(&mut self, mut versions: Vec<(String, u64)>) -> Result<(), StoreError> {
        versions.sort_unstable();
        for (key, revision) in &versions {
            self.index.remove(index_key(key, *revision).as_slice()).map_err(failed)?;
        }
        versions.sort_unstable_by_key(|(_, revision)| *revision);
        for (_, revision) in &versions {
            self.log.remove(*revision).map_err(failed)?;
        }
        Ok(())
    }

    /// Whether one of these keys has another mod revision.
    pub(super) fn is_any_changed(&self, keys: &[Unchanged]) -> Result<bool, StoreError> {
        for Unchanged { key, mod_revision } in keys {
            if self.current(key)?.map_or(0, |version| version.revision) != *mod_revision {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn current(&self, key: &str) -> Result<Option<Version>, StoreError> {
        last_version(&self.index, key, u64::MAX)
    }

    fn entry(&self, version: Version) -> Result<Entry, StoreError> {
        let bytes = self.log.get(version.revision).map_err(failed)?;
        let bytes = bytes.ok_or_else(|| damaged("the log lacks a revision that the index has"))?;
        version.entry(bytes.value())
    }
}
