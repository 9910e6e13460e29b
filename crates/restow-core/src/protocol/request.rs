//! Which resource a request to an API server is for, from its path alone.

use percent_encoding::percent_decode_str;

/// The resource, and perhaps the object, that the path of a request names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ResourcePath {
    /// The API group, empty for the core group.
    pub group: String,
    /// The version of the group.
    pub version: String,
    /// The plural name of the resource.
    pub resource: String,
    /// The namespace, decoded; empty for none. The namespace of a Namespace is its own name.
    pub namespace: String,
    /// Whether the path names a namespace before the resource. Only namespaced resources are served there.
    pub in_namespace: bool,
    /// The object's name, decoded; empty if the path names all objects.
    pub name: String,
    /// The subresource, such as `status`; empty for none.
    pub subresource: String,
    /// Whether more segments follow the subresource, as in `pods/NAME/proxy/PATH`.
    pub has_more: bool,
}

/// What may follow `namespaces/<name>/` without being a resource in that namespace.
const SUBRESOURCES_OF_NAMESPACES: [&str; 2] = ["status", "finalize"];
/// First segments that old clients put before the resource.
const LEGACY: [&str; 2] = ["watch", "proxy"];

impl ResourcePath {
    /// Parses a path without its query. It is none if the path names no resource, or if servers could differ on which.
    ///
    /// Servers could differ on empty and dot segments, on percent-encoding anywhere but in the names of objects and
    /// namespaces, and on an encoded slash there.
    pub fn parse(path: &str) -> Option<Self> {
        let path = path.strip_prefix('/')?;
        let segments: Vec<&str> = path.strip_suffix('/').unwrap_or(path).split('/').collect();
        if segments.iter().any(|segment| matches!(*segment, "" | "." | "..")) {
            return None;
        }
        match segments[..] {
            ["api", version, ref rest @ ..] => in_version("", version, rest),
            ["apis", group, version, ref rest @ ..] => in_version(group, version, rest),
            _ => None,
        }
    }

    /// `group/version`, or just the version in the core group.
    pub fn api_version(&self) -> String {
        if self.group.is_empty() { self.version.clone() } else { format!("{}/{}", self.group, self.version) }
    }
}

fn in_version(group: &str, version: &str, rest: &[&str]) -> Option<ResourcePath> {
    let (namespace, rest) = match rest {
        ["namespaces", namespace, below, ..] if !SUBRESOURCES_OF_NAMESPACES.contains(below) => {
            (Some(decoded_name(namespace)?), &rest[2..])
        }
        _ => (None, rest),
    };
    let (resource, below) = rest.split_first()?;
    if LEGACY.contains(resource) {
        return None;
    }
    let name = match below.first() {
        Some(name) => decoded_name(name)?,
        None => String::new(),
    };
    let is_namespaces = group.is_empty() && *resource == "namespaces";
    let identifier = |text: &str| (!text.contains(['%', '\\', ';'])).then(|| text.to_owned());
    Some(ResourcePath {
        group: identifier(group)?,
        version: identifier(version)?,
        resource: identifier(resource)?,
        in_namespace: namespace.is_some(),
        namespace: namespace.unwrap_or_else(|| if is_namespaces { name.clone() } else { String::new() }),
        name,
        subresource: identifier(below.get(1).copied().unwrap_or_default())?,
        has_more: below.len() > 2,
    })
}

