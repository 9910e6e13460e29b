//! The API groups and their versions, in order of preference.

use std::cmp::Reverse;
use std::sync::Arc;

use kube::core::Version;

use crate::registry::resource::Resource;
use crate::registry::reviews::{REVIEWS, Review, VERSION};
use crate::registry::served::ServedResources;

/// The contents of one version of a group.
#[derive(Default)]
pub(crate) struct Contents {
    /// Resources, with the index of this version among theirs.
    pub resources: Vec<(Arc<Resource>, usize)>,
    pub reviews: Vec<&'static Review>,
}

/// A group and its versions, the preferred one first.
pub(crate) struct Group {
    /// The name; empty for the core group.
    pub name: String,
    pub versions: Vec<(String, Contents)>,
}

/// All groups: the core group first, custom ones last.
pub(crate) fn groups(served: &ServedResources) -> Vec<Group> {
    let mut groups = Vec::new();
    for resource in &served.built_in {
        add(&mut groups, resource);
    }
    for review in REVIEWS {
        contents(&mut groups, review.group, VERSION).reviews.push(review);
    }
    for resource in served.custom.values() {
        add(&mut groups, resource);
    }
    for group in &mut groups {
        group.versions.sort_by_cached_key(|(version, _)| Reverse(Version::parse(version).priority()));
    }
    groups
}

fn add(groups: &mut Vec<Group>, resource: &Arc<Resource>) {
    for (place, version) in resource.versions.iter().enumerate() {
        let contents = contents(groups, &resource.name.group, &version.name);
        contents.resources.push((Arc::clone(resource), place));
    }
}

/// The contents of a version so far.
fn contents<'a>(groups: &'a mut Vec<Group>, group: &str, version: &str) -> &'a mut Contents {
    let at = groups.iter().position(|known| known.name == group).unwrap_or_else(|| {
        groups.push(Group { name: group.to_owned(), versions: Vec::new() });
        groups.len() - 1
    });
    let versions = &mut groups[at].versions;
    let at = versions.iter().position(|(known, _)| known == version).unwrap_or_else(|| {
        versions.push((version.to_owned(), Contents::default()));
        versions.len() - 1
    });
    &mut versions[at].1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_sorted_by_kubernetes_priority() {
        let mut versions =
            vec!["foo", "v1alpha1", "v2beta1", "v10", "v1", "v2", "v11alpha2", "v1beta2", "bar"];
        versions.sort_by_cached_key(|version| Reverse(Version::parse(version).priority()));
        let expected = ["v10", "v2", "v1", "v2beta1", "v1beta2", "v11alpha2", "v1alpha1", "bar", "foo"];
        assert_eq!(versions, expected);
    }
}
