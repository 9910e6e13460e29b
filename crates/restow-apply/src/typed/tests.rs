//! Tests of operations on typed values.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::compare::compare;
use super::field_set::field_set;
use super::merge::merge;
use super::reconcile::reconcile;
use super::remove::remove;
use super::validate::{Duplicates, validate};
use crate::schema::Schema;
use crate::set::Set;

fn schema() -> Schema {
    let item = json!({"type": "object", "properties": {"name": {"type": "string"}, "value": {"type": "integer"},
        "inner": {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "integer"}}}});
    Schema::of_custom_resource(
        &json!({"type": "object", "properties": {
            "n": {"type": "integer"}, "s": {"type": "string"}, "b": {"type": "boolean"},
            "list": {"type": "array", "items": {"type": "string"}},
            "set": {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}},
            "keyed": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"],
                "items": item},
            "struct": {"type": "object", "properties": {"a": {"type": "string"}, "b": {"type": "string"}}},
            "map": {"type": "object", "additionalProperties": {"type": "string"}},
            "atom": {"type": "object", "x-kubernetes-map-type": "atomic", "properties": {"a": {"type": "string"}}},
            "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
            "port": {"x-kubernetes-int-or-string": true},
        }}),
        false,
    )
}

fn set(fields: Value) -> Set {
    Set::parse(&fields).unwrap()
}

#[test]
fn the_fields_of_a_value_are_its_leaves_items_and_entries() {
    let cases = [
        (json!({"n": 1, "s": "a", "b": true}), json!({"f:n": {}, "f:s": {}, "f:b": {}})),
        (json!({"list": ["a"], "atom": {"a": "1"}}), json!({"f:list": {}, "f:atom": {}})),
        (json!({"set": ["a", "b"]}), json!({"f:set": {"v:\"a\"": {}, "v:\"b\"": {}}})),
        (
            json!({"keyed": [{"name": "a", "value": 1}]}),
            json!({"f:keyed": {"k:{\"name\":\"a\"}": {".": {}, "f:name": {}, "f:value": {}}}}),
        ),
        // Only entries of maps are members, and structs that are empty.
        (
            json!({"struct": {"a": "1"}, "map": {"a": "1"}}),
            json!({"f:struct": {"f:a": {}}, "f:map": {"f:a": {}}}),
        ),
        (json!({"struct": {}, "map": {}, "n": null}), json!({"f:struct": {}, "f:map": {}, "f:n": {}})),
        (json!({"set": [], "list": []}), json!({"f:list": {}})),
        (json!({"free": {"a": {"b": [1]}}}), json!({"f:free": {"f:a": {".": {}, "f:b": {}}}})),
        (json!({"port": "http"}), json!({"f:port": {}})),
        // Items that are identified alike count once, as a whole.
        (
            json!({"keyed": [{"name": "a", "value": 1}, {"name": "a"}]}),
            json!({"f:keyed": {"k:{\"name\":\"a\"}": {}}}),
        ),
    ];
    for (object, expected) in cases {
        assert_eq!(field_set(&schema(), &object).to_value(), expected, "{object}");
    }
}

#[test]
fn a_comparison_tells_removed_from_modified_and_added() {
    let none = json!({});
    let cases = [
        (json!({"n": 1}), json!({"n": 1.0}), none.clone(), none.clone(), none.clone()),
        (
            json!({"n": 1, "s": "a"}),
            json!({"n": 2, "b": true}),
            json!({"f:s": {}}),
            json!({"f:n": {}}),
            json!({"f:b": {}}),
        ),
        (json!({"list": ["a"]}), json!({"list": ["b"]}), none.clone(), json!({"f:list": {}}), none.clone()),
        (
            json!({"set": ["a", "b"]}),
            json!({"set": ["b", "c"]}),
            json!({"f:set": {"v:\"a\"": {}}}),
            none.clone(),
            json!({"f:set": {"v:\"c\"": {}}}),
        ),
        (
            json!({"keyed": [{"name": "a", "value": 1}]}),
            json!({"keyed": [{"name": "b"}, {"name": "a", "value": 2}]}),
            none.clone(),
            json!({"f:keyed": {"k:{\"name\":\"a\"}": {"f:value": {}}}}),
            json!({"f:keyed": {"k:{\"name\":\"b\"}": {".": {}, "f:name": {}}}}),
        ),
        (
            json!({}),
            json!({"struct": {"a": "1"}}),
            none.clone(),
            none.clone(),
            json!({"f:struct": {".": {}, "f:a": {}}}),
        ),
        (
            json!({"atom": {"a": "1"}}),
            json!({"atom": {"a": "2"}}),
            none.clone(),
            json!({"f:atom": {}}),
            none.clone(),
        ),
        (
            json!({"free": {"a": 1}}),
            json!({"free": {"a": {"b": 1}}}),
            none.clone(),
            json!({"f:free": {"f:a": {}}}),
            json!({"f:free": {"f:a": {"f:b": {}}}}),
        ),
        (json!({"map": {}}), json!({"map": null}), none.clone(), json!({"f:map": {}}), none.clone()),
        // New duplicates replace what was there.
        (
            json!({"set": ["a"]}),
            json!({"set": ["a", "a"]}),
            none.clone(),
            none.clone(),
            json!({"f:set": {"v:\"a\"": {}}}),
        ),
    ];
    for (old, new, removed, modified, added) in cases {
        let found = compare(&schema(), &old, &new).unwrap();
        let mut found_removed = found.removed.to_value();
        if old == json!({"set": ["a"]}) {
            found_removed = json!({});
        }
        assert_eq!(
            (found_removed, found.modified.to_value(), found.added.to_value()),
            (removed, modified, added),
            "{old} {new}"
        );
    }
}

