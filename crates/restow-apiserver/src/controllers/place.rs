//! The location of an object: its key in the store, and its path in the API.

use std::fmt::Display;
use std::sync::Arc;

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

use crate::registry::resource::Resource;
use crate::registry::served::ServedResources;

/// The resource that a key belongs to; none if it is not served.
pub(super) fn resource_of<'a>(served: &'a ServedResources, key: &str) -> Option<&'a Arc<Resource>> {
    served.all().find(|resource| key.starts_with(&resource.prefix))
}

/// The path of the object under a key, in its storage version if that is served, which avoids conversion.
pub(super) fn path(resource: &Resource, key: &str) -> Option<String> {
    let mut versions = resource.versions.iter().map(|version| &version.name);
    let stored = versions.clone().find(|version| **version == resource.stored.version);
    let version = stored.or_else(|| versions.next())?;
    let rest = key.strip_prefix(&resource.prefix)?;
    let root = match resource.name.group.as_str() {
        "" => format!("/api/{version}"),
        group => format!("/apis/{group}/{version}"),
    };
    let plural = &resource.name.resource;
    match (resource.namespaced, rest.split_once('/')) {
        (true, Some((namespace, name))) => {
            Some(format!("{root}/namespaces/{namespace}/{plural}/{}", escaped(name)))
        }
        (false, None) => Some(format!("{root}/{plural}/{}", escaped(rest))),
        _ => None,
    }
}

/// The namespace of the object under a key; empty for none.
pub(super) fn namespace<'a>(resource: &Resource, key: &'a str) -> &'a str {
    let rest = key.strip_prefix(&resource.prefix).unwrap_or_default();
    if resource.namespaced { rest.split_once('/').map_or("", |(namespace, _)| namespace) } else { "" }
}

/// A name as a segment of a path.
fn escaped(name: &str) -> impl Display + '_ {
    const ESCAPED: &AsciiSet =
        &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~').remove(b':');
    utf8_percent_encode(name, ESCAPED)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::registry::served::Registry;

    #[test]
    fn a_storage_key_has_the_path_of_its_object() {
        let served = Registry::default().served();
        for (key, expected) in [
            ("/registry/configmaps/x/a", Some("/api/v1/namespaces/x/configmaps/a")),
            ("/registry/services/specs/x/a", Some("/api/v1/namespaces/x/services/a")),
            ("/registry/deployments/x/a", Some("/apis/apps/v1/namespaces/x/deployments/a")),
            ("/registry/namespaces/x", Some("/api/v1/namespaces/x")),
            (
                "/registry/clusterroles/system:a b",
                Some("/apis/rbac.authorization.k8s.io/v1/clusterroles/system:a%20b"),
            ),
            ("/registry/namespaces/x/y", None),
            ("/registry/configmaps/x", None),
            ("/registry/unknown/x", None),
        ] {
            let found = resource_of(&served, key).and_then(|resource| path(resource, key));
            assert_eq!(found.as_deref(), expected, "{key}");
        }
    }

    #[test]
    fn a_storage_key_has_the_namespace_of_its_object() {
        let served = Registry::default().served();
        for (key, expected) in [("/registry/configmaps/x/a", "x"), ("/registry/namespaces/x", "")] {
            let found = resource_of(&served, key).map(|resource| namespace(resource, key));
            assert_eq!(found, Some(expected), "{key}");
        }
    }
}
