//! How a conversion webhook affects reads and writes of a custom resource.
//!
//! The webhook may be down, or fail for some objects. An object is converted whenever it is read or written in another
//! version than it is stored in, and whenever it has managedFields of another version. While the webhook is down, a server
//! answers such requests with the same errors as for corrupt objects.

use crate::resource::inventory::Resource;
use crate::resource::name::GroupVersion;

/// Which versions of a resource its webhook converts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Conversion {
    /// The served versions, besides the requested one, that objects may be stored in. Read in these, they are not converted.
    pub others: Vec<GroupVersion>,
    /// A served version, besides the requested one, that objects in the storage version are converted to.
    other: Option<GroupVersion>,
    /// Whether objects may be stored in a version that is not served, so that only the webhook makes them readable.
    pub blind: bool,
    /// Every version of the CRD.
    versions: Vec<GroupVersion>,
    /// The version that requests use.
    endpoint: GroupVersion,
}

impl Conversion {
    /// The conversion of a resource; none if no webhook converts it.
    pub fn of(resource: &Resource) -> Option<Self> {
        let crd = resource.crd.as_ref().filter(|crd| crd.webhook && crd.versions.len() > 1)?;
        let endpoint = resource.endpoint()?.clone();
        let version = |name: &String| GroupVersion::new(&crd.name.group, name);
        let stored: Vec<GroupVersion> = crd.stored_versions.iter().map(version).collect();
        let served = |version: &&GroupVersion| resource.served.contains(version);
        Some(Self {
            others: stored.iter().filter(served).filter(|stored| **stored != endpoint).cloned().collect(),
            blind: !stored.iter().all(|stored| resource.served.contains(stored)),
            other: resource
                .served
                .iter()
                .find(|served| **served != endpoint && served.version != crd.storage_version)
                .cloned(),
            versions: crd.versions.iter().map(|(name, _)| version(name)).collect(),
            endpoint,
        })
    }

    /// A served version in which an object in the storage version can be read only if the webhook converts it.
    pub fn other(&self) -> Option<&GroupVersion> {
        self.other.as_ref()
    }

    /// Whether every write makes the webhook convert managedFields of these apiVersions.
    ///
    /// If that fails, a merge patch succeeds and wipes them. The webhook is not called for entries of versions that the server
    /// no longer knows; `managed_fields` handles those.
    pub fn converts<'a>(&self, entries: impl IntoIterator<Item = &'a str>) -> bool {
        let mut converted = false;
        for entry in entries.into_iter().map(GroupVersion::parse) {
            if !self.versions.contains(&entry) {
                return false;
            }
            converted |= entry != self.endpoint;
        }
        converted
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resource::inventory::{Crd, Origin};
    use crate::resource::name::GroupResource;

    fn words(text: &str) -> Vec<String> {
        text.split_whitespace().map(str::to_owned).collect()
    }

    fn resource(webhook: bool, versions: &str, served: &str, storage: &str, stored: &str) -> Resource {
        let name = GroupResource::parse("widgets.example.com");
        let version = |name: &String| GroupVersion::new("example.com", name);
        Resource {
            name: name.clone(),
            singular: "widget".to_owned(),
            kind: "Widget".to_owned(),
            short_names: Vec::new(),
            namespaced: true,
            served: words(served).iter().map(version).collect(),
            hash: None,
            storage_version: Some(GroupVersion::new("example.com", storage)),
            origin: Origin::Custom,
            crd: Some(Crd {
                converting: false,
                name,
                resource_version: String::new(),
                uid: String::new(),
                generation: 1,
                storage_version: storage.to_owned(),
                versions: words(versions).into_iter().map(|name| (name, true)).collect(),
                stored_versions: words(stored),
                changed: None,
                webhook,
            }),
            shared_by: Vec::new(),
            obstacle: None,
        }
    }

    #[test]
    fn objects_are_read_in_the_storage_version_if_it_is_served() {
        // versions, served, storage, stored; others, blind
        for (versions, served, storage, stored, others, blind) in [
            ("v1 v2", "v1 v2", "v2", "v1 v2", "v1", false),
            ("v1 v2", "v2", "v2", "v1 v2", "", true),
            ("v1 v2", "v1 v2", "v2", "v2", "", false),
            ("v1 v2 v3", "v2 v3", "v3", "v1 v2 v3", "v2", true),
            ("v1 v2 v3", "v1 v2 v3", "v3", "v1 v3", "v1", false),
            // The storage version is not served: the preferred one is asked.
            ("v1 v2", "v1", "v2", "v1 v2", "", true),
        ] {
            let conversion = Conversion::of(&resource(true, versions, served, storage, stored)).unwrap();
            let names: Vec<&str> = conversion.others.iter().map(|other| other.version.as_str()).collect();
            assert_eq!(names.join(" "), others, "{versions} {served} {stored}");
            assert_eq!(conversion.blind, blind, "{versions} {served} {stored}");
        }
        for (served, storage, other) in [("v1 v2", "v2", "v1"), ("v2", "v2", ""), ("v2 v3", "v3", "v2")] {
            let conversion = Conversion::of(&resource(true, "v1 v2 v3", served, storage, "v1")).unwrap();
            let name = conversion.other().map_or("", |other| other.version.as_str());
            assert_eq!(name, other, "{served} {storage}");
        }
        assert_eq!(Conversion::of(&resource(false, "v1 v2", "v1 v2", "v2", "v1 v2")), None);
        assert_eq!(
            Conversion::of(&resource(true, "v1", "v1", "v1", "v1")),
            None,
            "there is nothing to convert"
        );
    }

    #[test]
    fn entries_of_other_versions_need_the_webhook() {
        let conversion = Conversion::of(&resource(true, "v1 v2", "v2", "v2", "v1 v2")).unwrap();
        for (entries, expected) in [
            (&[][..], false),
            (&["example.com/v2"], false),
            (&["example.com/v1"], true),
            (&["example.com/v2", "example.com/v1"], true),
            (&["example.com/v1", "example.com/v0"], false),
        ] {
            assert_eq!(conversion.converts(entries.iter().copied()), expected, "{entries:?}");
        }
    }
}
