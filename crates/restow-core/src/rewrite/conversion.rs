//! What a conversion webhook has to do with reading and writing a custom resource.
//!
//! The webhook is a program of somebody else's, which may be down, or fail at some objects. An object is converted
//! whenever it is read or written in another version than it is stored in, and whenever it has managedFields of
//! another version. With its webhook down, a server answers such requests with plain errors, no other than it would
//! for stored bytes that are broken.

use crate::resource::inventory::Resource;
use crate::resource::name::GroupVersion;

/// The part of a webhook, for a resource that has one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Conversion {
    /// The served versions, besides the one asked, that objects may be stored in: there these are read as they are.
    pub others: Vec<GroupVersion>,
    /// A served version, besides the one asked, that objects in the storage version are converted to.
    other: Option<GroupVersion>,
    /// Whether objects may be stored in a version that is not served, so that they are read by the webhook's leave.
    pub blind: bool,
    /// Every version the definition has.
    versions: Vec<GroupVersion>,
    /// The version asked.
    endpoint: GroupVersion,
}

impl Conversion {
    /// The part of the webhook of a resource; none where nothing is ever converted by one.
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

    /// A served version that an object in the storage version can be read through only if the webhook converts it.
    pub fn other(&self) -> Option<&GroupVersion> {
        self.other.as_ref()
    }

    /// Whether the webhook has to convert managedFields of these apiVersions with every write.
    ///
    /// Where it fails at that, a merge patch is done all the same and wipes them. Entries of versions that the server
    /// has forgotten are nothing to the webhook; `managed_fields` takes care of them.
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
    fn objects_are_read_as_they_are_stored_where_that_is_served() {
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
