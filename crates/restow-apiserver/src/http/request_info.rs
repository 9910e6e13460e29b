//! What a request asks for, parsed once from its method, path and query.
//!
//! [`attach`] parses a request where it enters the server. The result travels with the request as an extension:
//! authorization, limits, audit, the gate of storage versions and the handlers all use it.

use std::sync::Arc;

use http::request::Parts;
use http::{Method, Uri};
use restow_core::protocol::request::ResourcePath;
use restow_storageversion::gate::ParsedPath;

use crate::http::options::{InvalidOption, Options, options};
use crate::http::query;

/// What is done to a resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verb {
    /// Reads one object.
    Get,
    /// Reads many objects.
    List,
    /// Reports changes.
    Watch,
    /// Creates an object.
    Create,
    /// Replaces an object.
    Update,
    /// Changes an object.
    Patch,
    /// Deletes one object.
    Delete,
    /// Deletes many objects.
    DeleteCollection,
}

impl Verb {
    /// The verb's name in RBAC.
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
    pub(crate) fn is_read_only(self) -> bool {
        matches!(self, Self::Get | Self::List | Self::Watch)
    }
}

/// What a request asks for, as Kubernetes' RequestInfo has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RequestInfo {
    pub method: Method,
    /// The path, as it was sent.
    pub path: String,
    /// The decoded pairs of the query, in order.
    pub query: Vec<(String, String)>,
    /// The options in the query.
    pub options: Result<Options, InvalidOption>,
    /// The resource that the path names; none if it is not a resource request.
    pub resource: Option<Arc<ResourcePath>>,
    /// What is done to the resource; none if the method does nothing there, or if it is not a resource request.
    pub verb: Option<Verb>,
}

impl RequestInfo {
    /// Parses a request.
    #[cfg(test)]
    pub(crate) fn new(method: &Method, uri: &Uri) -> Self {
        Self::parsed(method, uri, &ParsedPath::parse(uri.path()))
    }

    fn parsed(method: &Method, uri: &Uri, parsed: &ParsedPath) -> Self {
        let query = query::pairs(uri.query().unwrap_or_default());
        let options = options(&query);
        // Only pods, services and nodes have paths below a subresource, and no proxy is served.
        let resource = parsed.0.clone().filter(|resource| !resource.has_more);
        // Options that cannot be parsed are refused by the handler, whatever the verb is.
        let watch = options.as_ref().is_ok_and(|options| options.watch);
        let verb = resource.as_ref().and_then(|resource| verb(method, resource, watch));
        Self { method: method.clone(), path: uri.path().to_owned(), query, options, resource, verb }
    }

    /// The verb's name; the method in lower case where there is no verb.
    pub(crate) fn verb_name(&self) -> String {
        self.verb.map_or_else(|| self.method.as_str().to_ascii_lowercase(), |verb| verb.name().to_owned())
    }

    /// The segments of the path; one empty segment for the root.
    pub(crate) fn segments(&self) -> Vec<&str> {
        self.path.trim_matches('/').split('/').collect()
    }

    /// Whether the query has a key.
    pub(crate) fn has_parameter(&self, key: &str) -> bool {
        self.query.iter().any(|(own, _)| own == key)
    }
}

/// Parses a request, and attaches the result to it as an extension.
pub(crate) fn attach(head: &mut Parts) -> Arc<RequestInfo> {
    let parsed = ParsedPath::parse(head.uri.path());
    let info = Arc::new(RequestInfo::parsed(&head.method, &head.uri, &parsed));
    head.extensions.insert(parsed);
    head.extensions.insert(Arc::clone(&info));
    info
}

/// What a request asks for, if it was attached.
pub(crate) fn attached(head: &Parts) -> Option<&Arc<RequestInfo>> {
    head.extensions.get()
}

fn verb(method: &Method, resource: &ResourcePath, watch: bool) -> Option<Verb> {
    let is_named = !resource.name.is_empty();
    match (method.as_str(), is_named) {
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

#[cfg(test)]
mod tests {
    use super::*;

    fn info(method: &str, uri: &str) -> RequestInfo {
        RequestInfo::new(&method.parse().unwrap(), &uri.parse().unwrap())
    }

    #[test]
    fn a_path_names_a_resource() {
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
            let found = info("GET", path).resource.unwrap();
            let found = [&found.group, &found.namespace, &found.resource, &found.name, &found.subresource];
            assert_eq!(found, [group, namespace, resource, name, subresource], "{path}");
        }
    }

    #[test]
    fn other_paths_are_not_resource_requests() {
        for path in ["/", "/api/v1", "/api/v1/pods/a%2Fb", "/api/v1/namespaces/x/pods/y/proxy/a"] {
            let info = info("GET", path);
            assert_eq!((info.resource, info.verb, info.path.as_str()), (None, None, path));
        }
    }

    #[test]
    fn the_verb_follows_from_method_name_and_watch() {
        let (all, one) = ("/api/v1/namespaces/x/pods", "/api/v1/namespaces/x/pods/y");
        for (method, uri, verb, name) in [
            ("GET", all, Some(Verb::List), "list"),
            ("GET", "/api/v1/namespaces/x/pods?watch=true", Some(Verb::Watch), "watch"),
            ("GET", "/api/v1/namespaces/x/pods?watch=0", Some(Verb::List), "list"),
            ("GET", one, Some(Verb::Get), "get"),
            ("POST", all, Some(Verb::Create), "create"),
            ("DELETE", one, Some(Verb::Delete), "delete"),
            ("DELETE", all, Some(Verb::DeleteCollection), "deletecollection"),
            ("PUT", all, None, "put"),
            ("OPTIONS", one, None, "options"),
        ] {
            let info = info(method, uri);
            assert_eq!((info.verb, info.verb_name().as_str()), (verb, name), "{method} {uri}");
        }
    }

    #[test]
    fn a_request_with_attached_info_is_not_parsed_again() {
        let (mut head, ()) = http::Request::get("/api/v1/pods?watch=1").body(()).unwrap().into_parts();
        let info = attach(&mut head);
        assert!(Arc::ptr_eq(&info, attached(&head).unwrap()));
        assert_eq!(head.extensions.get::<ParsedPath>().unwrap().0, info.resource);
    }
}
