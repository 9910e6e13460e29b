//! managedFields, as recorded from kube-apiserver 1.36.

use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::arbitrary::any_json;
use crate::object::schema::Schema;
use crate::object::structure::built_in;

fn schema() -> Schema {
    Schema::parse(&json!({"type": "object", "properties": {
        "spec": {"type": "object", "properties": {
            "size": {"type": "integer"},
            "inner": {"type": "object", "properties": {"a": {"type": "string"}}},
            "m": {"type": "object", "additionalProperties": {"type": "string"}},
            "list": {"type": "array", "items": {"type": "string"}},
            "set": {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}},
            "lm": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"],
                "items": {"type": "object", "properties": {"k": {"type": "string"}, "v": {"type": "string"}}}},
            "at": {"type": "object", "x-kubernetes-map-type": "atomic", "properties": {"z": {"type": "string"}}},
            "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
        }},
        "status": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
    }}))
}

fn write(manager: &str) -> Write<'_> {
    Write {
        manager,
        subresource: "",
        api_version: "example.com/v1",
        now: "2026-01-01T00:00:00Z".parse().unwrap(),
        ignored: &["status"],
        is_known: &|_| true,
    }
}

fn tracked(mut object: Value, live: Option<&Value>, write: &Write<'_>) -> Value {
    let schema = schema();
    track(&mut object, live, &json!({}), Structure::CustomRoot(&schema), write);
    object
}

fn owners(object: &Value) -> Vec<(String, Value)> {
    let list = field(object, "managedFields").and_then(Value::as_array).cloned().unwrap_or_default();
    list.iter()
        .map(|entry| (entry["manager"].as_str().unwrap().to_owned(), entry["fieldsV1"].clone()))
        .collect()
}

fn made() -> Value {
    let mut object = tracked(
        json!({"apiVersion": "example.com/v1", "kind": "Widget",
            "metadata": {"name": "a", "namespace": "default", "labels": {"l": "1"}, "finalizers": ["a.b/c"],
                "ownerReferences": [{"apiVersion": "v1", "kind": "ConfigMap", "name": "x", "uid": "u-1"}]},
            "spec": {"size": 1, "inner": {"a": "1"}, "m": {"k": "v"}, "list": ["a"], "set": ["s1", "s2"],
                "lm": [{"k": "k1", "v": "v1"}, {"k": "k2"}], "at": {"z": "1"}, "free": {"f": {"g": [1, 2], "h": {}}}}}),
        None,
        &write("alice"),
    );
    set_field(&mut object, "uid", Some(json!("u")));
    object
}

#[test]
fn the_creator_owns_all_fields() {
    assert_eq!(
        owners(&made()),
        [(
            "alice".to_owned(),
            json!({
                "f:metadata": {"f:finalizers": {".": {}, "v:\"a.b/c\"": {}}, "f:labels": {".": {}, "f:l": {}},
                    "f:ownerReferences": {".": {}, "k:{\"uid\":\"u-1\"}": {}}},
                "f:spec": {".": {}, "f:at": {}, "f:free": {".": {}, "f:f": {".": {}, "f:g": {}, "f:h": {}}},
                    "f:inner": {".": {}, "f:a": {}}, "f:list": {},
                    "f:lm": {".": {}, "k:{\"k\":\"k1\"}": {".": {}, "f:k": {}, "f:v": {}},
                        "k:{\"k\":\"k2\"}": {".": {}, "f:k": {}}},
                    "f:m": {".": {}, "f:k": {}}, "f:set": {".": {}, "v:\"s1\"": {}, "v:\"s2\"": {}}, "f:size": {}}
            })
        )]
    );
}

#[test]
fn a_manager_that_changes_a_field_takes_it_over() {
    let live = made();
    let mut object = live.clone();
    object["spec"]["size"] = json!(5);
    object["spec"]["lm"] = json!([{"k": "k1", "v": "v2"}, {"k": "k3"}]);
    object["spec"].as_object_mut().unwrap().remove("inner");
    object["spec"]["list"] = json!(["b"]);
    let owners = owners(&tracked(object, Some(&live), &write("bob")));
    assert_eq!(
        owners[1],
        (
            "bob".to_owned(),
            json!({"f:spec": {"f:list": {}, "f:lm": {"k:{\"k\":\"k1\"}": {"f:v": {}},
                "k:{\"k\":\"k3\"}": {".": {}, "f:k": {}}}, "f:size": {}}})
        )
    );
    let alice = &owners[0].1["f:spec"];
    assert_eq!(alice["f:lm"], json!({".": {}, "k:{\"k\":\"k1\"}": {".": {}, "f:k": {}}}));
    assert!(["f:size", "f:inner", "f:list"].iter().all(|key| alice.get(key).is_none()));
}

#[test]
fn a_manager_that_changes_nothing_owns_nothing_more() {
    let live = made();
    assert_eq!(
        tracked(live.clone(), Some(&live), &Write { now: Timestamp::UNIX_EPOCH, ..write("bob") }),
        live
    );
}

