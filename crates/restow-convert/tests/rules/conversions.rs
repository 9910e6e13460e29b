//! What each kind of rule makes of a value, there and back.

use proptest::prelude::*;
use proptest::{collection, option};
use restow_convert::Convertible;
use serde_json::{Map, Value, json};

use crate::fixture::{backup, chain};

/// What rules add to every object that comes from v1beta1.
fn with_additions(mut spec: Value) -> Value {
    spec["replicas"] = json!(1);
    spec["api"] = json!("stable");
    spec
}

#[test]
fn each_rule_converts_there_and_back() {
    let cases = [
        ("nothing", json!({}), json!({})),
        ("a field that is the same", json!({"unchanged": {"a": "x"}}), json!({"unchanged": {"a": "x"}})),
        ("rename", json!({"color": "red"}), json!({"colour": "red"})),
        ("move", json!({"place": {"shelf": "3"}}), json!({"shelf": "3"})),
        ("split", json!({"target": "a:80"}), json!({"host": "a", "port": 80})),
        ("split without the last part", json!({"target": "a"}), json!({"host": "a"})),
        ("split of another spelling", json!({"target": "a:080"}), json!({"host": "a", "port": 80})),
        ("enum", json!({"mode": "fast"}), json!({"mode": "Fast"})),
        ("enum value with two older names", json!({"mode": "slow"}), json!({"mode": "Safe"})),
        ("type", json!({"retries": "3"}), json!({"retries": 3})),
        ("scale", json!({"timeoutSeconds": 2}), json!({"timeoutMillis": 2000})),
        ("quantity", json!({"memory": "1Gi"}), json!({"memoryMiB": 1024})),
        ("quantity that needs rounding", json!({"memory": "1500k"}), json!({"memoryMiB": 1})),
        ("duration", json!({"interval": "1h30m"}), json!({"intervalSeconds": 5400})),
        ("wrap", json!({"image": "a"}), json!({"images": ["a"]})),
        ("unwrap", json!({"hosts": ["a", "b"]}), json!({"host0": "a"})),
        ("unwrap of an empty list", json!({"hosts": []}), json!({})),
        ("remove", json!({"legacy": true}), json!({})),
        (
            "list to map",
            json!({"env": [{"name": "b", "value": "1"}, {"name": "a", "value": "2"}]}),
            json!({"env": {"a": "2", "b": "1"}}),
        ),
        (
            "map to list",
            json!({"volumes": {"b": {"size": 1}, "a": {}}}),
            json!({"volumes": [{"name": "a"}, {"name": "b", "size": 1}]}),
        ),
        (
            "each",
            json!({"ports": [{"name": "a", "port": "80", "note": "x"}, {"name": "b", "port": "081"}]}),
            json!({"ports": [{"name": "a", "number": 80}, {"name": "b", "number": 81}]}),
        ),
        ("null", json!({"color": null}), json!({"colour": null})),
        ("a field that no schema knows", json!({"unknown": 1}), json!({})),
    ];
    for (name, older, newer) in cases {
        let old = backup("v1beta1", older);
        let new = chain().convert(old.clone(), "v1").unwrap();
        assert_eq!(new["spec"], with_additions(newer), "{name}");
        assert_eq!(chain().convert(new, "v1beta1").unwrap(), old, "{name}");
    }
}

#[test]
fn what_only_the_newer_version_can_express_is_kept_too() {
    let cases = [
        (json!({"timeoutMillis": 1500}), json!({"timeoutSeconds": 1})),
        (json!({"images": ["a", "b"]}), json!({"image": "a"})),
        (json!({"replicas": 5, "api": "other"}), json!({})),
        (
            json!({"volumes": [{"name": "b", "size": 1}, {"name": "a", "size": 2}]}),
            json!({"volumes": {"a": {"size": 2}, "b": {"size": 1}}}),
        ),
    ];
    for (newer, older) in cases {
        let new = backup("v1", newer);
        let old = chain().convert(new.clone(), "v1beta1").unwrap();
        assert_eq!(old["spec"], older, "{new}");
        assert_eq!(chain().convert(old, "v1").unwrap(), new);
    }
}

#[test]
fn a_loss_that_the_author_accepts_is_not_kept() {
    let new = chain().convert(backup("v1beta1", json!({"comment": "x"})), "v1").unwrap();
    assert_eq!(new["metadata"].get("annotations"), None);
    assert_eq!(chain().convert(new, "v1beta1").unwrap(), backup("v1beta1", json!({})));
}

