//! Discovery documents: what the server serves, and the hash of the storage version.

use restow_core::resource::hash::storage_version_hash;
use serde_json::{Value, json};

use crate::request::{Document, Verb};
use crate::ship::{GROUP, KIND, RESOURCE, Version};

/// A discovery document of a server that stores in this version.
pub fn document(document: Document, storage: Version) -> Value {
    match document {
        Document::Groups => json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": [group()]}),
        Document::Group => {
            let mut document = group();
            document["kind"] = json!("APIGroup");
            document["apiVersion"] = json!("v1");
            document
        }
        Document::Resources(version) => resources(version, storage),
    }
}

fn group() -> Value {
    let versions = Version::ALL.map(
        |version| json!({"groupVersion": version.group_version().to_string(), "version": version.name()}),
    );
    json!({"name": GROUP, "versions": versions, "preferredVersion": versions[0]})
}

/// The hash is that of the storage version in every served version, so that clients notice when it changes.
fn resources(version: Version, storage: Version) -> Value {
    json!({
        "kind": "APIResourceList", "apiVersion": "v1", "groupVersion": version.group_version().to_string(),
        "resources": [{
            "name": RESOURCE, "singularName": "ship", "namespaced": true, "kind": KIND,
            "verbs": Verb::ALL.map(Verb::name),
            "storageVersionHash": storage_version_hash(&storage.group_version(), KIND),
        }],
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_version_shows_the_hash_of_the_storage_version() {
        let hash = |version, storage| {
            document(Document::Resources(version), storage)["resources"][0]["storageVersionHash"].clone()
        };
        assert_eq!(hash(Version::V1, Version::V1), hash(Version::V2, Version::V1));
        assert_ne!(hash(Version::V1, Version::V1), hash(Version::V1, Version::V2));
    }

    #[test]
    fn the_newest_version_is_preferred() {
        let groups = document(Document::Groups, Version::V1);
        assert_eq!(groups["groups"][0]["preferredVersion"]["version"], "v2");
        assert_eq!(document(Document::Group, Version::V1)["kind"], "APIGroup");
    }
}
