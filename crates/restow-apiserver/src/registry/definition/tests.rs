//! Tests of definitions: defaults, validation, accepted names, parsing.

use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::arbitrary::any_json;

fn widgets() -> Value {
    json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
    "metadata": {"name": "widgets.example.com"},
    "spec": {"group": "example.com", "scope": "Namespaced", "names": {"plural": "widgets", "kind": "Widget"},
        "versions": [
            {"name": "v1", "served": true, "storage": true, "subresources": {"status": {}},
                "schema": {"openAPIV3Schema": {"type": "object", "properties": {
                    "spec": {"type": "object", "properties": {"size": {"type": "integer", "default": 1}}},
                    "status": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}}}},
            {"name": "v2", "served": true, "storage": false, "deprecated": true,
                "schema": {"openAPIV3Schema": {"type": "object"}}},
        ]}})
}

fn filled() -> Value {
    let mut definition = widgets();
    set_defaults(&mut definition);
    prepare_create(&mut definition);
    definition
}

#[test]
fn missing_fields_of_a_definition_are_defaulted() {
    let definition = filled();
    assert_eq!(
        definition["spec"]["names"],
        json!({"plural": "widgets", "singular": "widget", "kind": "Widget", "listKind": "WidgetList"})
    );
    assert_eq!(definition["spec"]["conversion"], json!({"strategy": "None"}));
    assert_eq!(definition["status"]["storedVersions"], json!(["v1"]));
    assert_eq!(validate::create(&definition), Vec::new());
    let mut webhook = json!({"spec": {"conversion": {"strategy": "Webhook", "webhook": {
        "clientConfig": {"service": {"name": "a"}}}}}});
    set_defaults(&mut webhook);
    assert_eq!(webhook.pointer("/spec/conversion/webhook/clientConfig/service/port"), Some(&json!(443)));
}

#[test]
fn common_mistakes_in_definitions_are_refused() {
    let spec = "/spec/versions/0/schema/openAPIV3Schema";
    let cases = [
        ("/metadata/name", json!("a"), "metadata.name", "must be spec.names.plural+\".\"+spec.group"),
        ("/spec/group", json!("example"), "spec.group", "should be a domain with at least one dot"),
        ("/spec/scope", json!("Odd"), "spec.scope", "supported values: \"Cluster\", \"Namespaced\""),
        ("/spec/names/plural", json!("Widgets"), "spec.names.plural", "a DNS-1035 label must"),
        (
            "/spec/names/listKind",
            json!("Widget"),
            "spec.names.listKind",
            "kind and listKind may not be the same",
        ),
        (
            "/spec/versions/1/storage",
            json!(true),
            "spec.versions",
            "must have exactly one version marked as storage",
        ),
        ("/spec/versions/1/name", json!("v1"), "spec.versions", "must contain unique version names"),
        ("/spec/versions/1/schema", json!(null), "spec.versions[1].schema.openAPIV3Schema", "Required value"),
        (
            "/spec/versions/0/deprecationWarning",
            json!("x"),
            "spec.versions[0].deprecationWarning",
            "can only be set",
        ),
        (
            &format!("{spec}/type"),
            json!(""),
            "spec.versions[0].schema.openAPIV3Schema.type",
            "must not be empty at the root",
        ),
        (
            &format!("{spec}/properties/spec/properties/size/default"),
            json!("a"),
            "spec.versions[0].schema.openAPIV3Schema.properties[spec].properties[size].default",
            "must be of type integer",
        ),
        (
            &format!("{spec}/properties/spec/properties/list"),
            json!({"type": "array"}),
            "spec.versions[0].schema.openAPIV3Schema.properties[spec].properties[list].items",
            "must be specified",
        ),
        (
            &format!("{spec}/properties/metadata"),
            json!({"type": "object", "properties": {"labels": {"type": "object"}}}),
            "spec.versions[0].schema.openAPIV3Schema.properties[metadata]",
            "must not specify anything other than name and generateName",
        ),
        (
            "/spec/conversion",
            json!({"strategy": "Webhook"}),
            "spec.conversion.webhookClientConfig",
            "required when strategy is set to Webhook",
        ),
        (
            "/spec/versions/0/additionalPrinterColumns",
            json!([{"name": "a", "type": "odd", "jsonPath": ".spec"}]),
            "spec.versions[0].additionalPrinterColumns[0].type",
            "must be one of boolean,date,integer,number,string",
        ),
        (
            "/spec/versions/0/selectableFields",
            json!([{"jsonPath": ".spec.none"}]),
            "spec.versions[0].selectableFields[0].jsonPath",
            "is an invalid path",
        ),
        (
            "/status/storedVersions",
            json!(["v1", "v0"]),
            "status.storedVersions[1]",
            "missing from spec.versions; v0",
        ),
        ("/spec/preserveUnknownFields", json!(true), "spec.preserveUnknownFields", "cannot set to true"),
    ];
    for (path, value, field, words) in cases {
        let mut definition = filled();
        put(&mut definition, path, value);
        let causes = validate::create(&definition);
        let reported = causes.iter().any(|cause| cause.field == field && cause.message.contains(words));
        assert!(reported, "{path}: {causes:#?}");
    }
}

