//! Tests of schemas.

use serde_json::json;

use super::*;

fn element(schema: &Value, item: Value) -> Result<String, String> {
    let schema =
        Schema::of_custom_resource(&json!({"type": "object", "properties": {"list": schema}}), false);
    let list = schema.resolve(schema.root()).map().unwrap().field("list").unwrap();
    let list = schema.resolve(list).list().unwrap();
    schema.element(list, &item).map(|element| element.to_key())
}

#[test]
fn items_are_identified_by_their_keys_with_defaults() {
    let ports = json!({"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["port", "protocol"],
        "items": {"type": "object", "properties": {"port": {"type": "integer"},
            "protocol": {"type": "string", "default": "TCP"}}}});
    assert_eq!(element(&ports, json!({"port": 80})).unwrap(), r#"k:{"port":80,"protocol":"TCP"}"#);
    assert_eq!(
        element(&ports, json!({"port": 80, "protocol": "UDP"})).unwrap(),
        r#"k:{"port":80,"protocol":"UDP"}"#
    );
    // A key without a default may be absent, if another one is there.
    assert_eq!(element(&ports, json!({})).unwrap(), r#"k:{"protocol":"TCP"}"#);
    assert!(element(&ports, json!(null)).is_err());
    assert!(element(&ports, json!("x")).is_err());
    let names = json!({"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"],
        "items": {"type": "object", "properties": {"name": {"type": "string"}}}});
    assert!(element(&names, json!({"other": 1})).unwrap_err().contains("omits all key fields [\"name\"]"));
}

#[test]
fn items_of_sets_are_scalars() {
    let set = json!({"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}});
    assert_eq!(element(&set, json!("a")).unwrap(), "v:\"a\"");
    for item in [json!({}), json!([]), json!(null)] {
        assert!(element(&set, item).is_err());
    }
}

#[test]
fn an_embedded_resource_has_metadata() {
    let schema = Schema::of_custom_resource(
        &json!({"type": "object", "properties": {"template": {"type": "object", "x-kubernetes-embedded-resource": true,
            "x-kubernetes-preserve-unknown-fields": true}}}),
        false,
    );
    let template = schema.resolve(schema.root()).map().unwrap().field("template").unwrap();
    let map = schema.resolve(template).map().unwrap();
    assert!(["apiVersion", "kind", "metadata"].iter().all(|name| map.fields.contains_key(*name)));
    assert!(matches!(map.rest, Some(Ref::Deduced)));
}

#[test]
fn unknown_fields_are_preserved_below_a_schema_that_says_so() {
    let inner = json!({"type": "object", "properties": {"a": {"type": "object", "properties": {"b": {"type": "string"}}}}});
    for (preserve, expected) in [(true, true), (false, false)] {
        let mut schema = inner.clone();
        schema["x-kubernetes-preserve-unknown-fields"] = json!(preserve);
        let schema = Schema::of_custom_resource(&schema, false);
        let a = schema.resolve(schema.root()).map().unwrap().field("a").unwrap();
        assert_eq!(schema.resolve(a).map().unwrap().rest.is_some(), expected);
    }
}
