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
