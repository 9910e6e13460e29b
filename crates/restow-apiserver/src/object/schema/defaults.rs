//! Defaults for missing fields.

use serde_json::Value;

use super::model::{Additional, Schema};

impl Schema {
    /// Drops nulls that are not allowed, and sets defaults.
    pub(crate) fn set_defaults(&self, object: &mut Value) {
        drop_nulls(object, self);
        set_defaults(object, self);
    }

    /// Sets defaults, and leaves nulls that have none.
    pub(crate) fn set_missing(&self, object: &mut Value) {
        set_defaults(object, self);
    }
}

fn is_void(value: &Value, schema: &Schema) -> bool {
    value.is_null() && !schema.nullable
}

fn set_defaults(value: &mut Value, schema: &Schema) {
    match value {
        Value::Object(fields) => {
            for (key, schema) in &schema.properties {
                let Some(default) = &schema.default else { continue };
                if fields.get(key).is_none_or(|value| is_void(value, schema)) {
                    fields.insert(key.clone(), default.clone());
                }
            }
            for (key, value) in fields {
                if let Some(property) = schema.properties.get(key) {
                    set_defaults(value, property);
                } else if let Some(Additional::Schema(additional)) = schema.additional.as_deref() {
                    set_value_defaults(value, additional);
                }
            }
        }
        Value::Array(items) => {
            let Some(schema) = &schema.items else { return };
            items.iter_mut().for_each(|item| set_value_defaults(item, schema));
        }
        _ => {}
    }
}

fn set_value_defaults(value: &mut Value, schema: &Schema) {
    if is_void(value, schema) {
        *value = schema.default.clone().unwrap_or_default();
    }
    set_defaults(value, schema);
}

/// Drops nulls that are neither allowed nor replaced by a default.
fn drop_nulls(value: &mut Value, schema: &Schema) {
    match value {
        Value::Object(fields) => fields.retain(|key, value| {
            let Some(field) = schema.field(key) else { return true };
            if is_void(value, field) && field.default.is_none() {
                return false;
            }
            drop_nulls(value, field);
            true
        }),
        Value::Array(items) => {
            let Some(schema) = &schema.items else { return };
            items.iter_mut().for_each(|item| drop_nulls(item, schema));
        }
        _ => {}
    }
}
