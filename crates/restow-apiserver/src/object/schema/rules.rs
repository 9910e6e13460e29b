//! Evaluates the validation rules of a schema on an object, at every depth.

use serde_json::Value;

use super::lists::Counterparts;
use super::model::Schema;
use crate::http::status::{Cause, MOST_CAUSES};
use crate::object::path::Path;

/// All violated rules, at any depth.
pub(super) fn errors(schema: &Schema, value: &Value, old: Option<&Value>, path: &Path<'_>) -> Vec<Cause> {
    let mut causes: Vec<_> =
        schema.rules.iter().filter_map(|rule| rule.violation(value, old, path)).collect();
    match value {
        Value::Object(fields) => {
            for (key, value) in fields {
                if causes.len() > MOST_CAUSES {
                    break;
                }
                let before = old.and_then(|old| old.get(key));
                if let Some(property) = schema.properties.get(key) {
                    causes.extend(errors(property, value, before, &path.field(key)));
                } else if let Some(additional) = schema.field(key) {
                    causes.extend(errors(additional, value, before, &path.key(key)));
                }
            }
        }
        Value::Array(items) => {
            let Some(item_schema) = &schema.items else { return causes };
            let before = Counterparts::new(&schema.list, old);
            for (index, item) in items.iter().enumerate() {
                if causes.len() > MOST_CAUSES {
                    break;
                }
                causes.extend(errors(item_schema, item, before.of(item), &path.item(index)));
            }
        }
        _ => {}
    }
    causes
}
