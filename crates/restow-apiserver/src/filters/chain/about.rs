//! What a request is about, told from its method, path and query by the same reading that its handler goes by.

use http::{Method, Uri};

use crate::auth::attributes::{Attributes, ResourceAttributes};
use crate::filters::audit::Object;
use crate::http::limits::Sort;
use crate::http::options::options;
use crate::http::request_info::{Target, Verb, target, verb};
use crate::object::selector::FieldSelector;

/// The paths of those who ask whether the server is well.
const PROBES: [&str; 3] = ["/healthz", "/livez", "/readyz"];

/// What a request is about.
pub(super) struct About {
    verb: String,
    what: What,
}

enum What {
    Resource(Target, Option<Verb>),
    Path(String),
}

impl About {
    /// Reads a request.
    pub(super) fn of(method: &Method, uri: &Uri) -> Self {
        let of_method = || method.as_str().to_ascii_lowercase();
        let Some(mut target) = target(uri.path()) else {
            return Self { verb: of_method(), what: What::Path(uri.path().to_owned()) };
        };
        // What cannot be read is refused by the handler, whatever else it says.
        let options = options(uri.query().unwrap_or_default()).unwrap_or_default();
        let verb = verb(method, &target, options.watch);
        if matches!(verb, Some(Verb::List | Verb::Watch)) && target.name.is_empty() {
            target.name = one_name(&options.field_selector).unwrap_or_default();
        }
        Self {
            verb: verb.map_or_else(of_method, |verb| verb.name().to_owned()),
            what: What::Resource(target, verb),
        }
    }

    /// What must be allowed for it.
    pub(super) fn attributes(&self) -> Attributes<'_> {
        match &self.what {
            What::Path(path) => Attributes::of_path(&self.verb, path),
            What::Resource(target, _) => Attributes::of_resource(
                &self.verb,
                ResourceAttributes {
                    group: &target.group,
                    resource: &target.resource,
                    subresource: &target.subresource,
                    namespace: &target.namespace,
                    name: &target.name,
                },
            ),
        }
    }

    /// What sort it is.
    pub(super) fn sort(&self) -> Sort {
        match &self.what {
            What::Resource(_, Some(Verb::Watch)) => Sort::Watch,
            What::Resource(_, Some(verb)) if verb.reads() => Sort::Reading,
            What::Path(path) if PROBES.iter().any(|probe| path.starts_with(probe)) => Sort::Probe,
            What::Path(_) if matches!(self.verb.as_str(), "get" | "head" | "options") => Sort::Reading,
            _ => Sort::Mutating,
        }
    }

    /// What an audit line says of it.
    pub(super) fn object(&self) -> Object<'_> {
        match &self.what {
            What::Path(_) => Object::default(),
            What::Resource(target, _) => Object {
                resource: &target.resource,
                namespace: &target.namespace,
                name: &target.name,
                api_group: &target.group,
                api_version: &target.version,
                subresource: &target.subresource,
            },
        }
    }
}

/// The one name that a list is of, so that leave for that object alone is enough.
fn one_name(selector: &str) -> Option<String> {
    let selector = FieldSelector::read(selector).ok()?;
    let name = selector.exact("metadata.name")?;
    let is_name = !name.is_empty() && !matches!(name, "." | "..") && !name.contains(['/', '%']);
    is_name.then(|| name.to_owned())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::auth::attributes::On;

    fn told(method: &str, uri: &str) -> String {
        let about = About::of(&method.parse().unwrap(), &uri.parse().unwrap());
        let attributes = about.attributes();
        let on = match attributes.on {
            On::Path(path) => path.to_owned(),
            On::Resource(on) => [on.group, on.resource, on.subresource, on.namespace, on.name].join("|"),
        };
        format!("{} {on} {:?}", attributes.verb, about.sort())
    }

    #[test]
    fn requests_are_about_something() {
        for (method, uri, expected) in [
            ("GET", "/healthz", "get /healthz Probe"),
            ("GET", "/version", "get /version Reading"),
            ("POST", "/version", "post /version Mutating"),
            ("GET", "/apis/apps/v1", "get /apis/apps/v1 Reading"),
            ("GET", "/api/v1/pods", "list |pods||| Reading"),
            ("GET", "/api/v1/pods?watch=true", "watch |pods||| Watch"),
            ("GET", "/api/v1/namespaces/a", "get |namespaces||a|a Reading"),
            ("GET", "/api/v1/namespaces/a/pods?fieldSelector=metadata.name%3Dx", "list |pods||a|x Reading"),
            (
                "GET",
                "/api/v1/namespaces/a/pods?watch&fieldSelector=metadata.name=x",
                "watch |pods||a|x Watch",
            ),
            ("GET", "/api/v1/namespaces/a/pods?fieldSelector=metadata.name!=x", "list |pods||a| Reading"),
            ("GET", "/api/v1/namespaces/a/pods?fieldSelector=metadata.name=a/b", "list |pods||a| Reading"),
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
            ("GET", "/api/v1//pods", "get /api/v1//pods Reading"),
            ("PUT", "/api/v1/namespaces/a/pods/x%2fy", "put /api/v1/namespaces/a/pods/x%2fy Mutating"),
        ] {
            assert_eq!(told(method, uri), expected, "{method} {uri}");
        }
    }

    proptest! {
        #[test]
        fn no_request_breaks_it(method in "[A-Z]{1,8}", path in "(/[a-z%0-9.]{0,6}){0,9}", query in "[a-z=&%,!0-9.]{0,40}") {
            if let (Ok(method), Ok(uri)) = (method.parse(), format!("/{path}?{query}").parse()) {
                let about = About::of(&method, &uri);
                prop_assert!(!about.attributes().verb.is_empty());
                let _ = (about.sort(), about.object());
            }
        }
    }
}
