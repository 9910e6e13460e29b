//! What was kept is restored unless somebody changed what it belonged to.

use restow_convert::{ANNOTATION, Chain, Convertible};
use serde_json::{Value, json};

use crate::versions::{chain, v1, v1beta1, widget};

/// One edit between the way there and the way back.
struct Case {
    name: &'static str,
    /// The spec in v1alpha1.
    original: Value,
    /// What somebody does to the object in v1.
    edit: fn(&mut Value),
    /// The spec in v1alpha1 afterwards.
    expected: Value,
}

#[test]
fn what_nobody_changed_is_restored_and_what_somebody_changed_is_not() {
    let port =
        |name: &str, number: u16, comment: &str| json!({"name": name, "number": number, "comment": comment});
    let cases = [
        Case {
            name: "a field that v1 does not have survives an edit of another one",
            original: json!({"address": "a:1", "legacy": true}),
            edit: |widget| widget["spec"]["host"] = json!("b"),
            expected: json!({"address": "b:1", "legacy": true}),
        },
        Case {
            name: "a spelling survives as long as the value is the same",
            original: json!({"address": "a:0080", "color": "green"}),
            edit: |widget| widget["spec"]["replicas"] = json!(1),
            expected: json!({"address": "a:0080", "color": "green"}),
        },
        Case {
            name: "a spelling is dropped when the value was changed",
            original: json!({"address": "a:0080"}),
            edit: |widget| widget["spec"]["port"] = json!(81),
            expected: json!({"address": "a:81"}),
        },
        Case {
            name: "an enum value that v1 does not know survives",
            original: json!({"address": "a:1", "color": "green"}),
            edit: |_| {},
            expected: json!({"address": "a:1", "color": "green"}),
        },
        Case {
            name: "an enum value that v1 does not know is dropped when another one was chosen",
            original: json!({"address": "a:1", "color": "green"}),
            edit: |widget| widget["spec"]["colour"] = json!("Red"),
            expected: json!({"address": "a:1", "color": "red"}),
        },
        Case {
            name: "a named element that v1 cannot express comes back to its place",
            original: json!({"address": "a:1", "ports": [port("a", 1, "x"), port("b", 2, "y"), port("c", 3, "z")]}),
            edit: |widget| widget["spec"]["ports"][1]["number"] = json!(5),
            expected: json!({"address": "a:1", "ports": [port("a", 1, "x"), port("b", 2, "y"), port("c", 5, "z")]}),
        },
        Case {
            name: "a named element that was removed stays removed, with all that was kept of it",
            original: json!({"address": "a:1", "ports": [port("a", 1, "x"), port("c", 3, "z")]}),
            edit: |widget| drop(widget["spec"]["ports"].as_array_mut().unwrap().remove(0)),
            expected: json!({"address": "a:1", "ports": [port("c", 3, "z")]}),
        },
        Case {
            name: "a named element keeps what belongs to it when the list is put into another order",
            original: json!({"address": "a:1", "ports": [port("a", 1, "x"), port("c", 3, "z")]}),
            edit: |widget| widget["spec"]["ports"].as_array_mut().unwrap().reverse(),
            expected: json!({"address": "a:1", "ports": [port("c", 3, "z"), port("a", 1, "x")]}),
        },
        Case {
            name: "an element that was added under the name of a kept one stays, and is taken for the same",
            original: json!({"address": "a:1", "ports": [port("a", 1, "x"), port("b", 2, "y")]}),
            edit: |widget| {
                widget["spec"]["ports"].as_array_mut().unwrap().push(json!({"name": "b", "number": 9}));
            },
            expected: json!({"address": "a:1", "ports": [port("a", 1, "x"), port("b", 9, "y")]}),
        },
        Case {
            name: "a field of v1 alone does no harm",
            original: json!({"address": "a:1", "legacy": false}),
            edit: |widget| widget["spec"]["zone"] = json!("north"),
            expected: json!({"address": "a:1", "legacy": false}),
        },
        Case {
            name: "whoever takes the annotation away gives up what was in it",
            original: json!({"address": "a:1", "legacy": false}),
            edit: |widget| {
                drop(widget["metadata"]["annotations"].as_object_mut().unwrap().remove(ANNOTATION))
            },
            expected: json!({"address": "a:1"}),
        },
        Case {
            name: "an annotation that cannot be read restores nothing and breaks nothing",
            original: json!({"address": "a:1", "legacy": false}),
            edit: |widget| widget["metadata"]["annotations"][ANNOTATION] = json!("{not JSON"),
            expected: json!({"address": "a:1"}),
        },
    ];
    for Case { name, original, edit, expected } in cases {
        let chain = chain();
        let mut new = chain.convert(widget("v1alpha1", original), "v1").unwrap();
        edit(&mut new);
        assert_eq!(chain.convert(new, "v1alpha1").unwrap()["spec"], expected, "{name}");
    }
}

