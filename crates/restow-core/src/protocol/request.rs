//! Which resource a request to an API server is for, from its path alone.

/// The resource, and perhaps the object, that a path names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Target {
    /// The API group, empty for the core group.
    pub group: String,
    /// The version of the group.
    pub version: String,
    /// The plural name of the resource.
    pub resource: String,
    /// Whether the path names one object.
    pub named: bool,
    /// The subresource, such as `status`.
    pub subresource: Option<String>,
}

/// What may follow `namespaces/<name>/` without being a resource in that namespace.
const OF_NAMESPACES: [&str; 2] = ["status", "finalize"];
/// First segments that old clients send before the resource.
const LEGACY: [&str; 2] = ["watch", "proxy"];

/// Parses a path without its query; none if it names no resource, or if servers may read it differently.
///
/// Servers may differ on empty and dot segments, on an encoded slash, and on percent-encoding outside the names of objects
/// and namespaces.
pub fn target(path: &str) -> Option<Target> {
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

fn in_version(group: &str, version: &str, rest: &[&str]) -> Option<Target> {
    let rest = match rest {
        ["namespaces", namespace, below, ..] if !OF_NAMESPACES.contains(below) => {
            plain_name(namespace)?;
            &rest[2..]
        }
        _ => rest,
    };
    let (resource, below) = rest.split_first()?;
    if LEGACY.contains(resource) {
        return None;
    }
    if let Some(name) = below.first() {
        plain_name(name)?;
    }
    let identifier = |text: &str| (!text.contains(['%', '\\', ';'])).then(|| text.to_owned());
    Some(Target {
        group: identifier(group)?,
        version: identifier(version)?,
        resource: identifier(resource)?,
        named: !below.is_empty(),
        subresource: match below.get(1) {
            Some(subresource) => Some(identifier(subresource)?),
            None => None,
        },
    })
}

/// Accepts a name that stays the same single segment however often it is decoded.
fn plain_name(segment: &str) -> Option<()> {
    const TELLING: [u8; 5] = [b'/', b'%', b'\\', b'.', 0];
    let mut bytes = segment.bytes();
    while let Some(byte) = bytes.next() {
        if byte == b'%' {
            let mut digit = || char::from(bytes.next()?).to_digit(16);
            let octet = u8::try_from(digit()? * 16 + digit()?).ok()?;
            if TELLING.contains(&octet) {
                return None;
            }
        }
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `group/version/resource[/*][/subresource]`, or `-`.
    fn text(path: &str) -> String {
        let Some(target) = target(path) else { return "-".to_owned() };
        let mut text = format!("{}/{}/{}", target.group, target.version, target.resource);
        if target.named {
            text.push_str("/*");
        }
        if let Some(subresource) = target.subresource {
            text = format!("{text}/{subresource}");
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
}
