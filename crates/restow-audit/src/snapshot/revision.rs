//! The keys under which etcd keeps writes.

use std::fmt;

/// The number of a write: its transaction, and its place in that.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Revision {
    pub(super) main: u64,
    pub(super) sub: u64,
}

/// The bytes of a revision.
const REVISION: usize = 17;
/// Follows a revision that deleted a key.
const DELETION: u8 = b't';

impl Revision {
    pub(super) const MAX: Self = Self { main: u64::MAX, sub: u64::MAX };

    /// Reads the key of a write: its revision, and whether it deleted a key.
    pub(super) fn parse(key: &[u8]) -> Option<(Self, bool)> {
        let (key, is_deletion) = match key {
            [key @ .., DELETION] if key.len() == REVISION => (key, true),
            key => (key, false),
        };
        let (main, rest) = key.split_first_chunk()?;
        let (separator, sub) = rest.split_first()?;
        let (main, sub) = (u64::from_be_bytes(*main), u64::from_be_bytes(sub.try_into().ok()?));
        // etcd's numbers are signed.
        let is_possible = *separator == b'_' && main <= i64::MAX as u64 && sub <= i64::MAX as u64;
        is_possible.then_some((Self { main, sub }, is_deletion))
    }
}

impl fmt::Debug for Revision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.main, self.sub)
    }
}

#[cfg(test)]
mod tests {
    use super::Revision;

    #[test]
    fn the_key_of_a_write_has_its_revision() {
        let one = Revision { main: 258, sub: 3 };
        for (key, expected) in [
            (&b"\0\0\0\0\0\0\x01\x02_\0\0\0\0\0\0\0\x03"[..], Some((one, false))),
            (b"\0\0\0\0\0\0\x01\x02_\0\0\0\0\0\0\0\x03t", Some((one, true))),
            (b"\0\0\0\0\0\0\x01\x02_\0\0\0\0\0\0\0\x03x", None),
            (b"\0\0\0\0\0\0\x01\x02-\0\0\0\0\0\0\0\x03", None),
            (b"\xff\0\0\0\0\0\x01\x02_\0\0\0\0\0\0\0\x03", None),
            (b"\0\0\0\0\0\0\x01\x02_\0\0\0\0\0\0\x03", None),
            (b"t", None),
            (b"", None),
        ] {
            assert_eq!(Revision::parse(key), expected, "{key:?}");
        }
    }
}
