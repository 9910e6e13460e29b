//! Embedded resources: they have a kind, an apiVersion, and metadata that is validated like any other.

use restow_core::resource::name::GroupResource;
use serde_json::{Value, json};

use super::model::Schema;
use crate::http::status::{Cause, GroupKind, MOST_CAUSES};
use crate::object::meta::{NameRule, Rules, name, set, shape, text, validate};
use crate::object::path::Path;

/// The errors of embedded resources, at any depth below the object itself.
pub(super) fn errors(schema: &Schema, value: &Value, path: &Path<'_>) -> Vec<Cause> {
    let mut causes = Vec::new();
    match value {
        Value::Object(fields) => {
            if schema.embedded {
                causes.extend(resource_errors(value, path));
            }
            for (key, value) in fields {
                if causes.len() > MOST_CAUSES {
                    break;
                }
                if let Some(property) = schema.properties.get(key) {
                    causes.extend(errors(property, value, &path.field(key)));
                } else if let Some(additional) = schema.field(key) {
                    causes.extend(errors(additional, value, &path.key(key)));
                }
            }
        }
        Value::Array(items) => {
            let Some(schema) = &schema.items else { return causes };
            for (index, item) in items.iter().enumerate() {
                if causes.len() > MOST_CAUSES {
                    break;
                }
                causes.extend(errors(schema, item, &path.item(index)));
            }
        }
        _ => {}
    }
    causes
}

fn resource_errors(value: &Value, path: &Path<'_>) -> Vec<Cause> {
    let mut causes = Vec::new();
    for key in ["apiVersion", "kind"] {
        let field = || path.field(key).to_string();
        match value.get(key) {
            None => causes.push(Cause::required(field(), "")),
            Some(Value::String(text)) if text.is_empty() => {
                causes.push(Cause::invalid_text(field(), text, "must not be empty"));
            }
            Some(Value::String(text)) if key == "kind" => {
                let wrong = name::dns_1035_label(&text.to_lowercase());
                if !wrong.is_empty() {
                    let detail =
                        format!("may have mixed case, but should otherwise match: {}", wrong.join(","));
                    causes.push(Cause::invalid_text(field(), text, &detail));
                }
            }
            Some(Value::String(text)) if text.matches('/').count() > 1 => {
                let detail = format!("unexpected GroupVersion string: {text}");
                causes.push(Cause::invalid_text(field(), text, &detail));
            }
            Some(Value::String(_)) => {}
            Some(other) => causes.push(Cause::invalid(field(), other, "must be a string")),
        }
    }
    if let Some(metadata) = value.get("metadata") {
        causes.extend(metadata_errors(metadata, &path.field("metadata")));
    }
    causes
}

fn metadata_errors(metadata: &Value, path: &Path<'_>) -> Vec<Cause> {
    let coerced = match shape::coerced(metadata, "", &mut Vec::new()) {
        Ok(coerced) => coerced,
        Err(mismatch) => return vec![Cause::invalid(path.to_string(), metadata, &mismatch.message)],
    };
    let mut object = json!({ "metadata": coerced });
    if text(&object, "name").is_empty() {
        set(&mut object, "name", Some(json!("fakename")));
    }
    let namespaced = !text(&object, "namespace").is_empty();
    let resource = GroupResource::new("", "");
    let rules =
        Rules { name: NameRule::PathSegment, ..Rules::plain(resource, GroupKind::default(), namespaced) };
    let mut causes = validate::create(&object, &rules);
    for cause in &mut causes {
        cause.field = cause.field.replacen("metadata", &path.to_string(), 1);
    }
    causes
}
