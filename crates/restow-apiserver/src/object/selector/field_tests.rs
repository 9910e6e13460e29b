//! Tests of field selectors.

use proptest::prelude::*;
use serde_json::json;

use super::*;

#[test]
fn field_selectors_match_fields() {
    let pod = json!({"metadata": {"name": "a", "namespace": "b"}, "status": {"phase": "Running"}});
    let pods = Selectable::built_in("", "pods");
    let cases = [
        ("", true),
        ("metadata.name=a", true),
        ("metadata.name==a,metadata.namespace=b", true),
        ("metadata.name!=a", false),
        ("status.phase=Running", true),
        ("status.phase!=Running,metadata.name=a", false),
        ("spec.nodeName=", true),
        ("spec.hostNetwork=false", true),
        (",metadata.name=a,", true),
    ];
    for (text, expected) in cases {
        assert_eq!(FieldSelector::parse(text, &pods).unwrap().matches(&pod, &pods), expected, "{text}");
    }
}

#[test]
fn each_resource_has_its_selectable_fields() {
    let widgets = Selectable::custom(true, &[".spec.color".into(), ".spec.size".into()]);
    let widget = json!({"metadata": {"name": "a"}, "spec": {"color": "red", "size": 3}});
    let selector = FieldSelector::parse("spec.color=red,spec.size=3", &widgets).unwrap();
    assert!(selector.matches(&widget, &widgets));
    let events = Selectable::built_in("", "events");
    let event = json!({"involvedObject": {"kind": "Pod"}, "source": {"component": "x"}});
    assert!(
        FieldSelector::parse("involvedObject.kind=Pod,source=x", &events).unwrap().matches(&event, &events)
    );
}

#[test]
fn malformed_selectors_are_errors() {
    let pods = Selectable::built_in("", "pods");
    let maps = Selectable::built_in("", "configmaps");
    let cases = [
        (&pods, "a", "invalid selector: 'a'; can't understand 'a'"),
        (&pods, "spec.odd=a", "field label not supported: spec.odd"),
        (&maps, "a=b", "\"a\" is not a known field selector: only \"metadata.name\", \"metadata.namespace\""),
        (&pods, "metadata.name=a\\b", "invalid field selector: invalid escape sequence: \\b"),
        (&pods, "metadata.name=a\\", "invalid field selector: invalid escape sequence: \\"),
        (&pods, "metadata.name=a=b", "invalid field selector: unescaped character in value: 61"),
    ];
    for (fields, text, message) in cases {
        let refusal = FieldSelector::parse(text, fields).unwrap_err();
        assert_eq!((refusal.code(), refusal.message()), (400, message), "{text}");
    }
}

#[test]
fn a_selector_of_one_name_is_recognized() {
    let selector = FieldSelector::read("metadata.name=a,status.phase!=b").unwrap();
    assert_eq!(selector.exact("metadata.name"), Some("a"));
    assert_eq!(selector.exact("status.phase"), None);
}

proptest! {
    #[test]
    fn a_displayed_selector_parses_to_itself(terms in prop::collection::vec(("[a-z.]{1,5}", any::<bool>(), any::<String>()), 0..4)) {
        let mut terms: Vec<_> =
            terms.into_iter().map(|(field, equal, value)| Term { field, equal, value }).collect();
        let text = FieldSelector { terms: terms.clone() }.to_string();
        let mut read = FieldSelector::read(&text).unwrap().terms;
        let order = |term: &Term| (term.field.clone(), term.equal, term.value.clone());
        terms.sort_by_key(order);
        read.sort_by_key(order);
        prop_assert_eq!(read, terms);
    }

    #[test]
    fn no_text_panics(text in any::<String>()) {
        let _ = FieldSelector::read(&text);
    }
}
