//! The review APIs: access reviews, rules reviews and SelfSubjectReview.

use serde::Deserialize;
use serde_json::{Value, json};

use super::policy::Policy;
use crate::auth::attributes::{Attributes, ResourceAttributes};
use crate::auth::user::User;

/// An invalid review.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ReviewError {
    /// Neither a resource nor a path, or both.
    #[error("exactly one of nonResourceAttributes or resourceAttributes must be specified")]
    Attributes,
    /// Neither a user nor a group.
    #[error("at least one of user or group must be specified")]
    Nobody,
    /// A LocalSubjectAccessReview of another namespace.
    #[error("must match metadata.namespace")]
    Elsewhere,
    /// A rules review without a namespace.
    #[error("namespace is required")]
    NoNamespace,
}

impl ReviewError {
    /// The invalid field.
    pub(crate) fn field(self) -> &'static str {
        match self {
            Self::Attributes => "spec.resourceAttributes",
            Self::Nobody => "spec.user",
            Self::Elsewhere => "spec.resourceAttributes.namespace",
            Self::NoNamespace => "spec.namespace",
        }
    }
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Spec {
    resource_attributes: Option<OnResource>,
    non_resource_attributes: Option<OnPath>,
    user: Option<String>,
    groups: Option<Vec<String>>,
    namespace: Option<String>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct OnResource {
    verb: String,
    group: String,
    resource: String,
    subresource: String,
    namespace: String,
    name: String,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct OnPath {
    verb: String,
    path: String,
}

/// Whose permissions a review is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReviewedUser<'a> {
    /// Those of the sender: SelfSubjectAccessReview.
    Sender(&'a User),
    /// Those of a user that the review names: SubjectAccessReview.
    Named,
    /// Those of a user that the review names, in one namespace: LocalSubjectAccessReview.
    NamedIn(&'a str),
}

/// Answers a SelfSubjectAccessReview, SubjectAccessReview or LocalSubjectAccessReview: the review with its status.
pub(crate) fn answer_access_review(
    policy: &Policy,
    about: ReviewedUser<'_>,
    review: Value,
) -> Result<Value, ReviewError> {
    let spec = spec(&review);
    let attributes = attributes(&spec)?;
    if let ReviewedUser::NamedIn(namespace) = about
        && attributes.resource().is_none_or(|on| on.namespace != namespace)
    {
        return Err(ReviewError::Elsewhere);
    }
    let status = match about {
        ReviewedUser::Sender(user) => decide(policy, user, &attributes),
        ReviewedUser::Named | ReviewedUser::NamedIn(_) => decide(policy, &named(&spec)?, &attributes),
    };
    Ok(with_status(review, status))
}

/// Answers a SelfSubjectRulesReview: the review with its status.
pub(crate) fn answer_rules_review(policy: &Policy, user: &User, review: Value) -> Result<Value, ReviewError> {
    let namespace = spec(&review).namespace.unwrap_or_default();
    if namespace.is_empty() {
        return Err(ReviewError::NoNamespace);
    }
    let (mut resources, mut paths) = (Vec::new(), Vec::new());
    for rule in policy.rules_for(user, &namespace) {
        if !rule.resources.is_empty() {
            let mut shown = json!(rule);
            shown.as_object_mut().map(|shown| shown.remove("nonResourceURLs"));
            resources.push(shown);
        }
        if !rule.non_resource_urls.is_empty() {
            paths.push(json!({"verbs": rule.verbs, "nonResourceURLs": rule.non_resource_urls}));
        }
    }
    let status = json!({"resourceRules": resources, "nonResourceRules": paths, "incomplete": false});
    Ok(with_status(review, status))
}

/// Answers a SelfSubjectReview: the review with its status.
pub(crate) fn answer_self_review(user: &User, review: Value) -> Value {
    let mut info = json!({"username": user.name, "groups": user.groups});
    if !user.uid.is_empty() {
        info["uid"] = json!(user.uid);
    }
    if !user.extra.is_empty() {
        info["extra"] = json!(user.extra);
    }
    with_status(review, json!({"userInfo": info}))
}

fn spec(review: &Value) -> Spec {
    review.get("spec").and_then(|spec| Spec::deserialize(spec).ok()).unwrap_or_default()
}

fn with_status(mut review: Value, status: Value) -> Value {
    if let Some(fields) = review.as_object_mut() {
        fields.insert("status".to_owned(), status);
    }
    review
}

fn attributes(spec: &Spec) -> Result<Attributes<'_>, ReviewError> {
    match (&spec.resource_attributes, &spec.non_resource_attributes) {
        (Some(on), None) => Ok(Attributes::of_resource(
            &on.verb,
            ResourceAttributes {
                group: &on.group,
                resource: &on.resource,
                subresource: &on.subresource,
                namespace: &on.namespace,
                name: &on.name,
            },
        )),
        (None, Some(on)) => Ok(Attributes::of_path(&on.verb, &on.path)),
        _ => Err(ReviewError::Attributes),
    }
}

/// The user that a review names, with only the groups that it names.
fn named(spec: &Spec) -> Result<User, ReviewError> {
    let name = spec.user.clone().unwrap_or_default();
    let groups = spec.groups.clone().unwrap_or_default();
    if name.is_empty() && groups.is_empty() {
        return Err(ReviewError::Nobody);
    }
    Ok(User { name, groups, ..User::default() })
}

fn decide(policy: &Policy, user: &User, attributes: &Attributes<'_>) -> Value {
    match policy.decide(user, attributes) {
        Ok(grant) => match grant.to_string() {
            reason if reason.is_empty() => json!({"allowed": true}),
            reason => json!({"allowed": true, "reason": reason}),
        },
        Err(why) if why.is_empty() => json!({"allowed": false}),
        Err(why) => json!({"allowed": false, "reason": why}),
    }
}

#[cfg(test)]
mod tests {
    use super::super::policy::Kind;
    use super::*;

    fn policy() -> Policy {
        let mut policy = Policy::default();
        let role = json!({"rules": [
            {"verbs": ["get"], "apiGroups": [""], "resources": ["pods"]},
            {"verbs": ["get"], "nonResourceURLs": ["/x"]},
        ]});
        policy.set(Kind::ClusterRole, "", "r", Some(role.to_string().as_bytes()));
        for (name, subject) in
            [("b", json!({"kind": "User", "name": "alice"})), ("c", json!({"kind": "Group", "name": "dev"}))]
        {
            let binding = json!({"subjects": [subject], "roleRef": {"kind": "ClusterRole", "name": "r"}});
            policy.set(Kind::ClusterRoleBinding, "", name, Some(binding.to_string().as_bytes()));
        }
        policy
    }

    fn asked(about: ReviewedUser<'_>, spec: Value) -> String {
        let review = json!({"kind": "Review", "spec": spec});
        match answer_access_review(&policy(), about, review) {
            Ok(review) => review["status"].to_string(),
            Err(error) => format!("{}: {error}", error.field()),
        }
    }

    #[test]
    fn access_reviews_report_allowed_or_denied() {
        let alice = User::known("alice", [""; 0]);
        let admin = User::admin();
        let pods = json!({"verb": "get", "resource": "pods", "namespace": "a"});
        let secrets = json!({"verb": "get", "resource": "secrets", "namespace": "a"});
        let by_b = r#"{"allowed":true,"reason":"RBAC: allowed by ClusterRoleBinding \"b\" of ClusterRole \"r\" to User \"alice\""}"#;
        let by_c = r#"{"allowed":true,"reason":"RBAC: allowed by ClusterRoleBinding \"c\" of ClusterRole \"r\" to Group \"dev\""}"#;
        let no = r#"{"allowed":false}"#;
        let one = "spec.resourceAttributes: exactly one of nonResourceAttributes or resourceAttributes must be specified";
        for (about, spec, expected) in [
            (ReviewedUser::Sender(&alice), json!({"resourceAttributes": pods}), by_b),
            (ReviewedUser::Sender(&alice), json!({"resourceAttributes": secrets}), no),
            (
                ReviewedUser::Sender(&alice),
                json!({"nonResourceAttributes": {"verb": "get", "path": "/x"}}),
                by_b,
            ),
            (
                ReviewedUser::Sender(&alice),
                json!({"nonResourceAttributes": {"verb": "get", "path": "/y"}}),
                no,
            ),
            (
                ReviewedUser::Sender(&alice),
                json!({"resourceAttributes": secrets, "user": "root", "groups": ["system:masters"]}),
                no,
            ),
            (ReviewedUser::Sender(&admin), json!({"resourceAttributes": secrets}), r#"{"allowed":true}"#),
            (ReviewedUser::Sender(&alice), json!({}), one),
            (
                ReviewedUser::Sender(&alice),
                json!({"resourceAttributes": pods, "nonResourceAttributes": {}}),
                one,
            ),
            (ReviewedUser::Sender(&alice), json!({"resourceAttributes": 7}), one),
            (ReviewedUser::Named, json!({"resourceAttributes": pods, "user": "alice"}), by_b),
            (ReviewedUser::Named, json!({"resourceAttributes": pods, "user": "bob"}), no),
            (ReviewedUser::Named, json!({"resourceAttributes": pods, "groups": ["dev"]}), by_c),
            (
                ReviewedUser::Named,
                json!({"resourceAttributes": pods, "user": "bob", "groups": ["system:masters"]}),
                r#"{"allowed":true}"#,
            ),
            (
                ReviewedUser::Named,
                json!({"resourceAttributes": pods}),
                "spec.user: at least one of user or group must be specified",
            ),
            (ReviewedUser::NamedIn("a"), json!({"resourceAttributes": pods, "user": "alice"}), by_b),
            (
                ReviewedUser::NamedIn("b"),
                json!({"resourceAttributes": pods, "user": "alice"}),
                "spec.resourceAttributes.namespace: must match metadata.namespace",
            ),
        ] {
            assert_eq!(asked(about, spec.clone()), expected, "{about:?} {spec}");
        }
    }

    #[test]
    fn a_rules_review_lists_the_rules_of_a_user() {
        let review = |spec: Value| {
            answer_rules_review(&policy(), &User::known("alice", [""; 0]), json!({"spec": spec}))
        };
        assert_eq!(
            review(json!({"namespace": "a"})).unwrap()["status"],
            json!({
                "resourceRules": [{"verbs": ["get"], "apiGroups": [""], "resources": ["pods"]}],
                "nonResourceRules": [{"verbs": ["get"], "nonResourceURLs": ["/x"]}],
                "incomplete": false,
            })
        );
        assert_eq!(review(json!({})), Err(ReviewError::NoNamespace));
        assert_eq!(
            answer_self_review(&User::admin(), json!({}))["status"]["userInfo"]["username"],
            "restow:admin"
        );
    }
}
