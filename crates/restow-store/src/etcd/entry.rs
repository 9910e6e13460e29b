//! Reads etcd's key-value pairs, revisions and ranges.

use super::messages::{KeyValue, ResponseHeader};
use crate::{Entry, StoreError};

pub(super) fn entry(found: KeyValue) -> Result<Entry, StoreError> {
    Ok(Entry {
        key: String::from_utf8(found.key.into()).map_err(|_| damaged("a key is not UTF-8"))?,
        value: found.value,
        create_revision: unsigned(found.create_revision)?,
        mod_revision: unsigned(found.mod_revision)?,
    })
}

/// The first key after all keys with this prefix; a zero byte means the end of the store.
pub(super) fn end(prefix: &str) -> Vec<u8> {
    let mut end = prefix.as_bytes().to_vec();
    while let Some(last) = end.pop() {
        if last < u8::MAX {
            end.push(last + 1);
            return end;
        }
    }
    vec![0]
}

pub(super) fn newest(header: Option<ResponseHeader>) -> Result<u64, StoreError> {
    unsigned(header.ok_or_else(|| damaged("an answer lacks its header"))?.revision)
}

pub(super) fn unsigned(number: i64) -> Result<u64, StoreError> {
    u64::try_from(number).map_err(|_| damaged("a number is negative"))
}

pub(super) fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

pub(super) fn damaged(reason: &str) -> StoreError {
    StoreError::Damaged(format!("etcd: {reason}"))
}

#[cfg(test)]
mod tests {
    use super::end;

    #[test]
    fn the_end_of_a_prefix_is_the_next_prefix() {
        for (prefix, expected) in [("/a/", &b"/a0"[..]), ("é", &[0xc3, 0xaa]), ("", &[0])] {
            assert_eq!(end(prefix), expected);
        }
    }
}
