//! Strategic merge patches of built-in kinds: lists are merged by their keys unless a directive says otherwise.

use serde_json::{Value, json};

use crate::subject::{ApiRequest, Place, Subject};

scenarios![
    ports_are_merged_by_number,
    lists_are_merged_by_their_key,
    patch_directives_are_followed,
    plain_lists_are_merged_as_sets_or_replaced,
    a_strategic_patch_without_lists_is_a_merge_patch,
];

async fn patched(place: &Place<'_>, path: &str, patch: &Value) -> Value {
    place.send(ApiRequest::new("STRATEGIC", path).json(patch)).await.ok().body
}

fn deployment(name: &str) -> Value {
    let containers = json!([
        {"name": "one", "image": "one:1", "env": [{"name": "A", "value": "1"}, {"name": "B", "value": "2"}]},
        {"name": "two", "image": "two:1"},
    ]);
    json!({
        "metadata": {"name": name},
        "spec": {
            "selector": {"matchLabels": {"a": "b"}},
            "template": {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": containers}},
        },
    })
}

/// The containers of a deployment: name, image and variables.
fn containers(deployment: &Value) -> String {
    let containers = deployment["spec"]["template"]["spec"]["containers"].as_array().unwrap();
    let summary = containers.iter().map(|container| {
        let env = container["env"].as_array().map(Vec::as_slice).unwrap_or_default();
        let env =
            env.iter().map(|variable| format!(" {}={}", text(&variable["name"]), text(&variable["value"])));
        format!("{}{}", text(&container["image"]), env.collect::<String>())
    });
    summary.collect::<Vec<_>>().join(", ")
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or("-")
}

async fn lists_are_merged_by_their_key(subject: &Subject) {
    let place = subject.namespace("strategic-lists").await.of("apps/v1");
    let whole = |containers: Value| json!({"spec": {"template": {"spec": {"containers": containers}}}});
    for (index, (patch, expected)) in [
        (json!([{"name": "two", "image": "two:2"}]), "one:1 A=1 B=2, two:2"),
        (json!([{"name": "three", "image": "three:1"}]), "three:1, one:1 A=1 B=2, two:1"),
        (json!([{"name": "one", "env": [{"name": "B", "value": "9"}]}]), "one:1 A=1 B=9, two:1"),
        (json!([{"name": "one", "env": [{"name": "C", "value": "3"}]}]), "one:1 C=3 A=1 B=2, two:1"),
        (json!([{"name": "one", "$patch": "delete"}]), "two:1"),
        (json!([{"name": "two", "image": "two:3"}, {"$patch": "replace"}]), "two:3"),
        (json!([{"name": "one", "env": [{"name": "A", "$patch": "delete"}]}]), "one:1 B=2, two:1"),
        (json!([{"name": "one", "env": null}]), "one:1, two:1"),
    ]
    .into_iter()
    .enumerate()
    {
        let name = format!("d{index}");
        place.post("deployments", deployment(&name)).await.ok();
        let now = patched(&place, &format!("deployments/{name}"), &whole(patch.clone())).await;
        assert_eq!(containers(&now), expected, "{patch}");
    }
    // An order that is asked for.
    place.post("deployments", deployment("order")).await.ok();
    let order = json!([{"name": "two"}, {"name": "one"}]);
    let patch =
        json!({"spec": {"template": {"spec": {"containers": [], "$setElementOrder/containers": order}}}});
    let now = patched(&place, "deployments/order", &patch).await;
    assert_eq!(containers(&now), "two:1, one:1 A=1 B=2");
}

async fn patch_directives_are_followed(subject: &Subject) {
    let place = subject.namespace("strategic-directives").await;
    for (index, (patch, expected)) in [
        (json!({"data": {"$patch": "replace", "n": "9"}}), json!({"n": "9"})),
        (json!({"data": {"$patch": "delete"}}), Value::Null),
        (json!({"data": {"a": null, "n": "9"}}), json!({"b": "2", "n": "9"})),
        (json!({"data": {"$retainKeys": ["b"], "b": "3"}}), json!({"b": "3"})),
    ]
    .into_iter()
    .enumerate()
    {
        let name = format!("c{index}");
        place
            .post("configmaps", json!({"metadata": {"name": name}, "data": {"a": "1", "b": "2"}}))
            .await
            .ok();
        let now = patched(&place, &format!("configmaps/{name}"), &patch).await;
        assert_eq!(now["data"], expected, "{patch}");
    }
    for patch in [json!({"data": {"$patch": "nonsense"}}), json!([])] {
        let answer = place.send(ApiRequest::new("STRATEGIC", "configmaps/c0").json(&patch)).await;
        assert!([400, 422, 500].contains(&answer.code()), "{patch}: {}", answer.line());
    }
}

async fn plain_lists_are_merged_as_sets_or_replaced(subject: &Subject) {
    let place = subject.namespace("strategic-sets").await;
    let finalizers = json!(["x.example/a", "x.example/b"]);
    place.post("configmaps", json!({"metadata": {"name": "a", "finalizers": finalizers}})).await.ok();
    for (patch, expected) in [
        (json!({"finalizers": ["x.example/c"]}), json!(["x.example/a", "x.example/b", "x.example/c"])),
        (json!({"finalizers": ["x.example/a"]}), json!(["x.example/a", "x.example/b", "x.example/c"])),
        (
            json!({"$deleteFromPrimitiveList/finalizers": ["x.example/b"]}),
            json!(["x.example/a", "x.example/c"]),
        ),
    ] {
        let now = patched(&place, "configmaps/a", &json!({"metadata": patch})).await;
        let mut finalizers = now["metadata"]["finalizers"].as_array().unwrap().clone();
        finalizers.sort_by_key(ToString::to_string);
        assert_eq!(Value::from(finalizers), expected, "{patch}");
    }
    // A container's arguments have no key and are no set.
    let container = json!({"name": "one", "image": "i", "args": ["a", "b"]});
    place.post("pods", json!({"metadata": {"name": "a"}, "spec": {"containers": [container]}})).await.ok();
    let tolerations = json!([{"key": "k", "operator": "Exists"}]);
    let now = patched(&place, "pods/a", &json!({"spec": {"tolerations": tolerations}})).await;
    assert!(now["spec"]["tolerations"].as_array().unwrap().contains(&tolerations[0]));
    let references = |uid: &str| json!({"apiVersion": "v1", "kind": "ConfigMap", "name": uid, "uid": uid});
    let patch = |uid: &str| json!({"metadata": {"ownerReferences": [references(uid)]}});
    patched(&place, "configmaps/a", &patch("one")).await;
    let now = patched(&place, "configmaps/a", &patch("two")).await;
    assert_eq!(now["metadata"]["ownerReferences"].as_array().unwrap().len(), 2);
}

async fn a_strategic_patch_without_lists_is_a_merge_patch(subject: &Subject) {
    let place = subject.namespace("strategic-merge").await;
    let made = place.post("configmaps", json!({"metadata": {"name": "a"}, "data": {"k": "v"}})).await.ok();
    assert_eq!(patched(&place, "configmaps/a", &json!({"data": {"k": "v"}})).await, made.body);
    let now =
        patched(&place, "configmaps/a", &json!({"metadata": {"labels": {"x": "y"}}, "data": {"k": null}}))
            .await;
    assert_eq!((&now["metadata"]["labels"], &now["data"]), (&json!({"x": "y"}), &Value::Null));
}

async fn ports_are_merged_by_number(subject: &Subject) {
    let place = subject.namespace("strategic-ports").await.of("apps/v1");
    let mut object = deployment("a");
    let first = "/spec/template/spec/containers/0";
    object.pointer_mut(first).unwrap()["ports"] =
        json!([{"containerPort": 80, "name": "web", "protocol": "TCP"}]);
    place.post("deployments", object).await.ok();
    let ports = json!([{"containerPort": 81}, {"containerPort": 80, "name": "http"}]);
    let containers = json!([{"name": "one", "ports": ports}]);
    let now = patched(
        &place,
        "deployments/a",
        &json!({"spec": {"template": {"spec": {"containers": containers}}}}),
    )
    .await;
    let ports = now.pointer(first).unwrap()["ports"].as_array().unwrap().clone();
    let ports: Vec<String> =
        ports.iter().map(|port| format!("{} {}", port["containerPort"], text(&port["name"]))).collect();
    assert_eq!(ports, ["81 -", "80 http"]);
}
