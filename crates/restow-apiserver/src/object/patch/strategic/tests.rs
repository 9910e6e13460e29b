//! Strategic merge patches of built-in kinds.

use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::arbitrary::any_json;
use crate::object::patch::merge;
use crate::object::structure::built_in;

fn pod(spec: Value) -> Value {
    json!({ "spec": spec })
}

fn patched(object: &Value, patch: &Value) -> Value {
    apply(object, patch, built_in::kind("", "Pod")).unwrap()
}

#[test]
fn lists_merge_by_their_keys() {
    let cases = [
        (
            json!({"containers": [{"name": "a", "image": "1"}, {"name": "b", "image": "1"}]}),
            json!({"containers": [{"name": "b", "image": "2"}]}),
            json!({"containers": [{"name": "a", "image": "1"}, {"name": "b", "image": "2"}]}),
        ),
        (
            json!({"containers": [{"name": "a"}]}),
            json!({"containers": [{"name": "b", "env": [{"name": "E", "value": "1"}]}]}),
            json!({"containers": [{"name": "b", "env": [{"name": "E", "value": "1"}]}, {"name": "a"}]}),
        ),
        (
            json!({"containers": [{"name": "a", "env": [{"name": "E", "value": "1"}, {"name": "F", "value": "1"}]}]}),
            json!({"containers": [{"name": "a", "env": [{"name": "E", "$patch": "delete"}, {"name": "G", "value": "2"}]}]}),
            json!({"containers": [{"name": "a", "env": [{"name": "G", "value": "2"}, {"name": "F", "value": "1"}]}]}),
        ),
        (
            json!({"containers": [{"name": "a"}, {"name": "b"}]}),
            json!({"containers": [{"name": "c"}, {"$patch": "replace"}]}),
            json!({"containers": [{"name": "c"}]}),
        ),
        (
            json!({"containers": [{"name": "a"}, {"name": "b"}], "nodeSelector": {"a": "b"}}),
            json!({"$setElementOrder/containers": [{"name": "b"}, {"name": "a"}], "nodeSelector": {"a": null}}),
            json!({"containers": [{"name": "b"}, {"name": "a"}], "nodeSelector": {}}),
        ),
        (
            json!({"volumes": [{"name": "v", "emptyDir": {}}]}),
            json!({"volumes": [{"name": "v", "$retainKeys": ["name", "hostPath"], "hostPath": {"path": "/"}}]}),
            json!({"volumes": [{"name": "v", "hostPath": {"path": "/"}}]}),
        ),
        (
            json!({"tolerations": [{"key": "a"}]}),
            json!({"tolerations": [{"key": "b"}]}),
            json!({"tolerations": [{"key": "b"}]}),
        ),
        (
            json!({"affinity": {"a": 1}}),
            json!({"affinity": {"$patch": "replace", "b": 2}}),
            json!({"affinity": {"b": 2}}),
        ),
        (json!({"affinity": {"a": 1}}), json!({"affinity": {"$patch": "delete"}}), json!({"affinity": {}})),
        (json!({}), json!({"affinity": {"a": null, "b": {"$patch": "delete"}}}), json!({"affinity": {}})),
    ];
    for (spec, patch, expected) in cases {
        assert_eq!(patched(&pod(spec), &pod(patch.clone())), pod(expected), "{patch}");
    }
}

#[test]
fn owner_references_and_finalizers_are_merged_by_their_keys() {
    let object =
        json!({"metadata": {"finalizers": ["a/a", "b/b"], "ownerReferences": [{"uid": "1", "name": "x"}]}});
    let patch = json!({"metadata": {"$deleteFromPrimitiveList/finalizers": ["a/a"], "finalizers": ["c/c"],
        "ownerReferences": [{"uid": "1", "$patch": "delete"}, {"uid": "2", "name": "y"}]}});
    let patched = apply(&object, &patch, built_in::kind("", "ConfigMap")).unwrap();
    assert_eq!(
        patched,
        json!({"metadata": {"finalizers": ["c/c", "b/b"], "ownerReferences": [{"uid": "2", "name": "y"}]}})
    );
}

