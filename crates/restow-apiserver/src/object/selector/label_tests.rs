//! Tests of label selectors.

use proptest::prelude::*;
use serde_json::json;

use super::*;

fn matches(selector: &str, labels: &Value) -> bool {
    LabelSelector::parse(selector).unwrap().matches(&json!({"metadata": {"labels": labels}}))
}

#[test]
fn label_selectors_match_labels() {
    let labels = json!({"app": "web", "tier": "", "n": "10"});
    let cases = [
        ("", true),
        ("app=web", true),
        ("app==web", true),
        ("app!=web", false),
        ("none!=web", true),
        ("app in (web, db)", true),
        ("app in (db)", false),
        ("app notin (db)", true),
        ("none notin (db)", true),
        ("app", true),
        ("none", false),
        ("!none", true),
        ("!app", false),
        ("tier=", true),
        ("tier in ()", true),
        ("app=web,tier", true),
        ("app=web,none", false),
        ("n>9", true),
        ("n<9", false),
        ("app>9", false),
        ("in", false),
        ("in in (in)", false),
    ];
    for (selector, expected) in cases {
        assert_eq!(matches(selector, &labels), expected, "{selector}");
    }
    assert!(!LabelSelector::parse("a").unwrap().matches(&json!({})));
}

#[test]
fn malformed_selectors_are_errors() {
    let cases = [
        ("a=b,", "found '', expected: identifier after ','"),
        (",a", "found ',', expected: !, identifier, or 'end of string'"),
        ("a b", "unable to parse requirement: found 'b', expected: in, notin, =, ==, !=, gt, lt"),
        ("a in b", "unable to parse requirement: found 'b' expected: '('"),
        ("a=b c", "found 'c', expected: ',' or 'end of string'"),
        ("a in (b", "unable to parse requirement: found '', expected: ',' or ')'"),
        ("a===b", "unable to parse requirement: found '=', expected: identifier"),
        ("!", "unable to parse requirement: found '', expected: identifier"),
        (
            "-a=b",
            "unable to parse requirement: <nil>: Invalid value: \"-a\": name part must consist of alphanumeric \
             characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or \
             'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')",
        ),
        (
            "a=-b",
            "unable to parse requirement: values[0][a]: Invalid value: \"-b\": a valid label must be an empty string \
             or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric \
             character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is \
             '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')",
        ),
        (
            "a>b",
            "unable to parse requirement: values[0]: Invalid value: \"b\": for 'Gt', 'Lt' operators, the value must \
             be an integer",
        ),
    ];
    for (selector, message) in cases {
        let refusal = LabelSelector::parse(selector).unwrap_err();
        assert_eq!((refusal.code(), refusal.message()), (400, message), "{selector}");
    }
}

#[test]
fn label_selectors_in_specs_are_parsed() {
    let selector = json!({"matchLabels": {"a": "b"}, "matchExpressions": [
        {"key": "c", "operator": "In", "values": ["d", "e"]}, {"key": "f", "operator": "DoesNotExist"}]});
    let selector = LabelSelector::from_value(&selector).unwrap();
    assert_eq!(selector.to_string(), "a in (b),c in (d,e),!f");
    assert!(
        LabelSelector::from_value(&json!({"matchExpressions": [{"key": "a", "operator": "Odd"}]})).is_err()
    );
}

fn requirement_text() -> impl Strategy<Value = String> {
    let word = "[a-z]([a-z0-9.]{0,3}[a-z])?";
    prop_oneof![
        (word, word).prop_map(|(key, value)| format!("{key}={value}")),
        (word, word).prop_map(|(key, value)| format!("{key}!={value}")),
        word.prop_map(|key| format!("!{key}")),
        word.prop_map(|key| key),
        (word, prop::collection::vec(word, 1..4))
            .prop_map(|(key, values)| format!("{key} in ({})", values.join(","))),
        (word, prop::collection::vec(word, 1..4))
            .prop_map(|(key, values)| format!("{key} notin ({})", values.join(", "))),
        (word, 0i64..100).prop_map(|(key, bound)| format!("{key}>{bound}")),
    ]
}

proptest! {
    #[test]
    fn a_displayed_selector_parses_to_itself(terms in prop::collection::vec(requirement_text(), 0..4)) {
        // A bare key `in` or `notin` before parentheses reads as an operator.
        prop_assume!(terms.iter().all(|term| !term.starts_with("in") && !term.starts_with("notin")));
        let selector = LabelSelector::parse(&terms.join(",")).unwrap();
        prop_assert_eq!(LabelSelector::parse(&selector.to_string()).unwrap(), selector);
    }

    #[test]
    fn no_text_panics(text in any::<String>()) {
        let _ = LabelSelector::parse(&text);
    }

    #[test]
    fn no_text_of_symbols_panics(text in "[a=!(),<> in]{0,20}") {
        let _ = LabelSelector::parse(&text);
    }
}
