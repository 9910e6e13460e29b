//! What a request is about, as far as leave for it goes, and how a refusal is told.

use restow_core::resource::name::GroupResource;

use crate::auth::user::User;
use crate::http::status::{Attempt, Failure};

/// What somebody wants to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Attributes<'a> {
    /// The verb, such as `list`; for a path the method in small letters.
    pub verb: &'a str,
    /// What it is done to.
    pub on: On<'a>,
}

/// What something is done to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum On<'a> {
    /// Objects.
    Resource(ResourceAttributes<'a>),
    /// What is not an object, such as `/healthz`.
    Path(&'a str),
}

/// Which objects.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ResourceAttributes<'a> {
    /// The API group, empty for the core group.
    pub group: &'a str,
    /// The resource's plural name.
    pub resource: &'a str,
    /// The subresource, or nothing.
    pub subresource: &'a str,
    /// The namespace, or nothing for the whole cluster. A namespace is in itself.
    pub namespace: &'a str,
    /// The object's name, or nothing for all of them.
    pub name: &'a str,
}

impl<'a> Attributes<'a> {
    /// Something done to objects.
    pub(crate) fn of_resource(verb: &'a str, resource: ResourceAttributes<'a>) -> Self {
        Self { verb, on: On::Resource(resource) }
    }

    /// Something done to a path.
    pub(crate) fn of_path(verb: &'a str, path: &'a str) -> Self {
        Self { verb, on: On::Path(path) }
    }

    /// The objects, if it is about objects.
    pub(crate) fn resource(&self) -> Option<&ResourceAttributes<'a>> {
        match &self.on {
            On::Resource(resource) => Some(resource),
            On::Path(_) => None,
        }
    }

    /// The namespace, or nothing.
    pub(super) fn namespace(&self) -> &'a str {
        self.resource().map(|resource| resource.namespace).unwrap_or_default()
    }

    /// The refusal; `why` is added if it is not empty.
    pub(crate) fn forbidden(&self, user: &User, why: &str) -> Failure {
        let on = self.resource().copied().unwrap_or_default();
        let resource = self.resource().map(|on| GroupResource::new(on.group, on.resource));
        let path = match self.on {
            On::Path(path) => path,
            On::Resource(_) => "",
        };
        let attempt = Attempt {
            user: &user.name,
            verb: self.verb,
            resource: resource.as_ref(),
            subresource: on.subresource,
            namespace: on.namespace,
            name: on.name,
            path,
        };
        Failure::forbidden(&attempt, why)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_have_the_servers_words() {
        let user = User::known("alice", ["dev"]);
        let on = |group, resource, subresource, namespace, name| {
            On::Resource(ResourceAttributes { group, resource, subresource, namespace, name })
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
                On::Path("/metrics"),
                "RBAC: no such role",
                r#"forbidden: User "alice" cannot get path "/metrics": RBAC: no such role"#,
            ),
            ("get", On::Path("/<b>&"), "", r#"forbidden: User "alice" cannot get path "/&lt;b&gt;&amp;""#),
        ] {
            let failure = Attributes { verb, on }.forbidden(&user, why);
            assert_eq!((failure.message(), failure.code()), (expected, 403));
        }
    }
}
