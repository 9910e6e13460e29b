//! Rules are checked against the schemas before they are used.

use restow_convert::rules::{ConversionRulesSpec, Rule, compile};
use serde_json::{Value, json};

use crate::fixture::{definition, rules};

/// The problems of the fixture's rules after a change.
fn problems(change: impl FnOnce(&mut ConversionRulesSpec)) -> Vec<String> {
    let mut rules = rules();
    change(&mut rules);
    compile(&rules, &definition()).map(drop).unwrap_err().iter().map(ToString::to_string).collect()
}

fn rule(value: Value) -> Rule {
    serde_json::from_value(value).unwrap()
}

#[test]
fn a_field_without_a_rule_is_reported_with_a_proposal() {
    let without = |place: usize| problems(|rules| drop(rules.hops[0].rules.remove(place)));
    assert_eq!(
        without(0),
        [
            "between v1beta1 and v1: spec.color: the newer version has no such field; for example, add the rule \
          {\"rename\":{\"older\":\"spec.color\",\"newer\":\"spec.colour\"}}"
        ]
    );
    assert_eq!(
        without(4),
        [
            "between v1beta1 and v1: spec.retries: the versions have different schemas for this field; for example, add \
          the rule {\"type\":{\"older\":\"spec.retries\",\"newer\":\"spec.retries\",\"olderType\":\"string\",\
          \"newerType\":\"integer\"}}"
        ]
    );
    assert_eq!(
        without(10),
        [
            "between v1beta1 and v1: spec.legacy: the newer version has no such field; for example, add the rule \
          {\"remove\":{\"older\":\"spec.legacy\"}}"
        ]
    );
    let last = rules().hops[0].rules.len() - 1;
    assert_eq!(without(last).len(), 1, "{:?}", without(last));
    assert!(
        without(last)[0].contains("add the rule {\"each\":{\"older\":\"spec.ports\""),
        "{:?}",
        without(last)
    );
}

#[test]
fn rules_that_do_not_fit_the_schemas_are_refused() {
    let mode = |newer: &str| {
        json!({"enum": {"older": "spec.mode", "newer": "spec.mode", "values": [
            {"older": "fast", "newer": "Fast"}, {"older": "safe", "newer": newer}, {"older": "slow", "newer": "Safe"},
        ]}})
    };
    // The place of a rule, what takes its place, and a part of what is reported.
    let cases = [
        (
            0,
            json!({"rename": {"older": "spec.colr", "newer": "spec.colour"}}),
            "spec.colr: the older version has no such field, but a rule is about it",
        ),
        (
            0,
            json!({"rename": {"older": "spec.color", "newer": "spec.retries"}}),
            "spec.color: spec.retries has another type",
        ),
        (
            1,
            json!({"rename": {"older": "spec.place.shelf", "newer": "spec.shelf"}}),
            "spec.shelf is in another object; use move",
        ),
        (
            2,
            json!({"split": {"older": "spec.target", "separator": "", "newer": [{"path": "spec.host"}, {"path": "spec.port", "type": "integer"}]}}),
            "spec.target: the separator is empty",
        ),
        (
            2,
            json!({"split": {"older": "spec.target", "separator": ":", "newer": [{"path": "spec.host"}, {"path": "spec.port"}]}}),
            "spec.port: its type is integer, but the rule needs string",
        ),
        (3, mode("Slow"), "spec.mode: the schema does not allow the value Slow"),
        (
            3,
            json!({"enum": {"older": "spec.mode", "newer": "spec.mode", "values": [{"older": "fast", "newer": "Fast"}]}}),
            "spec.mode: the rule has no pair for the value slow",
        ),
        (
            4,
            json!({"type": {"older": "spec.retries", "newer": "spec.retries", "olderType": "integer", "newerType": "integer"}}),
            "spec.retries: its type is string",
        ),
        (
            5,
            json!({"scale": {"older": "spec.timeoutSeconds", "newer": "spec.timeoutMillis", "factor": 0}}),
            "spec.timeoutSeconds: the factor must be a number other than 0",
        ),
        (
            6,
            json!({"quantity": {"older": "spec.memory", "newer": "spec.memoryMiB", "newerUnit": "MB"}}),
            "spec.memoryMiB: there is no unit MB",
        ),
        (
            6,
            json!({"quantity": {"older": "spec.memory", "newer": "spec.memoryMiB"}}),
            "spec.memoryMiB: its type is integer, but the rule needs string or int-or-string",
        ),
        (
            8,
            json!({"unwrap": {"older": "spec.image", "newer": "spec.images"}}),
            "spec.image: its type is string, but the rule needs array",
        ),
        (
            11,
            json!({"remove": {"older": "spec.comment", "lossy": " "}}),
            "a remove rule that is lossy gives no reason",
        ),
        (10, json!({"remove": {}}), "a remove rule names no field"),
        (
            12,
            json!({"default": {"newer": "spec.replicas", "value": "one"}}),
            "spec.replicas: its type is integer, which \"one\" is not",
        ),
        (
            12,
            json!({"default": {"older": "spec.legacy", "newer": "spec.replicas", "value": 1}}),
            "names a field of exactly one version",
        ),
        (
            12,
            json!({"rename": {"older": "spec.color", "newer": "spec.colour"}}),
            "spec.color: two rules are about this field",
        ),
        (
            12,
            json!({"remove": {"older": "metadata.name"}}),
            "metadata.name: the older version has no such field",
        ),
        (
            14,
            json!({"mapToList": {"older": "spec.env", "newer": "spec.env", "key": "name"}}),
            "spec.env: its type is array, but the rule needs map",
        ),
        (
            16,
            json!({"each": {"older": "spec.ports", "newer": "spec.ports", "rules": [{"remove": {"older": "note"}}]}}),
            "spec.ports[].port: the newer version has no such field",
        ),
        (
            16,
            json!({"each": {"older": "spec.color", "newer": "spec.ports", "rules": []}}),
            "spec.color: each needs a list in both versions, or a map in both",
        ),
    ];
    for (place, wrong, expected) in cases {
        let found = problems(|rules| rules.hops[0].rules[place] = rule(wrong.clone()));
        assert!(found.iter().any(|problem| problem.contains(expected)), "{wrong}: {found:#?}");
    }
}

