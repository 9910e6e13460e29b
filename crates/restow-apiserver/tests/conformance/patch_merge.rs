//! Merge patches: RFC 7386, and the preconditions a patch may carry.

use serde_json::{Value, json};

use crate::subject::{ApiRequest, Subject};

scenarios![
    merge_patches_follow_rfc_7386,
    a_merge_patch_that_changes_nothing_writes_nothing,
    a_merge_patch_with_uid_and_resource_version_is_preconditioned,
    a_patch_of_a_missing_object_creates_nothing,
    concurrent_patches_of_one_object_are_all_applied,
    invalid_merge_patches_are_refused,
];

async fn merge_patches_follow_rfc_7386(subject: &Subject) {
    let place = subject.namespace("merge-semantics").await;
    let object = json!({
        "metadata": {"name": "a", "labels": {"keep": "1", "drop": "2"}},
        "data": {"keep": "1", "change": "2", "drop": "3"},
    });
    place.post("configmaps", object).await.ok();
    for (patch, expected) in [
        (json!({"data": {"change": "9", "drop": null}}), json!({"keep": "1", "change": "9"})),
        (json!({"data": {"none-such": null, "new": "4"}}), json!({"keep": "1", "change": "9", "new": "4"})),
        (json!({"data": null}), Value::Null),
        (json!({"data": {"again": "5"}}), json!({"again": "5"})),
        (json!({"data": {}}), json!({"again": "5"})),
    ] {
        let patched = place.merge("configmaps/a", patch.clone()).await.ok();
        assert_eq!(patched["data"], expected, "{patch}");
    }
    let patched = place.merge("configmaps/a", json!({"metadata": {"labels": {"drop": null}}})).await.ok();
    assert_eq!(patched["metadata"]["labels"], json!({"keep": "1"}));
    // A list is replaced, not merged.
    place
        .merge("configmaps/a", json!({"metadata": {"finalizers": ["x.example/a", "x.example/b"]}}))
        .await
        .ok();
    let patched =
        place.merge("configmaps/a", json!({"metadata": {"finalizers": ["x.example/c"]}})).await.ok();
    assert_eq!(patched["metadata"]["finalizers"], json!(["x.example/c"]));
}

async fn a_merge_patch_that_changes_nothing_writes_nothing(subject: &Subject) {
    let place = subject.namespace("merge-nothing").await;
    let made = place.post("configmaps", json!({"metadata": {"name": "a"}, "data": {"k": "v"}})).await.ok();
    for patch in [
        json!({}),
        json!({"data": {"k": "v"}}),
        json!({"data": {"none": null}}),
        json!({"metadata": {"uid": made.uid(), "resourceVersion": made.resource_version()}}),
        json!({"metadata": {"creationTimestamp": null}}),
    ] {
        let patched = place.merge("configmaps/a", patch.clone()).await.ok();
        assert_eq!((patched.code(), &patched.body), (200, &made.body), "{patch}");
    }
}

async fn a_merge_patch_with_uid_and_resource_version_is_preconditioned(subject: &Subject) {
    let place = subject.namespace("merge-preconditions").await;
    let made = place.post("configmaps", json!({"metadata": {"name": "a"}})).await.ok();
    let (uid, version) = (made.uid(), made.resource_version());
    let conflict = "409 Conflict: Operation cannot be fulfilled on configmaps \"a\": the object has been modified; \
        please apply your changes to the latest version and try again";
    let other = "11111111-1111-1111-1111-111111111111";
    let wrong = format!(
        r#"422 Invalid: ConfigMap "a" is invalid: metadata.uid: Invalid value: "{other}": field is immutable"#
    );
    let patch = |uid: Option<&str>, version: Option<&str>, value: &str| {
        let mut metadata = json!({});
        uid.into_iter().for_each(|uid| metadata["uid"] = json!(uid));
        version.into_iter().for_each(|version| metadata["resourceVersion"] = json!(version));
        json!({"metadata": metadata, "data": {"k": value}})
    };
    place
        .table(&[
            ("MERGE", "configmaps/a", patch(None, Some("1"), "1"), conflict),
            ("MERGE", "configmaps/a", patch(Some(other), None, "1"), &wrong),
            ("MERGE", "configmaps/a", patch(Some(other), Some(&version), "1"), &wrong),
            ("MERGE", "configmaps/a", patch(Some(&uid), Some(&version), "2"), "200"),
            ("MERGE", "configmaps/a", patch(Some(&uid), Some(&version), "3"), conflict),
        ])
        .await;
    assert_eq!(place.get("configmaps/a").await["data"], json!({"k": "2"}));
    place.delete("configmaps/a").await.ok();
    let late = place.merge("configmaps/a", patch(Some(&uid), Some(&version), "4")).await;
    assert_eq!(late.line(), r#"404 NotFound: configmaps "a" not found"#);
}

async fn invalid_merge_patches_are_refused(subject: &Subject) {
    let place = subject.namespace("merge-refuses").await;
    place.post("configmaps", json!({"metadata": {"name": "a"}})).await.ok();
    for (patch, expected) in [
        (json!([]), "400 BadRequest"),
        (json!("text"), "400 BadRequest"),
        (json!({"metadata": {"name": "b"}}), "400 BadRequest"),
        (json!({"metadata": {"namespace": "b"}}), "400 BadRequest"),
        (json!({"metadata": {"labels": {"bad label": "x"}}}), "422 Invalid"),
    ] {
        let answer = place.merge("configmaps/a", patch.clone()).await;
        assert_eq!(answer.reason(), expected, "{patch}: {}", answer.line());
    }
    let broken = place.send(ApiRequest::new("MERGE", "configmaps/a").body("{")).await;
    assert_eq!(broken.reason(), "400 BadRequest", "{}", broken.line());
    let empty = place.send(ApiRequest::new("MERGE", "configmaps/a")).await;
    assert_eq!(empty.reason(), "400 BadRequest", "{}", empty.line());
}

async fn a_patch_of_a_missing_object_creates_nothing(subject: &Subject) {
    let place = subject.namespace("merge-none").await;
    let none = r#"404 NotFound: configmaps "none" not found"#;
    place
        .table(&[
            ("MERGE", "configmaps/none", json!({"data": {"k": "v"}}), none),
            ("STRATEGIC", "configmaps/none", json!({"data": {"k": "v"}}), none),
            ("JSON", "configmaps/none", json!([{"op": "add", "path": "/data", "value": {}}]), none),
        ])
        .await;
}

async fn concurrent_patches_of_one_object_are_all_applied(subject: &Subject) {
    let place = subject.namespace("merge-at-once").await;
    place.post("configmaps", json!({"metadata": {"name": "a"}})).await.ok();
    let patch = |index: usize| {
        let place = place.clone();
        async move { place.merge("configmaps/a", json!({"data": {format!("k{index}"): "v"}})).await.code() }
    };
    let codes = futures::future::join_all((0..4).map(patch)).await;
    assert_eq!(codes, [200; 4]);
    assert_eq!(place.get("configmaps/a").await["data"].as_object().unwrap().len(), 4);
}
