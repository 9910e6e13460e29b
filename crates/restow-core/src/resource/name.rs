//! Names of resources and of API versions.

use std::fmt;

pub use restow_api::GroupResource;

/// A group and a version, written `group/version`, or just the version in the core group.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct GroupVersion {
    /// The API group, empty for the core group.
    pub group: String,
    /// The version, such as `v1beta1`.
    pub version: String,
}

impl GroupVersion {
    /// Names a version of a group.
    pub fn new(group: impl Into<String>, version: impl Into<String>) -> Self {
        Self { group: group.into(), version: version.into() }
    }

    /// Reads an `apiVersion`.
    pub fn parse(text: &str) -> Self {
        match text.split_once('/') {
            Some((group, version)) => Self::new(group, version),
            None => Self::new("", text),
        }
    }

    /// The path its discovery document and its resources are served under.
    pub fn path(&self) -> String {
        if self.group.is_empty() {
            format!("/api/{}", self.version)
        } else {
            format!("/apis/{}/{}", self.group, self.version)
        }
    }
}

impl fmt::Display for GroupVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.group.is_empty() {
            write!(f, "{}/", self.group)?;
        }
        f.write_str(&self.version)
    }
}

/// A [`GroupResource`] as text, `resource.group`, in what restow saves for itself.
pub(crate) mod text {
    use serde::{Deserialize as _, Deserializer, Serializer};

    use super::GroupResource;

    pub(crate) fn serialize<S: Serializer>(name: &GroupResource, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(name)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<GroupResource, D::Error> {
        Ok(GroupResource::parse(&String::deserialize(deserializer)?))
    }
}
