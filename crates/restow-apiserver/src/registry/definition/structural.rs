//! Validates that the schema of a version is structural.

use serde_json::{Value, json};

use super::fields::{flag, is_zero, list, text};
use super::standard;
use crate::http::status::Cause;
use crate::object::schema::Schema;
use crate::object::schema::pattern::Pattern;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Level {
    Root,
    Item,
    Field,
}

/// The keys that a schema with a status subresource may have at its root.
const ROOT_KEYS: &[&str] = &[
    "description",
    "type",
    "format",
    "title",
    "maximum",
    "exclusiveMaximum",
    "minimum",
    "exclusiveMinimum",
    "maxLength",
    "minLength",
    "pattern",
    "maxItems",
    "minItems",
    "uniqueItems",
    "multipleOf",
    "required",
    "items",
    "properties",
    "externalDocs",
    "example",
    "x-kubernetes-preserve-unknown-fields",
    "x-kubernetes-validations",
];
const ROOT_KEYS_TOLD: &str = "[Description Type Format Title Maximum ExclusiveMaximum Minimum ExclusiveMinimum \
     MaxLength MinLength Pattern MaxItems MinItems UniqueItems MultipleOf Required Items Properties ExternalDocs \
     Example XPreserveUnknownFields XValidations]";

/// The errors of a version's schema.
pub(super) fn errors(schema: &Value, status: bool, field: &str) -> Vec<Cause> {
    let mut causes = Vec::new();
    if status {
        causes.extend(errors_beside_status(schema, field));
    }
    if flag(schema, "nullable") {
        causes.push(Cause::forbidden(format!("{field}.nullable"), "nullable cannot be true at the root"));
    }
    let mut invariants = Vec::new();
    structure(schema, Level::Root, field, &mut invariants);
    if invariants.is_empty() {
        defaults(schema, field, &mut invariants);
    }
    causes.extend(invariants);
    standard::errors(schema, field, &mut causes);
    causes
}

fn errors_beside_status(schema: &Value, field: &str) -> Option<Cause> {
    let kind = text(schema, "type");
    if !kind.is_empty() && kind != "object" {
        let detail = "only \"object\" is allowed as the type at the root of the schema if the status subresource is \
             enabled";
        return Some(Cause::invalid_text(format!("{field}.type"), &kind, detail));
    }
    let odd =
        schema.as_object()?.iter().any(|(key, value)| !ROOT_KEYS.contains(&key.as_str()) && !is_zero(value));
    odd.then(|| {
        let detail = format!(
            "only {ROOT_KEYS_TOLD} fields are allowed at the root of the schema if the status subresource is enabled"
        );
        Cause::invalid(field, schema, &detail)
    })
}

fn structure(schema: &Value, level: Level, field: &str, causes: &mut Vec<Cause>) {
    let kind = text(schema, "type");
    let at = |key: &str| format!("{field}.{key}");
    if kind == "array" && schema.get("items").is_none_or(Value::is_null) {
        causes.push(Cause::required(at("items"), "must be specified"));
    }
    if let Some(items) = schema.get("items").filter(|items| items.is_object()) {
        structure(items, Level::Item, &at("items"), causes);
    }
    for (key, property) in schema.get("properties").and_then(Value::as_object).into_iter().flatten() {
        structure(property, Level::Field, &format!("{field}.properties[{key}]"), causes);
    }
    if let Some(additional) = schema.get("additionalProperties").filter(|additional| !additional.is_null()) {
        if level == Level::Root {
            causes.push(Cause::forbidden(at("additionalProperties"), "must not be used at the root"));
        }
        if additional.is_object() {
            structure(additional, Level::Field, &at("additionalProperties"), causes);
        }
    }
    extensions(schema, field, causes);
    values(schema, field, is_int_or_string(schema), causes);
    types(schema, &kind, level, field, causes);
    metadata(schema, level, field, causes);
}

fn extensions(schema: &Value, field: &str, causes: &mut Vec<Cause>) {
    if flag(schema, "x-kubernetes-int-or-string") {
        for key in ["x-kubernetes-preserve-unknown-fields", "x-kubernetes-embedded-resource"] {
            if flag(schema, key) {
                let detail = "must be false if x-kubernetes-int-or-string is true";
                causes.push(Cause::invalid(format!("{field}.{key}"), &json!(true), detail));
            }
        }
    }
}

fn types(schema: &Value, kind: &str, level: Level, field: &str, causes: &mut Vec<Cause>) {
    let at = format!("{field}.type");
    let embedded = flag(schema, "x-kubernetes-embedded-resource");
    let free =
        flag(schema, "x-kubernetes-int-or-string") || flag(schema, "x-kubernetes-preserve-unknown-fields");
    if embedded && kind != "object" {
        let detail = "must be object if x-kubernetes-embedded-resource is true";
        causes.push(if kind.is_empty() {
            Cause::required(&at, detail)
        } else {
            Cause::invalid_text(&at, kind, detail)
        });
    } else if kind.is_empty() && !free {
        let detail = match level {
            Level::Root => "must not be empty at the root",
            Level::Item => "must not be empty for specified array items",
            Level::Field => "must not be empty for specified object fields",
        };
        causes.push(Cause::required(&at, detail));
    }
    if embedded && schema.get("additionalProperties").is_some() {
        let detail = "must not be used if x-kubernetes-embedded-resource is set";
        causes.push(Cause::forbidden(format!("{field}.additionalProperties"), detail));
    }
    if level == Level::Root && !kind.is_empty() && kind != "object" {
        causes.push(Cause::invalid_text(&at, kind, "must be object at the root"));
    }
}

