//! What an expression can see of an object: the fields of its rule.

use serde_json::Value;

use crate::rules::path::Path;
use crate::schema::Schema;

/// The fields that an expression can see: these paths of an object with this schema.
#[derive(Clone, Copy)]
pub(in crate::rules) struct Visible<'a> {
    pub paths: &'a [&'a Path],
    pub schema: Schema<'a>,
}

impl Visible<'_> {
    /// Whether the object has any of the fields.
    pub(in crate::rules) fn has_any(&self, source: &Value) -> bool {
        self.paths.iter().any(|path| path.get(source).is_some_and(|value| !value.is_null()))
    }

    /// The object with nothing but these fields.
    pub(super) fn of(&self, source: &Value) -> Value {
        let mut seen = Value::Object(serde_json::Map::new());
        for path in self.paths {
            if let Some(value) = path.get(source).filter(|value| !value.is_null()) {
                // The paths of a rule do not overlap, so nothing is in the way.
                let _ = path.set(&mut seen, value.clone());
            }
        }
        seen
    }
}
