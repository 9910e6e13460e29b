//! Validates the JSON schema of a definition: unsupported keywords, and Kubernetes' extensions.

use serde_json::{Value, json};

use super::fields::{flag, is_zero, list, text, texts};
use crate::http::status::Cause;

/// Reports unsupported keywords of JSON schema, at any depth.
pub(super) fn errors(schema: &Value, field: &str, causes: &mut Vec<Cause>) {
    let at = |key: &str| format!("{field}.{key}");
    if flag(schema, "uniqueItems") {
        let detail = "uniqueItems cannot be set to true since the runtime complexity becomes quadratic";
        causes.push(Cause::forbidden(at("uniqueItems"), detail));
    }
    let both = schema.get("additionalProperties").is_some_and(|additional| !is_zero(additional))
        && schema
            .get("properties")
            .and_then(Value::as_object)
            .is_some_and(|properties| !properties.is_empty());
    if both {
        let detail = "additionalProperties and properties are mutual exclusive";
        causes.push(Cause::forbidden(at("additionalProperties"), detail));
    }
    let known = ["array", "boolean", "integer", "number", "object", "string"];
    let kind = text(schema, "type");
    if kind == "null" {
        let detail = "type cannot be set to null, use nullable as an alternative";
        causes.push(Cause::forbidden(at("type"), detail));
    } else if !kind.is_empty() && !known.contains(&kind.as_str()) {
        causes.push(Cause::not_supported(at("type"), &json!(kind), &known));
    }
    for key in ["id", "additionalItems", "patternProperties", "definitions", "dependencies", "$ref"] {
        if schema.get(key).is_some_and(|value| !is_zero(value)) {
            causes.push(Cause::forbidden(at(key), &format!("{key} is not supported")));
        }
    }
    lists(schema, &kind, field, causes);
    rules(schema, field, causes);
    for (key, property) in schema.get("properties").and_then(Value::as_object).into_iter().flatten() {
        errors(property, &format!("{field}.properties[{key}]"), causes);
    }
    for key in ["items", "additionalProperties", "not"] {
        if let Some(inner) = schema.get(key).filter(|inner| inner.is_object()) {
            errors(inner, &at(key), causes);
        }
    }
    for key in ["allOf", "anyOf", "oneOf"] {
        for (index, inner) in list(schema, key).iter().enumerate() {
            errors(inner, &format!("{field}.{key}[{index}]"), causes);
        }
    }
}

fn lists(schema: &Value, kind: &str, field: &str, causes: &mut Vec<Cause>) {
    let at = |key: &str| format!("{field}.{key}");
    let list_type = text(schema, "x-kubernetes-list-type");
    let keys = texts(schema, "x-kubernetes-list-map-keys");
    if !list_type.is_empty() && kind != "array" {
        let detail = "must be array if x-kubernetes-list-type is specified";
        causes.push(if kind.is_empty() {
            Cause::required(at("type"), detail)
        } else {
            Cause::invalid_text(at("type"), kind, detail)
        });
    }
    if !["", "atomic", "set", "map"].contains(&list_type.as_str()) {
        let known = ["atomic", "set", "map"];
        causes.push(Cause::not_supported(at("x-kubernetes-list-type"), &json!(list_type), &known));
    }
    if list_type != "map" {
        if !keys.is_empty() {
            let detail = "must be map if x-kubernetes-list-map-keys is non-empty";
            causes.push(if list_type.is_empty() {
                Cause::required(at("x-kubernetes-list-type"), detail)
            } else {
                Cause::invalid_text(at("x-kubernetes-list-type"), &list_type, detail)
            });
        }
        return;
    }
    if keys.is_empty() {
        let detail = "must not be empty if x-kubernetes-list-type is map";
        causes.push(Cause::required(at("x-kubernetes-list-map-keys"), detail));
    }
    let Some(items) = schema.get("items") else {
        causes.push(Cause::required(at("items"), "must have a schema if x-kubernetes-list-type is map"));
        return;
    };
    if text(items, "type") != "object" {
        let detail = "must be object if parent array's x-kubernetes-list-type is map";
        causes.push(Cause::invalid_text(at("items.type"), &text(items, "type"), detail));
    }
    list_keys(items, &keys, field, causes);
}

fn list_keys(items: &Value, keys: &[String], field: &str, causes: &mut Vec<Cause>) {
    let at = format!("{field}.x-kubernetes-list-map-keys");
    for (index, key) in keys.iter().enumerate() {
        let property = items.get("properties").and_then(|properties| properties.get(key));
        let place = format!("{field}.items.properties[{key}]");
        match property {
            None => {
                causes.push(Cause::invalid(&at, &json!(keys), "entries must all be names of item properties"))
            }
            Some(property) if ["array", "object"].contains(&text(property, "type").as_str()) => {
                let detail = "must be a scalar type if parent array's x-kubernetes-list-type is map";
                causes.push(Cause::invalid_text(format!("{place}.type"), &text(items, "type"), detail));
            }
            Some(property) => {
                if property.get("default").is_none() && !texts(items, "required").contains(key) {
                    let detail = "this property is in x-kubernetes-list-map-keys, so it must have a default or be a \
                         required property";
                    causes.push(Cause::required(format!("{place}.default"), detail));
                }
                if flag(property, "nullable") {
                    let detail = "this property is in x-kubernetes-list-map-keys, so it cannot be nullable";
                    causes.push(Cause::forbidden(format!("{place}.nullable"), detail));
                }
            }
        }
        if keys[..index].contains(key) {
            causes.push(Cause::invalid(&at, &json!(keys), "must not contain duplicate entries"));
        }
    }
}

fn rules(schema: &Value, field: &str, causes: &mut Vec<Cause>) {
    for (index, rule) in list(schema, "x-kubernetes-validations").iter().enumerate() {
        let at = |key: &str| format!("{field}.x-kubernetes-validations[{index}].{key}");
        let (expression, message) = (text(rule, "rule"), text(rule, "message"));
        if expression.trim().is_empty() {
            causes.push(Cause::required(at("rule"), "rule is not specified"));
        } else if message.trim().is_empty() && !message.is_empty() {
            causes.push(Cause::invalid_text(at("message"), &message, "must be non-empty if specified"));
        } else if message.contains('\n') {
            causes.push(Cause::invalid_text(at("message"), &message, "must not contain line breaks"));
        } else if expression.trim().contains('\n') && message.trim().is_empty() {
            let detail = "message must be specified if rule contains line breaks";
            causes.push(Cause::required(at("message"), detail));
        }
    }
}
