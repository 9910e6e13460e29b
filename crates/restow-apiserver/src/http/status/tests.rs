//! Messages and bodies as kube-apiserver 1.36 sends them.

use restow_core::resource::name::GroupResource;
use serde_json::json;

use super::*;

fn widgets() -> GroupResource {
    GroupResource::new("example.com", "widgets")
}

#[test]
fn status_bodies_equal_those_of_kube_apiserver() {
    let cases = [
        (
            StatusError::not_found(&widgets(), "a"),
            json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
                "message": "widgets.example.com \"a\" not found", "reason": "NotFound", "code": 404,
                "details": {"name": "a", "group": "example.com", "kind": "widgets"}}),
        ),
        (
            StatusError::continue_expired(Some("token".into())),
            json!({"kind": "Status", "apiVersion": "v1", "metadata": {"continue": "token"}, "status": "Failure",
                "message": "The provided continue parameter is too old to display a consistent list result. You can \
                    start a new list without the continue parameter, or use the continue token in this response to \
                    retrieve the remainder of the results. Continuing with the provided token results in an \
                    inconsistent list - objects that were created, modified, or deleted between the time the first \
                    chunk was returned and now may show up in the list.",
                "reason": "Expired", "code": 410}),
        ),
        (
            StatusError::too_many_requests("wait", 3),
            json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "message": "wait",
                "reason": "TooManyRequests", "details": {"retryAfterSeconds": 3}, "code": 429}),
        ),
        (
            StatusError::plain("odd"),
            json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "message": "odd",
                "code": 500}),
        ),
        (
            StatusError::unprocessable(),
            json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
                "message": "the server rejected our request due to an error in our request", "reason": "Invalid",
                "details": {}, "code": 422}),
        ),
    ];
    for (failure, body) in cases {
        assert_eq!(failure.to_status(), body);
    }
}

#[test]
fn an_invalid_object_is_reported_field_by_field() {
    let twice = Cause::invalid("spec.size", &json!(-1), "must be greater than or equal to 0");
    let causes = vec![Cause::required("spec.name", ""), twice.clone(), twice];
    let status = StatusError::invalid(&GroupKind::new("example.com", "Widget"), "a", causes).to_status();
    assert_eq!(
        status["message"],
        "Widget.example.com \"a\" is invalid: [spec.name: Required value, spec.size: Invalid value: -1: \
         must be greater than or equal to 0]"
    );
    assert_eq!(
        status["details"]["causes"],
        json!([
            {"reason": "FieldValueRequired", "message": "Required value", "field": "spec.name"},
            {"reason": "FieldValueInvalid", "field": "spec.size",
                "message": "Invalid value: -1: must be greater than or equal to 0"},
            {"reason": "FieldValueInvalid", "field": "spec.size",
                "message": "Invalid value: -1: must be greater than or equal to 0"},
        ])
    );
}

#[test]
fn denials_name_user_verb_and_resource() {
    let resource = widgets();
    let attempt = DeniedAccess {
        user: "jane",
        verb: "get",
        resource: Some(&resource),
        subresource: "status",
        namespace: "default",
        name: "a",
        path: "",
    };
    let cases = [
        (
            attempt,
            "widgets.example.com \"a\" is forbidden: User \"jane\" cannot get resource \"widgets/status\" in API \
             group \"example.com\" in the namespace \"default\"",
        ),
        (
            DeniedAccess { name: "", namespace: "", subresource: "", verb: "list", ..attempt },
            "widgets.example.com is forbidden: User \"jane\" cannot list resource \"widgets\" in API group \
             \"example.com\" at the cluster scope",
        ),
        (
            DeniedAccess { resource: None, path: "/metrics", ..attempt },
            "forbidden: User \"jane\" cannot get path \"/metrics\"",
        ),
    ];
    for (attempt, message) in cases {
        assert_eq!(StatusError::forbidden(&attempt, "").message(), message);
    }
}

#[test]
fn values_are_shown_as_go_shows_them() {
    let cases = [
        (json!("a\"b\\\n\u{1}\u{a0}é"), r#""a\"b\\\n\x01\u00a0é""#),
        (json!(1.5), "1.5"),
        (json!(1e21), "1e+21"),
        (json!(1.5e-7), "1.5e-07"),
        (json!(100), "100"),
        (json!(3.0), "3"),
        (json!(null), "null"),
        (json!({"a": "<b>"}), r#"{"a":"\u003cb\u003e"}"#),
    ];
    for (value, shown) in cases {
        assert_eq!(golang::show(&value), shown);
    }
}

#[test]
fn each_reason_has_its_code() {
    let cases = [
        (StatusError::already_exists(&widgets(), "a"), 409, "AlreadyExists"),
        (StatusError::modified(&widgets(), "a"), 409, "Conflict"),
        (StatusError::bad_request("no"), 400, "BadRequest"),
        (StatusError::unauthorized(), 401, "Unauthorized"),
        (StatusError::method_not_allowed(), 405, "MethodNotAllowed"),
        (StatusError::not_acceptable(&["application/json"]), 406, "NotAcceptable"),
        (StatusError::list_expired(), 410, "Expired"),
        (StatusError::too_large("limit is 1"), 413, "RequestEntityTooLarge"),
        (StatusError::unsupported_media_type(&["application/json"]), 415, "UnsupportedMediaType"),
        (StatusError::internal("oops"), 500, "InternalError"),
        (StatusError::service_unavailable("later"), 503, "ServiceUnavailable"),
        (StatusError::version_too_large(9, 3), 504, "Timeout"),
    ];
    for (failure, code, reason) in cases {
        assert_eq!((failure.code(), failure.reason().as_str()), (code, reason));
    }
}