fn metadata(schema: &Value, level: Level, field: &str, causes: &mut Vec<Cause>) {
    let embedded = flag(schema, "x-kubernetes-embedded-resource");
    let property = |key: &str| schema.get("properties").and_then(|properties| properties.get(key));
    if level == Level::Root || embedded {
        for key in ["kind", "apiVersion"] {
            if let Some(kind) =
                property(key).map(|property| text(property, "type")).filter(|kind| kind != "string")
            {
                let at = format!("{field}.properties[{key}].type");
                causes.push(Cause::invalid_text(at, &kind, "must be string"));
            }
        }
        if let Some(kind) =
            property("metadata").map(|property| text(property, "type")).filter(|kind| kind != "object")
        {
            causes.push(Cause::invalid_text(
                format!("{field}.properties[metadata].type"),
                &kind,
                "must be object",
            ));
        }
    }
    if level == Level::Root && property("metadata").is_some_and(|metadata| !says_only_names(metadata)) {
        let detail = "must not specify anything other than name and generateName, but metadata is implicitly specified";
        causes.push(Cause::forbidden(format!("{field}.properties[metadata]"), detail));
    }
    let properties = schema.get("properties").and_then(Value::as_object).map_or(0, serde_json::Map::len);
    if embedded && !flag(schema, "x-kubernetes-preserve-unknown-fields") && properties == 0 {
        let detail = "must not be empty if x-kubernetes-embedded-resource is true without \
             x-kubernetes-preserve-unknown-fields";
        causes.push(Cause::required(format!("{field}.properties"), detail));
    }
}

fn says_only_names(metadata: &Value) -> bool {
    let Some(fields) = metadata.as_object() else { return true };
    fields.iter().all(|(key, value)| match key.as_str() {
        "type" | "default" => true,
        "properties" => value
            .as_object()
            .is_none_or(|names| names.keys().all(|name| name == "name" || name == "generateName")),
        _ => is_zero(value),
    })
}

/// Whether alternatives have the allowed form of an integer or string.
fn is_int_or_string(schema: &Value) -> bool {
    let pair = json!([{"type": "integer"}, {"type": "string"}]);
    flag(schema, "x-kubernetes-int-or-string")
        && (schema.get("anyOf") == Some(&pair)
            || list(schema, "allOf").first().and_then(|first| first.get("anyOf")) == Some(&pair))
}

fn values(schema: &Value, field: &str, int_or_string: bool, causes: &mut Vec<Cause>) {
    for key in ["anyOf", "allOf", "oneOf"] {
        for (index, one) in list(schema, key).iter().enumerate() {
            let allowed = int_or_string && (key == "anyOf" || (key == "allOf" && index == 0));
            if !allowed {
                nested(one, &format!("{field}.{key}[{index}]"), causes);
            }
        }
    }
    if let Some(not) = schema.get("not").filter(|not| not.is_object()) {
        nested(not, &format!("{field}.not"), causes);
    }
    let pattern = text(schema, "pattern");
    if let Err(why) = Pattern::new(&pattern).is_in("") {
        let detail = format!("must be a valid regular expression, but isn't: {why}");
        causes.push(Cause::invalid_text(format!("{field}.pattern"), &pattern, &detail));
    }
}

/// Validates a schema within alternatives: it may restrict values, but not define their structure.
fn nested(schema: &Value, field: &str, causes: &mut Vec<Cause>) {
    values(schema, field, false, causes);
    if let Some(items) = schema.get("items").filter(|items| items.is_object()) {
        nested(items, &format!("{field}.items"), causes);
    }
    for (key, property) in schema.get("properties").and_then(Value::as_object).into_iter().flatten() {
        nested(property, &format!("{field}.properties[{key}]"), causes);
    }
    for (key, detail) in [
        ("type", "must be empty to be structural"),
        ("additionalProperties", "must be undefined to be structural"),
        ("default", "must be undefined to be structural"),
        ("title", "must be empty to be structural"),
        ("description", "must be empty to be structural"),
        ("nullable", "must be false to be structural"),
        ("x-kubernetes-preserve-unknown-fields", "must be false to be structural"),
        ("x-kubernetes-embedded-resource", "must be false to be structural"),
        ("x-kubernetes-int-or-string", "must be false to be structural"),
        ("x-kubernetes-list-map-keys", "must be empty to be structural"),
        ("x-kubernetes-list-type", "must be undefined to be structural"),
        ("x-kubernetes-map-type", "must be undefined to be structural"),
        ("x-kubernetes-validations", "must be empty to be structural"),
    ] {
        if schema.get(key).is_some_and(|value| !is_zero(value)) {
            causes.push(Cause::forbidden(format!("{field}.{key}"), detail));
        }
    }
    if schema.get("properties").is_some_and(|properties| properties.get("metadata").is_some()) {
        let detail = "must not be specified in a nested context";
        causes.push(Cause::forbidden(format!("{field}.properties[metadata]"), detail));
    }
}

/// Validates each default against its own schema.
fn defaults(schema: &Value, field: &str, causes: &mut Vec<Cause>) {
    if let Some(default) = schema.get("default").filter(|default| !default.is_null()) {
        let mut filled = default.clone();
        let own = Schema::parse(schema);
        own.set_defaults(&mut filled);
        for cause in own.check_value(&filled) {
            let inner = if cause.field == "<nil>" { String::new() } else { format!(".{}", cause.field) };
            causes.push(Cause { field: format!("{field}.default{inner}"), ..cause });
        }
    }
    for (key, property) in schema.get("properties").and_then(Value::as_object).into_iter().flatten() {
        defaults(property, &format!("{field}.properties[{key}]"), causes);
    }
    for key in ["items", "additionalProperties"] {
        if let Some(inner) = schema.get(key).filter(|inner| inner.is_object()) {
            defaults(inner, &format!("{field}.{key}"), causes);
        }
    }
}
