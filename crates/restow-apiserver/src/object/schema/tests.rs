//! Objects validated against schemas.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::check::NOT_CHECKED;
use super::*;
use crate::arbitrary::any_json;
use crate::http::status::Cause;

/// The errors of `{"spec": value}`, as kube-apiserver reports them.
fn errors(schema: Value, value: Value) -> Vec<String> {
    let schema = Schema::parse(&json!({"type": "object", "properties": {"spec": schema},
        "x-kubernetes-validations": [{"rule": "self == oldSelf"}]}));
    let causes = schema.check_create(&json!({ "spec": value }));
    causes.iter().map(|cause| format!("{}: {}", cause.field, cause.message)).collect()
}

#[test]
fn errors_read_like_those_of_kube_apiserver() {
    let skipped = format!("<nil>: Invalid value: null: {NOT_CHECKED}");
    let cases = [
        (
            json!({"type": "integer"}),
            json!("a"),
            vec![
                "spec: Invalid value: \"string\": spec in body must be of type integer: \"string\"".to_owned(),
                skipped.clone(),
            ],
        ),
        (
            json!({"type": "object", "required": ["a"]}),
            json!({}),
            vec!["spec.a: Required value".into(), skipped.clone()],
        ),
        (
            json!({"type": "string", "enum": ["a", "b"]}),
            json!("c"),
            vec!["spec: Unsupported value: \"c\": supported values: \"a\", \"b\"".into(), skipped.clone()],
        ),
        (
            json!({"type": "integer", "minimum": 1, "maximum": 3}),
            json!(4),
            vec!["spec: Invalid value: 4: spec in body should be less than or equal to 3".into()],
        ),
        (
            json!({"type": "integer", "minimum": 1, "exclusiveMinimum": true}),
            json!(1),
            vec!["spec: Invalid value: 1: spec in body should be greater than 1".into()],
        ),
        (
            json!({"type": "number", "multipleOf": 0.5}),
            json!(0.7),
            vec!["spec: Invalid value: 0.7: spec in body should be a multiple of 0.5".into()],
        ),
        (
            json!({"type": "string", "maxLength": 2}),
            json!("abc"),
            vec!["spec: Too long: may not be more than 2 bytes".into(), skipped.clone()],
        ),
        (
            json!({"type": "string", "minLength": 2}),
            json!("a"),
            vec!["spec: Invalid value: \"a\": spec in body should be at least 2 chars long".into()],
        ),
        (
            json!({"type": "string", "pattern": "^a+$"}),
            json!("b"),
            vec!["spec: Invalid value: \"b\": spec in body should match '^a+$'".into()],
        ),
        (
            json!({"type": "array", "minItems": 1, "items": {"type": "string"}}),
            json!([]),
            vec!["spec: Invalid value: 0: spec in body should have at least 1 items".into()],
        ),
        (
            json!({"type": "array", "maxItems": 1, "items": {"type": "string"}}),
            json!(["a", "b"]),
            vec!["spec: Too many: 2: must have at most 1 item".into(), skipped.clone()],
        ),
        (
            json!({"type": "array", "items": {"type": "object", "properties": {"a": {"type": "boolean"}}}}),
            json!([{"a": true}, {"a": 1}]),
            vec![
                "spec[1].a: Invalid value: \"integer\": spec[1].a in body must be of type boolean: \"integer\"".into(),
                skipped.clone(),
            ],
        ),
        (
            json!({"type": "object", "additionalProperties": {"type": "string"}}),
            json!({"a": 1}),
            vec![
                "spec.a: Invalid value: \"integer\": spec.a in body must be of type string: \"integer\"".into(),
                skipped.clone(),
            ],
        ),
        (
            json!({"x-kubernetes-int-or-string": true}),
            json!(true),
            vec![
                "spec: Invalid value: \"boolean\": spec in body must be of type integer,string: \"boolean\"".into(),
                skipped.clone(),
            ],
        ),
        (
            json!({"type": "string", "format": "date-time"}),
            json!("now"),
            vec![
                "spec: Invalid value: \"now\": spec in body must be of type date-time: \"now\"".into(),
                skipped.clone(),
            ],
        ),
        (
            json!({"type": "integer", "format": "int32"}),
            json!(3_000_000_000i64),
            vec![
                "<nil>: Invalid value: \"\": Checked value must be of type integer with format int32 in spec".into(),
            ],
        ),
        (
            json!({"type": "object", "oneOf": [{"required": ["a"]}, {"required": ["b"]}]}),
            json!({"a": 1, "b": 1}),
            vec![
                "<nil>: Invalid value: \"\": \"spec\" must validate one and only one schema (oneOf). Found 2 valid \
                 alternatives"
                    .into(),
            ],
        ),
        (
            json!({"type": "object", "anyOf": [{"required": ["a"]}, {"required": ["b"]}]}),
            json!({}),
            vec![
                "<nil>: Invalid value: \"\": \"spec\" must validate at least one schema (anyOf)".into(),
                "spec.a: Required value".into(),
                skipped.clone(),
            ],
        ),
        (
            json!({"type": "object", "not": {"required": ["a"]}}),
            json!({"a": 1}),
            vec!["<nil>: Invalid value: \"\": \"spec\" must not validate the schema (not)".into()],
        ),
        (
            json!({"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}}),
            json!(["a", "b", "a", "a"]),
            vec!["spec[2]: Duplicate value: \"a\"".into()],
        ),
        (
            json!({"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"],
                "items": {"type": "object", "properties": {"k": {"type": "string"}}}}),
            json!([{"k": "a"}, {"k": "a", "x": 1}]),
            vec!["spec[1]: Duplicate value: {\"k\":\"a\"}".into()],
        ),
        (
            json!({"type": "object", "x-kubernetes-embedded-resource": true}),
            json!({"kind": "K", "metadata": {"labels": {"-": "a"}}}),
            vec!["spec.apiVersion: Required value".into()],
        ),
        (json!({"type": "number"}), json!(1), vec![]),
        (json!({"type": "integer"}), json!(1.0), vec![]),
        (json!({"type": "string", "nullable": true}), json!(null), vec![]),
        (json!({"enum": [1]}), json!(1.0), vec![]),
        (json!({}), json!({"anything": [1]}), vec![]),
    ];
    for (schema, value, expected) in cases {
        let mut found = errors(schema.clone(), value);
        if schema.get("x-kubernetes-embedded-resource").is_some() {
            found.truncate(1);
        }
        assert_eq!(found, expected, "{schema}");
    }
}

/// Errors of one field that were recorded from kube-apiserver 1.36.3.
#[test]
fn errors_equal_those_recorded_from_kube_apiserver() {
    let observed: Vec<Value> = serde_json::from_str(include_str!("observed.json")).unwrap();
    for case in observed {
        let name = case["name"].as_str().unwrap();
        let schema = Schema::parse(&json!({"type": "object", "properties": {name: case["schema"]}}));
        let mut object = json!({name: case["value"]});
        schema.prune(&mut object);
        schema.set_defaults(&mut object);
        let causes = schema.check_create(&object);
        let messages: Vec<_> =
            causes.iter().map(|cause| format!("{}: {}", cause.field, cause.message)).collect();
        assert_eq!(json!(messages), case["told"], "{case}");
    }
}

#[test]
fn unknown_fields_are_pruned() {
    let schema = Schema::parse(&json!({"type": "object", "properties": {
        "spec": {"type": "object", "properties": {
            "known": {"type": "string"},
            "map": {"type": "object", "additionalProperties": {"type": "object", "properties": {"a": {}}}},
            "list": {"type": "array", "items": {"type": "object", "properties": {"a": {"type": "string"}}}},
            "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": true,
                "properties": {"strict": {"type": "object"}}},
            "inner": {"type": "object", "x-kubernetes-embedded-resource": true},
        }},
    }}));
    let mut object = json!({"apiVersion": "v1", "kind": "K", "metadata": {"odd": 1}, "odd": 1, "spec": {
        "known": "a", "odd": {"a": 1}, "map": {"x": {"a": {"gone": 1}, "b": 1}}, "list": [{"a": "b", "c": 1}],
        "free": {"kept": {"a": 1}, "strict": {"gone": 1}}, "inner": {"kind": "K", "metadata": {}, "spec": 1}}});
    let dropped = schema.prune(&mut object);
    assert_eq!(
        object,
        json!({"apiVersion": "v1", "kind": "K", "metadata": {"odd": 1}, "spec": {
            "known": "a", "map": {"x": {"a": {}}}, "list": [{"a": "b"}], "free": {"kept": {"a": 1}, "strict": {}},
            "inner": {"kind": "K", "metadata": {}}}})
    );
    assert_eq!(
        dropped,
        [
            "odd",
            "spec.free.strict.gone",
            "spec.inner.spec",
            "spec.list[0].c",
            "spec.map.x.a.gone",
            "spec.map.x.b",
            "spec.odd"
        ]
    );
}

