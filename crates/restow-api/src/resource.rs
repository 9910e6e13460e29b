//! Names of resources, with and without a version.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A resource without a version: `widgets.example.com`, or `secrets` in the core group.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[schemars(description = "A resource without a version.")]
pub struct GroupResource {
    /// The API group; empty or absent for the core group.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub group: String,
    /// The plural name of the resource.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub resource: String,
}

impl GroupResource {
    /// Creates a name from a group and a plural name.
    pub fn new(group: impl Into<String>, resource: impl Into<String>) -> Self {
        Self { group: group.into(), resource: resource.into() }
    }

    /// Parses `resource[.group]`; everything after the first dot is the group.
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

/// A resource and an optional version. restow uses the storage version if it is served, whatever the version here.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct GroupVersionResource {
    /// The API group; empty or absent for the core group.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub group: String,
    /// The version; restow ignores it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub version: String,
    /// The plural name of the resource.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub resource: String,
}

impl GroupVersionResource {
    /// The resource without its version.
    pub fn group_resource(&self) -> GroupResource {
        GroupResource::new(&self.group, &self.resource)
    }

    /// `resource.group`, or only the resource in the core group.
    pub fn name(&self) -> String {
        self.group_resource().to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_round_trip() {
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
