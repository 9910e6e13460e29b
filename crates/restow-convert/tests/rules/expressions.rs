//! CEL expressions in rules: checked against the CRD, computed in both directions, refused by the field.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use restow_convert::rules::{ConversionRulesSpec, compile, generate};
use restow_convert::{Chain, Convertible as _, try_on};
use serde_json::{Value, json};

/// v1beta1 has a total, a count and a name; v1 has a share, a first and a last name.
fn definition() -> CustomResourceDefinition {
    let version = |name: &str, fields: Value| {
        let spec = json!({"type": "object", "properties": fields});
        json!({
            "name": name, "served": true, "storage": name == "v1",
            "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": spec}}},
        })
    };
    let (text, integer) = (json!({"type": "string"}), json!({"type": "integer"}));
    let ports = |field: &str, kind: &Value| {
        let item = json!({"type": "object", "properties": {"name": {"type": "string"}, field: kind}});
        json!({"type": "array", "items": item})
    };
    let old = json!({"total": integer, "count": integer, "name": text, "ports": ports("range", &text)});
    let new = json!({"share": integer, "first": text, "last": text, "ports": ports("width", &integer)});
    serde_json::from_value(json!({
        "metadata": {"name": "widgets.example.com"},
        "spec": {
            "group": "example.com", "scope": "Namespaced", "names": {"kind": "Widget", "plural": "widgets"},
            "versions": [version("v1beta1", old), version("v1", new)],
        },
    }))
    .unwrap()
}

fn rules(share: &str) -> ConversionRulesSpec {
    serde_json::from_value(json!({
        "group": "example.com", "kind": "Widget",
        "hops": [{"older": "v1beta1", "newer": "v1", "rules": [
            {"cel": {
                "older": [{"path": "spec.total"}, {"path": "spec.count"}],
                "newer": [{"path": "spec.share", "value": share}],
            }},
            {"cel": {
                "older": [{"path": "spec.name", "value":
                    "(has(self.spec.first) ? self.spec.first : '') + (has(self.spec.last) ? ' ' + self.spec.last : '')"}],
                "newer": [
                    {"path": "spec.first", "value": "self.spec.name.split(' ')[0]"},
                    {"path": "spec.last", "value":
                        "self.spec.name.contains(' ') ? self.spec.name.substring(self.spec.name.indexOf(' ') + 1) : null"},
                ],
            }},
            {"each": {"older": "spec.ports", "newer": "spec.ports", "rules": [{"cel": {
                "older": [{"path": "range", "value": "'0-' + string(self.width)"}],
                "newer": [{"path": "width", "value": "size(self.range)"}],
            }}]}},
        ]}],
    }))
    .unwrap()
}

const SHARE: &str = "has(self.spec.total) && has(self.spec.count) ? self.spec.total / self.spec.count : null";

fn chain() -> Chain {
    compile(&rules(SHARE), &definition()).unwrap()
}

fn widget(version: &str, spec: Value) -> Value {
    json!({"apiVersion": format!("example.com/{version}"), "kind": "Widget", "metadata": {"name": "w"}, "spec": spec})
}

#[test]
fn fields_are_computed_and_what_has_no_inverse_is_kept() {
    let cases = [
        (json!({"total": 7, "count": 2}), json!({"share": 3})),
        (json!({"total": 7}), json!({})),
        (json!({"name": "Ada King Lovelace"}), json!({"first": "Ada", "last": "King Lovelace"})),
        (json!({"name": "Ada"}), json!({"first": "Ada"})),
        (
            json!({"ports": [{"name": "a", "range": "1-5"}, {"name": "b"}]}),
            json!({"ports": [{"name": "a", "width": 3}, {"name": "b"}]}),
        ),
    ];
    for (older, newer) in cases {
        let old = widget("v1beta1", older);
        let new = chain().convert(old.clone(), "v1").unwrap();
        assert_eq!(new["spec"], newer, "{old}");
        assert_eq!(chain().convert(new, "v1beta1").unwrap(), old);
    }
    let new = widget("v1", json!({"share": 5, "last": "King"}));
    let old = chain().convert(new.clone(), "v1beta1").unwrap();
    assert_eq!(old["spec"], json!({"name": " King"}));
    assert_eq!(chain().convert(old, "v1").unwrap(), new);
}

#[test]
fn an_object_without_a_value_is_refused_by_the_field() {
    let error = chain().convert(widget("v1beta1", json!({"total": 1, "count": 0})), "v1").unwrap_err();
    let source = std::error::Error::source(&error).unwrap().to_string();
    assert_eq!(source, format!("spec.share: division by zero, in the expression {SHARE}"));
    // Others are not harmed.
    chain().convert(widget("v1beta1", json!({"total": 1, "count": 1})), "v1").unwrap();
}

#[test]
fn wrong_expressions_are_reported_with_their_field() {
    let cases = [
        ("self.spec.total +", "it cannot be parsed"),
        (
            "self.spec.name",
            "it reads self.spec.name, but the rule is not about that field of the other version",
        ),
        ("string(self.spec.total)", "is not of type integer"),
        ("Message{a: 1}", "it makes a message"),
    ];
    for (share, expected) in cases {
        let problems = compile(&rules(share), &definition()).err().unwrap();
        let [problem] = &problems[..] else { panic!("{share}: {problems:#?}") };
        assert_eq!(problem.path.as_deref(), Some("spec.share"), "{share}");
        assert!(problem.problem.contains(expected), "{share}: {problem}");
    }
}

#[test]
fn generated_objects_survive_or_are_refused() {
    let trials = try_on(&chain(), generate(&rules(SHARE), &chain(), 100, 7)).unwrap();
    for trial in trials {
        assert!(trial.lost.is_empty(), "{trial:#?}");
        assert!(
            trial.refused.iter().all(|refusal| refusal.message.contains("division by zero")),
            "{trial:#?}"
        );
    }
}
