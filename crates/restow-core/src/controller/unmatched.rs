//! Which names and patterns in a controller's flags cover no resource, and what to write instead.

use crate::agreement::encryption::Pattern;
use crate::resource::inventory::{NameError, Obstacle, Resource, find};
use crate::resource::name::{GroupResource, GroupVersion};

/// Why `--resources` with this name watches nothing, or none if it does. A group in `unavailable` may have the resource.
pub fn unmatched_name(
    resources: &[Resource],
    unavailable: &[(GroupVersion, Obstacle)],
    name: &GroupResource,
) -> Option<String> {
    let stored_as = |found: &Resource| match &found.obstacle {
        Some(Obstacle::SharedWith(owner)) => owner.clone(),
        _ => found.name.clone(),
    };
    match find(resources, &name.to_string()) {
        Ok(found) if stored_as(found) == *name => None,
        Ok(found) if found.name == *name => {
            Some(format!("{name} is stored as {0}: write {0} instead", stored_as(found)))
        }
        Ok(found) => Some(format!("{name} is not a full name: write {} instead", stored_as(found))),
        Err(NameError::Unknown { .. })
            if unavailable.iter().any(|(version, _)| version.group == name.group) =>
        {
            None
        }
        Err(error) => Some(error.to_string()),
    }
}

/// Why a pattern of `--encryption-resources` covers nothing, or none if it does. `none`, by itself, is meant to.
pub fn unmatched_pattern(
    resources: &[Resource],
    unavailable: &[(GroupVersion, Obstacle)],
    pattern: &Pattern,
) -> Option<String> {
    let text = pattern.as_str();
    if text == "none" || resources.iter().any(|resource| pattern.covers(&resource.name)) {
        return None;
    }
    match text.strip_prefix("*.") {
        Some(group) if unavailable.iter().any(|(version, _)| version.group == group) => None,
        Some(group) => Some(format!("no API server serves a resource of the group {group:?}")),
        None => unmatched_name(resources, unavailable, &GroupResource::parse(text)),
    }
}

/// Whether no API server serves the resource of this name any more. A group in `unavailable` may still have it.
pub fn is_gone(resources: &[Resource], unavailable: &[(GroupVersion, Obstacle)], name: &str) -> bool {
    let group = GroupResource::parse(name).group;
    let silent = unavailable.iter().any(|(version, _)| version.group == group);
    !silent && matches!(find(resources, name), Err(NameError::Unknown { .. }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resource::hash::storage_version_hash;
    use crate::resource::inventory::{Document, Served, inventory};

    fn resources() -> Vec<Resource> {
        let document = |version: &str, stored: &str, name: &str, kind: &str, short: &[&str]| Document {
            version: GroupVersion::parse(version),
            aggregated: false,
            resources: Ok(vec![Served {
                name: name.to_owned(),
                kind: kind.to_owned(),
                short_names: short.iter().map(|&short| short.to_owned()).collect(),
                verbs: vec!["list".to_owned(), "patch".to_owned()],
                hash: Some(storage_version_hash(&GroupVersion::parse(stored), kind)),
                ..Served::default()
            }]),
        };
        let documents = [
            document("v1", "v1", "configmaps", "ConfigMap", &["cm"]),
            document("v1", "v1", "events", "Event", &["ev"]),
            document("events.k8s.io/v1", "v1", "events", "Event", &["ev"]),
            document("example.com/v1", "example.com/v1", "widgets", "Widget", &[]),
        ];
        inventory(&documents, &[], true)
    }

    #[test]
    fn a_name_that_matches_no_resource_is_explained() {
        let down = [(GroupVersion::parse("down.example.com/v1"), Obstacle::Unavailable("503".to_owned()))];
        for (name, expected) in [
            ("configmaps", None),
            ("widgets.example.com", None),
            ("widgets", Some("widgets is not a full name: write widgets.example.com instead")),
            ("cm", Some("cm is not a full name: write configmaps instead")),
            ("events.events.k8s.io", Some("events.events.k8s.io is stored as events: write events instead")),
            ("gears.down.example.com", None),
            ("gears.example.org", Some("the server has no resource \"gears.example.org\"")),
        ] {
            let name = GroupResource::parse(name);
            assert_eq!(unmatched_name(&resources(), &down, &name).as_deref(), expected, "{name}");
        }
        for (pattern, expected) in [
            ("*.*", None),
            ("*.", None),
            ("*.example.com", None),
            ("*.down.example.com", None),
            ("*.example.org", Some("no API server serves a resource of the group \"example.org\"")),
            ("none", None),
            ("configmaps", None),
            ("events.events.k8s.io", None),
            ("cm", Some("cm is not a full name: write configmaps instead")),
        ] {
            let pattern = Pattern::new(pattern);
            assert_eq!(unmatched_pattern(&resources(), &down, &pattern).as_deref(), expected, "{pattern:?}");
        }
    }

    #[test]
    fn a_resource_is_gone_only_if_every_server_that_may_serve_it_answered() {
        let down = [(GroupVersion::parse("down.example.com/v1"), Obstacle::Unavailable("503".to_owned()))];
        for (name, expected) in [
            ("configmaps", false),
            ("widgets.example.com", false),
            ("events", false),
            ("gears.example.com", true),
            ("gears.down.example.com", false),
        ] {
            assert_eq!(is_gone(&resources(), &down, name), expected, "{name}");
        }
    }
}
