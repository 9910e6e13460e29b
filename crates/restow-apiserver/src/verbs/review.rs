//! Resources that are answered and never stored: who may do what, and who one is.

use http::StatusCode;
use http::request::Parts;
use serde_json::{Value, json};

use crate::http::body::Body;
use crate::http::json;
use crate::http::request_info::Target;
use crate::http::status::{Failure, GroupKind};
use crate::server::handler::{sender, text};
use crate::verbs::api::Api;
use crate::verbs::objects::Answer;
use crate::verbs::payload;

/// One of them.
#[derive(Debug)]
pub struct Review {
    /// The API group.
    pub group: &'static str,
    /// The kind.
    pub kind: &'static str,
    /// The plural name.
    pub plural: &'static str,
    /// Whether it is asked in a namespace.
    pub namespaced: bool,
}

/// The version of all of them.
pub const VERSION: &str = "v1";

const AUTHENTICATION: &str = "authentication.k8s.io";
const AUTHORIZATION: &str = "authorization.k8s.io";

/// All of them.
pub static REVIEWS: &[Review] = &[
    Review {
        group: AUTHENTICATION,
        kind: "SelfSubjectReview",
        plural: "selfsubjectreviews",
        namespaced: false,
    },
    Review { group: AUTHENTICATION, kind: "TokenReview", plural: "tokenreviews", namespaced: false },
    Review {
        group: AUTHORIZATION,
        kind: "LocalSubjectAccessReview",
        plural: "localsubjectaccessreviews",
        namespaced: true,
    },
    Review {
        group: AUTHORIZATION,
        kind: "SelfSubjectAccessReview",
        plural: "selfsubjectaccessreviews",
        namespaced: false,
    },
    Review {
        group: AUTHORIZATION,
        kind: "SelfSubjectRulesReview",
        plural: "selfsubjectrulesreviews",
        namespaced: false,
    },
    Review {
        group: AUTHORIZATION,
        kind: "SubjectAccessReview",
        plural: "subjectaccessreviews",
        namespaced: false,
    },
];

/// The review of a path.
pub fn find(group: &str, version: &str, plural: &str) -> Option<&'static Review> {
    REVIEWS.iter().find(|review| review.group == group && version == VERSION && review.plural == plural)
}

/// Answers a review.
pub(crate) fn answer(
    api: &Api,
    review: &Review,
    head: &Parts,
    body: &[u8],
    target: &Target,
) -> Result<Answer, Failure> {
    if review.namespaced == target.namespace.is_empty() || !target.name.is_empty() {
        return Err(Failure::unknown_path());
    }
    if head.method != http::Method::POST {
        return Err(Failure::method_not_allowed());
    }
    let sent = payload::parse(text(&head.headers, http::header::CONTENT_TYPE), body)?;
    let Value::Object(mut fields) = sent else {
        return Err(Failure::bad_request("the object provided is unrecognized: it is not a JSON object"));
    };
    fields.insert("kind".to_owned(), json!(review.kind));
    fields.insert("apiVersion".to_owned(), json!(target.api_version()));
    fields.entry("metadata").or_insert_with(|| json!({}));
    let kind = GroupKind::new(review.group, review.kind);
    let answered = api.access.review(&sender(head), &kind, &target.namespace, Value::Object(fields))?;
    let body = Body::from(json::encode(&answered));
    Ok(Answer { code: StatusCode::CREATED, body, warnings: Vec::new(), made: None })
}