#[test]
fn versions_must_be_a_chain_of_the_crd() {
    let found = problems(|rules| rules.kind = "Restore".to_owned());
    assert_eq!(found, ["the rules are for Restore.example.com, the CRD is for Backup.example.com"]);
    let found = problems(|rules| rules.hops.clear());
    assert_eq!(
        found,
        ["there are no rules for version v1 of the CRD", "there are no rules for version v1beta1 of the CRD"]
    );
    let found = problems(|rules| rules.hops[0].newer = "v2".to_owned());
    assert!(
        found.contains(&"between v1beta1 and v2: the CRD has no version v2 with a schema".to_owned()),
        "{found:?}"
    );
    let found = problems(|rules| {
        let hop = &mut rules.hops[0];
        std::mem::swap(&mut hop.older, &mut hop.newer);
    });
    assert!(found.contains(&"between v1 and v1beta1: v1beta1 is not newer than v1".to_owned()), "{found:?}");
    let found = problems(|rules| rules.hops.push(rules.hops[0].clone()));
    assert!(
        found.contains(
            &"between v1beta1 and v1: they must begin with v1, where the pair before ends".to_owned()
        ),
        "{found:?}"
    );
}

#[test]
fn a_typo_in_a_document_is_an_error() {
    for wrong in [
        json!({"renam": {"older": "a", "newer": "b"}}),
        json!({"rename": {"older": "a", "newer": "b", "lossy": "x"}}),
        json!({"rename": {"older": "a..b", "newer": "b"}}),
        json!({"rename": {"older": "a"}}),
    ] {
        assert!(serde_json::from_value::<Rule>(wrong.clone()).is_err(), "{wrong}");
    }
}

/// Schemas and rules that do not fit each other, and a part of what is reported.
#[test]
fn rules_that_would_lose_or_break_something_are_refused() {
    use crate::edits::{definition, spec};
    let (text, number) = (json!({"type": "string"}), json!({"type": "integer"}));
    let list = |items: &Value| json!({"type": "array", "items": items});
    let map = |values: &Value| json!({"type": "object", "additionalProperties": values});
    let one_side = "both versions have this field, but the rules are about only one of them";
    let cases = [
        (
            json!({"a": text}),
            json!({"a": text}),
            json!([{"remove": {"older": "spec.a", "lossy": "x"}}]),
            one_side,
        ),
        (
            json!({"a": text, "b": text}),
            json!({"b": text}),
            json!([{"rename": {"older": "spec.a", "newer": "spec.b"}}]),
            one_side,
        ),
        (
            json!({"a": text}),
            json!({"a": text}),
            json!([{"constant": {"newer": "spec.a", "value": "x"}}]),
            one_side,
        ),
        (
            json!({"l": list(&text)}),
            json!({"l": list(&number)}),
            json!([{"each": {"older": "spec.l", "newer": "spec.l", "rules": []}}]),
            "the elements have different types",
        ),
        (
            json!({"l": list(&text)}),
            json!({"l": map(&text)}),
            json!([{"each": {"older": "spec.l", "newer": "spec.l", "rules": []}}]),
            "each needs a list in both versions, or a map in both",
        ),
        (
            json!({"a": number}),
            json!({"a": list(&text)}),
            json!([{"wrap": {"older": "spec.a", "newer": "spec.a"}}]),
            "its elements have another type than spec.a",
        ),
        (
            json!({"a": number}),
            json!({"b": number}),
            json!([{"enum": {"older": "spec.a", "newer": "spec.b", "values": []}}]),
            "its type is integer, but the rule needs string",
        ),
        (
            json!({}),
            json!({"a": {"type": "string", "enum": ["x"]}}),
            json!([{"default": {"newer": "spec.a", "value": "y"}}]),
            "the schema does not allow the value \"y\"",
        ),
        (
            json!({}),
            json!({}),
            json!([{"constant": {"newer": "metadata.labels.team", "value": 5}}]),
            "metadata.labels.team: its type is string, which 5 is not",
        ),
        (
            json!({"t": text}),
            json!({"h": text}),
            json!([{"split": {"older": "spec.t", "separator": ":", "newer": [{"path": "spec.h"}, {"path": "spec.h"}]}}]),
            "spec.h: two rules are about this field",
        ),
        (
            json!({"l": list(&json!({"type": "object", "properties": {"name": text, "a": text}}))}),
            json!({"l": map(&number)}),
            json!([{"listToMap": {"older": "spec.l", "newer": "spec.l", "key": "name", "value": "a"}}]),
            "its values are not the elements of the list without their key",
        ),
    ];
    for (older, newer, rules, expected) in cases {
        let problems = compile(&spec(rules.clone()), &definition(older, newer)).map(drop).unwrap_err();
        assert!(
            problems.iter().any(|problem| problem.to_string().contains(expected)),
            "{rules}: {problems:#?}"
        );
    }
}

#[test]
fn a_field_can_move_to_a_label() {
    use crate::edits::{definition, spec};
    let rules = json!([{"move": {"older": "spec.team", "newer": "metadata.labels[\"example.com/team\"]"}}]);
    let crd = definition(json!({"team": {"type": "string"}}), json!({}));
    assert!(compile(&spec(rules), &crd).is_ok());
}
