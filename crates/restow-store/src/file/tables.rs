//! How a store's file is laid out: four tables, and the bytes of their keys and values.
//!
//! The log holds every write under its revision, the index tells which revisions a key has. Writing appends to the log
//! and adds one small entry to the index; reading what was stored at a revision never needs an undo.

use std::str;

use redb::TableDefinition;

use crate::StoreError;

/// Key and revision to the revision that created it; 0 where the write deleted it.
pub(super) const INDEX: TableDefinition<'static, &[u8], u64> = TableDefinition::new("index");

/// Revision to [`Record`].
pub(super) const LOG: TableDefinition<'static, u64, &[u8]> = TableDefinition::new("log");

/// Prefix that ends in a slash to the number of keys that begin so.
pub(super) const COUNTS: TableDefinition<'static, &[u8], u64> = TableDefinition::new("counts");

/// Single numbers.
pub(super) const META: TableDefinition<'static, u8, u64> = TableDefinition::new("meta");

/// In [`META`]: how the tables are to be read.
pub(super) const FORMAT: u8 = 0;

/// In [`META`]: the newest revision.
pub(super) const NEWEST: u8 = 1;

/// In [`META`]: the oldest revision that can be read.
pub(super) const COMPACTED: u8 = 2;

/// In [`META`]: up to which revision of the log superseded writes have been removed.
pub(super) const SWEPT: u8 = 3;

const ESCAPE: u8 = 0xff;
const END: [u8; 2] = [0, 1];
const REVISION: usize = size_of::<u64>();

/// What all keys from this one on are not before, in the index.
pub(super) fn index_start(key: &str) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(key.len() + END.len() + REVISION);
    for &byte in key.as_bytes() {
        bytes.push(byte);
        // The end of a key sorts before whatever may follow in a longer one.
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

/// The escaped key, its end included, and the revision of a key of the index.
pub(super) fn split_index_key(bytes: &[u8]) -> Result<(&[u8], u64), StoreError> {
    let split = bytes.split_last_chunk::<REVISION>().filter(|(key, _)| key.ends_with(&END));
    let (key, revision) = split.ok_or_else(|| damaged("a key of the index is cut short"))?;
    Ok((key, u64::from_be_bytes(*revision)))
}

/// The key that was escaped.
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

/// One write, as the log has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Record<'a> {
    /// The key.
    pub(super) key: &'a str,
    /// The revision that created it; 0 where this write deleted it.
    pub(super) created: u64,
    /// The revision of the version this one took the place of; 0 where there was none.
    pub(super) previous: u64,
    /// The bytes.
    pub(super) value: &'a [u8],
}

impl<'a> Record<'a> {
    /// The bytes of the log.
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(2 * REVISION + 4 + self.key.len() + self.value.len());
        bytes.extend_from_slice(&self.created.to_be_bytes());
        bytes.extend_from_slice(&self.previous.to_be_bytes());
        bytes.extend_from_slice(&u32::try_from(self.key.len()).unwrap_or(u32::MAX).to_be_bytes());
        bytes.extend_from_slice(self.key.as_bytes());
        bytes.extend_from_slice(self.value);
        bytes
    }

    /// What bytes of the log mean.
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

/// What is stored cannot be read.
pub(super) fn damaged(reason: &str) -> StoreError {
    StoreError::Damaged(reason.to_owned())
}

/// What a failure of the database means to who asked.
pub(super) fn failed(error: impl Into<redb::Error>) -> StoreError {
    match error.into() {
        error @ (redb::Error::Corrupted(_)
        | redb::Error::TableDoesNotExist(_)
        | redb::Error::TableTypeMismatch { .. }
        | redb::Error::TypeDefinitionChanged { .. }) => StoreError::Damaged(error.to_string()),
        error => StoreError::Unavailable(error.to_string()),
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
