//! One step of a path: a field, or an item of a list.

use std::cmp::Ordering;
use std::fmt;

use serde_json::{Number, Value};

/// One step of a path.
#[derive(Clone, Debug)]
pub enum Element {
    /// A field of an object, or the key of a map.
    Field(String),
    /// The item of a keyed list that has these values, sorted by their names.
    Key(Vec<(String, Value)>),
    /// The item of a set that has this value.
    Value(Value),
    /// The item at this place. Nothing makes such steps, but they can be read.
    Index(i64),
}

/// A key of `fieldsV1` that is no path element.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a path element")]
pub struct InvalidElement(pub String);

impl Element {
    /// Reads a key of `fieldsV1`. None for kinds of steps that are unknown, which are to be skipped.
    pub fn parse(text: &str) -> Result<Option<Self>, InvalidElement> {
        let invalid = || InvalidElement(text.chars().take(100).collect());
        let (kind, rest) = text.split_at_checked(2).ok_or_else(invalid)?;
        Ok(Some(match kind {
            "f:" => Self::Field(rest.to_owned()),
            "v:" => Self::Value(serde_json::from_str(rest).map_err(|_| invalid())?),
            "k:" => match serde_json::from_str(rest) {
                Ok(Value::Object(fields)) => {
                    let mut fields: Vec<_> = fields.into_iter().collect();
                    fields.sort_by(|(one, _), (other, _)| one.cmp(other));
                    Self::Key(fields)
                }
                _ => return Err(invalid()),
            },
            "i:" => Self::Index(rest.parse().map_err(|_| invalid())?),
            _ if kind.ends_with(':') => return Ok(None),
            _ => return Err(invalid()),
        }))
    }

    /// Writes the key of `fieldsV1`.
    pub fn to_key(&self) -> String {
        match self {
            Self::Field(name) => format!("f:{name}"),
            Self::Key(fields) => {
                let pairs: Vec<String> = fields
                    .iter()
                    .map(|(name, value)| format!("{}:{}", json(&name.as_str().into()), json(value)))
                    .collect();
                format!("k:{{{}}}", pairs.join(","))
            }
            Self::Value(value) => format!("v:{}", json(value)),
            Self::Index(index) => format!("i:{index}"),
        }
    }
}

/// JSON as Go writes it: with characters escaped that mean something in HTML.
fn json(value: &Value) -> String {
    let text = value.to_string();
    if !text.contains(['<', '>', '&', '\u{2028}', '\u{2029}']) {
        return text;
    }
    let mut escaped = String::with_capacity(text.len() + 16);
    for letter in text.chars() {
        match letter {
            '<' | '>' | '&' | '\u{2028}' | '\u{2029}' => {
                escaped.push_str(&format!("\\u{:04x}", u32::from(letter)))
            }
            other => escaped.push(other),
        }
    }
    escaped
}

impl fmt::Display for Element {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Field(name) => write!(f, ".{name}"),
            Self::Key(fields) => {
                f.write_str("[")?;
                for (index, (name, value)) in fields.iter().enumerate() {
                    let comma = if index > 0 { "," } else { "" };
                    write!(f, "{comma}{name}={}", shown(value))?;
                }
                f.write_str("]")
            }
            Self::Value(value) => write!(f, "[={}]", shown(value)),
            Self::Index(index) => write!(f, "[{index}]"),
        }
    }
}

fn shown(value: &Value) -> String {
    match value {
        Value::String(text) => format!("{text:?}"),
        other => other.to_string(),
    }
}

