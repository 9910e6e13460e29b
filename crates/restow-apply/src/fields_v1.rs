//! `fieldsV1`: a set of paths in JSON.

use serde_json::{Map, Value, json};

use crate::element::{Element, InvalidElement};
use crate::set::{Node, Set};

/// `fieldsV1` that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidFields {
    /// A set is written as an object, at every depth.
    #[error("fieldsV1 has something else than objects")]
    Form,
    /// A key that is no path element.
    #[error("fieldsV1 has an invalid key")]
    Element(#[from] InvalidElement),
}

impl Set {
    /// Reads `fieldsV1`; null is the empty set. Keys of unknown kinds are skipped.
    pub fn parse(fields: &Value) -> Result<Self, InvalidFields> {
        match fields {
            Value::Null => Ok(Self::default()),
            fields => Ok(node(fields)?.below),
        }
    }

    /// Writes `fieldsV1`.
    pub fn to_value(&self) -> Value {
        self.value(false)
    }

    fn value(&self, member: bool) -> Value {
        let mut fields = Map::new();
        if member && !self.0.is_empty() {
            fields.insert(".".to_owned(), json!({}));
        }
        for (element, node) in &self.0 {
            fields.insert(element.to_key(), node.below.value(node.member));
        }
        Value::Object(fields)
    }

    /// Writes `fieldsV1` in the order of Kubernetes: numbers in keys are ordered as numbers, which the order of an object in
    /// [`Set::to_value`] cannot show.
    pub fn to_json(&self) -> String {
        let mut text = String::new();
        self.write(false, &mut text);
        text
    }

    fn write(&self, member: bool, text: &mut String) {
        text.push('{');
        if member && !self.0.is_empty() {
            text.push_str("\".\":{},");
        }
        for (element, node) in &self.0 {
            text.push_str(&Value::String(element.to_key()).to_string());
            text.push(':');
            node.below.write(node.member, text);
            text.push(',');
        }
        if text.ends_with(',') {
            text.pop();
        }
        text.push('}');
    }
}

/// A path without anything below it is a member, even if that is not written.
fn node(fields: &Value) -> Result<Node, InvalidFields> {
    let Value::Object(fields) = fields else { return Err(InvalidFields::Form) };
    let mut read = Node::default();
    for (key, inner) in fields {
        if key == "." {
            read.member = true;
        } else if let Some(element) = Element::parse(key)? {
            read.below.0.insert(element, node(inner)?);
        }
    }
    read.member |= read.below.0.is_empty();
    Ok(read)
}