#[test]
fn a_value_without_an_answer_is_refused_by_its_path() {
    let cases = [
        (json!({"mode": "warp"}), "spec.mode: no rule for this value: \"warp\""),
        (json!({"retries": "many"}), "spec.retries: not an integer: \"many\""),
        (json!({"target": "a:b"}), "spec.target: not an integer: \"b\""),
        (json!({"memory": "1 Gi"}), "spec.memory: not a quantity, or too large: \"1 Gi\""),
        (json!({"interval": "soon"}), "spec.interval: not a duration, or too large: \"soon\""),
        (
            json!({"timeoutSeconds": i64::MAX}),
            "spec.timeoutSeconds: not a number that can be scaled: 9223372036854775807",
        ),
        (json!({"hosts": "a"}), "spec.hosts: not a list: \"a\""),
        (
            json!({"env": [{"name": "a"}, {"name": "a"}]}),
            "spec.env: two elements have the same key: [{\"name\":\"a\"},{\"name\":\"a\"}]",
        ),
        (json!({"ports": [{"port": "1"}, {"port": "x"}]}), "spec.ports[1].port: not an integer: \"x\""),
    ];
    for (spec, expected) in cases {
        let error = chain().convert(backup("v1beta1", spec), "v1").unwrap_err();
        assert_eq!(error.to_string(), "cannot convert from v1beta1 to v1");
        assert_eq!(std::error::Error::source(&error).unwrap().to_string(), expected);
    }
}

/// A valid spec of v1beta1.
fn spec() -> impl Strategy<Value = Value> {
    let text = || option::of("[a-z]{0,3}".prop_map(Value::from)).boxed();
    let number = || option::of((0..5000_i64).prop_map(Value::from)).boxed();
    let ports = collection::vec(("[ab]", "0?[0-9]{1,3}", option::of("[a-z]")), 0..4).prop_map(|ports| {
        let ports = ports.into_iter().map(|(name, port, note)| match note {
            None => json!({"name": name, "port": port}),
            Some(note) => json!({"name": name, "port": port, "note": note}),
        });
        ports.collect::<Value>()
    });
    let env = collection::btree_map("[a-d]", "[a-z]{0,2}", 0..4).prop_map(|env| {
        env.into_iter().rev().map(|(name, value)| json!({"name": name, "value": value})).collect::<Value>()
    });
    let volumes = collection::hash_map("[a-d]", 0..9, 0..4).prop_map(|volumes| {
        Value::Object(
            volumes.into_iter().map(|(name, size)| (name, json!({"size": size}))).collect::<Map<_, _>>(),
        )
    });
    let fields: Vec<(&str, BoxedStrategy<Option<Value>>)> = vec![
        ("color", text()),
        ("place", option::of("[a-z]{0,2}".prop_map(|shelf| json!({"shelf": shelf}))).boxed()),
        ("target", option::of("[a-z]{0,2}(:0?[0-9]{1,4})?".prop_map(Value::from)).boxed()),
        ("mode", option::of("fast|safe|slow".prop_map(Value::from)).boxed()),
        ("retries", option::of("-?0?[0-9]{1,4}".prop_map(Value::from)).boxed()),
        ("timeoutSeconds", number()),
        ("memory", option::of("[0-9]{1,3}(\\.5)?(Ki|Mi|Gi|k|M|m)?".prop_map(Value::from)).boxed()),
        (
            "interval",
            option::of("([0-9]{1,2}h)?([0-9]{1,2}m)?[0-9]{1,2}(\\.5)?s".prop_map(Value::from)).boxed(),
        ),
        ("image", text()),
        ("hosts", option::of(collection::vec("[a-z]", 0..3).prop_map(Value::from)).boxed()),
        ("legacy", option::of(any::<bool>().prop_map(Value::from)).boxed()),
        ("env", option::of(env).boxed()),
        ("volumes", option::of(volumes).boxed()),
        ("ports", option::of(ports).boxed()),
        ("unknown", text()),
    ];
    let (names, values): (Vec<_>, Vec<_>) = fields.into_iter().unzip();
    values.prop_map(move |values| {
        let fields = names.iter().zip(values).filter_map(|(name, value)| Some(((*name).to_owned(), value?)));
        Value::Object(fields.collect::<Map<_, _>>())
    })
}

proptest! {
    #[test]
    fn there_and_back_is_the_original(spec in spec()) {
        let old = backup("v1beta1", spec);
        let chain = chain();
        let new = chain.convert(old.clone(), "v1").unwrap();
        prop_assert_eq!(chain.convert(new, "v1beta1").unwrap(), old);
    }

    #[test]
    fn the_newer_version_survives_the_way_through_the_older_one(spec in spec(), replicas in 0..9) {
        let chain = chain();
        let mut new = chain.convert(backup("v1beta1", spec), "v1").unwrap();
        new["spec"]["replicas"] = json!(replicas);
        let old = chain.convert(new.clone(), "v1beta1").unwrap();
        prop_assert_eq!(chain.convert(old, "v1").unwrap(), new);
    }
}