#[test]
fn defaults_fill_missing_fields() {
    let schema = Schema::parse(
        &json!({"type": "object", "properties": {"spec": {"type": "object", "properties": {
            "size": {"type": "integer", "default": 1},
            "inner": {"type": "object", "default": {}, "properties": {"a": {"type": "string", "default": "b"}}},
            "absent": {"type": "object", "properties": {"a": {"type": "string", "default": "b"}}},
            "null": {"type": "string", "nullable": true, "default": "x"},
            "void": {"type": "string"},
            "list": {"type": "array", "items": {"type": "object", "properties": {"a": {"default": 1}}}},
        }}}}),
    );
    let mut object = json!({"spec": {"size": null, "null": null, "void": null, "list": [{}, {"a": 2}]}});
    schema.set_defaults(&mut object);
    assert_eq!(
        object,
        json!({"spec": {"size": 1, "inner": {"a": "b"}, "null": null, "list": [{"a": 1}, {"a": 2}]}})
    );
}

#[test]
fn unchanged_values_are_not_validated_again() {
    let schema =
        Schema::parse(&json!({"type": "object", "properties": {"spec": {"type": "object", "properties": {
        "a": {"type": "string", "maxLength": 1}, "b": {"type": "string"},
        "list": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"],
            "items": {"type": "object", "properties": {"k": {"type": "string"}, "v": {"maximum": 1}}}}}}}}));
    let old = json!({"spec": {"a": "long", "b": "x", "list": [{"k": "a", "v": 5}]}});
    let passes = json!({"spec": {"a": "long", "b": "y", "list": [{"k": "b", "v": 1}, {"k": "a", "v": 5}]}});
    assert!(schema.check_update(&passes, &old).is_empty());
    assert_eq!(schema.check_update(&json!({"spec": {"a": "longer"}}), &old)[0].field, "spec.a");
    assert_eq!(
        schema.check_update(&json!({"spec": {"list": [{"k": "a", "v": 6}]}}), &old)[0].field,
        "spec.list[0].v"
    );
}

