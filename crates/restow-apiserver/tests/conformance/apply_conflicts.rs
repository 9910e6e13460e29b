//! Server-side apply by several managers: conflicts, force, removal and order.

use serde_json::{Value, json};

use crate::apply::{apply, managed, structured};
use crate::definition::{define, widget};
use crate::subject::Subject;

scenarios![
    conflicts_are_reported_with_their_causes,
    force_takes_fields_over,
    fields_that_nobody_applies_any_more_are_removed,
    lists_are_merged_by_their_kind,
    the_order_of_lists_is_that_of_kube_apiserver,
    built_in_lists_have_their_keys,
    embedded_resources_and_free_form_objects_are_granular,
    nulls_and_empty_values_are_applied,
    a_default_belongs_to_nobody,
    old_updaters_are_merged_and_appliers_are_not,
    invalid_managed_fields_in_a_body_are_refused_or_replaced,
];

async fn conflicts_are_reported_with_their_causes(subject: &Subject) {
    let group = "applyconflicts.example";
    let place = define(subject, group, structured).await;
    let config = |spec: Value| widget(group, "a", spec);
    apply(
        &place,
        "widgets/a?fieldManager=one",
        &config(json!({"size": 1, "keyed": [{"port": 80, "name": "x"}]})),
    )
    .await
    .ok();
    place.merge("widgets/a?fieldManager=two", json!({"spec": {"text": "t"}})).await.ok();
    let error = apply(
        &place,
        "widgets/a?fieldManager=three",
        &config(json!({"size": 2, "text": "u", "keyed": [{"port": 80, "name": "y"}]})),
    )
    .await;
    let message = "409 Conflict: Apply failed with 3 conflicts: conflicts with \"one\":\n- .spec.size\n\
         - .spec.keyed[port=80,protocol=\"TCP\"].name\nconflicts with \"two\" using applyconflicts.example/v1:\n- .spec.text";
    assert_eq!(error.line(), message);
    let mut details = error["details"].clone();
    details["causes"].as_array_mut().unwrap().sort_by_key(Value::to_string);
    let cause = |field: &str, manager: &str| json!({"reason": "FieldManagerConflict", "message": format!("conflict with {manager}"), "field": field});
    let expected = json!({"causes": [
        cause(".spec.keyed[port=80,protocol=\"TCP\"].name", "\"one\""),
        cause(".spec.size", "\"one\""),
        cause(".spec.text", "\"two\" using applyconflicts.example/v1"),
    ]});
    assert_eq!(details, expected);
    let one = apply(&place, "widgets/a?fieldManager=three", &config(json!({"size": 2}))).await;
    assert_eq!(one.line(), "409 Conflict: Apply failed with 1 conflict: conflict with \"one\": .spec.size");
}

async fn force_takes_fields_over(subject: &Subject) {
    let place = subject.namespace("apply-force").await;
    let config = |data: Value| json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": data});
    apply(&place, "configmaps/a?fieldManager=one", &config(json!({"k": "1", "l": "1"}))).await.ok();
    let forced =
        apply(&place, "configmaps/a?fieldManager=two&force=true", &config(json!({"k": "2"}))).await.ok();
    assert_eq!(forced["data"], json!({"k": "2", "l": "1"}));
    let expected = [
        ("one Apply".to_owned(), json!({"f:data": {"f:l": {}}})),
        ("two Apply".to_owned(), json!({"f:data": {"f:k": {}}})),
    ];
    assert_eq!(managed(&forced.body), expected);
    // An update takes fields over without asking.
    let updated =
        place.merge("configmaps/a?fieldManager=three", json!({"data": {"k": "3", "l": "3"}})).await.ok();
    assert_eq!(
        managed(&updated.body),
        [("three Update".to_owned(), json!({"f:data": {"f:k": {}, "f:l": {}}}))]
    );
}

