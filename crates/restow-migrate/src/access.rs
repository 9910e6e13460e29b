//! Whether the user may do what a migration needs, asked before anything is written.

use http::Method;
use restow_core::resource::GroupResource;
use serde::Deserialize;
use serde_json::json;

use crate::server::{RequestError, Server};

/// A verb on a resource that the user lacks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Missing {
    /// The verb.
    pub verb: &'static str,
    /// The resource, with its subresource if it is about one.
    pub resource: String,
    /// The API group.
    pub group: String,
}

impl Missing {
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
        write!(f, "you may not {} {name}", self.verb)
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
    let mut missing = Vec::new();
    for verb in verbs {
        let (name, subresource) = resource.resource.split_once('/').unwrap_or((&resource.resource, ""));
        let review = json!({
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SelfSubjectAccessReview",
            "spec": {"resourceAttributes": {
                "verb": verb, "group": resource.group, "resource": name, "subresource": subresource,
            }},
        });
        let path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
        let answer: Review =
            server.write(Method::POST, path, "application/json", review.to_string().into_bytes()).await?;
        if !answer.status.allowed {
            missing.push(Missing {
                verb,
                resource: resource.resource.clone(),
                group: resource.group.clone(),
            });
        }
    }
    Ok(missing)
}
