//! Which requests an API server may answer before it has registered its storage versions.

use crate::protocol::request::ResourcePath;
use crate::protocol::storage_version;
use crate::resource::inventory::Origin;

/// Where a request comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestSource {
    /// A client, over the network.
    Network,
    /// The server itself, inside its process.
    Loopback,
}

/// Why a request may pass the closed gate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exception {
    /// The server registers its storage versions.
    Registration,
    /// It is a read.
    Read,
    /// Its object is answered and not stored, such as a SubjectAccessReview.
    NotPersisted,
    /// An aggregated API server answers it.
    Aggregated,
    /// It is for a custom resource, whose handler is enabled only when the resource is registered.
    Custom,
}

/// Resources that are answered and never stored.
///
/// `bindings` are not among them, because they write pods.
const NOT_PERSISTED: [(&str, &str); 6] = [
    ("authentication.k8s.io", "selfsubjectreviews"),
    ("authentication.k8s.io", "tokenreviews"),
    ("authorization.k8s.io", "localsubjectaccessreviews"),
    ("authorization.k8s.io", "selfsubjectaccessreviews"),
    ("authorization.k8s.io", "selfsubjectrulesreviews"),
    ("authorization.k8s.io", "subjectaccessreviews"),
];

/// Decides whether a request may pass, by its method and the resource in its path; none if it must be refused.
///
/// The method alone decides whether it is a read, as it does in the handlers.
pub fn exception(
    source: RequestSource,
    method: &str,
    target: Option<&ResourcePath>,
    origin: impl FnOnce(&ResourcePath) -> Origin,
) -> Option<Exception> {
    if matches!(method, "GET" | "HEAD") {
        return Some(Exception::Read);
    }
    let target = target?;
    if source == RequestSource::Loopback && is_storage_version(target) {
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

fn is_storage_version(target: &ResourcePath) -> bool {
    target.group == storage_version::GROUP && target.resource == storage_version::RESOURCE
}

fn is_not_persisted(target: &ResourcePath) -> bool {
    target.name.is_empty() && NOT_PERSISTED.contains(&(target.group.as_str(), target.resource.as_str()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn origin(target: &ResourcePath) -> Origin {
        match target.group.as_str() {
            "custom.example" => Origin::Custom,
            "aggregated.example" => Origin::Aggregated,
            _ => Origin::BuiltIn,
        }
    }

    #[test]
    fn only_five_kinds_of_requests_pass_the_closed_gate() {
        use Exception::{Aggregated, Custom, NotPersisted, Read, Registration};
        use RequestSource::{Loopback, Network};
        const VERSIONS: &str = "/apis/internal.apiserver.k8s.io/v1alpha1/storageversions";
        for (source, method, path, expected) in [
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
            let named = ResourcePath::parse(path);
            assert_eq!(exception(source, method, named.as_ref(), origin), expected, "{method} {path}");
        }
    }
}
