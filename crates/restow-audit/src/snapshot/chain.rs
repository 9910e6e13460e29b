//! Checks that the writes of one key follow each other.
//!
//! etcd numbers the writes of a key from its creation on. So if the name of a key, a number or a deletion was changed by
//! damage, a write is missing in one chain and left over in another.

use super::record::Record;

/// What is expected of the next older write of a key, in the number that is kept for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Expected {
    /// Nothing: it may have been compacted.
    Anything,
    /// A write with this version.
    Version(u32),
    /// A deletion, or nothing: this write created the key.
    Deletion,
    /// A write, which the deletion deleted.
    Write,
}

impl From<u32> for Expected {
    fn from(number: u32) -> Self {
        match number {
            0 => Self::Anything,
            u32::MAX => Self::Deletion,
            DELETED => Self::Write,
            version => Self::Version(version),
        }
    }
}

impl From<Expected> for u32 {
    fn from(expected: Expected) -> Self {
        match expected {
            Expected::Anything => 0,
            Expected::Deletion => u32::MAX,
            Expected::Write => DELETED,
            Expected::Version(version) => version,
        }
    }
}

const DELETED: u32 = u32::MAX - 1;

/// Takes one write of a key, from the last to the first.
///
/// `number` is what was returned for the newer write, and 0 for the last one. Writes that may have been compacted end a chain.
pub(super) fn next(number: u32, record: Record<'_>, is_compacted: bool) -> Result<u32, &'static str> {
    match (Expected::from(number), record) {
        (Expected::Anything, _)
        | (Expected::Deletion, Record::Deletion { .. })
        | (Expected::Write, Record::Put { .. }) => {}
        (Expected::Version(expected), Record::Put { version, .. }) if version == u64::from(expected) => {}
        // A deletion that is compacted leaves nothing, not even what it deleted.
        (Expected::Deletion, _) if is_compacted => {}
        _ => return Err("it does not fit the next write of its key"),
    }
    let expected = match record {
        _ if is_compacted => Expected::Anything,
        Record::Put { version: 1, .. } => Expected::Deletion,
        // Nothing is checked after four billion writes of one key.
        Record::Put { version, .. } => {
            match u32::try_from(version - 1).ok().filter(|version| *version < DELETED) {
                Some(version) => Expected::Version(version),
                None => Expected::Anything,
            }
        }
        Record::Deletion { .. } => Expected::Write,
        Record::Bump => Expected::Anything,
    };
    Ok(expected.into())
}

/// Whether an older write of a key is missing.
pub(super) fn is_open(number: u32) -> bool {
    matches!(Expected::from(number), Expected::Version(_) | Expected::Write)
}

#[cfg(test)]
mod tests {
    use super::{Record, is_open, next};

    #[test]
    fn the_writes_of_a_key_follow_each_other() {
        let put = |version| (Record::Put { key: b"a", value: b"", version }, false);
        let old = |version| (Record::Put { key: b"a", value: b"", version }, true);
        let deletion = (Record::Deletion { key: b"a" }, false);
        // From the last write to the first: whether they fit, and whether one is missing.
        for (writes, expected) in [
            (&[put(1)][..], Ok(false)),
            (&[put(3), put(2), put(1)], Ok(false)),
            (&[put(2), put(1), deletion, put(4), put(3)], Ok(true)),
            (&[put(1), deletion, put(1), deletion, put(1)], Ok(false)),
            (&[put(5), put(4), old(3)], Ok(false)),
            (&[put(5), old(4), old(2)], Ok(false)),
            (&[put(1), old(7)], Ok(false)),
            (&[old(9)], Ok(false)),
            (&[put(2)], Ok(true)),
            (&[deletion], Ok(true)),
            (&[put(3), put(1)], Err(())),
            (&[put(3), old(1)], Err(())),
            (&[put(1), put(1)], Err(())),
            (&[put(2), deletion], Err(())),
            (&[deletion, deletion], Err(())),
        ] {
            let end = writes.iter().try_fold(0, |number, (record, is_old)| next(number, *record, *is_old));
            assert_eq!(end.map(is_open).map_err(|_| ()), expected, "{writes:?}");
        }
    }
}
