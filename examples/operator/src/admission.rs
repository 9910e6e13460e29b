//! The admission handler: a page needs a title. It is served on the same port as the conversion, with the same certificate.

use std::convert::Infallible;

use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Full};
use k8s_openapi::api::admissionregistration::v1::{
    RuleWithOperations, ValidatingWebhook, ValidatingWebhookConfiguration,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::{Value, json};

use crate::NAME;

/// Where API servers send their reviews.
pub const PATH: &str = "/validate";

/// Which requests API servers send. They convert pages to v1 first, whichever version was written.
pub fn configuration() -> ValidatingWebhookConfiguration {
    let list = |text: &str| Some(vec![text.to_owned()]);
    let rule = RuleWithOperations {
        api_groups: list("example.com"),
        api_versions: list("v1"),
        operations: Some(vec!["CREATE".to_owned(), "UPDATE".to_owned()]),
        resources: list("pages"),
        scope: None,
    };
    let webhook = ValidatingWebhook {
        name: "pages.example.com".to_owned(),
        rules: Some(vec![rule]),
        match_policy: Some("Equivalent".to_owned()),
        failure_policy: Some("Fail".to_owned()),
        side_effects: "None".to_owned(),
        admission_review_versions: vec!["v1".to_owned()],
        ..ValidatingWebhook::default()
    };
    let metadata = ObjectMeta { name: Some(NAME.to_owned()), ..ObjectMeta::default() };
    ValidatingWebhookConfiguration { metadata, webhooks: Some(vec![webhook]) }
}

/// Answers an AdmissionReview.
///
/// # Errors
/// Never: what is no review gets the code 400.
pub async fn handle(request: Request<Full<Bytes>>) -> Result<Response<Full<Bytes>>, Infallible> {
    let Ok(body) = request.into_body().collect().await;
    let (code, answer) = match serde_json::from_slice::<Value>(&body.to_bytes()) {
        Ok(asked) if asked["request"]["uid"].is_string() => (StatusCode::OK, review(&asked)),
        _ => (StatusCode::BAD_REQUEST, json!({"error": "this is not an AdmissionReview"})),
    };
    let mut response = Response::new(Full::from(answer.to_string()));
    *response.status_mut() = code;
    response.headers_mut().insert(CONTENT_TYPE, http::HeaderValue::from_static("application/json"));
    Ok(response)
}

/// Whether the page of a review is allowed: a pure function.
fn review(asked: &Value) -> Value {
    let request = &asked["request"];
    let mut response = json!({"uid": request["uid"], "allowed": true});
    let title = request["object"]["spec"]["title"].as_str().unwrap_or_default();
    if title.trim().is_empty() {
        response["allowed"] = json!(false);
        response["status"] = json!({"code": 422, "message": "spec.title: a page needs a title"});
    }
    json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response})
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_without_a_title_is_refused() {
        let asked = |title: &str| json!({"request": {"uid": "u", "object": {"spec": {"title": title}}}});
        assert_eq!(review(&asked("Pets"))["response"], json!({"uid": "u", "allowed": true}));
        let refused = review(&asked(" "));
        assert_eq!(refused["response"]["allowed"], false);
        assert_eq!(refused["response"]["status"]["message"], "spec.title: a page needs a title");
    }

    #[tokio::test]
    async fn what_is_no_review_is_a_bad_request() {
        for body in ["", "[]", r#"{"request": {}}"#] {
            let answer = handle(Request::new(Full::from(body))).await.unwrap();
            assert_eq!(answer.status(), StatusCode::BAD_REQUEST, "{body}");
        }
    }
}