#[test]
fn an_element_without_a_name_is_recognised_by_its_content() {
    let chain = chain();
    // Two ports of one name: the list has no keys.
    let port = |number: u16, comment: &str| json!({"name": "p", "number": number, "comment": comment});
    let original = widget("v1alpha1", json!({"address": "a:1", "ports": [port(1, "x"), port(3, "y")]}));
    let beta = chain.convert(original, "v1beta1").unwrap();
    let edited = |edit: &dyn Fn(&mut Vec<Value>)| {
        let mut beta = beta.clone();
        edit(beta["spec"]["ports"].as_array_mut().unwrap());
        chain.convert(beta, "v1alpha1").unwrap()["spec"]["ports"].clone()
    };
    assert_eq!(edited(&|ports| ports.reverse()), json!([port(3, "y"), port(1, "x")]));
    assert_eq!(edited(&|ports| drop(ports.remove(0))), json!([port(3, "y")]));
    let changed = edited(&|ports| ports[0]["number"] = json!(7));
    assert_eq!(changed, json!([{"name": "p", "number": 7}, port(3, "y")]));
}

#[test]
fn what_v1_alone_has_survives_an_edit_in_the_oldest_version() {
    let chain = chain();
    let original = widget("v1", json!({"host": "a", "port": 1, "replicas": 3, "zone": "north"}));
    let mut old = chain.convert(original, "v1alpha1").unwrap();
    assert_eq!(old["spec"], json!({"address": "a:1"}));
    old["spec"]["address"] = json!("b:2");
    let expected = json!({"host": "b", "port": 2, "replicas": 3, "zone": "north"});
    assert_eq!(chain.convert(old, "v1").unwrap()["spec"], expected);
}

#[test]
fn nothing_is_annotated_when_nothing_would_be_lost() {
    let chain = chain();
    let spec = json!({"host": "a", "port": 1, "replicas": 3, "colour": "Red"});
    let beta = chain.convert(widget("v1", spec), "v1beta1").unwrap();
    assert_eq!(beta["metadata"].get("annotations"), None);
}

#[test]
fn the_annotation_cannot_change_what_a_conversion_may_not_change() {
    let chain = chain();
    let forged = json!({"v1beta1": [
        {"path": ["metadata", "name"], "value": "other", "was": null},
        {"path": ["metadata", "uid"], "value": "other"},
        {"path": ["kind"], "value": "Secret"},
        {"path": ["apiVersion"], "value": "v1"},
        {"path": [], "value": {}},
        {"path": ["metadata", "finalizers"], "value": ["x"]},
    ]});
    for entries in forged["v1beta1"].as_array().unwrap() {
        let mut new = widget("v1", json!({"host": "a", "port": 1, "replicas": 3}));
        let plain = chain.convert(new.clone(), "v1beta1").unwrap();
        let text = json!({"v1beta1": [entries]}).to_string();
        new["metadata"]["annotations"] = json!({ANNOTATION: text});
        assert_eq!(chain.convert(new, "v1beta1").unwrap(), plain, "{entries}");
    }
}

#[test]
fn defaults_that_an_api_server_fills_in_are_not_edits() {
    // v1 gives a missing colour the default Red, which v1beta1 would see as "red".
    let schema = json!({"type": "object", "properties": {"spec": {"type": "object", "properties": {
        "colour": {"type": "string", "default": "Red"},
    }}}});
    let definition = serde_json::from_value(json!({
        "metadata": {"name": "widgets.example.com"},
        "spec": {
            "group": "example.com", "scope": "Namespaced", "names": {"kind": "Widget", "plural": "widgets"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema}}],
        },
    }))
    .unwrap();
    let chain =
        Chain::oldest::<v1beta1::Widget>().then::<v1::Widget>().definition(&definition).build().unwrap();
    let original = widget("v1beta1", json!({"host": "a", "port": 1}));
    let mut new = chain.convert(original.clone(), "v1").unwrap();
    assert_eq!(chain.convert(new.clone(), "v1beta1").unwrap(), original);
    new["spec"]["colour"] = json!("Red");
    assert_eq!(chain.convert(new.clone(), "v1beta1").unwrap()["spec"], original["spec"]);
    new["spec"]["colour"] = json!("Other");
    assert_eq!(chain.convert(new, "v1beta1").unwrap()["spec"]["color"], json!("other"));
}
