//! Whether the user may do what a migration needs, asked before anything is written.

use http::Method;
use restow_core::resource::name::GroupResource;
use serde::Deserialize;
use serde_json::json;

use super::error::RequestError;
use super::server::Server;

/// A verb on a resource that the user lacks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Missing {
    /// The verb.
    pub verb: &'static str,
    /// The resource, with its subresource if it is about one.
    pub resource: String,
    /// The API group.
    pub group: String,
    /// The namespace it is needed in; none for all.
    pub namespace: Option<&'static str>,
}

impl Missing {
    /// A verb on a resource in all namespaces.
    pub fn new(verb: &'static str, name: &GroupResource) -> Self {
        let (resource, group) = (name.resource.clone(), name.group.clone());
        Self { verb, resource, group, namespace: None }
    }

    /// What would grant all of these.
    pub fn grant(missing: &[Self]) -> String {
        let rules: Vec<String> = missing.iter().map(Self::rule).collect();
        let role = match missing.first().and_then(|one| one.namespace) {
            Some(namespace) => format!("a Role in {namespace}"),
            None => "a ClusterRole".to_owned(),
        };
        format!("{role} with this would grant it: rules: [{}]", rules.join(", "))
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

/// Asks for each verb in turn; those that are denied come back.
pub async fn missing(
    server: &Server,
    resource: &GroupResource,
    verbs: &[&'static str],
) -> Result<Vec<Missing>, RequestError> {
    missing_in(server, None, resource, verbs).await
}

/// The same in one namespace.
pub async fn missing_in(
    server: &Server,
    namespace: Option<&'static str>,
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
                "namespace": namespace.unwrap_or_default(),
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
