//! Edits between the way there and the way back: nothing is undone, nothing comes back, nothing lands elsewhere.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use restow_convert::rules::{ConversionRulesSpec, compile};
use restow_convert::{ANNOTATION, Chain, Convertible};
use serde_json::{Value, json};

/// A chain between the versions v1beta1 and v1 of a kind with these fields in its spec.
fn chain(older: Value, newer: Value, rules: Value) -> Chain {
    compile(&spec(rules), &definition(older, newer)).map_err(|problems| format!("{problems:#?}")).unwrap()
}

pub(crate) fn spec(rules: Value) -> ConversionRulesSpec {
    let hops = json!([{"older": "v1beta1", "newer": "v1", "rules": rules}]);
    serde_json::from_value(json!({"group": "example.com", "kind": "Backup", "hops": hops})).unwrap()
}

pub(crate) fn definition(older: Value, newer: Value) -> CustomResourceDefinition {
    let version = |name: &str, fields: Value| {
        let spec = json!({"type": "object", "properties": fields});
        let schema = json!({"type": "object", "properties": {"spec": spec}});
        json!({"name": name, "served": true, "storage": name == "v1", "schema": {"openAPIV3Schema": schema}})
    };
    let versions = [version("v1beta1", older), version("v1", newer)];
    serde_json::from_value(json!({
        "metadata": {"name": "backups.example.com"},
        "spec": {
            "group": "example.com", "scope": "Namespaced", "names": {"kind": "Backup", "plural": "backups"},
            "versions": versions,
        },
    }))
    .unwrap()
}

fn backup(version: &str, spec: Value) -> Value {
    json!({
        "apiVersion": format!("example.com/{version}"), "kind": "Backup", "metadata": {"name": "b"}, "spec": spec,
    })
}

/// The spec in v1beta1 after an edit in v1.
fn after(chain: &Chain, original: Value, edit: impl FnOnce(&mut Value)) -> Value {
    let mut new = chain.convert(backup("v1beta1", original), "v1").unwrap();
    edit(&mut new["spec"]);
    chain.convert(new, "v1beta1").unwrap()["spec"].clone()
}

fn remove(object: &mut Value, field: &str) {
    object.as_object_mut().unwrap().remove(field);
}

fn text() -> Value {
    json!({"type": "string"})
}

#[test]
fn a_list_that_is_a_map_in_the_newer_version_follows_every_edit() {
    let fields = json!({"id": text(), "v": {"type": "integer"}});
    let older = json!({"e": {"type": "array", "items": {"type": "object", "required": ["id"], "properties": fields}}});
    let newer = json!({"e": {"type": "object", "additionalProperties": {"type": "integer"}}});
    let rules = json!([{"listToMap": {"older": "spec.e", "newer": "spec.e", "key": "id", "value": "v"}}]);
    let chain = chain(older, newer, rules);
    let original = || json!({"e": [{"id": "b", "v": 1}, {"id": "a", "v": 2}]});
    assert_eq!(after(&chain, original(), |_| {}), original());
    let removed = after(&chain, original(), |spec| remove(&mut spec["e"], "a"));
    assert_eq!(removed, json!({"e": [{"id": "b", "v": 1}]}));
    let changed = after(&chain, original(), |spec| spec["e"]["a"] = json!(3));
    assert_eq!(changed, json!({"e": [{"id": "b", "v": 1}, {"id": "a", "v": 3}]}));
    let added = after(&chain, original(), |spec| spec["e"]["c"] = json!(4));
    assert_eq!(added, json!({"e": [{"id": "b", "v": 1}, {"id": "a", "v": 2}, {"id": "c", "v": 4}]}));
}

#[test]
fn what_is_kept_of_named_elements_survives_edits_of_others_and_another_order() {
    let item = json!({"name": text(), "value": text(), "comment": text()});
    let older = json!({"env": {"type": "array", "items": {"type": "object", "required": ["name"], "properties": item}}});
    let newer = json!({"env": {"type": "object", "additionalProperties": text()}});
    let rules =
        json!([{"listToMap": {"older": "spec.env", "newer": "spec.env", "key": "name", "value": "value"}}]);
    let chain = chain(older, newer, rules);
    let original = json!({"env": [{"name": "b", "value": "1", "comment": "x"}, {"name": "a", "value": "2"}]});
    let changed = after(&chain, original, |spec| spec["env"]["a"] = json!("3"));
    assert_eq!(
        changed,
        json!({"env": [{"name": "b", "value": "1", "comment": "x"}, {"name": "a", "value": "3"}]})
    );
}

#[test]
fn a_field_is_kept_though_the_object_around_it_exists_only_for_it() {
    let older = json!({"place": {"type": "object", "properties": {"shelf": text(), "note": text()}}});
    let rules = json!([
        {"move": {"older": "spec.place.shelf", "newer": "spec.shelf"}}, {"remove": {"older": "spec.place.note"}},
    ]);
    let chain = chain(older, json!({"shelf": text()}), rules);
    let added = after(&chain, json!({"place": {"note": "n"}}), |spec| spec["shelf"] = json!("5"));
    assert_eq!(added, json!({"place": {"note": "n", "shelf": "5"}}));
    let removed = after(&chain, json!({"place": {"note": "n", "shelf": "1"}}), |spec| remove(spec, "shelf"));
    assert_eq!(removed, json!({"place": {"note": "n"}}));
}

