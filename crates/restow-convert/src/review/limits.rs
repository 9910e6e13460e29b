//! What a review may take, and be about.

use crate::convertible::kind_name;

/// What a review may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The size of the body.
    pub bytes: usize,
    /// The size of the answer.
    pub answer_bytes: usize,
    /// The size of one object. API servers accept no more than 3 MiB. What a conversion takes of the memory is up to 80 times
    /// the size of an object, if it is made for that.
    pub object_bytes: usize,
    /// The number of objects; above a million, it is a million.
    pub objects: usize,
    /// How deep an object may be nested. JSON that is nested more than 127 levels deep is always refused.
    pub depth: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { bytes: 50 << 20, answer_bytes: 100 << 20, object_bytes: 4 << 20, objects: 100_000, depth: 100 }
    }
}

/// The kinds that a review may be about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope<'a> {
    /// All that have a converter.
    All,
    /// One kind of a group.
    Kind {
        /// The API group.
        group: &'a str,
        /// The only kind whose objects a review may have.
        kind: &'a str,
    },
}

impl Scope<'_> {
    /// The kind it is limited to, if this is another one.
    pub(super) fn refuses(self, found_group: &str, found_kind: &str) -> Option<String> {
        match self {
            Self::Kind { group, kind } if (group, kind) != (found_group, found_kind) => {
                Some(kind_name(group, kind))
            }
            _ => None,
        }
    }
}