#[test]
fn the_status_is_validated_alone() {
    let schema = Schema::parse(&json!({"type": "object", "required": ["spec"], "properties": {
        "status": {"type": "object", "properties": {"ready": {"type": "boolean"}}}}}));
    let causes = schema.check_status(&json!({"status": {"ready": "yes"}}), &json!({}));
    assert_eq!(causes[0].field, "status.ready");
    assert_eq!(
        causes[0].message,
        "Invalid value: \"string\": ready in body must be of type boolean: \"string\""
    );
    assert!(schema.check_status(&json!({}), &json!({})).is_empty());
}

#[test]
fn transition_rules_keep_immutable_fields() {
    let rule = |rule: &str| json!([{"rule": rule, "message": "spec.a is immutable"}]);
    let schema = |text: &str| {
        Schema::parse(&json!({"type": "object", "properties": {"spec": {"type": "object", "properties": {
            "a": {"type": "string", "x-kubernetes-validations": rule(text)}}}}}))
    };
    let object = |text: &str| json!({"spec": {"a": text}});
    let immutable = schema("self == oldSelf");
    assert!(immutable.check_create(&object("x")).is_empty());
    assert!(immutable.check_update(&object("x"), &object("x")).is_empty());
    let causes = immutable.check_update(&object("y"), &object("x"));
    assert_eq!(Cause::aggregate(&causes), "spec.a: Invalid value: \"y\": spec.a is immutable");

    let other = schema("self == 'x' || self != oldSelf && !(self == \"z\")");
    assert!(other.check_update(&object("y"), &object("x")).is_empty());
    assert_eq!(other.check_update(&object("z"), &object("x")).len(), 1);
    let odd = schema("self.startsWith('a')");
    assert_eq!(odd.unenforced(), ["self.startsWith('a')"]);
    assert!(odd.check_create(&object("x")).is_empty());
}

