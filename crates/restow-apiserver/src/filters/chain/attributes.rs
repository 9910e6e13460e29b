//! What authorization, limits and audit need of a request, from its RequestInfo.

use std::sync::Arc;

use crate::auth::attributes::{Attributes, ResourceAttributes};
use crate::filters::audit::Object;
use crate::http::limits::RequestClass;
use crate::http::request_info::{RequestInfo, Verb};
use crate::object::selector::FieldSelector;

/// The health endpoints. They are served even if the server is full.
const PROBES: [&str; 3] = ["/healthz", "/livez", "/readyz"];

/// A request, as authorization, limits and audit see it.
pub(super) struct RequestAttributes {
    info: Arc<RequestInfo>,
    verb: String,
    name: String,
}

impl RequestAttributes {
    /// Takes the attributes from what was parsed.
    pub(super) fn new(info: Arc<RequestInfo>) -> Self {
        let name = match (&info.resource, info.verb, &info.options) {
            (Some(resource), Some(Verb::List | Verb::Watch), Ok(options)) if resource.name.is_empty() => {
                selected_name(&options.field_selector).unwrap_or_default()
            }
            (Some(resource), _, _) => resource.name.clone(),
            (None, _, _) => String::new(),
        };
        Self { verb: info.verb_name(), info, name }
    }

    /// What must be authorized.
    pub(super) fn attributes(&self) -> Attributes<'_> {
        match &self.info.resource {
            None => Attributes::of_path(&self.verb, &self.info.path),
            Some(resource) => Attributes::of_resource(
                &self.verb,
                ResourceAttributes {
                    group: &resource.group,
                    resource: &resource.resource,
                    subresource: &resource.subresource,
                    namespace: &resource.namespace,
                    name: &self.name,
                },
            ),
        }
    }

    /// Which limits apply to it.
    pub(super) fn class(&self) -> RequestClass {
        let is_resource_request = self.info.resource.is_some();
        match self.info.verb {
            Some(Verb::Watch) => RequestClass::Watch,
            Some(verb) if verb.is_read_only() => RequestClass::ReadOnly,
            _ if is_resource_request => RequestClass::Mutating,
            _ if PROBES.iter().any(|probe| self.info.path.starts_with(probe)) => RequestClass::Probe,
            _ if matches!(self.verb.as_str(), "get" | "head" | "options") => RequestClass::ReadOnly,
            _ => RequestClass::Mutating,
        }
    }

    /// The objectRef of its audit event.
    pub(super) fn object(&self) -> Object<'_> {
        match &self.info.resource {
            None => Object::default(),
            Some(resource) => Object {
                resource: &resource.resource,
                namespace: &resource.namespace,
                name: &self.name,
                api_group: &resource.group,
                api_version: &resource.version,
                subresource: &resource.subresource,
            },
        }
    }
}

/// The one object that a field selector restricts a list to, so that a permission for that object is enough.
fn selected_name(selector: &str) -> Option<String> {
    let selector = FieldSelector::read(selector).ok()?;
    let name = selector.exact("metadata.name")?;
    let is_name = !name.is_empty() && !matches!(name, "." | "..") && !name.contains(['/', '%']);
    is_name.then(|| name.to_owned())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::auth::attributes::AttributesTarget;

    fn parse(method: &http::Method, uri: &http::Uri) -> RequestAttributes {
        RequestAttributes::new(Arc::new(RequestInfo::new(method, uri)))
    }

    fn describe(method: &str, uri: &str) -> String {
        let request = parse(&method.parse().unwrap(), &uri.parse().unwrap());
        let attributes = request.attributes();
        let on = match attributes.on {
            AttributesTarget::Path(path) => path.to_owned(),
            AttributesTarget::Resource(on) => {
                [on.group, on.resource, on.subresource, on.namespace, on.name].join("|")
            }
        };
        format!("{} {on} {:?}", attributes.verb, request.class())
    }

    #[test]
    fn verb_resource_and_class_follow_from_the_request() {
        for (method, uri, expected) in [
            ("GET", "/healthz", "get /healthz Probe"),
            ("GET", "/version", "get /version ReadOnly"),
            ("POST", "/version", "post /version Mutating"),
            ("GET", "/apis/apps/v1", "get /apis/apps/v1 ReadOnly"),
            ("GET", "/api/v1/pods", "list |pods||| ReadOnly"),
            ("GET", "/api/v1/pods?watch=true", "watch |pods||| Watch"),
            ("GET", "/api/v1/namespaces/a", "get |namespaces||a|a ReadOnly"),
            ("GET", "/api/v1/namespaces/a/pods?fieldSelector=metadata.name%3Dx", "list |pods||a|x ReadOnly"),
            (
                "GET",
                "/api/v1/namespaces/a/pods?watch&fieldSelector=metadata.name=x",
                "watch |pods||a|x Watch",
            ),
            ("GET", "/api/v1/namespaces/a/pods?fieldSelector=metadata.name!=x", "list |pods||a| ReadOnly"),
            ("GET", "/api/v1/namespaces/a/pods?fieldSelector=metadata.name=a/b", "list |pods||a| ReadOnly"),
            ("POST", "/api/v1/namespaces/a/pods", "create |pods||a| Mutating"),
            ("PUT", "/apis/e.com/v1/namespaces/a/ws/x/status", "update e.com|ws|status|a|x Mutating"),
            ("PATCH", "/api/v1/namespaces/a/pods/x", "patch |pods||a|x Mutating"),
            ("DELETE", "/api/v1/namespaces/a/pods/x", "delete |pods||a|x Mutating"),
            (
                "DELETE",
                "/api/v1/namespaces/a/pods?fieldSelector=metadata.name=x",
                "deletecollection |pods||a| Mutating",
            ),
            ("OPTIONS", "/api/v1/namespaces/a/pods", "options |pods||a| Mutating"),
            ("GET", "/api/v1//pods", "get /api/v1//pods ReadOnly"),
            ("PUT", "/api/v1/namespaces/a/pods/x%2fy", "put /api/v1/namespaces/a/pods/x%2fy Mutating"),
        ] {
            assert_eq!(describe(method, uri), expected, "{method} {uri}");
        }
    }

    proptest! {
        #[test]
        fn any_request_has_attributes(method in "[A-Z]{1,8}", path in "(/[a-z%0-9.]{0,6}){0,9}", query in "[a-z=&%,!0-9.]{0,40}") {
            if let (Ok(method), Ok(uri)) = (method.parse(), format!("/{path}?{query}").parse()) {
                let request = parse(&method, &uri);
                prop_assert!(!request.attributes().verb.is_empty());
                let _ = (request.class(), request.object());
            }
        }
    }
}
