//! What the objects of each resource should be stored as.

use std::collections::{BTreeMap, BTreeSet};

use restow_store::encryption::Transformers;

use crate::value::is_api_version;

/// What to compare stored objects with.
#[derive(Debug, Default)]
pub struct Expectations {
    /// The storage version of each resource, by its name.
    resources: BTreeMap<String, String>,
    /// The versions that the user expects, by group. They take precedence.
    groups: BTreeMap<String, BTreeSet<String>>,
    /// The resources that API servers serve; `None` if that is not known.
    served: Option<Served>,
    /// How API servers encrypt; `None` if that is not known.
    transformers: Option<Transformers>,
}

/// What the API servers serve.
#[derive(Clone, Debug, Default)]
pub struct Served {
    /// The names of all resources.
    pub resources: BTreeSet<String>,
    /// Groups that may have more resources, because a server did not answer.
    pub unknown_groups: BTreeSet<String>,
}

/// Why something cannot be expected.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ExpectationError {
    /// It is not a version.
    #[error("{0:?} is not a version such as example.com/v2, or v1 in the core group")]
    NotAVersion(String),
}

impl Expectations {
    /// Expects a version, such as `example.com/v2`, for all resources of its group. Several versions of a group are alternatives.
    pub fn expect_version(&mut self, api_version: &str) -> Result<(), ExpectationError> {
        // In the core group, a mistyped name of a group must not pass for a version.
        let is_core = !api_version.contains('/');
        let is_numbered =
            api_version.strip_prefix('v').is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()));
        if !is_api_version(api_version) || is_core && !is_numbered {
            return Err(ExpectationError::NotAVersion(api_version.to_owned()));
        }
        let group = group_of(api_version).to_owned();
        self.groups.entry(group).or_default().insert(api_version.to_owned());
        Ok(())
    }

    /// Expects the storage version that API servers report for a resource.
    pub fn expect_storage(&mut self, resource: impl Into<String>, api_version: impl Into<String>) {
        self.resources.insert(resource.into(), api_version.into());
    }

    /// What API servers serve.
    pub fn set_served(&mut self, served: Served) {
        self.served = Some(served);
    }

    /// The encryption configuration of the API servers.
    pub fn set_transformers(&mut self, transformers: Transformers) {
        self.transformers = Some(transformers);
    }

    /// The encryption configuration, if it is known.
    pub(crate) fn transformers(&self) -> Option<&Transformers> {
        self.transformers.as_ref()
    }

    /// Whether anything is expected of versions.
    pub(crate) fn has_versions(&self) -> bool {
        !self.groups.is_empty() || !self.resources.is_empty()
    }

    /// Whether a version is the expected one; `None` if nothing is expected of the resource.
    pub(crate) fn is_current(&self, resource: &str, group: &str, api_version: &str) -> Option<bool> {
        match self.groups.get(group) {
            Some(versions) => Some(versions.contains(api_version)),
            None => Some(self.resources.get(resource)? == api_version),
        }
    }

    /// Whether a version is expected of a resource.
    pub(crate) fn covers(&self, resource: &str, group: &str) -> bool {
        self.groups.contains_key(group) || self.resources.contains_key(resource)
    }

    /// Whether no API serves a resource. What is not known counts as served.
    pub(crate) fn is_unserved(&self, resource: &str, group: &str) -> bool {
        self.served.as_ref().is_some_and(|served| {
            !served.resources.contains(resource) && !served.unknown_groups.contains(group)
        })
    }
}

/// The group of an `apiVersion`, empty for the core group.
pub(crate) fn group_of(api_version: &str) -> &str {
    api_version.split_once('/').map_or("", |(group, _)| group)
}

#[cfg(test)]
mod tests {
    use super::{Expectations, Served};

    #[test]
    fn what_the_user_expects_takes_precedence() {
        let mut expected = Expectations::default();
        expected.expect_storage("widgets.example.com", "example.com/v1");
        expected.expect_storage("secrets", "v1");
        let current = |expected: &Expectations, resource: &str, group: &str, version: &str| {
            expected.is_current(resource, group, version)
        };
        assert_eq!(current(&expected, "widgets.example.com", "example.com", "example.com/v1"), Some(true));
        assert_eq!(current(&expected, "widgets.example.com", "example.com", "example.com/v2"), Some(false));
        assert_eq!(current(&expected, "gadgets.example.com", "example.com", "example.com/v1"), None);
        for version in ["example.com/v2", "example.com/v3"] {
            expected.expect_version(version).unwrap();
        }
        assert_eq!(current(&expected, "widgets.example.com", "example.com", "example.com/v1"), Some(false));
        assert_eq!(current(&expected, "gadgets.example.com", "example.com", "example.com/v3"), Some(true));
        assert_eq!(current(&expected, "secrets", "", "v1"), Some(true));
        for wrong in ["example.com", "apps", "v", ""] {
            assert!(expected.expect_version(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_resource_is_unserved_only_if_everything_is_known_about_its_group() {
        let mut expected = Expectations::default();
        assert!(!expected.is_unserved("widgets.example.com", "example.com"), "nothing is known");
        let names = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect();
        expected.set_served(Served {
            resources: names(&["a.example.com"]),
            unknown_groups: names(&["down.com"]),
        });
        assert!(expected.is_unserved("widgets.example.com", "example.com"));
        assert!(!expected.is_unserved("a.example.com", "example.com"));
        assert!(!expected.is_unserved("widgets.down.com", "down.com"));
    }
}
