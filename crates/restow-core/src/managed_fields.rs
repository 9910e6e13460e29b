//! Field ownership recorded through versions that are no longer served.
//!
//! A server that finds an entry of a version it has forgotten drops the managedFields of the whole object on the
//! next write, whoever sends it, and server-side apply loses its owners. Which unserved versions a server still
//! knows cannot be seen from outside, so an object with such an entry is first sent as a dry run.

use crate::inventory::Resource;
use crate::resource::GroupVersion;

/// The versions of one resource that stay.
#[derive(Clone, Debug)]
pub struct Versions(Vec<GroupVersion>);

/// What to do about an object with entries of versions that do not stay, once a dry run was answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Care {
    /// The write keeps all entries: send it.
    Send,
    /// The write would wipe them: leave the object alone.
    Quarantine,
}

impl Versions {
    /// The served versions of a resource.
    pub fn of(resource: &Resource) -> Self {
        Self(resource.served.clone())
    }

    /// Whether an entry of this apiVersion is of a version that does not stay.
    pub fn goes(&self, entry: &str) -> bool {
        let (group, version) = entry.split_once('/').unwrap_or(("", entry));
        !self.0.iter().any(|stays| stays.group == group && stays.version == version)
    }
}

/// Decides by how many entries there are, and how many a dry run of the write came back with.
pub fn care(before: usize, after: usize) -> Care {
    if after < before { Care::Quarantine } else { Care::Send }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_of_served_versions_stay() {
        let versions = Versions(vec![GroupVersion::parse("example.com/v2"), GroupVersion::parse("v1")]);
        for (entry, goes) in [
            ("example.com/v2", false),
            ("v1", false),
            ("example.com/v1", true),
            ("v2", true),
            ("other/v2", true),
        ] {
            assert_eq!(versions.goes(entry), goes, "{entry}");
        }
    }

    #[test]
    fn a_write_that_loses_entries_is_not_sent() {
        for (before, after, expected) in
            [(2, 2, Care::Send), (2, 3, Care::Send), (2, 1, Care::Quarantine), (1, 0, Care::Quarantine)]
        {
            assert_eq!(care(before, after), expected);
        }
    }
}
