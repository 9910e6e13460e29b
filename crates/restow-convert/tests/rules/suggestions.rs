//! The draft that is made of two schemas.

use restow_convert::rules::{compile, suggest};
use serde_json::json;

use crate::fixture::definition;

#[test]
fn a_draft_passes_the_check_and_finds_what_was_renamed() {
    let draft = suggest(&definition());
    assert!(compile(&draft, &definition()).is_ok(), "{:#?}", compile(&draft, &definition()).map(drop));
    let rules = serde_json::to_value(&draft.hops[0].rules).unwrap();
    let rules = rules.as_array().unwrap();
    for expected in [
        json!({"rename": {"older": "spec.color", "newer": "spec.colour"}}),
        json!({"type": {"older": "spec.retries", "newer": "spec.retries", "olderType": "string", "newerType": "integer"}}),
        json!({"remove": {"older": "spec.legacy"}}),
        json!({"listToMap": {"older": "spec.env", "newer": "spec.env", "key": "name", "value": "value"}}),
        json!({"mapToList": {"older": "spec.volumes", "newer": "spec.volumes", "key": "name"}}),
        json!({"enum": {"older": "spec.mode", "newer": "spec.mode", "values": [
            {"older": "fast", "newer": "Fast"}, {"older": "safe", "newer": "Safe"}, {"older": "slow", "newer": "Safe"},
        ]}}),
    ] {
        assert!(rules.contains(&expected), "{expected}\n{rules:#?}");
    }
}

#[test]
fn every_draft_passes_the_check() {
    use crate::edits;
    let (text, number) = (json!({"type": "string"}), json!({"type": "integer"}));
    let list = |items: &serde_json::Value| json!({"type": "array", "items": items});
    let map = |values: &serde_json::Value| json!({"type": "object", "additionalProperties": values});
    let object = |fields: serde_json::Value| json!({"type": "object", "properties": fields});
    let schemas = [
        text.clone(),
        number.clone(),
        json!({"type": "string", "enum": ["a", "b"]}),
        json!({"type": "string", "enum": ["A", "c"]}),
        json!({"x-kubernetes-int-or-string": true}),
        json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true}),
        list(&text),
        list(&number),
        list(&list(&text)),
        list(&object(json!({"name": text, "v": text}))),
        list(&object(json!({"id": text, "v": text, "metadata": object(json!({"a": text}))}))),
        map(&text),
        map(&object(json!({"v": text}))),
        object(json!({"a.b": text, "c\"]": number})),
        json!({"type": "integer", "default": 1}),
    ];
    for older in &schemas {
        for newer in &schemas {
            for (older, newer) in
                [(json!({"f": older}), json!({"f": newer})), (json!({"f": older}), json!({"g": newer}))]
            {
                let definition = edits::definition(older, newer);
                let draft = suggest(&definition);
                let problems = compile(&draft, &definition).map(drop);
                assert!(problems.is_ok(), "{draft:#?}\n{problems:#?}");
            }
        }
    }
}
