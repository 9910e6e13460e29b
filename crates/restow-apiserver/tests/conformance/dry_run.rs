//! Dry runs return the result, and store nothing.

use serde_json::{Value, json};

use crate::subject::{ApiRequest, Subject};

scenarios![
    a_dry_run_returns_the_result_and_stores_nothing,
    a_dry_run_fails_like_the_real_request,
    all_is_the_only_dry_run_value,
];

async fn a_dry_run_returns_the_result_and_stores_nothing(subject: &Subject) {
    let place = subject.namespace("dry-as-if").await;
    let body = json!({"metadata": {"name": "a"}, "data": {"k": "1"}});
    let dry = place.post("configmaps?dryRun=All", body.clone()).await;
    assert_eq!((dry.code(), dry.uid().len()), (201, 36));
    assert_eq!(place.get("configmaps/a").await.code(), 404);
    let made = place.post("configmaps", body).await.ok();
    let patch = json!({"data": {"k": "2"}});
    let patched = place.merge("configmaps/a?dryRun=All", patch.clone()).await.ok();
    assert_eq!(patched["data"], json!({"k": "2"}));
    let mut object = made.body.clone();
    object["data"] = json!({"k": "3"});
    assert_eq!(place.put("configmaps/a?dryRun=All", object).await.ok()["data"], json!({"k": "3"}));
    let json_patch = json!([{"op": "replace", "path": "/data/k", "value": "4"}]);
    let answer = place.send(ApiRequest::new("JSON", "configmaps/a?dryRun=All").json(&json_patch)).await.ok();
    assert_eq!(answer["data"], json!({"k": "4"}));
    assert_eq!(place.delete("configmaps/a?dryRun=All").await.ok()["status"], "Success");
    assert_eq!(place.delete("configmaps?dryRun=All").await.code(), 200);
    let options = json!({"dryRun": ["All"]});
    place.send(ApiRequest::new("DELETE", "configmaps/a").json(&options)).await.ok();
    assert_eq!(place.get("configmaps/a").await.ok().body, made.body);
}

async fn a_dry_run_fails_like_the_real_request(subject: &Subject) {
    let place = subject.namespace("dry-fails").await;
    place.post("configmaps", json!({"metadata": {"name": "a"}})).await.ok();
    let stale = json!({"metadata": {"name": "a", "resourceVersion": "1"}});
    let conflict = "409 Conflict: Operation cannot be fulfilled on configmaps \"a\": the object has been modified; \
        please apply your changes to the latest version and try again";
    place
        .table(&[
            (
                "POST",
                "configmaps?dryRun=All",
                json!({"metadata": {"name": "a"}}),
                r#"409 AlreadyExists: configmaps "a" already exists"#,
            ),
            ("PUT", "configmaps/a?dryRun=All", stale.clone(), conflict),
            ("MERGE", "configmaps/a?dryRun=All", stale, conflict),
            (
                "MERGE",
                "configmaps/none?dryRun=All",
                json!({}),
                r#"404 NotFound: configmaps "none" not found"#,
            ),
            (
                "DELETE",
                "configmaps/none?dryRun=All",
                Value::Null,
                r#"404 NotFound: configmaps "none" not found"#,
            ),
        ])
        .await;
}

async fn all_is_the_only_dry_run_value(subject: &Subject) {
    let place = subject.namespace("dry-all").await;
    let body = json!({"metadata": {"name": "a"}});
    for query in ["dryRun=Some", "dryRun=true", "dryRun="] {
        let answer = place.post(&format!("configmaps?{query}"), body.clone()).await;
        assert_eq!(answer.reason(), "422 Invalid", "{query}: {}", answer.line());
    }
}
