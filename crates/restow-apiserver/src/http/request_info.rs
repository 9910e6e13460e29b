//! What a request asks for: told from its method, path and query alone.

use http::Method;
use restow_core::protocol::request as core;

/// What is to be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verb {
    /// Read one object.
    Get,
    /// Read many.
    List,
    /// Hear of changes.
    Watch,
    /// Make one.
    Create,
    /// Replace one.
    Update,
    /// Change one.
    Patch,
    /// Delete one.
    Delete,
    /// Delete many.
    DeleteCollection,
}

impl Verb {
    /// Its name, as RBAC has it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Get => "get",
            Self::List => "list",
            Self::Watch => "watch",
            Self::Create => "create",
            Self::Update => "update",
            Self::Patch => "patch",
            Self::Delete => "delete",
            Self::DeleteCollection => "deletecollection",
        }
    }

    /// Whether it changes nothing.
    pub(crate) fn reads(self) -> bool {
        matches!(self, Self::Get | Self::List | Self::Watch)
    }
}

/// The resource, and perhaps the object, that a path names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Target {
    /// The API group, empty for the core group.
    pub group: String,
    /// The version.
    pub version: String,
    /// The resource's plural name.
    pub resource: String,
    /// The namespace, empty for none; that of a Namespace is itself.
    pub namespace: String,
    /// Whether the path names a namespace before the resource, which only namespaced resources are served below.
    pub in_namespace: bool,
    /// The object, empty for none.
    pub name: String,
    /// The subresource, empty for none.
    pub subresource: String,
}

impl Target {
    /// `group/version`, or just the version in the core group.
    pub(crate) fn api_version(&self) -> String {
        if self.group.is_empty() { self.version.clone() } else { format!("{}/{}", self.group, self.version) }
    }
}

/// Reads a path that names a resource, by the same rules that the gate goes by.
pub(crate) fn target(path: &str) -> Option<Target> {
    let known = core::target(path)?;
    let skipped = if known.group.is_empty() { 2 } else { 3 };
    let segments: Vec<&str> = path.trim_matches('/').split('/').skip(skipped).collect();
    let (within, rest) = match segments.as_slice() {
        ["namespaces", within, resource, rest @ ..] if *resource == known.resource => (Some(*within), rest),
        [_, rest @ ..] => (None, rest),
        [] => return None,
    };
    // Only pods, services and nodes have what is below a subresource, and no proxy is served.
    if rest.len() > 2 {
        return None;
    }
    let name = decoded(rest.first().copied().unwrap_or_default())?;
    let namespace = match within {
        Some(namespace) => decoded(namespace)?,
        None if known.group.is_empty() && known.resource == "namespaces" => name.clone(),
        None => String::new(),
    };
    Some(Target {
        group: known.group,
        version: known.version,
        resource: known.resource,
        namespace,
        in_namespace: within.is_some(),
        name,
        subresource: known.subresource.unwrap_or_default(),
    })
}

/// What a method does to a target; none where it does nothing.
pub(crate) fn verb(method: &Method, target: &Target, watch: bool) -> Option<Verb> {
    let named = !target.name.is_empty();
    match (method.as_str(), named) {
        ("GET", _) if watch => Some(Verb::Watch),
        ("GET", true) => Some(Verb::Get),
        ("GET", false) => Some(Verb::List),
        ("POST", _) => Some(Verb::Create),
        ("PUT", true) => Some(Verb::Update),
        ("PATCH", true) => Some(Verb::Patch),
        ("DELETE", true) => Some(Verb::Delete),
        ("DELETE", false) => Some(Verb::DeleteCollection),
        _ => None,
    }
}

/// Undoes percent-encoding, and the `+` of queries if `plus`.
fn undone(text: &str, plus: bool) -> Option<String> {
    if !text.contains(['%', '+']) {
        return Some(text.to_owned());
    }
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'%' => {
                let mut digit = || char::from(rest.next()?).to_digit(16);
                u8::try_from(digit()? * 16 + digit()?).ok()?
            }
            b'+' if plus => b' ',
            other => other,
        });
    }
    String::from_utf8(bytes).ok()
}

fn decoded(segment: &str) -> Option<String> {
    undone(segment, false)
}

/// The pairs of a query, in order; what cannot be decoded is left out.
pub(crate) fn query(text: &str) -> impl Iterator<Item = (String, String)> + '_ {
    text.split('&').filter(|pair| !pair.is_empty()).filter_map(|pair| {
        let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
        Some((undone(key, true)?, undone(value, true)?))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths() {
        for (path, group, namespace, resource, name, subresource) in [
            ("/api/v1/namespaces", "", "", "namespaces", "", ""),
            ("/api/v1/namespaces/x", "", "x", "namespaces", "x", ""),
            ("/api/v1/namespaces/x/status", "", "x", "namespaces", "x", "status"),
            ("/api/v1/namespaces/x/finalize", "", "x", "namespaces", "x", "finalize"),
            ("/api/v1/namespaces/x/pods", "", "x", "pods", "", ""),
            ("/api/v1/namespaces/x/pods/y/status", "", "x", "pods", "y", "status"),
            ("/api/v1/pods", "", "", "pods", "", ""),
            ("/apis/e.com/v1/widgets/a", "e.com", "", "widgets", "a", ""),
            ("/apis/e.com/v1/namespaces/x/widgets/a", "e.com", "x", "widgets", "a", ""),
            ("/apis/r/v1/clusterroles/system%3Anode", "r", "", "clusterroles", "system:node", ""),
        ] {
            let found = target(path).unwrap_or_default();
            let found = (found.group, found.namespace, found.resource, found.name, found.subresource);
            let expected = [group, namespace, resource, name, subresource].map(str::to_owned);
            assert_eq!(<[String; 5]>::from(found), expected, "{path}");
        }
        for path in ["/", "/api/v1", "/api/v1/pods/a%2Fb", "/api/v1/namespaces/x/pods/y/proxy/a"] {
            assert_eq!(target(path), None, "{path}");
        }
    }

    #[test]
    fn a_namespace_before_the_resource_is_told_from_a_namespace_by_name() {
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
            let found = target(path).unwrap_or_default();
            assert_eq!((found.namespace.as_str(), found.in_namespace), (namespace, in_namespace), "{path}");
        }
    }

    #[test]
    fn queries() {
        let pairs: Vec<_> = query("labelSelector=a%3Db&watch&x=1+2&&bad=%zz").collect();
        let expected = [("labelSelector", "a=b"), ("watch", ""), ("x", "1 2")];
        assert_eq!(pairs, expected.map(|(key, value)| (key.to_owned(), value.to_owned())));
    }

    #[test]
    fn verbs() {
        let of = |method: Method, path: &str, watch| verb(&method, &target(path).unwrap_or_default(), watch);
        let (all, one) = ("/api/v1/namespaces/x/pods", "/api/v1/namespaces/x/pods/y");
        assert_eq!(of(Method::GET, all, false), Some(Verb::List));
        assert_eq!(of(Method::GET, all, true), Some(Verb::Watch));
        assert_eq!(of(Method::GET, one, false), Some(Verb::Get));
        assert_eq!(of(Method::DELETE, all, false), Some(Verb::DeleteCollection));
        assert_eq!(of(Method::PUT, all, false), None);
        assert_eq!(of(Method::OPTIONS, one, false), None);
    }
}