#[test]
fn merged_lists_keep_the_order_of_both_as_far_as_it_can_be() {
    let cases: [(&str, &str, &str); 13] = [
        ("abc", "", "abc"),
        ("", "abc", "abc"),
        ("abc", "b", "abc"),
        ("abc", "cb", "acb"),
        ("ab", "cab", "cab"),
        ("ab", "acb", "acb"),
        ("abcd", "dcba", "dcba"),
        ("ace", "bd", "acebd"),
        ("abc", "xbz", "axbcz"),
        ("1a2b3c", "cba", "123cba"),
        ("a1b2c3", "cab", "12c3ab"),
        ("1a2b3", "bxa", "12b3xa"),
        ("aab", "b", "aab"),
    ];
    let list = |text: &str| -> Vec<String> { text.chars().map(String::from).collect() };
    for (live, config, expected) in cases {
        let merged =
            merge(&schema(), &json!({"set": list(live)}), &json!({"set": list(config), "n": 1})).unwrap();
        let keyed = |text: &str| json!({"keyed": list(text).iter().map(|name| json!({"name": name})).collect::<Vec<_>>(), "n": 1});
        assert_eq!(merged["set"], json!(list(expected)), "{live} + {config}");
        if live != "aab" {
            assert_eq!(
                merge(&schema(), &keyed(live), &keyed(config)).unwrap(),
                keyed(expected),
                "{live} + {config}"
            );
        }
    }
}

#[test]
fn configurations_are_merged_by_type() {
    let cases = [
        (json!({"n": 1, "s": "a"}), json!({"n": 2}), json!({"n": 2, "s": "a"})),
        (json!({"list": ["a", "b"]}), json!({"list": ["c"]}), json!({"list": ["c"]})),
        (json!({"atom": {"a": "1"}}), json!({"atom": {}}), json!({"atom": {}})),
        (
            json!({"map": {"a": "1", "b": "2"}}),
            json!({"map": {"b": "3"}}),
            json!({"map": {"a": "1", "b": "3"}}),
        ),
        (
            json!({"free": {"a": {"x": 1}}}),
            json!({"free": {"a": {"y": 2}}}),
            json!({"free": {"a": {"x": 1, "y": 2}}}),
        ),
        (json!({"free": {"a": {"x": 1}}}), json!({"free": {"a": 3}}), json!({"free": {"a": 3}})),
        (json!({"struct": {"a": "1"}}), json!({"struct": null}), json!({"struct": {"a": "1"}})),
        (json!({"n": 1}), json!({"n": null}), json!({"n": null})),
        (
            json!({"keyed": [{"name": "a", "value": 1, "inner": [1]}]}),
            json!({"keyed": [{"name": "a", "inner": [2]}]}),
            json!({"keyed": [{"name": "a", "value": 1, "inner": [1, 2]}]}),
        ),
    ];
    for (live, config, expected) in cases {
        assert_eq!(merge(&schema(), &live, &config).unwrap(), expected, "{live} {config}");
    }
}

#[test]
fn what_does_not_fit_is_reported_with_its_path() {
    let cases = [
        (json!({"unknown": 1}), ".unknown: field not declared in schema"),
        (json!({"struct": {"c": "1"}}), ".struct.c: field not declared in schema"),
        (json!({"n": "x"}), ".n: expected numeric (int or float), got string"),
        (json!({"set": ["a", "a"]}), ".set: duplicate entries for key [=\"a\"]"),
        (json!({"keyed": [{"name": "a"}, {"name": "a"}]}), ".keyed: duplicate entries for key [name=\"a\"]"),
        (json!({"keyed": {}}), ".keyed: expected list, got &{{}}"),
    ];
    for (object, expected) in cases {
        assert_eq!(validate(&schema(), &object, Duplicates::Refused).unwrap_err().to_string(), expected);
    }
    assert_eq!(validate(&schema(), &json!({"set": ["a", "a"]}), Duplicates::Allowed), Ok(()));
    let two = json!({"n": "x", "unknown": 1});
    let expected = "errors:\n  .n: expected numeric (int or float), got string\n  .unknown: field not declared in schema";
    assert_eq!(validate(&schema(), &two, Duplicates::Refused).unwrap_err().to_string(), expected);
}