async fn fields_that_nobody_applies_any_more_are_removed(subject: &Subject) {
    let group = "applyremoved.example";
    let place = define(subject, group, structured).await;
    let config = |spec: Value| widget(group, "a", spec);
    let all = json!({"size": 1, "text": "t", "map": {"a": "1", "b": "2"}, "set": ["x", "y"], "list": ["l"],
        "keyed": [{"port": 1, "name": "n"}, {"port": 2}], "inner": {"a": "1", "deep": {"c": 3}}, "atomic": {"k": "v"}});
    apply(&place, "widgets/a?fieldManager=one", &config(all)).await.ok();
    apply(
        &place,
        "widgets/a?fieldManager=two",
        &config(json!({"map": {"b": "2"}, "keyed": [{"port": 1}], "inner": {"deep": {"c": 3}}})),
    )
    .await
    .ok();
    place.merge("widgets/a?fieldManager=three", json!({"spec": {"text": "changed"}})).await.ok();
    let left = apply(&place, "widgets/a?fieldManager=one", &config(json!({"set": ["y"]}))).await.ok();
    let expected = json!({"defaulted": "d", "text": "changed", "map": {"b": "2"}, "set": ["y"],
        "keyed": [{"port": 1, "protocol": "TCP"}], "inner": {"deep": {"c": 3}}});
    assert_eq!(left["spec"], expected);
    let nothing = apply(&place, "widgets/a?fieldManager=two", &widget(group, "a", json!({}))).await.ok();
    assert_eq!(nothing["spec"], json!({"defaulted": "d", "text": "changed", "set": ["y"]}));
    let mut bare = widget(group, "a", json!({}));
    bare.as_object_mut().unwrap().remove("spec");
    let nothing = apply(&place, "widgets/a?fieldManager=one", &bare).await.ok();
    assert_eq!(nothing["spec"], json!({"defaulted": "d", "text": "changed"}));
    assert_eq!(
        managed(&nothing.body).iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>(),
        ["three Update", "two Apply"]
    );
}

async fn lists_are_merged_by_their_kind(subject: &Subject) {
    let group = "applylists.example";
    let place = define(subject, group, structured).await;
    let config = |spec: Value| widget(group, "a", spec);
    apply(
        &place,
        "widgets/a?fieldManager=one",
        &config(json!({"set": ["a"], "keyed": [{"port": 1, "tags": ["t"]}], "list": ["l"]})),
    )
    .await
    .ok();
    let two = json!({"set": ["b"], "keyed": [{"port": 1, "tags": ["u"]}, {"port": 1, "protocol": "UDP"}]});
    let merged = apply(&place, "widgets/a?fieldManager=two", &config(two)).await.ok();
    let expected =
        json!([{"port": 1, "protocol": "TCP", "tags": ["t", "u"]}, {"port": 1, "protocol": "UDP"}]);
    assert_eq!((&merged["spec"]["set"], &merged["spec"]["keyed"]), (&json!(["a", "b"]), &expected));
    let error = apply(&place, "widgets/a?fieldManager=two", &config(json!({"list": ["l", "m"]}))).await;
    assert_eq!(error.line(), "409 Conflict: Apply failed with 1 conflict: conflict with \"one\": .spec.list");
    let fields = json!({"f:spec": {"f:keyed": {
        "k:{\"port\":1,\"protocol\":\"TCP\"}": {".": {}, "f:port": {}, "f:tags": {"v:\"u\"": {}}},
        "k:{\"port\":1,\"protocol\":\"UDP\"}": {".": {}, "f:port": {}, "f:protocol": {}},
    }, "f:set": {"v:\"b\"": {}}}});
    assert_eq!(managed(&merged.body)[1], ("two Apply".to_owned(), fields));
}

async fn the_order_of_lists_is_that_of_kube_apiserver(subject: &Subject) {
    let group = "applyorder.example";
    let place = define(subject, group, structured).await;
    let cases = [
        ("abc", "cb", "acb"),
        ("abc", "xbz", "axbcz"),
        ("1a2b3c", "cba", "123cba"),
        ("a1b2c3", "cab", "12c3ab"),
        ("1a2b3", "bxa", "12b3xa"),
        ("ace", "bd", "acebd"),
        ("abcd", "dcba", "dcba"),
    ];
    let list = |text: &str| -> Vec<String> { text.chars().map(String::from).collect() };
    for (index, (live, applied, expected)) in cases.into_iter().enumerate() {
        let name = format!("w{index}");
        place.post("widgets?fieldManager=maker", widget(group, &name, json!({"set": list(live)}))).await.ok();
        let config = widget(group, &name, json!({"set": list(applied)}));
        let merged = apply(&place, &format!("widgets/{name}?fieldManager=one"), &config).await.ok();
        assert_eq!(merged["spec"]["set"], json!(list(expected)), "{live} {applied}");
    }
}