#[test]
fn the_status_subresource_has_its_own_entries() {
    let live = made();
    let mut object = live.clone();
    object["status"] = json!({"ready": true});
    object["spec"]["size"] = json!(9);
    let status = Write { subresource: "status", ignored: &["spec", "metadata"], ..write("ctl") };
    let object = tracked(object, Some(&live), &status);
    let entry = &field(&object, "managedFields").unwrap()[1];
    assert_eq!(entry["subresource"], "status");
    assert_eq!(entry["fieldsV1"], json!({"f:status": {".": {}, "f:ready": {}}}));
}

#[test]
fn entries_of_the_request_are_kept_or_forgotten() {
    let live = made();
    let mut reset = live.clone();
    reset["metadata"]["managedFields"] = json!([{}]);
    let reset = tracked(reset, Some(&live), &write("x"));
    assert_eq!(field(&reset, "managedFields"), None);
    let mut later = reset.clone();
    later["spec"]["size"] = json!(7);
    assert_eq!(field(&tracked(later, Some(&reset), &write("x")), "managedFields"), None);

    let mut empty = live.clone();
    empty["metadata"]["managedFields"] = json!([]);
    assert_eq!(owners(&tracked(empty, Some(&live), &write("x"))), owners(&live));

    let mut given = live.clone();
    given["metadata"]["managedFields"][0]["manager"] = json!("carol");
    assert_eq!(owners(&tracked(given, Some(&live), &write("x")))[0].0, "carol");
}

#[test]
fn an_entry_of_an_unserved_version_clears_all_entries() {
    let live = made();
    let mut object = live.clone();
    object["spec"]["size"] = json!(7);
    let lost = Write {
        is_known: &|version| version != "example.com/v1",
        api_version: "example.com/v2",
        ..write("x")
    };
    assert_eq!(field(&tracked(object, Some(&live), &lost), "managedFields"), None);
}

#[test]
fn old_managers_are_merged_into_one_entry() {
    let mut live = made();
    for index in 0..15 {
        let mut object = live.clone();
        object["spec"]["m"][format!("k{index}")] = json!("v");
        let manager = format!("m{index:02}");
        let now = Timestamp::from_second(1_800_000_000 + index).unwrap();
        live = tracked(object, Some(&live), &Write { now, ..write(&manager) });
    }
    let owners = owners(&live);
    assert_eq!(owners.len(), 10);
    assert_eq!(owners[0].0, "ancient-changes");
}

#[test]
fn built_in_objects_have_managed_fields_too() {
    let pod = |image: &str| {
        json!({"metadata": {"name": "a", "uid": "u"}, "spec": {"containers": [{"name": "c", "image": image,
            "ports": [{"containerPort": 80, "protocol": "TCP"}]}], "restartPolicy": "Always"}})
    };
    let structure = Structure::BuiltIn(built_in::kind("", "Pod"));
    let mut object = pod("i");
    track(
        &mut object,
        None,
        &built_in::zero("", "Pod"),
        structure,
        &Write { api_version: "v1", ..write("alice") },
    );
    assert_eq!(
        owners(&object)[0].1,
        json!({"f:spec": {"f:containers": {"k:{\"name\":\"c\"}": {".": {}, "f:image": {}, "f:name": {}, "f:ports": {".": {},
            "k:{\"containerPort\":80,\"protocol\":\"TCP\"}": {".": {}, "f:containerPort": {}, "f:protocol": {}}}}},
            "f:restartPolicy": {}}})
    );
}

#[test]
fn the_manager_is_the_field_manager_or_the_user_agent() {
    let cases = [
        ("m", "kubectl/v1", "m"),
        ("", "kubectl/v1.36 (linux)", "kubectl"),
        ("", "a\u{7}b", "ab"),
        ("", "", ""),
    ];
    for (given, agent, expected) in cases {
        assert_eq!(manager(given, agent), expected);
    }
    assert_eq!(manager("", &"x".repeat(200)).len(), 128);
}

proptest! {
    #[test]
    fn nothing_panics(object in any_json(), live in any_json(), spec in any_json()) {
        let _ = tracked(object.clone(), Some(&live), &write("m"));
        let _ = tracked(object, None, &write("m"));
        let _ = tracked(json!({"spec": spec}), Some(&made()), &write("m"));
    }

    #[test]
    fn field_sets_survive_a_round_trip(spec in any_json(), other in any_json()) {
        let object = tracked(json!({"spec": spec, "metadata": {"labels": other}}), None, &write("m"));
        for (_, fields) in owners(&object) {
            prop_assert_eq!(Set::parse(&fields).unwrap().to_value(), fields);
        }
    }

    #[test]
    fn union_and_difference_undo_each_other(one in any_json(), other in any_json()) {
        let set = |value: Value| compare::compare(&json!({}), &json!({"spec": value}), Structure::Deduced, &[]).changed;
        let (one, other) = (set(one), set(other));
        prop_assert!(one.clone().without(&one).is_empty());
        prop_assert!(other.clone().without(&one.clone().with(&other)).is_empty());
    }
}
