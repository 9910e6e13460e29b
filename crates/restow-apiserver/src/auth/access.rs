//! Users and permissions, as handlers need them: reviews, and checks of written roles and bindings.

use std::sync::Arc;

use serde_json::{Value, json};

use crate::auth::authentication::Tokens;
use crate::auth::rbac::{
    self, Kind, LivePolicy, ReviewError, ReviewedUser, answer_access_review, answer_rules_review,
    answer_self_review, permit_write,
};
use crate::auth::user::User;
use crate::http::status::{Cause, GroupKind, StatusError};
use crate::object::meta;

/// Users and their permissions. The default has no users and grants nothing.
#[derive(Debug, Default)]
pub(crate) struct Access {
    /// The tokens of users.
    pub tokens: Tokens,
    /// The RBAC policy.
    pub policy: Arc<LivePolicy>,
}

impl Access {
    /// Answers a review of a kind: the review with its status.
    pub(crate) fn review(
        &self,
        user: &User,
        kind: &GroupKind,
        namespace: &str,
        review: Value,
    ) -> Result<Value, StatusError> {
        let policy = self.policy.current();
        let answered = match kind.kind.as_str() {
            "SelfSubjectReview" => Ok(answer_self_review(user, review)),
            "TokenReview" => Ok(self.token_review(review)),
            "SelfSubjectRulesReview" => answer_rules_review(&policy, user, review),
            "SelfSubjectAccessReview" => answer_access_review(&policy, ReviewedUser::Sender(user), review),
            "SubjectAccessReview" => answer_access_review(&policy, ReviewedUser::Named, review),
            "LocalSubjectAccessReview" => {
                answer_access_review(&policy, ReviewedUser::NamedIn(namespace), review)
            }
            _ => return Err(StatusError::unknown_path()),
        };
        answered.map_err(|error| refused(kind, error))
    }

    fn token_review(&self, mut review: Value) -> Value {
        let token = review["spec"]["token"].as_str().unwrap_or_default();
        let status = match self.tokens.user(token) {
            Some(user) => {
                let mut shown = json!({"username": user.name, "groups": user.groups});
                if !user.uid.is_empty() {
                    shown["uid"] = json!(user.uid);
                }
                json!({"authenticated": true, "user": shown})
            }
            None => json!({"authenticated": false, "error": "invalid bearer token"}),
        };
        // A review that is no object has no fields.
        if let Some(fields) = review.as_object_mut() {
            fields.insert("status".to_owned(), status);
        }
        review
    }

    /// Refuses a write of a role or binding that would escalate the permissions of its writer.
    pub(crate) fn permit_write(
        &self,
        user: &User,
        (group, resource): (&str, &str),
        object: &Value,
        before: Option<&Value>,
    ) -> Result<(), StatusError> {
        let Some(kind) = Kind::of(resource).filter(|_| group == rbac::GROUP) else { return Ok(()) };
        permit_write(&self.policy.current(), user, kind, object, before)
            .map_err(|escalation| escalation.failure(kind, meta::name(object)))
    }
}

fn refused(kind: &GroupKind, error: ReviewError) -> StatusError {
    let cause = match error {
        ReviewError::NoNamespace => return StatusError::bad_request("no namespace on request"),
        ReviewError::Attributes => Cause::invalid(error.field(), &Value::Null, &error.to_string()),
        _ => Cause::invalid_text(error.field(), "", &error.to_string()),
    };
    StatusError::invalid(kind, "", vec![cause])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::auth::rbac::Policy;

    fn access() -> Access {
        let mut tokens = Tokens::default();
        tokens.insert_file("t,alice,7,dev\n").unwrap();
        Access { tokens, policy: LivePolicy::fixed(Policy::default()) }
    }

    #[test]
    fn each_kind_of_review_is_answered() {
        let alice = User::known("alice", ["dev"]);
        let about = json!({"resourceAttributes": {"verb": "get", "resource": "pods"}});
        for (kind, spec, pointer, expected) in [
            ("SelfSubjectReview", json!({}), "/status/userInfo/username", json!("alice")),
            ("TokenReview", json!({"token": "t"}), "/status/user/username", json!("alice")),
            ("TokenReview", json!({"token": "x"}), "/status/authenticated", json!(false)),
            ("TokenReview", json!({}), "/status/authenticated", json!(false)),
            ("TokenReview", json!([7]), "/status/authenticated", json!(false)),
            ("SelfSubjectRulesReview", json!({"namespace": "a"}), "/status/resourceRules", json!([])),
            ("SelfSubjectAccessReview", about.clone(), "/status/allowed", json!(false)),
        ] {
            let answered =
                access().review(&alice, &GroupKind::new("g", kind), "", json!({"spec": spec})).unwrap();
            assert_eq!(answered.pointer(pointer), Some(&expected), "{kind}: {answered}");
        }
        for (kind, spec, code) in [
            ("SelfSubjectAccessReview", json!({}), 422),
            ("SubjectAccessReview", about.clone(), 422),
            ("LocalSubjectAccessReview", about, 422),
            ("SelfSubjectRulesReview", json!({}), 400),
            ("Review", json!({}), 404),
        ] {
            let refused = access().review(&alice, &GroupKind::new("g", kind), "a", json!({"spec": spec}));
            assert_eq!(refused.unwrap_err().code(), code, "{kind}");
        }
    }

    #[test]
    fn a_review_that_is_no_object_does_not_panic() {
        for kind in ["SelfSubjectReview", "TokenReview"] {
            for review in [json!(null), json!([]), json!("x"), json!(7)] {
                let answered =
                    access().review(&User::admin(), &GroupKind::new("g", kind), "", review.clone());
                assert_eq!(answered, Ok(review), "{kind}");
            }
        }
    }

    #[test]
    fn only_writes_of_roles_and_bindings_are_checked_for_escalation() {
        let alice = User::known("alice", ["dev"]);
        let role =
            json!({"metadata": {"name": "r"}, "rules": [{"verbs": ["get"], "nonResourceURLs": ["/x"]}]});
        let permit = |group, resource| access().permit_write(&alice, (group, resource), &role, None);
        assert_eq!(permit(rbac::GROUP, "clusterroles").unwrap_err().code(), 403);
        assert!(permit("example.com", "clusterroles").is_ok());
        assert!(permit("", "pods").is_ok());
        let binding = json!({"metadata": {"name": "b"}, "roleRef": {"kind": "ClusterRole", "name": "none"}});
        let refused = access().permit_write(&alice, (rbac::GROUP, "clusterrolebindings"), &binding, None);
        assert_eq!(refused.unwrap_err().code(), 404);
    }
}