impl PartialEq for Element {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Element {}

impl PartialOrd for Element {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Element {
    fn cmp(&self, other: &Self) -> Ordering {
        match (self, other) {
            (Self::Field(one), Self::Field(other)) => one.cmp(other),
            (Self::Key(one), Self::Key(other)) => {
                let pairs = one.iter().zip(other);
                let differing = pairs.map(|((name, value), (other_name, other_value))| {
                    name.cmp(other_name).then_with(|| compare(value, other_value))
                });
                differing
                    .into_iter()
                    .find(|order| order.is_ne())
                    .unwrap_or_else(|| one.len().cmp(&other.len()))
            }
            (Self::Value(one), Self::Value(other)) => compare(one, other),
            (Self::Index(one), Self::Index(other)) => one.cmp(other),
            (one, other) => one.rank().cmp(&other.rank()),
        }
    }
}

impl Element {
    fn rank(&self) -> u8 {
        match self {
            Self::Field(_) => 0,
            Self::Key(_) => 1,
            Self::Value(_) => 2,
            Self::Index(_) => 3,
        }
    }
}

/// The order of values: numbers, strings, booleans, lists, objects, null.
pub(crate) fn compare(one: &Value, other: &Value) -> Ordering {
    match (one, other) {
        (Value::Number(one), Value::Number(other)) => compare_numbers(one, other),
        (Value::String(one), Value::String(other)) => one.cmp(other),
        (Value::Bool(one), Value::Bool(other)) => one.cmp(other),
        (Value::Array(one), Value::Array(other)) => {
            let differing = one.iter().zip(other).map(|(one, other)| compare(one, other));
            differing.into_iter().find(|order| order.is_ne()).unwrap_or_else(|| one.len().cmp(&other.len()))
        }
        (Value::Object(one), Value::Object(other)) => {
            let differing = one.iter().zip(other).map(|((key, value), (other_key, other_value))| {
                key.cmp(other_key).then_with(|| compare(value, other_value))
            });
            differing.into_iter().find(|order| order.is_ne()).unwrap_or_else(|| one.len().cmp(&other.len()))
        }
        (one, other) => rank(one).cmp(&rank(other)),
    }
}

fn compare_numbers(one: &Number, other: &Number) -> Ordering {
    match (one.as_i128(), other.as_i128()) {
        (Some(one), Some(other)) => one.cmp(&other),
        _ => {
            let float = |number: &Number| number.as_f64().unwrap_or_default();
            float(one).total_cmp(&float(other))
        }
    }
}

fn rank(value: &Value) -> u8 {
    match value {
        Value::Number(_) => 0,
        Value::String(_) => 1,
        Value::Bool(_) => 2,
        Value::Array(_) => 3,
        Value::Object(_) => 4,
        Value::Null => 5,
    }
}

/// Whether two values are equal; a whole number equals itself written with a fraction.
pub(crate) fn same(one: &Value, other: &Value) -> bool {
    match (one, other) {
        (Value::Array(one), Value::Array(other)) => {
            one.len() == other.len() && one.iter().zip(other).all(|(one, other)| same(one, other))
        }
        (Value::Object(one), Value::Object(other)) => {
            one.len() == other.len()
                && one.iter().all(|(key, value)| other.get(key).is_some_and(|other| same(value, other)))
        }
        (one, other) => compare(one, other) == Ordering::Equal,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn keys_of_fields_v1_are_read_and_written() {
        for key in [
            "f:spec",
            "f:",
            "f:a:b",
            "v:1",
            "v:\"a\"",
            "v:true",
            "i:3",
            r#"k:{"name":"a"}"#,
            r#"k:{"a":1,"b":"x"}"#,
            r#"v:"a\u0026b\u003c""#,
        ] {
            assert_eq!(Element::parse(key).unwrap().unwrap().to_key(), key);
        }
        assert_eq!(Element::parse("x:future"), Ok(None));
        for key in ["", "f", "ab", "k:[]", "k:{", "v:", "i:x", "spec"] {
            assert!(Element::parse(key).is_err(), "{key}");
        }
    }

    #[test]
    fn elements_are_ordered_by_kind_and_value() {
        let sorted = [
            "f:a",
            "f:b",
            r#"k:{"a":1}"#,
            r#"k:{"a":9}"#,
            r#"k:{"a":10}"#,
            r#"k:{"a":"x"}"#,
            r#"k:{"a":"x","b":1}"#,
            "v:2",
            "v:10",
            "v:\"a\"",
            "v:false",
            "i:2",
            "i:10",
        ];
        let mut elements: Vec<Element> =
            sorted.iter().rev().filter_map(|key| Element::parse(key).unwrap()).collect();
        elements.sort();
        assert_eq!(elements.iter().map(Element::to_key).collect::<Vec<_>>(), sorted);
    }

    #[test]
    fn paths_read_as_in_messages_of_kube_apiserver() {
        let key = Element::Key(vec![("name".into(), json!("a\"b")), ("port".into(), json!(80))]);
        assert_eq!(key.to_string(), r#"[name="a\"b",port=80]"#);
        assert_eq!(Element::Field("spec".into()).to_string(), ".spec");
        assert_eq!(Element::Value(json!("x")).to_string(), "[=\"x\"]");
    }

    #[test]
    fn numbers_are_equal_by_value() {
        assert!(same(&json!({"a": [1, 2.0]}), &json!({"a": [1.0, 2]})));
        assert!(!same(&json!(1), &json!("1")));
        assert!(!same(&json!({"a": null}), &json!({})));
    }
}
