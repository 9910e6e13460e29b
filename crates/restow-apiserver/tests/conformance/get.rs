//! Get, and unknown paths.

use serde_json::{Value, json};

use crate::subject::{ApiRequest, Subject};

scenarios![
    a_missing_object_is_reported_with_name_and_kind,
    a_get_may_return_a_newer_object_than_requested,
    pretty_json_has_the_same_object,
    unknown_paths_are_not_found,
    head_and_options_are_not_verbs,
];

async fn a_missing_object_is_reported_with_name_and_kind(subject: &Subject) {
    let place = subject.namespace("get-nothing").await;
    let answer = place.get("configmaps/none").await;
    let expected = json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "message": "configmaps \"none\" not found", "reason": "NotFound",
        "details": {"name": "none", "kind": "configmaps"}, "code": 404,
    });
    assert_eq!((answer.code(), &answer.body), (404, &expected));
    assert_eq!(answer.header("content-type"), "application/json");
    let roles = place.get("/apis/rbac.authorization.k8s.io/v1/clusterroles/none").await;
    assert_eq!(
        roles["details"],
        json!({"name": "none", "group": "rbac.authorization.k8s.io", "kind": "clusterroles"})
    );
}

async fn unknown_paths_are_not_found(subject: &Subject) {
    let place = subject.namespace("get-nowhere").await;
    let unknown = "404 NotFound: the server could not find the requested resource";
    let none = Value::Null;
    place
        .table(&[
            (
                "GET",
                "/api/v1/namespaces/none-such/configmaps/a",
                none.clone(),
                r#"404 NotFound: configmaps "a" not found"#,
            ),
            ("GET", "/api/v1/nonsense", none.clone(), unknown),
            ("GET", "nonsense/a", none.clone(), unknown),
            ("GET", "/apis/none.example/v1/things", none.clone(), "404 404 page not found"),
            ("GET", "/apis/apps/v9/deployments", none.clone(), unknown),
            ("GET", "/apis/apps/v1/nonsense", none.clone(), unknown),
            ("GET", "configmaps/a/status", none.clone(), unknown),
            ("GET", "/nonsense", none.clone(), "404 404 page not found"),
            ("POST", "nonsense", json!({}), unknown),
            (
                "POST",
                "/api/v1/configmaps",
                json!({"metadata": {"name": "a"}}),
                "405 MethodNotAllowed: the server does not allow this method on the requested resource",
            ),
            (
                "PUT",
                "configmaps",
                json!({}),
                "405 MethodNotAllowed: the server does not allow this method on the requested resource",
            ),
        ])
        .await;
    let answer = place.get("/api/v1/nonsense").await;
    assert_eq!(answer["details"], json!({}));
}

async fn a_get_may_return_a_newer_object_than_requested(subject: &Subject) {
    let place = subject.namespace("get-at").await;
    let made = place.post("configmaps", json!({"metadata": {"name": "a"}})).await.ok();
    for at in ["0", "1", &made.resource_version()] {
        let got = place.get(&format!("configmaps/a?resourceVersion={at}")).await.ok();
        assert_eq!(got.resource_version(), made.resource_version(), "{at}");
    }
}

async fn pretty_json_has_the_same_object(subject: &Subject) {
    let place = subject.namespace("get-json").await;
    let made = place.post("configmaps", json!({"metadata": {"name": "a"}})).await.ok();
    for accept in ["application/json", "*/*", "text/html, application/json;q=0.5"] {
        let got = place.send(ApiRequest::get("configmaps/a").header("accept", accept)).await;
        assert_eq!((got.header("content-type"), &got.body), ("application/json", &made.body), "{accept}");
    }
    let pretty = place.get("configmaps/a?pretty=true").await.ok();
    assert_eq!(pretty.body, made.body);
}

async fn head_and_options_are_not_verbs(subject: &Subject) {
    let place = subject.namespace("get-verbs").await;
    place.post("configmaps", json!({"metadata": {"name": "a"}})).await.ok();
    for verb in ["HEAD", "OPTIONS", "TRACE"] {
        let answer = place.send(ApiRequest::new(verb, "configmaps/a")).await;
        assert_eq!(answer.code(), 405, "{verb}: {}", answer.line());
    }
}