#[test]
fn rules_compare_fields() {
    let schema = Schema::parse(&json!({"type": "object", "properties": {"spec": {"type": "object",
        "x-kubernetes-validations": [{"rule": "!has(self.min) || self.min <= self.max", "message": "min over max"}],
        "properties": {"min": {"type": "integer"}, "max": {"type": "integer"},
            "l": {"type": "array", "items": {"type": "string"},
                "x-kubernetes-validations": [{"rule": "self.size() > 1", "message": "too short"}]}}}}}));
    let cases = [
        (json!({"min": 1, "max": 2, "l": ["a", "b"]}), vec![]),
        (json!({}), vec![]),
        (json!({"min": 3, "max": 2}), vec!["spec: Invalid value: min over max"]),
        (
            json!({"min": 3}),
            vec!["spec: Invalid value: \"object\": no such key: max evaluating rule: min over max"],
        ),
        (json!({"l": ["a"]}), vec!["spec.l: Invalid value: too short"]),
    ];
    for (spec, expected) in cases {
        let causes = schema.check_create(&json!({ "spec": spec }));
        let messages: Vec<_> =
            causes.iter().map(|cause| format!("{}: {}", cause.field, cause.message)).collect();
        assert_eq!(messages, expected, "{spec}");
    }
}

/// Valid schemas, for values like those of `any_json`.
fn any_schema() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(json!({"type": "string", "default": "d"})),
        Just(json!({"type": "integer", "nullable": true})),
        Just(json!({"x-kubernetes-preserve-unknown-fields": true})),
        Just(json!({"x-kubernetes-int-or-string": true})),
        any_json(),
    ];
    leaf.prop_recursive(4, 30, 4, |inner| {
        let keys = prop::sample::select(vec!["metadata", "spec", "status", "a", "b", "name", "items"]);
        prop_oneof![
            (prop::collection::btree_map(keys, inner.clone(), 0..5), any::<bool>()).prop_map(
                |(fields, keep)| {
                    json!({"type": "object", "properties": fields, "default": {},
                    "x-kubernetes-preserve-unknown-fields": keep})
                }
            ),
            inner
                .clone()
                .prop_map(|items| json!({"type": "array", "items": items, "x-kubernetes-list-type": "set"})),
            inner.clone().prop_map(|value| json!({"type": "object", "additionalProperties": value})),
            inner.prop_map(|value| json!({"anyOf": [value.clone()], "not": value})),
        ]
    })
}

proptest! {
    #[test]
    fn pruning_twice_is_pruning_once(schema in any_schema(), mut object in any_json()) {
        let schema = Schema::parse(&schema);
        schema.prune(&mut object);
        let mut again = object.clone();
        prop_assert_eq!(schema.prune(&mut again), Vec::<String>::new());
        prop_assert_eq!(again, object);
    }

    #[test]
    fn defaulting_twice_is_defaulting_once(schema in any_schema(), mut object in any_json()) {
        let schema = Schema::parse(&schema);
        schema.set_defaults(&mut object);
        let mut again = object.clone();
        schema.set_defaults(&mut again);
        prop_assert_eq!(again, object);
    }

    #[test]
    fn an_update_without_changes_has_no_schema_errors(schema in any_schema(), object in any_json()) {
        let schema = Schema::parse(&schema);
        prop_assert_eq!(validate::causes(&schema, &object, Some(&object), ""), Vec::new());
    }

    #[test]
    fn nothing_panics(schema in any_schema(), object in any_json(), old in any_json()) {
        let schema = Schema::parse(&schema);
        let _ = schema.check_create(&object);
        let _ = schema.check_update(&object, &old);
        let _ = schema.check_status(&object, &old);
        let _ = schema.check_value(&object);
    }

    #[test]
    fn no_rule_panics(text in "[a-z.!=<>&|()'\" é]{0,24}", value in any_json(), old in any_json()) {
        let schema = Schema::parse(&json!({"x-kubernetes-validations": [{ "rule": text }]}));
        let _ = schema.check_update(&value, &old);
    }
}

