//! Schemas of custom resources: they validate, prune and default.

use serde_json::{Value, json};

use crate::definition::{DEFINITIONS, define, wait, widget};
use crate::subject::{ApiRequest, Subject};

scenarios![
    objects_that_violate_their_schema_are_refused,
    fields_unknown_to_the_schema_are_pruned,
    missing_fields_are_defaulted,
    new_defaults_apply_to_stored_objects,
    field_validation_reports_unknown_fields,
];

async fn objects_that_violate_their_schema_are_refused(subject: &Subject) {
    let group = "refuses.example";
    let place = define(subject, group, |_| ()).await;
    for (spec, cause) in [
        (
            json!({"size": 0}),
            "spec.size FieldValueInvalid Invalid value: 0: spec.size in body should be greater than or equal to 1",
        ),
        (
            json!({"size": 101}),
            "spec.size FieldValueInvalid Invalid value: 101: spec.size in body should be less than or equal to 100",
        ),
        (
            json!({"size": "big"}),
            r#"spec.size FieldValueTypeInvalid Invalid value: "string": spec.size in body must be of type integer: "string""#,
        ),
        (
            json!({"size": 1.5}),
            r#"spec.size FieldValueTypeInvalid Invalid value: "number": spec.size in body must be of type integer: "number""#,
        ),
        (
            json!({"colour": "pink"}),
            r#"spec.colour FieldValueNotSupported Unsupported value: "pink": supported values: "red", "green", "blue""#,
        ),
        (
            json!({"tags": ["UP"]}),
            r#"spec.tags[0] FieldValueInvalid Invalid value: "UP": spec.tags[0] in body should match '^[a-z]+$'"#,
        ),
        (
            json!({"tags": ["a", "b", "c", "d"]}),
            "spec.tags FieldValueTooMany Too many: 4: must have at most 3 items",
        ),
        (
            json!({"when": "yesterday"}),
            r#"spec.when FieldValueTypeInvalid Invalid value: "yesterday": spec.when in body must be of type date-time: "yesterday""#,
        ),
        (json!({"nested": {}}), "spec.nested.must FieldValueRequired Required value"),
        (
            json!({"map": {"k": "v"}}),
            r#"spec.map.k FieldValueTypeInvalid Invalid value: "string": spec.map.k in body must be of type integer: "string""#,
        ),
        (
            json!({"port": true}),
            r#"spec.port FieldValueTypeInvalid Invalid value: "boolean": spec.port in body must be of type integer,string: "boolean""#,
        ),
        (
            json!([]),
            r#"spec FieldValueTypeInvalid Invalid value: "array": spec in body must be of type object: "array""#,
        ),
        (json!({"size": 0, "nested": {}}), "spec.nested.must FieldValueRequired Required value"),
    ] {
        let answer = place.post("widgets", widget(group, "a", spec.clone())).await;
        assert_eq!(answer.reason(), "422 Invalid", "{spec}: {}", answer.line());
        assert_eq!(
            (&answer["details"]["kind"], &answer["details"]["group"]),
            (&json!("Widget"), &json!(group))
        );
        let causes: Vec<String> = answer["details"]["causes"]
            .as_array()
            .unwrap()
            .iter()
            .map(|cause| {
                ["field", "reason", "message"].map(|key| cause[key].as_str().unwrap_or("-")).join(" ")
            })
            .collect();
        assert!(causes.iter().any(|causes| causes == cause), "{spec}: {cause} is not in {causes:?}");
    }
    for spec in [
        json!({"size": 100, "colour": "blue", "tags": ["a"], "when": "2020-02-02T02:02:02Z", "port": 80}),
        json!({"port": "http", "maybe": null, "map": {"k": 1}, "nested": {"must": ""}, "size": 2.0}),
    ] {
        let answer = place.post("widgets?dryRun=All", widget(group, "a", spec.clone())).await;
        assert_eq!(answer.code(), 201, "{spec}: {}", answer.line());
    }
    let answer = place.post("widgets", widget(group, "Bad_Name", json!({}))).await;
    assert_eq!(answer.reason(), "422 Invalid");
}

