//! JSON patches: RFC 6902.

use serde_json::{Value, json};

use crate::subject::{ApiRequest, Subject};

scenarios![
    json_patches_follow_rfc_6902,
    invalid_json_patches_are_refused,
    a_json_patch_that_changes_nothing_writes_nothing,
];

async fn json_patches_follow_rfc_6902(subject: &Subject) {
    let place = subject.namespace("json-semantics").await;
    for (name, patch, expected) in [
        (
            "add",
            json!([{"op": "add", "path": "/data/n", "value": "9"}]),
            json!({"k": "1", "a/b": "2", "n": "9"}),
        ),
        (
            "replace",
            json!([{"op": "replace", "path": "/data/k", "value": "9"}]),
            json!({"k": "9", "a/b": "2"}),
        ),
        ("remove", json!([{"op": "remove", "path": "/data/k"}]), json!({"a/b": "2"})),
        ("escaped", json!([{"op": "remove", "path": "/data/a~1b"}]), json!({"k": "1"})),
        (
            "move",
            json!([{"op": "move", "from": "/data/k", "path": "/data/m"}]),
            json!({"m": "1", "a/b": "2"}),
        ),
        (
            "copy",
            json!([{"op": "copy", "from": "/data/k", "path": "/data/m"}]),
            json!({"k": "1", "m": "1", "a/b": "2"}),
        ),
        (
            "test",
            json!([{"op": "test", "path": "/data/k", "value": "1"}, {"op": "remove", "path": "/data/k"}]),
            json!({"a/b": "2"}),
        ),
        ("whole", json!([{"op": "replace", "path": "/data", "value": {"x": "y"}}]), json!({"x": "y"})),
        ("none", json!([]), json!({"k": "1", "a/b": "2"})),
    ] {
        let annotations = json!({"k": "1", "a/b": "2"});
        place.post("configmaps", json!({"metadata": {"name": name, "annotations": annotations}})).await.ok();
        let text = patch.to_string().replace("/data", "/metadata/annotations");
        let path = format!("configmaps/{name}");
        let patched = place.send(ApiRequest::new("JSON", &path).body(text)).await.ok();
        assert_eq!(patched["metadata"]["annotations"], expected, "{name}");
    }
    // Lists take an index, or the end.
    let finalizers = json!(["x.example/a", "x.example/b"]);
    place.post("configmaps", json!({"metadata": {"name": "list", "finalizers": finalizers}})).await.ok();
    let patch = json!([
        {"op": "add", "path": "/metadata/finalizers/-", "value": "x.example/c"},
        {"op": "add", "path": "/metadata/finalizers/0", "value": "x.example/0"},
        {"op": "remove", "path": "/metadata/finalizers/1"},
    ]);
    let patched = place.send(ApiRequest::new("JSON", "configmaps/list").json(&patch)).await.ok();
    assert_eq!(patched["metadata"]["finalizers"], json!(["x.example/0", "x.example/b", "x.example/c"]));
}

async fn invalid_json_patches_are_refused(subject: &Subject) {
    let place = subject.namespace("json-refuses").await;
    place.post("configmaps", json!({"metadata": {"name": "a"}, "data": {"k": "1"}})).await.ok();
    for (patch, expected) in [
        (json!({}), "400 BadRequest"),
        (json!([{"op": "test", "path": "/data/k", "value": "2"}]), "422 Invalid"),
        (json!([{"op": "remove", "path": "/data/none"}]), "422 Invalid"),
        (json!([{"op": "add", "path": "/none/deep", "value": "x"}]), "422 Invalid"),
        (json!([{"op": "nonsense", "path": "/data"}]), "422 Invalid"),
        (json!([{"op": "replace", "path": "/metadata/name", "value": "b"}]), "400 BadRequest"),
    ] {
        let answer = place.send(ApiRequest::new("JSON", "configmaps/a").json(&patch)).await;
        assert_eq!(answer.reason(), expected, "{patch}: {}", answer.line());
    }
    let many: Vec<Value> =
        (0..10_001).map(|_| json!({"op": "test", "path": "/data/k", "value": "1"})).collect();
    let answer = place.send(ApiRequest::new("JSON", "configmaps/a").json(&many.into())).await;
    assert_eq!(answer.reason(), "413 RequestEntityTooLarge", "{}", answer.line());
}

async fn a_json_patch_that_changes_nothing_writes_nothing(subject: &Subject) {
    let place = subject.namespace("json-nothing").await;
    let made = place.post("configmaps", json!({"metadata": {"name": "a"}, "data": {"k": "1"}})).await.ok();
    let patch = json!([{"op": "replace", "path": "/data/k", "value": "1"}]);
    let patched = place.send(ApiRequest::new("JSON", "configmaps/a").json(&patch)).await.ok();
    assert_eq!(patched.body, made.body);
    let stale = json!([{"op": "replace", "path": "/metadata/resourceVersion", "value": "1"}]);
    let answer = place.send(ApiRequest::new("JSON", "configmaps/a").json(&stale)).await;
    assert_eq!(answer.reason(), "409 Conflict", "{}", answer.line());
}
