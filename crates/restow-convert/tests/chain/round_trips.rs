//! There and back equals the original, for every pair of versions and whatever the types do not know.

use proptest::prelude::*;
use proptest::{collection, option};
use restow_convert::Convertible;
use serde_json::{Map, Value, json};

use crate::versions::{VERSIONS, chain, widget};

/// Any JSON value, three levels deep.
fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i32>().prop_map(Value::from),
        (-1e6..1e6).prop_map(Value::from),
        "[a-z.:]{0,6}".prop_map(Value::from),
    ];
    leaf.prop_recursive(3, 24, 4, |inner| {
        prop_oneof![
            collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            collection::hash_map("[a-c]|name", inner, 0..4)
                .prop_map(|fields| Value::Object(fields.into_iter().collect::<Map<_, _>>())),
        ]
    })
}

/// Sets a field if there is a value for it.
fn set(object: &mut Value, name: &str, value: Option<Value>) {
    if let Some(value) = value {
        object[name] = value;
    }
}

/// Ports, some with equal names and some with fields that no version knows.
fn ports(with_comment: bool) -> impl Strategy<Value = Value> {
    let comment = option::of("[a-z]{0,3}").prop_map(move |comment| comment.filter(|_| with_comment));
    let port =
        ("[a-d]", 1..100u16, comment, option::of(any_json())).prop_map(|(name, number, comment, unknown)| {
            let mut port = json!({"name": name, "number": number});
            set(&mut port, "comment", comment.map(Value::from));
            set(&mut port, "unknown", unknown);
            port
        });
    collection::vec(port, 1..5).prop_map(Value::from)
}

/// A valid spec of each version, with fields that no version knows.
fn spec(version: &'static str) -> BoxedStrategy<Value> {
    let address = ("[a-z]{1,4}", option::of(1..2000u16));
    let color = option::of("red|green|blue");
    let rest = (
        option::of(ports(version == "v1alpha1")),
        option::of(collection::vec("[a-z]{0,2}", 1..4)),
        option::of(0..4u32),
        option::of(any_json()),
        option::of(any::<bool>()),
    );
    (address, color, rest)
        .prop_map(move |((host, port), color, (ports, args, replicas, unknown, flag))| {
            let mut spec = json!({});
            let mut set = |name: &str, value: Option<Value>| set(&mut spec, name, value);
            if version == "v1alpha1" {
                let address = port.map_or(host.clone(), |port| format!("{host}:{port:04}"));
                set("address", Some(address.into()));
                set("legacy", flag.map(Value::from));
            } else {
                set("host", Some(host.into()));
                set("port", Some(port.unwrap_or(80).into()));
            }
            if version == "v1" {
                set("colour", color.map(|color| json!(if color == "red" { "Red" } else { "Other" })));
                set("replicas", Some(replicas.unwrap_or(2).into()));
                set("zone", flag.map(|_| json!("north")));
            } else {
                set("color", color.map(Value::from));
            }
            if version == "v1beta1" {
                set("replicas", replicas.map(Value::from));
            }
            set("ports", ports);
            set("args", args.map(Value::from));
            set("unknown", unknown);
            spec
        })
        .boxed()
}

/// A whole object of some version, with a status and labels.
fn object() -> impl Strategy<Value = Value> {
    let spec =
        proptest::sample::select(&VERSIONS[..]).prop_flat_map(|version| (Just(version), spec(version)));
    let labels = option::of(collection::hash_map("[a-z]{1,3}", "[a-z]{0,3}", 1..3));
    let annotations = option::of(collection::hash_map("[a-z]{1,3}", "[a-z]{0,3}", 1..3));
    (spec, labels, annotations, option::of(any_json())).prop_map(
        |((version, spec), labels, annotations, status)| {
            let mut object = widget(version, spec);
            set(&mut object["metadata"], "labels", labels.map(|labels| json!(labels)));
            set(&mut object["metadata"], "annotations", annotations.map(|annotations| json!(annotations)));
            set(&mut object, "status", status);
            object
        },
    )
}

proptest! {
    #[test]
    fn a_walk_through_any_versions_and_back_gives_the_original(
        original in object(),
        walk in collection::vec(proptest::sample::select(&VERSIONS[..]), 1..6),
    ) {
        let chain = chain();
        let home = original["apiVersion"].as_str().unwrap().split_once('/').unwrap().1.to_owned();
        let mut at = original.clone();
        for version in walk {
            at = chain.convert(at, version).unwrap();
            prop_assert_eq!(&at["apiVersion"], &json!(format!("example.com/{version}")));
            prop_assert_eq!(&at["metadata"]["uid"], &original["metadata"]["uid"]);
        }
        prop_assert_eq!(chain.convert(at, &home).unwrap(), original);
    }

    #[test]
    fn the_way_does_not_matter(original in object(), detour in proptest::sample::select(&VERSIONS[..])) {
        let chain = chain();
        for version in VERSIONS {
            let straight = chain.convert(original.clone(), version).unwrap();
            let around = chain.convert(chain.convert(original.clone(), detour).unwrap(), version).unwrap();
            prop_assert_eq!(straight, around, "to {} by way of {}", version, detour);
        }
    }
}
