//! Resources that are answered and never stored: who may do what, and who one is.

use http::StatusCode;
use http::request::Parts;
use restow_core::protocol::request::ResourcePath;
use serde_json::{Value, json};

use crate::auth::user::sender;
use crate::http::body::Body;
use crate::http::json;
use crate::http::response::text;
use crate::http::status::{Failure, GroupKind};
use crate::registry::reviews::Review;
use crate::verbs::api::Api;
use crate::verbs::call::Answer;
use crate::verbs::payload;

/// Answers a review.
pub(crate) fn answer(
    api: &Api,
    review: &Review,
    head: &Parts,
    body: &[u8],
    target: &ResourcePath,
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