fn put(object: &mut Value, path: &str, value: Value) {
    let (parent, key) = path.rsplit_once('/').unwrap();
    object.pointer_mut(parent).unwrap()[key] = value;
}

#[test]
fn errors_read_like_those_of_kube_apiserver() {
    let gadgets = |version: Value, conversion: Value| {
        let mut definition = json!({"metadata": {"name": "gadgets.example.com"}, "spec": {"group": "example.com",
            "scope": "Namespaced", "names": {"plural": "gadgets", "kind": "Gadget"}, "versions": [version],
            "conversion": conversion}});
        set_defaults(&mut definition);
        prepare_create(&mut definition);
        crate::http::status::Cause::aggregate(&validate::create(&definition))
    };
    let version = |schema: Value| json!({"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema}});
    let spec = |schema: Value| {
        version(json!({"type": "object", "properties": {"spec": {"type": "object", "properties": schema}}}))
    };
    let mut odd = version(json!({"type": "object"}));
    odd["additionalPrinterColumns"] = json!([{"name": "a", "type": "odd", "jsonPath": "spec"}]);
    odd["subresources"] = json!({"scale": {"specReplicasPath": ".x"}});
    odd["selectableFields"] = json!([{"jsonPath": ".spec.none"}]);
    let cases = [
        (
            version(json!({"properties": {"spec": {}}})),
            json!(null),
            "[spec.validation.openAPIV3Schema.properties[spec].type: Required value: must not be empty for specified \
             object fields, spec.validation.openAPIV3Schema.type: Required value: must not be empty at the root]",
        ),
        (
            spec(json!({"size": {"type": "integer", "default": "x"}})),
            json!(null),
            "spec.validation.openAPIV3Schema.properties[spec].properties[size].default: Invalid value: \"string\":  in \
             body must be of type integer: \"string\"",
        ),
        (
            spec(
                json!({"l": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"],
                "items": {"type": "object", "properties": {"k": {"type": "string"}}}}}),
            ),
            json!(null),
            "spec.validation.openAPIV3Schema.properties[spec].properties[l].items.properties[k].default: Required \
             value: this property is in x-kubernetes-list-map-keys, so it must have a default or be a required property",
        ),
        (
            version(json!({"type": "object"})),
            json!({"strategy": "Webhook"}),
            "[spec.conversion.webhookClientConfig: Required value: required when strategy is set to Webhook, \
             spec.conversion.conversionReviewVersions: Required value]",
        ),
        (
            version(json!({"type": "object"})),
            json!({"strategy": "Webhook", "webhook": {"conversionReviewVersions": ["v9"],
                "clientConfig": {"url": "http://x"}}}),
            "[spec.conversion.webhookClientConfig.url: Invalid value: \"http\": 'https' is the only allowed URL scheme; \
             desired format: https://host[/path], spec.conversion.conversionReviewVersions: Invalid value: [\"v9\"]: \
             must include at least one of v1, v1beta1]",
        ),
        (
            odd,
            json!(null),
            "[spec.subresources.scale.specReplicasPath: Invalid value: \".x\": should be a json path under .spec, \
             spec.subresources.scale.statusReplicasPath: Required value, spec.additionalPrinterColumns[0].type: Invalid \
             value: \"odd\": must be one of boolean,date,integer,number,string, \
             spec.additionalPrinterColumns[0].JSONPath: Invalid value: \"spec\": must be a simple json path starting \
             with ., spec.selectableFields[0].jsonPath: Invalid value: \".spec.none\": is an invalid path: does not \
             refer to a valid field]",
        ),
    ];
    for (version, conversion, reported) in cases {
        assert_eq!(gadgets(version, conversion), reported);
    }
}

#[test]
fn an_established_definition_stays_established() {
    let mut old = filled();
    conditions::set(&mut old, &conditions::established(), "2026-01-01T00:00:00Z".parse().unwrap());
    for (path, value, field) in [
        ("/spec/scope", json!("Cluster"), "spec.scope"),
        ("/spec/names/kind", json!("Gadget"), "spec.names.kind"),
        ("/spec/group", json!("example.org"), "spec.group"),
    ] {
        let mut definition = old.clone();
        put(&mut definition, path, value);
        let causes = validate::update(&definition, &old);
        assert_eq!((causes[0].field.as_str(), causes.len()), (field, 1), "{causes:?}");
    }
    assert!(validate::update(&old, &old).is_empty());
}

#[test]
fn stored_versions_grow_with_the_storage_version() {
    let old = filled();
    let mut definition = old.clone();
    put(&mut definition, "/spec/versions/0/storage", json!(false));
    put(&mut definition, "/spec/versions/1/storage", json!(true));
    prepare_update(&mut definition, &old);
    assert_eq!(definition["status"]["storedVersions"], json!(["v1", "v2"]));
    definition["spec"]["versions"].as_array_mut().unwrap().remove(0);
    let causes = validate::update(&definition, &old);
    assert_eq!(causes[0].field, "status.storedVersions[0]");
}

#[test]
fn names_are_accepted_unless_another_definition_has_them() {
    let (names, conditions) = conditions::accept_names(&filled(), &[]);
    assert_eq!(names["kind"], "Widget");
    let reported: Vec<_> = conditions.iter().map(|one| (one.kind, one.status, one.reason)).collect();
    assert_eq!(reported, [("NamesAccepted", "True", "NoConflicts"), ("Established", "False", "Installing")]);

    let other = json!({"status": {"acceptedNames": {"plural": "gadgets", "kind": "Widget", "shortNames": ["widget"]}}});
    let (names, conditions) = conditions::accept_names(&filled(), &[other]);
    assert_eq!((names["plural"].as_str(), names["kind"].as_str()), (Some("widgets"), Some("")));
    assert_eq!((conditions[0].status, conditions[0].reason), ("False", "KindConflict"));
    assert_eq!(conditions[0].message, "\"Widget\" is already in use");
    assert_eq!((conditions[1].status, conditions[1].reason), ("False", "NotAccepted"));
}

#[test]
fn an_unchanged_condition_keeps_its_transition_time() {
    let mut definition = filled();
    let (early, late) = ("2026-01-01T00:00:00Z".parse().unwrap(), "2026-01-02T00:00:00Z".parse().unwrap());
    assert!(conditions::set(&mut definition, &conditions::established(), early));
    assert!(!conditions::set(&mut definition, &conditions::established(), late));
    assert!(conditions::is_true(&definition, "Established"));
    assert_eq!(definition["status"]["conditions"][0]["lastTransitionTime"], "2026-01-01T00:00:00Z");
}

#[test]
fn a_definition_is_parsed() {
    let definition = Definition::parse(&filled());
    assert!(definition.namespaced);
    assert_eq!(definition.storage_version().unwrap().name, "v1");
    assert_eq!(definition.served().count(), 2);
    assert!(definition.versions[0].status && !definition.versions[1].status);
    assert_eq!(
        definition.versions[1].deprecation_warning.as_deref(),
        Some("example.com/v2 Widget is deprecated")
    );
    assert_eq!(definition.conversion, Conversion::None);
}

proptest! {
    #[test]
    fn nothing_panics(spec in any_json(), status in any_json(), schema in any_json()) {
        let mut definition = filled();
        put(&mut definition, "/spec/versions/0/schema/openAPIV3Schema", schema);
        let _ = validate::create(&definition);
        let _ = Definition::parse(&definition);
        let mut odd = json!({"spec": spec, "status": status});
        set_defaults(&mut odd);
        let _ = validate::create(&odd);
        let _ = validate::update(&odd, &definition);
        let _ = conditions::accept_names(&odd, std::slice::from_ref(&definition));
        let _ = conditions::set(&mut odd, &conditions::established(), jiff::Timestamp::UNIX_EPOCH);
        prepare_update(&mut odd, &definition);
        prepare_create(&mut odd);
        let _ = Definition::parse(&odd);
    }
}
