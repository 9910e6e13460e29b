//! What the user may do: permissions are checked before anything is written.

use http::Method;
use restow_core::resource::name::GroupResource;
use serde::Deserialize;
use serde_json::json;

use super::error::RequestError;
use super::server::Server;

/// Something that was read, or why it never can be: the user lacks a permission, or the API is not served.
pub(crate) enum Access<T> {
    /// What was read.
    Granted(T),
    /// Why it cannot be read.
    Denied(String),
}

impl<T> Access<T> {
    /// Applies a function to what was read.
    pub(crate) fn map<U>(self, function: impl FnOnce(T) -> U) -> Access<U> {
        match self {
            Self::Granted(read) => Access::Granted(function(read)),
            Self::Denied(why) => Access::Denied(why),
        }
    }

    /// As a `Result`, for decisions that treat what is denied as an error.
    pub(crate) fn into_result(self) -> Result<T, String> {
        match self {
            Self::Granted(read) => Ok(read),
            Self::Denied(why) => Err(why),
        }
    }
}

/// A verb on a resource that the user lacks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Missing {
    /// The RBAC verb that was denied.
    pub verb: &'static str,
    /// The resource, with its subresource where one is needed.
    pub resource: String,
    /// The API group.
    pub group: String,
    /// The namespace it is needed in; `None` for all namespaces.
    pub namespace: Option<&'static str>,
}

impl Missing {
    /// A verb on a resource in all namespaces.
    pub fn new(verb: &'static str, name: &GroupResource) -> Self {
        let (resource, group) = (name.resource.clone(), name.group.clone());
        Self { verb, resource, group, namespace: None }
    }

    /// Names the role and the rules that would grant all of these.
    pub fn grant(missing: &[Self]) -> String {
        let rules: Vec<String> = missing.iter().map(Self::rule).collect();
        let role = match missing.first().and_then(|one| one.namespace) {
            Some(namespace) => format!("a Role in {namespace}"),
            None => "a ClusterRole".to_owned(),
        };
        format!("{role} with these rules would grant it: [{}]", rules.join(", "))
    }

    /// The RBAC rule that would grant it.
    pub fn rule(&self) -> String {
        format!(
            "{{apiGroups: [{:?}], resources: [{:?}], verbs: [{:?}]}}",
            self.group, self.resource, self.verb
        )
    }
}

impl std::fmt::Display for Missing {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let name = GroupResource::new(&self.group, &self.resource);
        write!(f, "you may not {} {name}", self.verb)?;
        self.namespace.map_or(Ok(()), |namespace| write!(f, " in {namespace}"))
    }
}

#[derive(Deserialize)]
struct Review {
    #[serde(default)]
    status: ReviewStatus,
}

#[derive(Default, Deserialize)]
struct ReviewStatus {
    #[serde(default)]
    allowed: bool,
}

/// Returns those verbs that the user may not use on a resource.
pub async fn missing(
    server: &Server,
    resource: &GroupResource,
    verbs: &[&'static str],
) -> Result<Vec<Missing>, RequestError> {
    missing_in(server, None, resource, verbs).await
}

/// Returns those verbs that the user may not use on a resource in one namespace.
pub async fn missing_in(
    server: &Server,
    namespace: Option<&'static str>,
    resource: &GroupResource,
    verbs: &[&'static str],
) -> Result<Vec<Missing>, RequestError> {
    review(server, namespace, "", resource, verbs).await
}

/// Returns those verbs that the user may not use on one object: a role may allow them on this one only.
pub async fn missing_on(
    server: &Server,
    name: &str,
    resource: &GroupResource,
    verbs: &[&'static str],
) -> Result<Vec<Missing>, RequestError> {
    review(server, None, name, resource, verbs).await
}

async fn review(
    server: &Server,
    namespace: Option<&'static str>,
    object: &str,
    resource: &GroupResource,
    verbs: &[&'static str],
) -> Result<Vec<Missing>, RequestError> {
    let mut missing = Vec::new();
    for verb in verbs {
        let (name, subresource) = resource.resource.split_once('/').unwrap_or((&resource.resource, ""));
        let review = json!({
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SelfSubjectAccessReview",
            "spec": {"resourceAttributes": {
                "verb": verb, "group": resource.group, "resource": name, "subresource": subresource,
                "namespace": namespace.unwrap_or_default(), "name": object,
            }},
        });
        let path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
        let answer: Review =
            server.write(Method::POST, path, "application/json", review.to_string().into_bytes()).await?;
        if !answer.status.allowed {
            missing.push(Missing { namespace, ..Missing::new(verb, resource) });
        }
    }
    Ok(missing)
}
