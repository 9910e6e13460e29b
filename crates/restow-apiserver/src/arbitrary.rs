//! Arbitrary values for property tests.

use proptest::prelude::*;
use serde_json::{Map, Value, json};

/// Keys from a small set, so that they collide.
fn key() -> impl Strategy<Value = String> {
    prop_oneof![
        prop::sample::select(vec![
            "metadata",
            "spec",
            "status",
            "name",
            "labels",
            "finalizers",
            "items",
            "type",
            "properties",
            "a",
            "b",
            "$patch",
            "ownerReferences",
            "managedFields",
            "op",
            "path",
            "value",
        ])
        .prop_map(str::to_owned),
        "[a-z/~$.]{0,4}",
    ]
}

/// Small JSON values, with keys that the functions under test know.
pub(crate) fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        (-3i64..4).prop_map(Value::from),
        any::<f64>().prop_map(|float| json!(float)),
        key().prop_map(Value::from),
        any::<String>().prop_map(Value::from),
    ];
    leaf.prop_recursive(5, 40, 6, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..5).prop_map(Value::from),
            prop::collection::btree_map(key(), inner, 0..6)
                .prop_map(|fields| Value::Object(fields.into_iter().collect::<Map<_, _>>())),
        ]
    })
}