#[test]
fn the_parts_of_a_string_are_restored_together_or_not_at_all() {
    let rules = json!([{"join": {
        "older": [{"path": "spec.first"}, {"path": "spec.last"}], "newer": "spec.full", "separator": " ",
    }}]);
    let chain = chain(json!({"first": text(), "last": text()}), json!({"full": text()}), rules);
    let original = || json!({"first": "Mary Ann", "last": "Smith"});
    assert_eq!(after(&chain, original(), |_| {}), original());
    let changed = after(&chain, original(), |spec| spec["full"] = json!("Mary Ann Jones"));
    assert_eq!(changed, json!({"first": "Mary", "last": "Ann Jones"}));
}

#[test]
fn equal_elements_do_not_exchange_what_is_kept_of_them() {
    let list =
        |fields: Value| json!({"l": {"type": "array", "items": {"type": "object", "properties": fields}}});
    let number = json!({"type": "integer"});
    let rules =
        json!([{"each": {"older": "spec.l", "newer": "spec.l", "rules": [{"remove": {"older": "x"}}]}}]);
    let chain = chain(list(json!({"a": number, "x": number})), list(json!({"a": number})), rules);
    let original = json!({"l": [{"a": 1, "x": 1}, {"a": 1, "x": 2}]});
    let changed = after(&chain, original, |spec| spec["l"][0]["a"] = json!(9));
    assert_eq!(changed, json!({"l": [{"a": 9}, {"a": 1, "x": 2}]}));
}

#[test]
fn a_loss_is_accepted_for_the_named_field_of_each_value_alone() {
    let values = |fields: Value| json!({"v": {"type": "object", "additionalProperties": {"type": "object", "properties": fields}}});
    let rules = json!([{"each": {"older": "spec.v", "newer": "spec.v", "rules": [
        {"remove": {"older": "legacy", "lossy": "unused"}}, {"remove": {"older": "extra"}},
    ]}}]);
    let older = json!({"size": text(), "legacy": text(), "extra": text()});
    let chain = chain(values(older), values(json!({"size": text()})), rules);
    let original =
        json!({"v": {"legacy": {"size": "1", "extra": "e"}, "other": {"legacy": "l", "extra": "f"}}});
    let expected = json!({"v": {"legacy": {"size": "1", "extra": "e"}, "other": {"extra": "f"}}});
    assert_eq!(after(&chain, original, |_| {}), expected);
}

#[test]
fn an_object_that_a_rule_empties_leaves_nothing_behind() {
    let image = json!({"image": {"type": "object", "properties": {"name": text(), "tag": text()}}});
    let rules = json!([{"join": {
        "older": [{"path": "spec.image.name"}, {"path": "spec.image.tag"}], "newer": "spec.image", "separator": ":",
    }}]);
    let chain = chain(image, json!({"image": text()}), rules);
    for original in
        [json!({"image": {}}), json!({"image": {"tag": "1"}}), json!({"image": {"name": "a", "tag": "1"}})]
    {
        assert_eq!(after(&chain, original.clone(), |_| {}), original);
    }
}

#[test]
fn a_forged_annotation_neither_fails_nor_changes_anything() {
    let chain = chain(
        json!({"r": text(), "x": text()}),
        json!({"r": text()}),
        json!([{"remove": {"older": "spec.x"}}]),
    );
    let plain = chain.convert(backup("v1beta1", json!({"r": "a"})), "v1").unwrap();
    let deep = format!("[{}]", vec!["\"\""; 5000].join(","));
    let forged = [
        json!({"x": "y".repeat(140_000)}).to_string(),
        json!({"v1": [{"path": ["spec", "r"], "value": {"x": 1}}]}).to_string(),
        json!({"v1": [{"path": ["spec", "r"], "value": "forged", "was": "0"}]}).to_string(),
        json!({"v1": [{"path": ["metadata", "labels"], "value": "x"}]}).to_string(),
        json!({"v1": [{"path": ["metadata", "annotations"], "value": "x"}]}).to_string(),
        format!("{{\"v1\":[{{\"path\":{deep},\"value\":1}}]}}"),
    ];
    for text in forged {
        let mut old = backup("v1beta1", json!({"r": "a"}));
        old["metadata"]["annotations"] = json!({ANNOTATION: text});
        let converted = chain.convert(old, "v1").unwrap();
        assert_eq!(converted["spec"], plain["spec"], "{}", &text[..text.len().min(80)]);
        assert_eq!(converted["metadata"].get("labels"), None);
    }
}

#[test]
fn a_long_list_with_much_to_keep_is_restored_in_one_go() {
    let list =
        |fields: Value| json!({"l": {"type": "array", "items": {"type": "object", "properties": fields}}});
    let rules =
        json!([{"each": {"older": "spec.l", "newer": "spec.l", "rules": [{"remove": {"older": "x"}}]}}]);
    let chain = chain(list(json!({"name": text(), "x": text()})), list(json!({"name": text()})), rules);
    let items: Vec<_> = (0..1500).map(|n| json!({"name": format!("n{n}"), "x": "1"})).collect();
    let original = backup("v1beta1", json!({"l": items}));
    let new = chain.convert(original.clone(), "v1").unwrap();
    assert_eq!(chain.convert(new, "v1beta1").unwrap(), original);
}

#[test]
fn annotations_count_against_the_limit_of_kubernetes() {
    let chain = chain(json!({"x": text()}), json!({}), json!([{"remove": {"older": "spec.x"}}]));
    let mut old = backup("v1beta1", json!({"x": "x".repeat(100_000)}));
    assert!(chain.convert(old.clone(), "v1").is_ok());
    old["metadata"]["annotations"] = json!({"other": "y".repeat(200_000)});
    let error = chain.convert(old, "v1").unwrap_err().to_string();
    assert!(error.starts_with("v1 cannot express spec.x of v1beta1"), "{error}");
}
