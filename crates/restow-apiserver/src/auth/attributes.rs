//! The attributes of a request that authorization decides on, and the message of a denial.

use restow_core::resource::name::GroupResource;

use crate::auth::user::User;
use crate::http::status::{DeniedAccess, StatusError};

/// What a user wants to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Attributes<'a> {
    /// The verb, such as `list`; for a non-resource path the method in lower case.
    pub verb: &'a str,
    /// The resource or path.
    pub on: AttributesTarget<'a>,
}

/// A resource, or a non-resource path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AttributesTarget<'a> {
    Resource(ResourceAttributes<'a>),
    /// A non-resource path, such as `/healthz`.
    Path(&'a str),
}

/// The attributes of a resource request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ResourceAttributes<'a> {
    /// The API group, empty for the core group.
    pub group: &'a str,
    /// The resource's plural name.
    pub resource: &'a str,
    /// The subresource; empty for none.
    pub subresource: &'a str,
    /// The namespace; empty for the whole cluster. The namespace of a Namespace is its own name.
    pub namespace: &'a str,
    /// The object's name; empty for all objects.
    pub name: &'a str,
}

impl<'a> Attributes<'a> {
    /// The attributes of a resource request.
    pub(crate) fn of_resource(verb: &'a str, resource: ResourceAttributes<'a>) -> Self {
        Self { verb, on: AttributesTarget::Resource(resource) }
    }

    /// The attributes of a non-resource request.
    pub(crate) fn of_path(verb: &'a str, path: &'a str) -> Self {
        Self { verb, on: AttributesTarget::Path(path) }
    }

    /// The resource, if it is a resource request.
    pub(crate) fn resource(&self) -> Option<&ResourceAttributes<'a>> {
        match &self.on {
            AttributesTarget::Resource(resource) => Some(resource),
            AttributesTarget::Path(_) => None,
        }
    }

    /// The namespace; empty for none.
    pub(super) fn namespace(&self) -> &'a str {
        self.resource().map(|resource| resource.namespace).unwrap_or_default()
    }

    /// The error of a denial; `why` is added if it is not empty.
    pub(crate) fn forbidden(&self, user: &User, why: &str) -> StatusError {
        let on = self.resource().copied().unwrap_or_default();
        let resource = self.resource().map(|on| GroupResource::new(on.group, on.resource));
        let path = match self.on {
            AttributesTarget::Path(path) => path,
            AttributesTarget::Resource(_) => "",
        };
        let attempt = DeniedAccess {
            user: &user.name,
            verb: self.verb,
            resource: resource.as_ref(),
            subresource: on.subresource,
            namespace: on.namespace,
            name: on.name,
            path,
        };
        StatusError::forbidden(&attempt, why)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn denials_read_like_those_of_kube_apiserver() {
        let user = User::known("alice", ["dev"]);
        let on = |group, resource, subresource, namespace, name| {
            AttributesTarget::Resource(ResourceAttributes { group, resource, subresource, namespace, name })
        };
        for (verb, on, why, expected) in [
            (
                "list",
                on("example.com", "widgets", "", "", ""),
                "",
                r#"widgets.example.com is forbidden: User "alice" cannot list resource "widgets" in API group "example.com" at the cluster scope"#,
            ),
            (
                "get",
                on("", "pods", "log", "default", "web"),
                "",
                r#"pods "web" is forbidden: User "alice" cannot get resource "pods/log" in API group "" in the namespace "default""#,
            ),
            (
                "get",
                AttributesTarget::Path("/metrics"),
                "RBAC: no such role",
                r#"forbidden: User "alice" cannot get path "/metrics": RBAC: no such role"#,
            ),
            (
                "get",
                AttributesTarget::Path("/<b>&"),
                "",
                r#"forbidden: User "alice" cannot get path "/&lt;b&gt;&amp;""#,
            ),
        ] {
            let failure = Attributes { verb, on }.forbidden(&user, why);
            assert_eq!((failure.message(), failure.code()), (expected, 403));
        }
    }
}
