//! Paths of fields, such as `spec.template.size` or `metadata.labels["example.com/team"]`.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// The path of a field, from the object down.
#[derive(Clone, Debug, Deserialize, Eq, Hash, Ord, PartialEq, PartialOrd, Serialize)]
#[serde(try_from = "String", into = "String")]
pub struct Path(Vec<String>);

/// Why a text is not a path.
#[derive(Debug, PartialEq, thiserror::Error)]
#[error(
    "{0:?} is not a path; write fields like spec.size, and unusual names like metadata.labels[\"example.com/team\"]"
)]
pub struct InvalidPath(String);

impl Path {
    /// A path of these fields.
    pub(crate) fn new(fields: Vec<String>) -> Self {
        Self(fields)
    }

    /// The names of the fields, the outermost first.
    pub fn fields(&self) -> &[String] {
        &self.0
    }

    /// The path without its last field, and that field.
    pub(crate) fn split_last(&self) -> (&[String], &str) {
        self.0.split_last().map_or((&[], ""), |(last, parents)| (parents, last))
    }

    /// Whether this path leads to the other one, or further up.
    pub(crate) fn covers(&self, other: &Self) -> bool {
        other.0.starts_with(&self.0)
    }

    /// The path of a field below this one.
    pub(crate) fn child(&self, field: &str) -> Self {
        let mut fields = self.0.clone();
        fields.push(field.to_owned());
        Self(fields)
    }

    /// The value at this path.
    pub(crate) fn get<'a>(&self, object: &'a Value) -> Option<&'a Value> {
        self.0.iter().try_fold(object, |value, field| value.get(field))
    }

    /// Removes the value at this path.
    pub(crate) fn remove(&self, object: &mut Value) {
        let (parents, last) = self.split_last();
        let parent = parents.iter().try_fold(object, |value, field| value.get_mut(field));
        if let Some(Value::Object(fields)) = parent {
            fields.remove(last);
        }
    }

    /// Sets the value at this path. Objects above it are made where they are missing.
    ///
    /// # Errors
    /// The path of a field that is in the way because it is no object.
    pub(crate) fn set(&self, object: &mut Value, value: Value) -> Result<(), Self> {
        let (parents, last) = self.split_last();
        let mut at = object;
        for (depth, field) in parents.iter().enumerate() {
            if at.is_null() {
                *at = Value::Object(Map::new());
            }
            let Value::Object(fields) = at else { return Err(Self(parents[..depth].to_vec())) };
            at = fields.entry(field).or_insert_with(|| Value::Object(Map::new()));
        }
        if at.is_null() {
            *at = Value::Object(Map::new());
        }
        let Value::Object(fields) = at else { return Err(Self(parents.to_vec())) };
        fields.insert(last.to_owned(), value);
        Ok(())
    }
}

impl FromStr for Path {
    type Err = InvalidPath;

    fn from_str(text: &str) -> Result<Self, InvalidPath> {
        let invalid = || InvalidPath(text.to_owned());
        let mut fields = Vec::new();
        let mut rest = text;
        while !rest.is_empty() {
            if let Some(quoted) = rest.strip_prefix('[') {
                let mut strings = serde_json::Deserializer::from_str(quoted).into_iter::<String>();
                let field = strings.next().and_then(Result::ok).ok_or_else(invalid)?;
                rest = quoted[strings.byte_offset()..].strip_prefix(']').ok_or_else(invalid)?;
                fields.push(field);
            } else {
                let end = rest.find(['.', '[']).unwrap_or(rest.len());
                if end == 0 {
                    return Err(invalid());
                }
                fields.push(rest[..end].to_owned());
                rest = &rest[end..];
            }
            if let Some(after) = rest.strip_prefix('.') {
                rest = after;
                if rest.is_empty() {
                    return Err(invalid());
                }
            } else if !rest.is_empty() && !rest.starts_with('[') {
                return Err(invalid());
            }
        }
        if fields.is_empty() || fields.iter().any(String::is_empty) {
            Err(invalid())
        } else {
            Ok(Self(fields))
        }
    }
}

impl TryFrom<String> for Path {
    type Error = InvalidPath;

    fn try_from(text: String) -> Result<Self, InvalidPath> {
        text.parse()
    }
}

impl From<Path> for String {
    fn from(path: Path) -> Self {
        path.to_string()
    }
}

impl fmt::Display for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (place, field) in self.0.iter().enumerate() {
            if field.contains(['.', '[', ']', '"', '\\']) {
                write!(f, "[{}]", Value::from(field.as_str()))?;
            } else {
                write!(f, "{}{field}", if place == 0 { "" } else { "." })?;
            }
        }
        Ok(())
    }
}

impl JsonSchema for Path {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "Path".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({"type": "string", "minLength": 1})
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn path(text: &str) -> Path {
        text.parse().unwrap()
    }

    #[test]
    fn paths_are_read_and_written() {
        let cases: [(&str, &[&str]); 5] = [
            ("spec[\"a\\\"]\"]", &["spec", "a\"]"]),
            ("spec", &["spec"]),
            ("spec.size", &["spec", "size"]),
            ("metadata.labels[\"example.com/team\"]", &["metadata", "labels", "example.com/team"]),
            ("[\"a.b\"][\"c.d\"].e", &["a.b", "c.d", "e"]),
        ];
        for (text, fields) in cases {
            assert_eq!(path(text).fields(), fields, "{text}");
            assert_eq!(path(text).to_string(), text);
        }
        for text in ["", ".", "a.", ".a", "a..b", "a[\"b", "a[b]", "a[\"b\"]c", "a[\"\"]", "[]"] {
            assert_eq!(text.parse::<Path>(), Err(InvalidPath(text.to_owned())));
        }
    }

    #[test]
    fn removing_a_field_leaves_the_objects_above_it() {
        let cases = [
            (json!({"a": {"b": {"c": 1}}}), json!({"a": {"b": {}}})),
            (json!({"a": {"b": {"c": 1, "d": 2}}}), json!({"a": {"b": {"d": 2}}})),
            (json!({"a": {"b": [1]}}), json!({"a": {"b": [1]}})),
            (json!({"a": 1}), json!({"a": 1})),
        ];
        for (mut object, expected) in cases {
            path("a.b.c").remove(&mut object);
            assert_eq!(object, expected);
        }
    }

    #[test]
    fn setting_a_field_makes_the_objects_above_it() {
        let mut object = json!({"a": {"x": 1}});
        path("a.b.c").set(&mut object, json!(2)).unwrap();
        assert_eq!(object, json!({"a": {"x": 1, "b": {"c": 2}}}));
        assert_eq!(path("a.x.c").set(&mut object, json!(2)), Err(path("a.x")));
        assert_eq!(path("a.b.c").get(&object), Some(&json!(2)));
    }
}
