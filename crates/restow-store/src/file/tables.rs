//! The layout of a store's file: four tables, and the bytes of their keys and values.
//!
//! The log has every write by revision, and the index has the revisions of each key. A write appends to the log and adds one
//! small entry to the index. Reading an old revision needs no undo.

use std::str;

use redb::TableDefinition;

use super::errors::damaged;
use crate::StoreError;

/// Maps a key and revision to the revision that created the entry; 0 if the write deleted it.
pub(super) const INDEX: TableDefinition<'static, &[u8], u64> = TableDefinition::new("index");

/// Maps a revision to its [`Record`].
pub(super) const LOG: TableDefinition<'static, u64, &[u8]> = TableDefinition::new("log");

/// Maps a prefix that ends in a slash to its number of keys.
pub(super) const COUNTS: TableDefinition<'static, &[u8], u64> = TableDefinition::new("counts");

/// Single numbers.
pub(super) const META: TableDefinition<'static, u8, u64> = TableDefinition::new("meta");

/// In [`META`]: the format of the tables.
pub(super) const FORMAT: u8 = 0;

/// In [`META`]: the newest revision.
pub(super) const NEWEST: u8 = 1;

/// In [`META`]: the oldest readable revision.
pub(super) const COMPACTED: u8 = 2;

/// In [`META`]: the revision up to which superseded writes have been removed from the log.
pub(super) const SWEPT: u8 = 3;

/// The format that this version writes.
pub(super) const THIS_FORMAT: u64 = 1;

/// The revision of an empty store. In the Kubernetes API, 0 would mean "any".
pub(super) const FIRST: u64 = 1;

const ESCAPE: u8 = 0xff;
const END: [u8; 2] = [0, 1];
const REVISION: usize = size_of::<u64>();

/// The lower bound in the index of all keys from this one on.
pub(super) fn index_start(key: &str) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(key.len() + END.len() + REVISION);
    for &byte in key.as_bytes() {
        bytes.push(byte);
        // The end of a key sorts before any byte that follows in a longer key.
        if byte == 0 {
            bytes.push(ESCAPE);
        }
    }
    bytes
}

/// The key of the index for one version of a key.
pub(super) fn index_key(key: &str, revision: u64) -> Vec<u8> {
    let mut bytes = index_start(key);
    bytes.extend_from_slice(&END);
    bytes.extend_from_slice(&revision.to_be_bytes());
    bytes
}

/// Splits a key of the index into the escaped key with its end marker, and the revision.
pub(super) fn split_index_key(bytes: &[u8]) -> Result<(&[u8], u64), StoreError> {
    let split = bytes.split_last_chunk::<REVISION>().filter(|(key, _)| key.ends_with(&END));
    let (key, revision) = split.ok_or_else(|| damaged("a key of the index is cut short"))?;
    Ok((key, u64::from_be_bytes(*revision)))
}

/// Unescapes a key.
pub(super) fn key_of(escaped: &[u8]) -> Result<String, StoreError> {
    let mut bytes = Vec::with_capacity(escaped.len());
    let mut rest = escaped.strip_suffix(&END).unwrap_or(escaped).iter();
    while let Some(&byte) = rest.next() {
        bytes.push(byte);
        if byte == 0 {
            rest.next();
        }
    }
    String::from_utf8(bytes).map_err(|_| damaged("a key of the index is not text"))
}

/// One write in the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Record<'a> {
    pub(super) key: &'a str,
    /// The revision that created the entry; 0 if this write deleted it.
    pub(super) created: u64,
    /// The revision of the previous version; 0 if there was none.
    pub(super) previous: u64,
    /// The bytes.
    pub(super) value: &'a [u8],
}

impl<'a> Record<'a> {
    /// Encodes the record for the log.
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(2 * REVISION + 4 + self.key.len() + self.value.len());
        bytes.extend_from_slice(&self.created.to_be_bytes());
        bytes.extend_from_slice(&self.previous.to_be_bytes());
        bytes.extend_from_slice(&u32::try_from(self.key.len()).unwrap_or(u32::MAX).to_be_bytes());
        bytes.extend_from_slice(self.key.as_bytes());
        bytes.extend_from_slice(self.value);
        bytes
    }

    /// Decodes a record of the log.
    pub(super) fn decode(bytes: &'a [u8]) -> Result<Self, StoreError> {
        Self::parse(bytes).ok_or_else(|| damaged("a record of the log cannot be read"))
    }

    fn parse(bytes: &'a [u8]) -> Option<Self> {
        let (created, rest) = bytes.split_first_chunk()?;
        let (previous, rest) = rest.split_first_chunk()?;
        let (length, rest) = rest.split_first_chunk()?;
        let length = usize::try_from(u32::from_be_bytes(*length)).ok()?;
        let (key, value) = rest.split_at_checked(length)?;
        Some(Self {
            key: str::from_utf8(key).ok()?,
            created: u64::from_be_bytes(*created),
            previous: u64::from_be_bytes(*previous),
            value,
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{Record, index_key, index_start, key_of, split_index_key};

    proptest! {
        #[test]
        fn keys_of_the_index_sort_as_key_and_revision(
            a in "[\u{0}\u{1}a/\u{7f}é]{0,6}", b in "[\u{0}\u{1}a/\u{7f}é]{0,6}", at: u64, then: u64,
        ) {
            prop_assert_eq!(index_key(&a, at).cmp(&index_key(&b, then)), (&a, at).cmp(&(&b, then)));
            prop_assert_eq!(index_start(&a) <= index_key(&b, then), a <= b);
            prop_assert_eq!(index_key(&b, then).starts_with(&index_start(&a)), b.starts_with(&a));
            let key = index_key(&a, at);
            let (escaped, revision) = split_index_key(&key).unwrap();
            prop_assert_eq!((key_of(escaped).unwrap(), revision), (a, at));
        }

        #[test]
        fn a_record_reads_as_written(key: String, created: u64, previous: u64, value: Vec<u8>) {
            let record = Record { key: &key, created, previous, value: &value };
            let bytes = record.encode();
            prop_assert_eq!(Record::decode(&bytes).unwrap(), record);
        }

        #[test]
        fn any_bytes_are_a_record_or_an_error(bytes: Vec<u8>) {
            if let Ok(record) = Record::decode(&bytes) {
                prop_assert_eq!(record.encode(), bytes.clone());
            }
            if let Ok((escaped, _)) = split_index_key(&bytes) {
                key_of(escaped).ok();
            }
        }
    }
}