/// Runs work that takes minutes if it grows with the square of its input.
fn in_time<T>(work: impl FnOnce() -> T) -> T {
    let start = restow_clock::Instant::now();
    let done = work();
    assert!(start.elapsed() < std::time::Duration::from_secs(30), "{:?}", start.elapsed());
    done
}

#[test]
fn validation_of_very_invalid_objects_is_bounded() {
    let schema = |items: Value| {
        Schema::parse(&json!({"type": "object", "properties": {"spec": {"type": "array", "items": items}}}))
    };
    let many = |item: Value| json!({"spec": vec![item; 400_000]});
    for (schema, object) in [
        (schema(json!({"type": "string"})), many(json!(1))),
        (schema(json!({"type": "object", "required": ["a"]})), many(json!({}))),
        (schema(json!({"anyOf": [{"type": "string"}, {"type": "boolean"}]})), many(json!(1))),
        (
            schema(json!({"type": "integer", "x-kubernetes-validations": [{"rule": "self > 1"}]})),
            many(json!(1)),
        ),
        (schema(json!({"type": "object", "x-kubernetes-embedded-resource": true})), many(json!({}))),
    ] {
        let causes = in_time(|| schema.check_create(&object));
        assert!((100..400).contains(&causes.len()), "{}", causes.len());
    }
}

#[test]
fn large_lists_with_keys_are_compared_in_linear_time() {
    let schema = Schema::parse(&json!({"type": "object", "properties": {"spec": {
        "type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"],
        "items": {"type": "object", "properties": {
            "k": {"type": "integer"},
            "v": {"type": "integer", "x-kubernetes-validations": [{"rule": "self >= oldSelf"}]},
        }},
    }}}));
    let list = |v: u32| json!({"spec": (0..60_000).map(|k| json!({"k": k, "v": v})).collect::<Vec<_>>()});
    let (old, new) = (list(1), list(2));
    assert_eq!(in_time(|| schema.check_update(&new, &old)), []);
    assert!(!in_time(|| schema.check_update(&old, &new)).is_empty());
}

/// The work of a request grows with its bytes, not with the items times the length of their path.
#[test]
fn items_below_a_long_key_are_checked_in_linear_time() {
    let key = "k".repeat(1_500_000);
    let strings = json!({"type": "array", "items": {"type": "string", "maxLength": 3, "minLength": 1}});
    let objects = json!({"type": "array", "items": {"type": "object"}});
    let start = restow_clock::Instant::now();
    for (kind, item, is_valid, is_kept) in [
        (&strings, json!("a"), true, true),
        (&strings, json!("aaaa"), false, true),
        (&objects, json!({"b": 1}), true, false),
    ] {
        let schema = Schema::parse(&json!({"type": "object", "additionalProperties": kind}));
        let mut object = json!({});
        object[&key] = Value::Array(vec![item; 300_000]);
        let dropped = schema.prune(&mut object);
        assert_eq!(dropped.is_empty(), is_kept);
        assert!(dropped.iter().map(String::len).sum::<usize>() < 1_000_000);
        let causes = schema.check_create(&object);
        assert_eq!(causes.is_empty(), is_valid);
        assert!(causes.iter().map(|cause| cause.field.len()).sum::<usize>() < 1_000_000);
    }
    assert!(start.elapsed() < std::time::Duration::from_secs(60), "{:?}", start.elapsed());
}
