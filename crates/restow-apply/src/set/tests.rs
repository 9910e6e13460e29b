//! Tests of sets of paths.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

fn set(fields: Value) -> Set {
    Set::parse(&fields).unwrap()
}

fn any_set() -> impl Strategy<Value = Set> {
    let key = prop::sample::select(vec!["f:a", "f:b", "v:1", "v:\"x\"", "k:{\"n\":1}", "k:{\"n\":\"y\"}"]);
    let leaf = Just(json!({}));
    leaf.prop_recursive(3, 24, 4, move |inner| {
        prop::collection::btree_map(key.clone(), inner, 0..4).prop_map(|fields| {
            Value::Object(fields.into_iter().map(|(key, value)| (key.to_owned(), value)).collect())
        })
    })
    .prop_map(|fields| Set::parse(&fields).unwrap_or_default())
}

#[test]
fn paths_with_something_below_them_are_members_if_they_have_a_dot() {
    let fields = json!({"f:a": {".": {}, "f:b": {}}, "f:c": {"f:d": {}}});
    let shown: Vec<String> = set(fields.clone()).paths().iter().map(Path::to_string).collect();
    assert_eq!(shown, [".a", ".a.b", ".c.d"]);
    assert_eq!(set(fields.clone()).to_value(), fields);
}

#[test]
fn unknown_kinds_of_keys_are_skipped_and_invalid_ones_refused() {
    assert_eq!(set(json!({"f:a": {}, "z:new": {"f:b": {}}})), set(json!({"f:a": {}})));
    for fields in [json!({"a": {}}), json!({"f:a": 1}), json!([]), json!({"k:x": {}})] {
        assert!(Set::parse(&fields).is_err(), "{fields}");
    }
}

#[test]
fn json_is_written_in_the_order_of_kubernetes() {
    let text = r#"{"f:ports":{".":{},"k:{\"port\":9}":{".":{},"f:port":{}},"k:{\"port\":80}":{}},"v:1":{},"v:\"a\"":{}}"#;
    assert_eq!(set(serde_json::from_str(text).unwrap()).to_json(), text);
}

#[test]
fn a_recursive_difference_takes_what_is_below() {
    let all = set(json!({"f:spec": {".": {}, "f:a": {}}, "f:status": {"f:b": {}, "f:c": {}}}));
    let cases = [
        (json!({"f:spec": {}}), json!({"f:status": {"f:b": {}, "f:c": {}}})),
        (json!({"f:status": {"f:b": {}}}), json!({"f:spec": {".": {}, "f:a": {}}, "f:status": {"f:c": {}}})),
        (json!({"f:other": {}}), all.to_value()),
    ];
    for (taken, expected) in cases {
        assert_eq!(all.clone().recursive_difference(&set(taken)).to_value(), expected);
    }
    assert_eq!(
        all.difference(&set(json!({"f:spec": {}, "f:status": {"f:c": {}}}))).to_value(),
        json!({"f:spec": {"f:a": {}}, "f:status": {"f:b": {}}})
    );
}

proptest! {
    #[test]
    fn sets_survive_a_round_trip(set in any_set()) {
        prop_assert_eq!(&Set::parse(&set.to_value()).unwrap(), &set);
        prop_assert_eq!(&Set::parse(&serde_json::from_str(&set.to_json()).unwrap()).unwrap(), &set);
    }

    #[test]
    fn operations_are_those_of_sets(one in any_set(), other in any_set()) {
        let members = |set: &Set| set.paths().into_iter().collect::<std::collections::BTreeSet<_>>();
        let (ours, theirs) = (members(&one), members(&other));
        prop_assert_eq!(members(&one.clone().union(&other)), ours.union(&theirs).cloned().collect());
        prop_assert_eq!(members(&one.intersection(&other)), ours.intersection(&theirs).cloned().collect());
        prop_assert_eq!(members(&one.clone().difference(&other)), ours.difference(&theirs).cloned().collect());
        prop_assert!(one.clone().difference(&one).is_empty());
        prop_assert!(ours.iter().all(|path| one.contains(&path.0)));
    }
}
