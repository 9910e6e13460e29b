//! Review resources, which are answered and never stored.

use http::StatusCode;
use http::request::Parts;
use restow_core::protocol::request::ResourcePath;
use serde_json::{Value, json};

use crate::auth::user::sender;
use crate::http::body::Body;
use crate::http::json;
use crate::http::response::text;
use crate::http::status::{GroupKind, StatusError};
use crate::registry::reviews::Review;
use crate::verbs::api::Api;
use crate::verbs::payload;
use crate::verbs::request::VerbResponse;

/// Answers a review.
pub(crate) fn answer(
    api: &Api,
    review: &Review,
    head: &Parts,
    body: &[u8],
    target: &ResourcePath,
) -> Result<VerbResponse, StatusError> {
    if review.namespaced == target.namespace.is_empty() || !target.name.is_empty() {
        return Err(StatusError::unknown_path());
    }
    if head.method != http::Method::POST {
        return Err(StatusError::method_not_allowed());
    }
    let sent = payload::parse(text(&head.headers, http::header::CONTENT_TYPE), body)?;
    let Value::Object(mut fields) = sent else {
        return Err(StatusError::bad_request("the object provided is unrecognized: it is not a JSON object"));
    };
    fields.insert("kind".to_owned(), json!(review.kind));
    fields.insert("apiVersion".to_owned(), json!(target.api_version()));
    fields.entry("metadata").or_insert_with(|| json!({}));
    let kind = GroupKind::new(review.group, review.kind);
    let answered = api.access.review(&sender(head), &kind, &target.namespace, Value::Object(fields))?;
    let body = Body::from(json::encode(&answered));
    Ok(VerbResponse { code: StatusCode::CREATED, body, warnings: Vec::new(), made: None })
}