#[test]
fn patches_that_cannot_be_merged_are_refused() {
    let object = pod(json!({"containers": [{"name": "a"}]}));
    let cases = [
        (
            json!({"containers": [{"image": "x"}]}),
            500,
            "map: map[image:x] does not contain declared merge key: name",
        ),
        (json!({"affinity": {"$patch": "odd"}}), 200, ""),
        (json!({"$retainKeys": "x"}), 400, "invalid patch format of retainKeys"),
        (json!({"$deleteFromPrimitiveList/containers": 1}), 400, "invalid patch format of primitive list"),
        (
            json!({"containers": [{"$patch": "merge"}]}),
            500,
            "merging lists cannot yet be specified in the patch",
        ),
    ];
    for (patch, code, message) in cases {
        let refusal = apply(&object, &pod(patch.clone()), built_in::kind("", "Pod")).err();
        let outcome = refusal.as_ref().map_or((200, ""), |refusal| (refusal.code(), refusal.message()));
        assert_eq!(outcome, (code, message), "{patch}");
    }
}

/// Objects of plain values, without lists and directives.
fn plain_object() -> impl Strategy<Value = Value> {
    any_json().prop_map(|value| json!({"a": stripped(value)}))
}

fn stripped(value: Value) -> Value {
    match value {
        Value::Object(fields) => {
            let kept = fields.into_iter().filter(|(key, _)| !key.starts_with('$'));
            Value::Object(kept.map(|(key, value)| (key, stripped(value))).collect())
        }
        Value::Array(_) => json!({}),
        other => other,
    }
}

proptest! {
    #[test]
    fn nothing_panics(object in any_json(), patch in any_json()) {
        let _ = apply(&object, &patch, built_in::kind("apps", "Deployment"));
    }

    #[test]
    fn lists_of_objects_do_not_panic(before in prop::collection::vec(any_json(), 0..4), change in prop::collection::vec(any_json(), 0..4)) {
        let object = json!({"spec": {"containers": before}, "metadata": {"finalizers": before}});
        let patch = json!({"spec": {"containers": change, "$setElementOrder/containers": change},
            "metadata": {"finalizers": change}});
        let _ = apply(&object, &patch, built_in::kind("", "Pod"));
    }

    #[test]
    fn a_strategic_patch_without_lists_is_a_merge_patch(object in plain_object(), patch in plain_object()) {
        prop_assert_eq!(apply(&object, &patch, &PLAIN).unwrap(), merge::merge(object, &patch));
    }
}

#[test]
fn large_lists_are_merged_in_linear_time() {
    let start = restow_clock::Instant::now();
    let volumes = |from: u32| (from..from + 60_000).map(|n| json!({"name": n.to_string(), "emptyDir": {}}));
    let list = |from| volumes(from).collect::<Vec<_>>();
    let object = pod(json!({"volumes": list(0)}));
    let merged = patched(&object, &pod(json!({"volumes": list(30_000)})));
    assert_eq!(merged["spec"]["volumes"].as_array().map(Vec::len), Some(90_000));
    let ordered = patched(&object, &pod(json!({"$setElementOrder/volumes": list(0)})));
    assert_eq!(ordered, object);
    let deleted: Vec<_> =
        (0..60_000).map(|n: u32| json!({"name": n.to_string(), "$patch": "delete"})).collect();
    let emptied = patched(&object, &pod(json!({"volumes": deleted})));
    assert_eq!(emptied["spec"]["volumes"], json!([]));
    let finalizers = |from: u32| json!({"metadata": {"finalizers": (from..from + 60_000).map(|n| n.to_string()).collect::<Vec<_>>()}});
    let merged = patched(&finalizers(0), &finalizers(30_000));
    assert_eq!(merged["metadata"]["finalizers"].as_array().map(Vec::len), Some(90_000));
    assert!(start.elapsed() < std::time::Duration::from_secs(60), "{:?}", start.elapsed());
}