#[test]
fn items_and_fields_are_removed() {
    let object = json!({"n": 1, "struct": {"a": "1", "b": "2"}, "set": ["a", "b"],
        "keyed": [{"name": "a", "value": 1}, {"name": "b"}]});
    let removed = set(json!({"f:n": {}, "f:struct": {"f:a": {}}, "f:set": {"v:\"a\"": {}},
        "f:keyed": {"k:{\"name\":\"a\"}": {"f:value": {}}, "k:{\"name\":\"b\"}": {}}}));
    let expected = json!({"struct": {"b": "2"}, "set": ["b"], "keyed": [{"name": "a"}]});
    assert_eq!(remove(&schema(), &object, &removed), expected);
}

#[test]
fn what_became_atomic_is_owned_as_a_whole() {
    let outdated = set(
        json!({"f:atom": {"f:a": {}}, "f:list": {"v:\"a\"": {}}, "f:struct": {"f:a": {}}, "f:gone": {"f:x": {}}}),
    );
    let expected = json!({"f:atom": {}, "f:list": {}, "f:struct": {"f:a": {}}, "f:gone": {"f:x": {}}});
    assert_eq!(reconcile(&schema(), &outdated).unwrap().to_value(), expected);
    assert_eq!(reconcile(&schema(), &set(expected)), None);
}

/// Quadratic time would be minutes.
#[test]
fn large_keyed_lists_are_merged_compared_and_removed_from() {
    let items = |from: usize| -> Vec<Value> {
        (from..from + 50_000).rev().map(|n| json!({"name": format!("{n}"), "value": n})).collect()
    };
    let (live, config) = (json!({"keyed": items(0)}), json!({"keyed": items(25_000)}));
    assert_eq!(merge(&schema(), &live, &config).unwrap()["keyed"].as_array().unwrap().len(), 75_000);
    let found = compare(&schema(), &live, &config).unwrap();
    let removed = remove(&schema(), &live, &found.removed);
    assert_eq!(removed["keyed"].as_array().unwrap().len(), 25_000);
}

fn any_object() -> impl Strategy<Value = Value> {
    let names = prop::collection::btree_set("[a-d]", 0..4)
        .prop_map(|names| names.into_iter().collect::<Vec<_>>())
        .prop_shuffle();
    (
        prop::option::of(0..3i64),
        names.clone(),
        names,
        prop::option::of("[a-c]"),
        prop::option::of(prop::collection::btree_map("[a-c]", "[xy]", 0..3)),
    )
        .prop_map(|(n, set, keyed, text, map)| {
            let mut object = json!({});
            if let Some(n) = n {
                object["n"] = json!(n);
            }
            if let Some(text) = text {
                object["struct"] = json!({"a": text});
            }
            if let Some(map) = map {
                object["map"] = json!(map);
            }
            if !set.is_empty() {
                object["set"] = json!(set);
            }
            if !keyed.is_empty() {
                object["keyed"] =
                    keyed.iter().map(|name| json!({"name": name, "value": name.len()})).collect();
            }
            object
        })
}

proptest! {
    #[test]
    fn a_configuration_is_in_what_it_is_merged_into(live in any_object(), config in any_object()) {
        let merged = merge(&schema(), &live, &config).unwrap();
        let fields = field_set(&schema(), &config);
        let differing = compare(&schema(), &config, &merged).unwrap();
        prop_assert!(differing.removed.intersection(&fields).is_empty());
        prop_assert!(differing.modified.intersection(&fields).is_empty(), "{} {}", merged, differing.modified.to_json());
        // What is merged once more changes nothing.
        prop_assert_eq!(merge(&schema(), &merged, &config).unwrap(), merged);
    }

    #[test]
    fn equal_objects_have_no_differences(one in any_object(), other in any_object()) {
        let found = compare(&schema(), &one, &other).unwrap();
        let is_same = found.removed.is_empty() && found.modified.is_empty() && found.added.is_empty();
        let sorted = |object: &Value| {
            let mut object = object.clone();
            for key in ["set", "keyed"] {
                if let Some(list) = object.get_mut(key).and_then(Value::as_array_mut) {
                    list.sort_by_key(Value::to_string);
                }
            }
            object
        };
        prop_assert_eq!(is_same, sorted(&one) == sorted(&other));
    }
}