/// Decodes a name; none if it would not stay the same single segment however often it is decoded.
fn decoded_name(segment: &str) -> Option<String> {
    const AMBIGUOUS_IF_ENCODED: [char; 4] = ['/', '\\', '.', '\0'];
    let name = percent_decode_str(segment).decode_utf8().ok()?;
    // A percent sign is left where the encoding is malformed, and where the sign itself is encoded.
    let is_ambiguous = |sign: &char| name.matches(*sign).count() > segment.matches(*sign).count();
    (!name.contains('%') && !AMBIGUOUS_IF_ENCODED.iter().any(is_ambiguous)).then(|| name.into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `group/version/resource[/*][/subresource]`, or `-`.
    fn text(path: &str) -> String {
        let Some(parsed) = ResourcePath::parse(path) else { return "-".to_owned() };
        let mut text = format!("{}/{}/{}", parsed.group, parsed.version, parsed.resource);
        if !parsed.name.is_empty() {
            text.push_str("/*");
        }
        if !parsed.subresource.is_empty() {
            text = format!("{text}/{}", parsed.subresource);
        }
        text
    }

    #[test]
    fn a_path_that_names_a_resource_is_parsed() {
        for (path, expected) in [
            ("/api/v1/pods", "/v1/pods"),
            ("/api/v1/pods/", "/v1/pods"),
            ("/api/v1/namespaces", "/v1/namespaces"),
            ("/api/v1/namespaces/x", "/v1/namespaces/*"),
            ("/api/v1/namespaces/x/status", "/v1/namespaces/*/status"),
            ("/api/v1/namespaces/x/finalize", "/v1/namespaces/*/finalize"),
            ("/api/v1/namespaces/x/pods", "/v1/pods"),
            ("/api/v1/namespaces/x/pods/y", "/v1/pods/*"),
            ("/api/v1/namespaces/x/pods/y/exec", "/v1/pods/*/exec"),
            ("/api/v1/namespaces/x/pods/y/proxy/a/b", "/v1/pods/*/proxy"),
            ("/api/v1/namespaces/namespaces/pods", "/v1/pods"),
            ("/api/v1/namespaces/x/namespaces/y", "/v1/namespaces/*"),
            ("/apis/apps/v1/deployments", "apps/v1/deployments"),
            ("/apis/apps/v1/namespaces/x/deployments/y/scale", "apps/v1/deployments/*/scale"),
            ("/apis/e.com/v1/namespaces/status/widgets/status", "e.com/v1/widgets/*"),
            (
                "/apis/rbac.authorization.k8s.io/v1/clusterroles/system%3Anode",
                "rbac.authorization.k8s.io/v1/clusterroles/*",
            ),
            (
                "/apis/rbac.authorization.k8s.io/v1/clusterroles/system:node",
                "rbac.authorization.k8s.io/v1/clusterroles/*",
            ),
        ] {
            assert_eq!(text(path), expected, "{path}");
        }
    }

    #[test]
    fn a_path_without_a_resource_yields_none() {
        for path in [
            "",
            "/",
            "//",
            "api/v1/pods",
            "/api",
            "/api/v1",
            "/api/v1/",
            "/apis",
            "/apis/apps",
            "/apis/apps/v1",
            "/version",
            "/healthz",
            "/readyz/etcd",
            "/openapi/v3/apis/apps/v1",
            "/API/v1/pods",
            "/apiss/a/v1/b",
        ] {
            assert_eq!(text(path), "-", "{path}");
        }
    }

    #[test]
    fn a_path_that_servers_may_read_differently_yields_none() {
        for path in [
            "//api/v1/pods",
            "/api//v1/pods",
            "/api/v1//pods",
            "/api/v1/pods//",
            "/api/v1/pods//status",
            "/api/v1/namespaces//pods",
            "/api/v1/./pods",
            "/api/v1/tokenreviews/../pods",
            "/api/v1/namespaces/../pods",
            "/api/v1/pods/%2e%2e",
            "/api/v1/pods/%2E",
            "/api/v1/pods/a%2Fb",
            "/api/v1/pods/a%2fstatus",
            "/api/v1/pods/a%252Fb",
            "/api/v1/pods/a%5Cb",
            "/api/v1/pods/a%00",
            "/api/v1/pods/a%",
            "/api/v1/pods/a%4",
            "/api/v1/pods/a%zz",
            "/api/v1/pods/a%ff",
            "/api/v1/namespaces/x%2Fpods/y",
            "/api/v1/namespaces/x%2Fy/pods",
            "/api/v1/%70ods",
            "/api/v1/pods%2Fx",
            "/%61pi/v1/pods",
            "/apis/authentication.k8s.io%2Fv1%2Ftokenreviews/v1/pods",
            "/apis/a;b/v1/pods",
            "/api/v1/pods/x/%73tatus",
            "/api/v1/watch/pods",
            "/api/v1/proxy/namespaces/x/pods/y",
        ] {
            assert_eq!(text(path), "-", "{path}");
        }
    }

    #[test]
    fn names_and_namespaces_are_decoded() {
        for (path, namespace, resource, name, subresource) in [
            ("/api/v1/namespaces", "", "namespaces", "", ""),
            ("/api/v1/namespaces/x", "x", "namespaces", "x", ""),
            ("/api/v1/namespaces/x/status", "x", "namespaces", "x", "status"),
            ("/api/v1/namespaces/x/finalize", "x", "namespaces", "x", "finalize"),
            ("/api/v1/namespaces/x/pods", "x", "pods", "", ""),
            ("/api/v1/namespaces/x/pods/y/status", "x", "pods", "y", "status"),
            ("/api/v1/pods", "", "pods", "", ""),
            ("/apis/e.com/v1/widgets/a", "", "widgets", "a", ""),
            ("/apis/e.com/v1/widgets/a.b", "", "widgets", "a.b", ""),
            ("/apis/e.com/v1/namespaces/x/widgets/a", "x", "widgets", "a", ""),
            ("/apis/r/v1/clusterroles/system%3Anode", "", "clusterroles", "system:node", ""),
        ] {
            let found = ResourcePath::parse(path).unwrap_or_default();
            let found = [found.namespace, found.resource, found.name, found.subresource];
            assert_eq!(found, [namespace, resource, name, subresource], "{path}");
        }
    }

    #[test]
    fn a_namespace_before_the_resource_differs_from_a_namespace_by_name() {
        for (path, namespace, in_namespace) in [
            ("/api/v1/namespaces/x", "x", false),
            ("/api/v1/namespaces/x/status", "x", false),
            ("/api/v1/namespaces/x/namespaces/x", "x", true),
            ("/api/v1/namespaces/x/namespaces/y", "x", true),
            ("/api/v1/namespaces/x/namespaces", "x", true),
            ("/apis/e.com/v1/namespaces/x/tenants/x", "x", true),
            ("/apis/e.com/v1/tenants/x", "", false),
            ("/apis/e.com/v1/namespaces/x", "", false),
        ] {
            let found = ResourcePath::parse(path).unwrap_or_default();
            assert_eq!((found.namespace.as_str(), found.in_namespace), (namespace, in_namespace), "{path}");
        }
    }
}