async fn built_in_lists_have_their_keys(subject: &Subject) {
    let place = subject.namespace("apply-deployment").await.of("apps/v1");
    let config = |containers: Value| {
        json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "a"}, "spec": {"selector": {"matchLabels": {"a": "b"}},
            "template": {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": containers}}}})
    };
    let one = config(
        json!([{"name": "c", "image": "i", "env": [{"name": "E", "value": "1"}], "ports": [{"containerPort": 80}]}]),
    );
    apply(&place, "deployments/a?fieldManager=one", &one).await.ok();
    let two = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "a"}, "spec": {"replicas": 2, "template": {"spec": {
        "containers": [{"name": "c", "env": [{"name": "F", "value": "2"}], "ports": [{"containerPort": 80, "protocol": "UDP"}]},
            {"name": "side", "image": "s"}]}}}});
    let merged = apply(&place, "deployments/a?fieldManager=two", &two).await.ok();
    let containers = merged["spec"]["template"]["spec"]["containers"].as_array().unwrap();
    let names: Vec<_> = containers.iter().map(|container| container["name"].clone()).collect();
    assert_eq!(names, ["c", "side"]);
    assert_eq!(containers[0]["env"], json!([{"name": "E", "value": "1"}, {"name": "F", "value": "2"}]));
    assert_eq!(containers[0]["ports"].as_array().unwrap().len(), 2);
    let fields = json!({"f:spec": {"f:replicas": {}, "f:template": {"f:spec": {"f:containers": {
        "k:{\"name\":\"c\"}": {".": {}, "f:name": {}, "f:env": {"k:{\"name\":\"F\"}": {".": {}, "f:name": {}, "f:value": {}}},
            "f:ports": {"k:{\"containerPort\":80,\"protocol\":\"UDP\"}": {".": {}, "f:containerPort": {}, "f:protocol": {}}}},
        "k:{\"name\":\"side\"}": {".": {}, "f:image": {}, "f:name": {}},
    }}}}});
    assert_eq!(managed(&merged.body)[1], ("two Apply".to_owned(), fields));
    let error =
        apply(&place, "deployments/a?fieldManager=two", &config(json!([{"name": "c", "image": "j"}]))).await;
    let expected = "409 Conflict: Apply failed with 1 conflict: conflict with \"one\": .spec.template.spec.containers[name=\"c\"].image";
    assert_eq!(error.line(), expected);
    let gone = apply(&place, "deployments/a?fieldManager=two", &config(json!([{"name": "c", "image": "i"}])))
        .await
        .ok();
    assert_eq!(gone["spec"]["template"]["spec"]["containers"].as_array().unwrap().len(), 1);
    // An owner reference is one value, by its uid.
    let core = place.of("v1");
    let owner = |kind: &str| {
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "o", "ownerReferences": [{"apiVersion": "v1",
        "kind": kind, "name": "x", "uid": "u-1"}], "finalizers": ["a.b/c"]}})
    };
    let made = apply(&core, "configmaps/o?fieldManager=one", &owner("Secret")).await.ok();
    let fields = json!({"f:metadata": {"f:finalizers": {"v:\"a.b/c\"": {}}, "f:ownerReferences": {"k:{\"uid\":\"u-1\"}": {}}}});
    assert_eq!(managed(&made.body), [("one Apply".to_owned(), fields)]);
    let error = apply(&core, "configmaps/o?fieldManager=two", &owner("Pod")).await;
    assert_eq!(
        error.line(),
        "409 Conflict: Apply failed with 1 conflict: conflict with \"one\": .metadata.ownerReferences[uid=\"u-1\"]"
    );
    apply(
        &core,
        "configmaps/o?fieldManager=one",
        &json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "o"}}),
    )
    .await
    .ok();
}

async fn embedded_resources_and_free_form_objects_are_granular(subject: &Subject) {
    let group = "applyfree.example";
    let place = define(subject, group, structured).await;
    let embedded = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "labels": {"a": "1"}}, "spec": {"x": [1]}});
    let spec = json!({"embedded": embedded, "free": {"a": {"b": 1}, "list": [{"x": 1}]}, "port": "http"});
    let made = apply(&place, "widgets/a?fieldManager=one", &widget(group, "a", spec)).await.ok();
    let fields = json!({"f:spec": {
        "f:embedded": {"f:apiVersion": {}, "f:kind": {}, "f:metadata": {"f:labels": {"f:a": {}}, "f:name": {}}, "f:spec": {".": {}, "f:x": {}}},
        "f:free": {"f:a": {".": {}, "f:b": {}}, "f:list": {}}, "f:port": {}}});
    assert_eq!(managed(&made.body), [("one Apply".to_owned(), fields)]);
    let merged =
        apply(&place, "widgets/a?fieldManager=two", &widget(group, "a", json!({"free": {"a": {"c": 2}}})))
            .await
            .ok();
    assert_eq!(merged["spec"]["free"]["a"], json!({"b": 1, "c": 2}));
    let error = apply(&place, "widgets/a?fieldManager=two", &widget(group, "a", json!({"port": 8080}))).await;
    assert_eq!(error.line(), "409 Conflict: Apply failed with 1 conflict: conflict with \"one\": .spec.port");
}

