//! Limits on bodies, nesting and sizes.

use serde_json::json;

use crate::definition::{define, widget};
use crate::subject::{ApiRequest, Subject};

scenarios![
    a_body_that_is_too_large_gets_413,
    json_that_is_too_deep_is_a_bad_request,
    annotations_may_be_256_kib,
    numbers_are_kept_as_they_are,
    text_is_kept_as_it_is,
    an_object_that_is_too_large_is_refused,
];

async fn a_body_that_is_too_large_gets_413(subject: &Subject) {
    let place = subject.namespace("limit-body").await;
    let body = json!({"metadata": {"name": "a"}, "data": {"k": "x".repeat(4 << 20)}});
    let answer = place.post("configmaps", body).await;
    assert_eq!(answer.code(), 413, "{}", answer.line());
}

async fn json_that_is_too_deep_is_a_bad_request(subject: &Subject) {
    let place = define(subject, "deep.example", |_| ()).await;
    let deep = format!("{}1{}", "[".repeat(20_000), "]".repeat(20_000));
    let body = format!(
        r#"{{"apiVersion":"deep.example/v1","kind":"Widget","metadata":{{"name":"a"}},"spec":{{"free":{{"x":{deep}}}}}}}"#
    );
    let answer = place.send(ApiRequest::new("POST", "widgets").body(body)).await;
    assert_eq!(answer.reason(), "400 BadRequest", "{}", answer.line());
}

async fn an_object_that_is_too_large_is_refused(subject: &Subject) {
    let place = subject.namespace("limit-object").await;
    let body = json!({"metadata": {"name": "a"}, "data": {"k": "x".repeat((1 << 20) + 1)}});
    let answer = place.post("configmaps", body).await;
    assert_eq!(answer.reason(), "422 Invalid", "{}", answer.line());
    let cause = &answer["details"]["causes"][0];
    assert_eq!(
        (&cause["reason"], &cause["message"]),
        (&json!("FieldValueTooLong"), &json!("Too long: may not be more than 1048576 bytes"))
    );
}

async fn annotations_may_be_256_kib(subject: &Subject) {
    let place = subject.namespace("limit-annotations").await;
    let with = |size: usize| json!({"metadata": {"name": "a", "annotations": {"k": "x".repeat(size)}}});
    let answer = place.post("configmaps", with(256 << 10)).await;
    assert_eq!(
        answer.line(),
        "422 Invalid: ConfigMap \"a\" is invalid: metadata.annotations: Too long: may not be more than 262144 bytes"
    );
    place.post("configmaps", with((256 << 10) - 1)).await.ok();
}

async fn numbers_are_kept_as_they_are(subject: &Subject) {
    let place = define(subject, "numbers.example", |_| ()).await;
    let free = r#"{"big":9223372036854775807,"small":-9223372036854775808,"float":1.5,"exp":1e3,"zero":0}"#;
    let body = format!(
        r#"{{"apiVersion":"numbers.example/v1","kind":"Widget","metadata":{{"name":"a"}},"spec":{{"free":{free}}}}}"#
    );
    let made = place.send(ApiRequest::new("POST", "widgets").body(body)).await.ok();
    let kept = &made["spec"]["free"];
    assert_eq!((kept["big"].as_i64(), kept["small"].as_i64()), (Some(i64::MAX), Some(i64::MIN)));
    assert_eq!((kept["float"].as_f64(), kept["exp"].as_f64()), (Some(1.5), Some(1000.0)));
    assert_eq!(kept["zero"], 0);
}

async fn text_is_kept_as_it_is(subject: &Subject) {
    let group = "text.example";
    let place = define(subject, group, |_| ()).await;
    let text = "tab\t quote\" slash/ back\\ <html> & \u{2028} \u{1F600} \u{7f} é";
    let made =
        place.post("widgets", widget(group, "a", json!({"free": {"text": text, "ключ": "знач"}}))).await.ok();
    assert_eq!(made["spec"]["free"], json!({"text": text, "ключ": "знач"}));
    assert_eq!(place.get("widgets/a").await.ok().body, made.body);
}
