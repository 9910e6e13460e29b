//! Which requests an API server may answer before it has registered how it stores things.

use crate::protocol::request::Target;
use crate::protocol::storage_version;
use crate::resource::inventory::Origin;

/// The way by which a request has come in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Entrance {
    /// From anybody.
    Network,
    /// From the server itself, inside its process.
    Loopback,
}

/// Why a request may pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exception {
    /// The server registers itself.
    Registration,
    /// It reads.
    Read,
    /// What it sends is answered and not stored.
    NotPersisted,
    /// Another server answers it.
    Aggregated,
    /// Its handler is enabled only when the resource is registered.
    Custom,
}

/// What is answered and never stored.
///
/// `bindings`, which have no storage of their own either, are left out: they write pods.
const NOT_PERSISTED: [(&str, &str); 6] = [
    ("authentication.k8s.io", "selfsubjectreviews"),
    ("authentication.k8s.io", "tokenreviews"),
    ("authorization.k8s.io", "localsubjectaccessreviews"),
    ("authorization.k8s.io", "selfsubjectaccessreviews"),
    ("authorization.k8s.io", "selfsubjectrulesreviews"),
    ("authorization.k8s.io", "subjectaccessreviews"),
];

/// Decides on a request by its method and what its path names; none is to be refused.
///
/// The method tells what reads, never the path or the query: what handles the request goes by the method too.
pub fn exception(
    entrance: Entrance,
    method: &str,
    target: Option<&Target>,
    origin: impl FnOnce(&Target) -> Origin,
) -> Option<Exception> {
    if matches!(method, "GET" | "HEAD") {
        return Some(Exception::Read);
    }
    let target = target?;
    if entrance == Entrance::Loopback && is_storage_version(target) {
        return Some(Exception::Registration);
    }
    if method == "POST" && is_not_persisted(target) {
        return Some(Exception::NotPersisted);
    }
    match origin(target) {
        Origin::BuiltIn => None,
        Origin::Aggregated => Some(Exception::Aggregated),
        Origin::Custom => Some(Exception::Custom),
    }
}

fn is_storage_version(target: &Target) -> bool {
    target.group == storage_version::GROUP && target.resource == storage_version::RESOURCE
}

fn is_not_persisted(target: &Target) -> bool {
    !target.named && NOT_PERSISTED.contains(&(target.group.as_str(), target.resource.as_str()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::request::target;

    fn origin(target: &Target) -> Origin {
        match target.group.as_str() {
            "custom.example" => Origin::Custom,
            "aggregated.example" => Origin::Aggregated,
            _ => Origin::BuiltIn,
        }
    }

    #[test]
    fn five_exceptions_and_no_other() {
        use Entrance::{Loopback, Network};
        use Exception::{Aggregated, Custom, NotPersisted, Read, Registration};
        const VERSIONS: &str = "/apis/internal.apiserver.k8s.io/v1alpha1/storageversions";
        for (entrance, method, path, expected) in [
            (Loopback, "POST", VERSIONS, Some(Registration)),
            (Loopback, "PUT", &format!("{VERSIONS}/core.pods/status"), Some(Registration)),
            (Network, "POST", VERSIONS, None),
            (Loopback, "POST", "/api/v1/pods", None),
            (Loopback, "PUT", "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/a", None),
            (Loopback, "POST", "/apis/other.example/v1/storageversions", None),
            (Network, "GET", "/api/v1/pods", Some(Read)),
            (Network, "HEAD", "/api/v1/pods", Some(Read)),
            (Network, "GET", "//strange/../path", Some(Read)),
            (Network, "GET", "/version", Some(Read)),
            (Network, "POST", "/apis/authentication.k8s.io/v1/tokenreviews", Some(NotPersisted)),
            (Network, "POST", "/apis/authorization.k8s.io/v1/subjectaccessreviews", Some(NotPersisted)),
            (
                Network,
                "POST",
                "/apis/authorization.k8s.io/v1/namespaces/x/localsubjectaccessreviews",
                Some(NotPersisted),
            ),
            (Network, "PUT", "/apis/authentication.k8s.io/v1/tokenreviews", None),
            (Network, "POST", "/apis/authentication.k8s.io/v1/tokenreviews/x", None),
            (Network, "POST", "/api/v1/tokenreviews", None),
            (Network, "POST", "/api/v1/namespaces/x/bindings", None),
            (Network, "POST", "/api/v1/namespaces/x/serviceaccounts/y/token", None),
            (Network, "PATCH", "/apis/aggregated.example/v1/things/x", Some(Aggregated)),
            (Network, "DELETE", "/apis/custom.example/v1/namespaces/x/widgets/y", Some(Custom)),
            (Network, "PUT", "/apis/custom.example/v1/namespaces/x/widgets/y/status", Some(Custom)),
            (Network, "POST", "/apis/custom.example/v1/", None),
            (Network, "POST", "/apis/custom.example//v1/widgets", None),
            (Network, "POST", "/apis/custom.example/v1/watch/widgets", None),
            (Network, "POST", "/api/v1/watch/pods", None),
            (Network, "POST", "/api/v1/pods", None),
            (Network, "PATCH", "/api/v1/namespaces/x/pods/y/status", None),
            (Network, "DELETE", "/api/v1/namespaces/x/pods", None),
            (Network, "POST", "/healthz", None),
            (Network, "OPTIONS", "/api/v1/pods", None),
            (Network, "get", "/api/v1/pods", None),
        ] {
            let named = target(path);
            assert_eq!(exception(entrance, method, named.as_ref(), origin), expected, "{method} {path}");
        }
    }
}
