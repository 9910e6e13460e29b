use restow_convert::Convertible as _;
use serde_json::json;

use super::*;

/// A CRD of example.com with `spec.size` in v1 and `spec.length` in v2.
fn definition(kind: &str, generation: i64) -> CustomResourceDefinition {
    let version = |name: &str, field: &str| {
        json!({
            "name": name, "served": true, "storage": name == "v2",
            "schema": {"openAPIV3Schema": {"type": "object", "properties": {
                "spec": {"type": "object", "properties": {field: {"type": "integer"}}},
            }}},
        })
    };
    let plural = format!("{}s", kind.to_lowercase());
    serde_json::from_value(json!({
        "metadata": {"name": format!("{plural}.example.com"), "uid": "crd", "generation": generation},
        "spec": {
            "group": "example.com", "scope": "Namespaced", "names": {"kind": kind, "plural": plural},
            "versions": [version("v1", "size"), version("v2", "length")],
        },
    }))
    .unwrap()
}

/// Rules for a kind; those without a rule do not fit.
fn rules(name: &str, kind: &str, generation: i64, fits: bool) -> RulesObject {
    let rename = json!([{"rename": {"older": "spec.size", "newer": "spec.length"}}]);
    let content = json!({
        "apiVersion": "restow.dev/v1alpha1", "kind": "ConversionRules", "metadata": {},
        "spec": {
            "group": "example.com", "kind": kind,
            "hops": [{"older": "v1", "newer": "v2", "rules": if fits { rename } else { json!([]) }}],
        },
    });
    RulesObject {
        name: name.to_owned(),
        uid: format!("uid of {name}"),
        generation,
        created: 0,
        rules: serde_json::from_value(content).map_err(|error| error.to_string()),
        in_force: None,
    }
}

fn verdicts(verdicts: &[Verdict]) -> Vec<(&str, &str, (i64, i64))> {
    verdicts.iter().map(|verdict| (verdict.name.as_str(), verdict.reason, verdict.served)).collect()
}

fn found<'a>(definition: &'a CustomResourceDefinition) -> impl Fn(&str, &str) -> Definition<'a> {
    move |_, kind| {
        if definition.spec.names.kind == kind { Definition::Found(definition) } else { Definition::Absent }
    }
}

#[test]
fn rules_that_fit_are_served() {
    let widget = definition("Widget", 7);
    let (served, said) = plan(&[rules("w", "Widget", 3, true)], found(&widget), &Served::default());
    assert_eq!(verdicts(&said), [("w", "Compiled", (3, 7))]);
    assert_eq!(said[0].message, "v1, v2 of widgets.example.com");
    assert_eq!(served.converters(&[]).kinds(), ["Widget.example.com"]);
    assert_eq!(served.crds(), ["widgets.example.com"]);
    assert!(served.for_crd("widgets.example.com").is_some() && served.for_crd("other").is_none());
    assert_eq!(served.rules_for_crd("widgets.example.com"), Some("w"));
}

