//! What etcd keeps of a write: a `mvccpb.KeyValue`.

use super::revision::Revision;
use crate::wire::{Field, Fields};

/// One write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Record<'r> {
    Put {
        key: &'r [u8],
        value: &'r [u8],
        /// How often the key was written since it was created, this write included.
        version: u64,
    },
    Deletion {
        key: &'r [u8],
    },
    /// Left by `etcdutl snapshot restore --bump-revision`, which also marks everything below as compacted.
    Bump,
}

impl<'r> Record<'r> {
    /// Reads a write, strictly as etcd writes it: each field once, in order, and with the revision it is kept under.
    pub(super) fn parse(bytes: &'r [u8], at: Revision, is_deletion: bool) -> Result<Self, &'static str> {
        let (mut key, mut value): (&[u8], &[u8]) = (&[], &[]);
        // The numbers: the revision of the creation, of this write, the version and the lease.
        let mut numbers = [0; 7];
        let mut last = 0;
        for field in Fields::new(bytes) {
            let (number, field) = field.ok_or("it is not a message of etcd")?;
            if number <= last {
                return Err("its fields are out of order");
            }
            last = number;
            match (number, field) {
                (1, Field::Bytes(bytes)) => key = bytes,
                (5, Field::Bytes(bytes)) => value = bytes,
                (2 | 3 | 4 | 6, Field::Number(found)) => {
                    numbers[usize::try_from(number).unwrap_or_default()] = found;
                }
                _ => return Err("it has an unknown field"),
            }
        }
        let [_, _, created, modified, version, _, _] = numbers;
        match (is_deletion, key) {
            (false, []) if bytes.is_empty() => Ok(Self::Bump),
            (_, []) => Err("it has no key"),
            (true, key) if last == 1 => Ok(Self::Deletion { key }),
            (true, _) => Err("it is a deletion and has a value"),
            (false, _) if modified != at.main => Err("it is kept under another revision than its own"),
            (false, _) if created == 0 || created > modified || version == 0 => {
                Err("its numbers are not possible")
            }
            (false, key) => Ok(Self::Put { key, value, version }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Record, Revision};

    #[test]
    fn a_write_is_read_only_as_etcd_writes_it() {
        let put = Ok(Record::Put { key: b"a", value: b"xy", version: 2 });
        for (bytes, is_deletion, expected) in [
            (&b"\x0a\x01a\x10\x05\x18\x07\x20\x02\x2a\x02xy"[..], false, put),
            (b"\x0a\x01a\x10\x05\x18\x07\x20\x02\x2a\x02xy\x30\x09", false, put),
            (
                b"\x0a\x01a\x10\x05\x18\x07\x20\x02",
                false,
                Ok(Record::Put { key: b"a", value: b"", version: 2 }),
            ),
            (b"\x0a\x01a", true, Ok(Record::Deletion { key: b"a" })),
            (b"", false, Ok(Record::Bump)),
            (b"", true, Err("it has no key")),
            (b"\x0a\x01a\x10\x05", true, Err("it is a deletion and has a value")),
            (b"\x0a\x01a", false, Err("it is kept under another revision than its own")),
            (
                b"\x0a\x01a\x10\x05\x18\x08\x20\x02",
                false,
                Err("it is kept under another revision than its own"),
            ),
            (b"\x0a\x01a\x10\x08\x18\x07\x20\x02", false, Err("its numbers are not possible")),
            (b"\x0a\x01a\x18\x07\x10\x05\x20\x02", false, Err("its fields are out of order")),
            (b"\x0a\x01a\x10\x05\x18\x07\x20\x02\x2a\x03xy", false, Err("it is not a message of etcd")),
            (b"\x0a\x01a\x10\x05\x18\x07\x20\x02\x2a\x02xy\0", false, Err("it is not a message of etcd")),
            (b"\x0a\x01a\x10\x05\x18\x07\x20\x02\x3a\x02xy", false, Err("it has an unknown field")),
        ] {
            assert_eq!(
                Record::parse(bytes, Revision { main: 7, sub: 0 }, is_deletion),
                expected,
                "{bytes:?}"
            );
        }
    }
}
