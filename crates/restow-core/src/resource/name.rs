//! Names of resources and of API versions.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A resource without a version: `widgets.example.com`, or `secrets` in the core group.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct GroupResource {
    /// The API group, empty for the core group.
    pub group: String,
    /// The plural name, as in URLs.
    pub resource: String,
}

impl GroupResource {
    /// Names a resource.
    pub fn new(group: impl Into<String>, resource: impl Into<String>) -> Self {
        Self { group: group.into(), resource: resource.into() }
    }

    /// Reads `resource[.group]`; everything after the first dot is the group.
    pub fn parse(text: &str) -> Self {
        match text.split_once('.') {
            Some((resource, group)) => Self::new(group, resource),
            None => Self::new("", text),
        }
    }
}

impl fmt::Display for GroupResource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.resource)?;
        if !self.group.is_empty() {
            write!(f, ".{}", self.group)?;
        }
        Ok(())
    }
}

impl Serialize for GroupResource {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for GroupResource {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Ok(Self::parse(&String::deserialize(deserializer)?))
    }
}

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_read_and_write_alike() {
        for (text, group, resource) in [
            ("secrets", "", "secrets"),
            ("widgets.example.com", "example.com", "widgets"),
            ("deviceclasses.resource.k8s.io", "resource.k8s.io", "deviceclasses"),
        ] {
            let name = GroupResource::parse(text);
            assert_eq!(name, GroupResource::new(group, resource));
            assert_eq!(name.to_string(), text);
        }
    }
}