#[test]
fn rules_that_cannot_be_used_keep_the_last_good_ones() {
    let widget = definition("Widget", 7);
    let (before, _) = plan(&[rules("w", "Widget", 3, true)], found(&widget), &Served::default());
    let unreadable = RulesObject { rules: Err("unknown field".to_owned()), ..rules("w", "Widget", 4, true) };
    let broken = rules("w", "Widget", 4, false);
    type Lookup<'a> = Box<dyn Fn(&str, &str) -> Definition<'a> + 'a>;
    let cases: [(RulesObject, Lookup<'_>, Validity, &str); 4] = [
        (broken, Box::new(found(&widget)), Validity::Invalid, "DoesNotCompile"),
        (unreadable, Box::new(found(&widget)), Validity::Invalid, "CannotBeRead"),
        (
            rules("w", "Widget", 4, true),
            Box::new(|_, _| Definition::Absent),
            Validity::Invalid,
            "NoDefinition",
        ),
        (
            rules("w", "Widget", 4, true),
            Box::new(|_, _| Definition::Unreadable("timed out")),
            Validity::Unknown,
            "DefinitionUnreadable",
        ),
    ];
    for (object, definition, validity, reason) in cases {
        let (served, said) = plan(std::slice::from_ref(&object), &definition, &before);
        assert_eq!((said[0].validity, said[0].reason, said[0].served), (validity, reason, (3, 7)));
        assert!(said[0].message.ends_with("; generation 3 is still served"), "{}", said[0].message);
        assert_eq!(served.converters(&[]).kinds(), ["Widget.example.com"]);
        let (served, said) = plan(&[object], &definition, &Served::default());
        assert!(said[0].message.ends_with("; nothing is served"), "{}", said[0].message);
        assert!(served.converters(&[]).kinds().is_empty());
    }
}

#[test]
fn a_crd_that_the_rules_do_not_fit_any_more_keeps_what_was_checked_before() {
    let (old, mut new) = (definition("Widget", 7), definition("Widget", 8));
    let (before, _) = plan(&[rules("w", "Widget", 3, true)], found(&old), &Served::default());
    let mut third = new.spec.versions[1].clone();
    third.name = "v3".to_owned();
    new.spec.versions.push(third);
    let (served, said) = plan(&[rules("w", "Widget", 3, true)], found(&new), &before);
    assert_eq!(verdicts(&said), [("w", "DoesNotCompile", (3, 7))]);
    assert_eq!(served.for_crd("widgets.example.com").unwrap().versions(), ["v1", "v2"]);
    // One that they still fit is checked, and its generation is reported.
    let (_, said) = plan(&[rules("w", "Widget", 3, true)], found(&definition("Widget", 9)), &before);
    assert_eq!(verdicts(&said), [("w", "Compiled", (3, 9))]);
}

#[test]
fn the_oldest_of_two_objects_for_one_kind_is_served() {
    let widget = definition("Widget", 1);
    let young = RulesObject { created: 5, ..rules("a", "Widget", 1, true) };
    let old = rules("b", "Widget", 1, true);
    let (before, said) = plan(&[young.clone(), old.clone()], found(&widget), &Served::default());
    assert_eq!(verdicts(&said), [("b", "Compiled", (1, 1)), ("a", "AnotherIsServed", (0, 0))]);
    // It stays so when the older one breaks, and changes when the older one is gone.
    let broken = RulesObject { generation: 2, ..rules("b", "Widget", 2, false) };
    let (_, said) = plan(&[young.clone(), broken], found(&widget), &before);
    assert_eq!(verdicts(&said), [("b", "DoesNotCompile", (1, 1)), ("a", "AnotherIsServed", (0, 0))]);
    let (_, said) = plan(&[young], found(&widget), &before);
    assert_eq!(verdicts(&said), [("a", "Compiled", (1, 1))]);
}

#[test]
fn an_object_that_is_gone_or_for_another_kind_now_is_served_no_more() {
    let widget = definition("Widget", 1);
    let (before, _) = plan(&[rules("w", "Widget", 1, true)], found(&widget), &Served::default());
    assert!(plan(&[], found(&widget), &before).0.converters(&[]).kinds().is_empty());
    let (served, said) = plan(&[rules("w", "Gadget", 2, true)], found(&widget), &before);
    assert_eq!(verdicts(&said), [("w", "NoDefinition", (0, 0))]);
    assert!(served.converters(&[]).kinds().is_empty());
    // Created again under the same name, it is another object.
    let again = RulesObject { uid: "another".to_owned(), ..rules("w", "Widget", 1, false) };
    assert_eq!(verdicts(&plan(&[again], found(&widget), &before).1), [("w", "DoesNotCompile", (0, 0))]);
}

#[test]
fn an_unreadable_object_gives_its_kind_up_to_one_that_can_be_read() {
    let widget = definition("Widget", 1);
    let (before, _) = plan(&[rules("a", "Widget", 1, true)], found(&widget), &Served::default());
    let unreadable = RulesObject { rules: Err("?".to_owned()), ..rules("a", "Widget", 2, true) };
    let other = RulesObject { created: 9, ..rules("b", "Widget", 1, true) };
    let (served, said) = plan(&[unreadable, other], found(&widget), &before);
    assert_eq!(verdicts(&said), [("a", "CannotBeRead", (0, 0)), ("b", "Compiled", (1, 1))]);
    assert_eq!(served.rules_for_crd("widgets.example.com"), Some("b"));
    assert_eq!(served.converters(&[]).kinds(), ["Widget.example.com"]);
}

#[test]
fn converters_in_code_are_served_for_kinds_without_rules() {
    struct Code;
    impl restow_convert::Convertible for Code {
        fn convert(
            &self,
            object: serde_json::Value,
            _: &str,
        ) -> Result<serde_json::Value, restow_convert::Error> {
            Ok(object)
        }
    }
    let of = |kind: &str| Converter::new("example.com", kind, ["v1", "v9"], Code);
    let widget = definition("Widget", 1);
    let (served, _) = plan(&[rules("w", "Widget", 1, true)], found(&widget), &Served::default());
    let all = served.converters(&[of("Widget"), of("Gadget"), of("Gadget")]);
    assert_eq!(all.kinds(), ["Gadget.example.com", "Widget.example.com"]);
    assert_eq!(all.get("example.com", "Widget").unwrap().versions(), ["v1", "v2"]);
}

#[test]
fn the_last_good_rules_keep_a_field_that_the_crd_has_gained_since() {
    let former = definition("Widget", 7);
    let (before, _) = plan(&[rules("w", "Widget", 3, true)], found(&former), &Served::default());
    let mut changed = json!(definition("Widget", 8));
    let fields = changed.pointer_mut("/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties");
    fields.unwrap()["note"] = json!({"type": "string"});
    let changed: CustomResourceDefinition = serde_json::from_value(changed).unwrap();
    let (served, said) = plan(&[rules("w", "Widget", 3, true)], found(&changed), &before);
    assert_eq!(verdicts(&said), [("w", "DoesNotCompile", (3, 7))]);
    let converter = served.for_crd("widgets.example.com").unwrap();
    let object = json!({
        "apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "a"},
        "spec": {"size": 1, "note": "mine"},
    });
    let newer = converter.convert(object.clone(), "v2").unwrap();
    // API servers drop what the version does not have, so the field must not be there.
    assert_eq!(newer["spec"], json!({"length": 1}));
    assert_eq!(converter.convert(newer, "v1").unwrap()["spec"], object["spec"]);
}

#[test]
fn rules_for_crds_that_are_not_followed_are_left_to_other_webhooks() {
    let widget = definition("Widget", 1);
    let named = |_: &str, kind: &str| match kind {
        "Widget" => Definition::Found(&widget),
        _ => Definition::NotFollowed,
    };
    let all = [rules("w", "Widget", 1, true), rules("g", "Gadget", 1, true)];
    let (served, said) = plan(&all, named, &Served::default());
    assert_eq!(verdicts(&said), [("w", "Compiled", (1, 1))], "nothing is said about the other one");
    assert_eq!(served.crds(), ["widgets.example.com"]);
}

#[test]
fn changed_rules_are_served_only_after_they_have_passed_the_gates() {
    let mut called = definition("Widget", 7);
    called.metadata.annotations =
        Some([(crate::announcement::ANNOUNCED.to_owned(), "here".to_owned())].into());
    let passed = (3, rules("w", "Widget", 3, true).rules.unwrap());
    let changed = |generation, fits| RulesObject {
        in_force: Some(passed.clone()),
        ..rules("w", "Widget", generation, fits)
    };
    // Also for a replica that was started after the change.
    for (generation, fits, served) in [(3, true, 3), (4, true, 3), (4, false, 3)] {
        let (_, said) = plan(&[changed(generation, fits)], found(&called), &Served::default());
        let reason = if fits { "Compiled" } else { "DoesNotCompile" };
        assert_eq!(verdicts(&said), [("w", reason, (served, 7))]);
        assert_eq!(said[0].message.contains("generation 3"), generation != 3, "{}", said[0].message);
    }
    let unreadable = RulesObject { rules: Err("?".to_owned()), ..changed(4, true) };
    let (_, said) = plan(&[unreadable], found(&called), &Served::default());
    assert_eq!(verdicts(&said), [("w", "CannotBeRead", (3, 7))]);
    // Nobody calls the webhook, or rules were never in force.
    let uncalled = definition("Widget", 7);
    let (_, said) = plan(&[changed(4, true)], found(&uncalled), &Served::default());
    assert_eq!(verdicts(&said), [("w", "Compiled", (4, 7))]);
    let (_, said) = plan(&[rules("w", "Widget", 4, true)], found(&called), &Served::default());
    assert_eq!(verdicts(&said), [("w", "Compiled", (4, 7))]);
}

#[test]
fn the_rules_in_force_stay_when_crd_and_rules_change_together() {
    let mut called = definition("Widget", 7);
    called.metadata.annotations =
        Some([(crate::announcement::ANNOUNCED.to_owned(), "here".to_owned())].into());
    let (before, _) = plan(&[rules("w", "Widget", 3, true)], found(&called), &Served::default());
    // The rules that are in force do not fit the CRD any more, and the changed ones do.
    let unfit = (3, rules("w", "Widget", 3, false).rules.unwrap());
    let changed = RulesObject { in_force: Some(unfit), ..rules("w", "Widget", 4, true) };
    let mut next = called.clone();
    next.metadata.generation = Some(8);
    let (_, said) = plan(std::slice::from_ref(&changed), found(&next), &before);
    assert_eq!(verdicts(&said), [("w", "Compiled", (3, 7))], "until they have passed the gates");
    let (_, said) = plan(&[changed], found(&next), &Served::default());
    assert_eq!(verdicts(&said), [("w", "Compiled", (4, 8))], "a new replica has no other ones");
}

#[test]
fn deleted_rules_are_served_while_api_servers_call_the_webhook() {
    let mut called = definition("Widget", 7);
    called.metadata.annotations =
        Some([(crate::announcement::ANNOUNCED.to_owned(), "here".to_owned())].into());
    let (before, _) = plan(&[rules("w", "Widget", 3, true)], found(&called), &Served::default());
    let (served, said) = plan(&[], found(&called), &before);
    assert_eq!((served.converters(&[]).kinds(), said.len()), (vec!["Widget.example.com".to_owned()], 0));
    let (served, _) = plan(&[rules("new", "Widget", 1, true)], found(&called), &served);
    assert_eq!(served.rules_for_crd("widgets.example.com"), Some("new"), "others take their place");
    let uncalled = definition("Widget", 7);
    assert!(plan(&[], found(&uncalled), &before).0.converters(&[]).kinds().is_empty());
}