async fn fields_unknown_to_the_schema_are_pruned(subject: &Subject) {
    let group = "prunes.example";
    let place = define(subject, group, |_| ()).await;
    let mut object = widget(
        group,
        "a",
        json!({
            "size": 1, "unknown": 1, "free": {"any": {"thing": 1}}, "nested": {"must": "x", "other": 1}, "colour": "blue",
        }),
    );
    object["extra"] = json!({"dropped": true});
    object["metadata"]["unknown"] = json!("dropped too");
    let made = place.post("widgets", object).await.ok();
    let nested = json!({"must": "x", "deep": 7});
    let spec = json!({"size": 1, "free": {"any": {"thing": 1}}, "nested": nested, "colour": "blue"});
    assert_eq!(
        (&made["spec"], &made["extra"], &made["metadata"]["unknown"]),
        (&spec, &Value::Null, &Value::Null)
    );
    let patched = place.merge("widgets/a", json!({"spec": {"unknown": 2}})).await.ok();
    assert_eq!(patched.resource_version(), made.resource_version());
}

async fn field_validation_reports_unknown_fields(subject: &Subject) {
    let group = "strict.example";
    let place = define(subject, group, |_| ()).await;
    let object = widget(group, "a", json!({"unknown": 1, "nested": {"must": "x", "other": 1}}));
    let strict = place.post("widgets?fieldValidation=Strict", object.clone()).await;
    assert_eq!(
        strict.line(),
        r#"400 BadRequest: Widget in version "v1" cannot be handled as a Widget: strict decoding error: unknown field "spec.nested.other", unknown field "spec.unknown""#
    );
    let warned = place.post("widgets?fieldValidation=Warn", object.clone()).await;
    assert_eq!(warned.code(), 201);
    assert_eq!(warned.header("warning"), r#"299 - "unknown field \"spec.nested.other\"""#);
    place.delete("widgets/a").await.ok();
    let ignored = place.post("widgets?fieldValidation=Ignore", object.clone()).await;
    assert_eq!((ignored.code(), ignored.header("warning")), (201, ""));
    let strict = place.merge("widgets/a?fieldValidation=Strict", json!({"spec": {"unknown": 1}})).await;
    assert!([400, 422].contains(&strict.code()), "{}", strict.line());
    let nonsense = place.post("widgets?fieldValidation=Nonsense", object).await;
    assert_eq!(nonsense.reason(), "422 Invalid", "{}", nonsense.line());
    let twice = r#"{"apiVersion":"strict.example/v1","kind":"Widget","metadata":{"name":"b"},"spec":{"size":1,"size":2}}"#;
    let strict = place.send(ApiRequest::new("POST", "widgets?fieldValidation=Strict").body(twice)).await;
    assert_eq!(
        strict.line(),
        r#"400 BadRequest: Widget in version "v1" cannot be handled as a Widget: strict decoding error: duplicate field "spec.size""#
    );
}

async fn missing_fields_are_defaulted(subject: &Subject) {
    let group = "defaults.example";
    let place = define(subject, group, |_| ()).await;
    for (index, (spec, expected)) in [
        (json!({}), json!({"colour": "red"})),
        (json!({"colour": "blue"}), json!({"colour": "blue"})),
        (json!({"nested": {"must": "x"}}), json!({"colour": "red", "nested": {"must": "x", "deep": 7}})),
        (json!({"colour": null}), json!({"colour": "red"})),
        (json!({"maybe": null}), json!({"colour": "red", "maybe": null})),
    ]
    .into_iter()
    .enumerate()
    {
        let made = place.post("widgets", widget(group, &format!("a{index}"), spec.clone())).await.ok();
        assert_eq!(made["spec"], expected, "{spec}");
    }
    let without =
        json!({"apiVersion": "defaults.example/v1", "kind": "Widget", "metadata": {"name": "without"}});
    assert_eq!(place.post("widgets", without).await.ok()["spec"], Value::Null);
    let patched = place.merge("widgets/a1", json!({"spec": {"colour": null}})).await.ok();
    assert_eq!(patched["spec"], json!({"colour": "red"}));
}

async fn new_defaults_apply_to_stored_objects(subject: &Subject) {
    let group = "newdefault.example";
    let place = define(subject, group, |_| ()).await;
    let made = place.post("widgets", widget(group, "a", json!({"size": 1}))).await.ok();
    let path = format!("{DEFINITIONS}/widgets.{group}");
    let size = "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/fresh";
    let patch = json!([{"op": "add", "path": size, "value": {"type": "string", "default": "new"}}]);
    place.send(ApiRequest::new("JSON", &path).json(&patch)).await.ok();
    wait("the new default", || async { place.get("widgets/a").await["spec"]["fresh"] == "new" }).await;
    assert_eq!(place.get("widgets/a").await.resource_version(), made.resource_version());
    assert_eq!(place.get("widgets").await["items"][0]["spec"]["fresh"], "new");
}