async fn nulls_and_empty_values_are_applied(subject: &Subject) {
    let group = "applynull.example";
    let place = define(subject, group, structured).await;
    let config = |spec: Value| widget(group, "a", spec);
    let path = "widgets/a?fieldManager=one";
    let refused = apply(&place, path, &config(json!({"size": null}))).await;
    assert_eq!(refused.reason(), "422 Invalid");
    let empty = json!({"maybe": null, "map": {}, "set": [], "list": []});
    let first = apply(&place, path, &config(empty)).await.ok();
    let fields = json!({"f:spec": {"f:list": {}, "f:map": {}, "f:maybe": {}}});
    assert_eq!(managed(&first.body), [("one Apply".to_owned(), fields)]);
    let expected = json!({"defaulted": "d", "maybe": null, "map": {}, "set": [], "list": []});
    assert_eq!(first["spec"], expected);
    let then = json!({"maybe": "x", "map": {"a": "1"}, "set": ["a"]});
    let then = apply(&place, path, &config(then)).await.ok();
    assert_eq!(then["spec"], json!({"defaulted": "d", "maybe": "x", "map": {"a": "1"}, "set": ["a"]}));
    let inner = apply(&place, path, &config(json!({"inner": {}}))).await.ok();
    assert_eq!(inner["spec"]["inner"], json!({}));
}

async fn a_default_belongs_to_nobody(subject: &Subject) {
    let group = "applydefault.example";
    let place = define(subject, group, structured).await;
    let config = |spec: Value| widget(group, "a", spec);
    let made =
        apply(&place, "widgets/a?fieldManager=one", &config(json!({"keyed": [{"port": 1}]}))).await.ok();
    let fields =
        json!({"f:spec": {"f:keyed": {"k:{\"port\":1,\"protocol\":\"TCP\"}": {".": {}, "f:port": {}}}}});
    assert_eq!(managed(&made.body), [("one Apply".to_owned(), fields)]);
    let own = apply(&place, "widgets/a?fieldManager=two", &config(json!({"defaulted": "e"}))).await.ok();
    assert_eq!(own["spec"]["defaulted"], "e");
    // Without the manager that had set it, the default is back.
    let back = apply(&place, "widgets/a?fieldManager=two", &config(json!({}))).await.ok();
    assert_eq!(back["spec"]["defaulted"], "d");
}

async fn old_updaters_are_merged_and_appliers_are_not(subject: &Subject) {
    let place = subject.namespace("apply-ancient").await;
    let config = |key: &str| json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": {key: "v"}});
    for index in 0..12 {
        apply(&place, &format!("configmaps/a?fieldManager=apply{index:02}"), &config(&format!("a{index}")))
            .await
            .ok();
    }
    let mut last = Value::Null;
    for index in 0..12 {
        let patch = json!({"data": {format!("u{index}"): "v"}});
        last = place.merge(&format!("configmaps/a?fieldManager=update{index:02}"), patch).await.ok().body;
    }
    let managed = managed(&last);
    let count = |operation: &str| managed.iter().filter(|(name, _)| name.ends_with(operation)).count();
    assert_eq!((count("Apply"), count("Update")), (12, 10));
    assert_eq!(managed[0].0, "ancient-changes Update");
}

async fn invalid_managed_fields_in_a_body_are_refused_or_replaced(subject: &Subject) {
    let place = subject.namespace("apply-hostile").await;
    let config =
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": {"k": "v"}});
    let made = apply(&place, "configmaps/a?fieldManager=one", &config).await.ok();
    let mut entry = made["metadata"]["managedFields"][0].clone();
    entry["fieldsV1"] = json!({"nonsense": {}});
    let with = |entries: Value| json!({"metadata": {"managedFields": entries}});
    // What cannot be read is replaced by what was there.
    let kept = place.merge("configmaps/a?fieldManager=two", with(json!([entry]))).await.ok();
    assert_eq!(kept.body, made.body);
    let mut other = made["metadata"]["managedFields"][0].clone();
    other["manager"] = json!("else");
    let replaced = place.merge("configmaps/a?fieldManager=two", with(json!([other]))).await.ok();
    assert_eq!(managed(&replaced.body), [("else Apply".to_owned(), json!({"f:data": {"f:k": {}}}))]);
    let mut empty = replaced.body.clone();
    empty["metadata"]["managedFields"] = json!([]);
    let put = place.put("configmaps/a?fieldManager=two", empty).await.ok();
    assert_eq!(managed(&put.body), []);
}
