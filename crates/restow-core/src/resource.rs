//! Names of resources and their storage versions.

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

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

/// The hash discovery shows for objects stored as `version` and `kind`.
pub fn storage_version_hash(version: &GroupVersion, kind: &str) -> String {
    let digest = Sha256::digest(format!("{}/{}/{kind}", version.group, version.version));
    STANDARD.encode(&digest[..8])
}

/// Whether a text has the form of such a hash.
pub fn is_hash(text: &str) -> bool {
    STANDARD.decode(text).is_ok_and(|bytes| bytes.len() == 8)
}

/// Versions a built-in may be stored in without being served; tried when a hash matches no served version.
const UNSERVED: [&str; 12] = [
    "v1beta1", "v1beta2", "v1beta3", "v1alpha1", "v1alpha2", "v1alpha3", "v1", "v2", "v2beta1", "v2beta2",
    "v2alpha1", "v3",
];

/// Finds the version a hash stands for, among those `served` and then those a group may have unserved.
///
/// `served` may hold versions of other groups, because some resources share their storage (events do).
pub fn version_of_hash<'a>(
    hash: &str,
    kind: &str,
    group: &str,
    served: impl IntoIterator<Item = &'a GroupVersion>,
) -> Option<GroupVersion> {
    served.into_iter().find(|version| storage_version_hash(version, kind) == hash).cloned().or_else(|| {
        UNSERVED
            .iter()
            .map(|version| GroupVersion::new(group, *version))
            .find(|version| storage_version_hash(version, kind) == hash)
    })
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

    /// Hashes that a kube-apiserver 1.36.3 published.
    #[test]
    fn hashes_are_those_of_a_real_server() {
        for (version, kind, hash) in [
            ("v1", "Event", "r2yiGXH7wu8="),
            ("autoscaling/v2", "HorizontalPodAutoscaler", "qwQve8ut294="),
            ("example.com/v1", "Widget", "gIwvi5rymmg="),
        ] {
            assert_eq!(storage_version_hash(&GroupVersion::parse(version), kind), hash, "{version} {kind}");
        }
    }

    #[test]
    fn a_hash_names_its_version() {
        let served = [GroupVersion::parse("autoscaling/v1"), GroupVersion::parse("autoscaling/v2")];
        let find = |hash, kind, group| version_of_hash(hash, kind, group, &served).map(|v| v.to_string());
        assert_eq!(
            find("qwQve8ut294=", "HorizontalPodAutoscaler", "autoscaling").as_deref(),
            Some("autoscaling/v2")
        );
        // Served as v1 only, stored in a version that is not served.
        assert_eq!(
            find("jfWCUB31mvA=", "CustomResourceDefinition", "apiextensions.k8s.io").as_deref(),
            Some("apiextensions.k8s.io/v1beta1")
        );
        assert_eq!(find("AAAAAAAAAAA=", "Widget", "example.com"), None);
    }
}
