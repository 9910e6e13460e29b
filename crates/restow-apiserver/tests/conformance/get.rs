//! Reading one object, and paths that lead nowhere.

use serde_json::{Value, json};

use crate::subject::{Call, Subject};

scenarios![
    what_is_not_there_is_told_with_its_name_and_kind,
    a_newer_object_than_asked_for_is_good_enough,
    an_object_is_the_same_in_all_versions_of_json,
    paths_that_lead_nowhere,
    head_and_options_are_not_verbs,
];

async fn what_is_not_there_is_told_with_its_name_and_kind(subject: &Subject) {
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

async fn paths_that_lead_nowhere(subject: &Subject) {
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

async fn a_newer_object_than_asked_for_is_good_enough(subject: &Subject) {
    let place = subject.namespace("get-at").await;
    let made = place.post("configmaps", json!({"metadata": {"name": "a"}})).await.ok();
    for at in ["0", "1", &made.resource_version()] {
        let got = place.get(&format!("configmaps/a?resourceVersion={at}")).await.ok();
        assert_eq!(got.resource_version(), made.resource_version(), "{at}");
    }
}

async fn an_object_is_the_same_in_all_versions_of_json(subject: &Subject) {
    let place = subject.namespace("get-json").await;
    let made = place.post("configmaps", json!({"metadata": {"name": "a"}})).await.ok();
    for accept in ["application/json", "*/*", "text/html, application/json;q=0.5"] {
        let got = place.send(Call::get("configmaps/a").header("accept", accept)).await;
        assert_eq!((got.header("content-type"), &got.body), ("application/json", &made.body), "{accept}");
    }
    let pretty = place.get("configmaps/a?pretty=true").await.ok();
    assert_eq!(pretty.body, made.body);
}

async fn head_and_options_are_not_verbs(subject: &Subject) {
    let place = subject.namespace("get-verbs").await;
    place.post("configmaps", json!({"metadata": {"name": "a"}})).await.ok();
    for verb in ["HEAD", "OPTIONS", "TRACE"] {
        let answer = place.send(Call::new(verb, "configmaps/a")).await;
        assert_eq!(answer.code(), 405, "{verb}: {}", answer.line());
    }
}
