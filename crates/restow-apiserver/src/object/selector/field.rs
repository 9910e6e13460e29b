//! Field selectors: `metadata.name=a,status.phase!=Running`.

use std::fmt;

use serde_json::Value;

use super::Selectable;
use crate::http::status::StatusError;

/// A requirement on one field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Term {
    /// The field, as the resource names it.
    pub field: String,
    /// Whether the field must equal the value, or must not.
    pub equal: bool,
    pub value: String,
}

/// A field selector. Without terms, it matches everything.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct FieldSelector {
    /// All terms must match.
    pub terms: Vec<Term>,
}

impl FieldSelector {
    /// Parses a selector on the selectable fields of a resource. Another field is a bad request.
    pub(crate) fn parse(text: &str, fields: &Selectable) -> Result<Self, StatusError> {
        let mut selector = Self::read(text).map_err(StatusError::bad_request)?;
        for term in &mut selector.terms {
            term.field = fields.canonical(&term.field).map_err(StatusError::bad_request)?;
        }
        Ok(selector)
    }

    /// Parses a selector on any fields.
    pub(crate) fn read(text: &str) -> Result<Self, String> {
        let mut parts = split(text);
        parts.sort_unstable();
        let parts = parts.into_iter().filter(|part| !part.is_empty());
        let terms = parts.map(|part| term(part, text)).collect::<Result<_, _>>()?;
        Ok(Self { terms })
    }

    /// Whether it matches everything.
    pub(crate) fn is_everything(&self) -> bool {
        self.terms.is_empty()
    }

    /// Whether it matches an object.
    pub(crate) fn matches(&self, object: &Value, fields: &Selectable) -> bool {
        self.terms.iter().all(|term| (fields.value(object, &term.field) == term.value) == term.equal)
    }

    /// The single value that a field must have, if any: a list of one name reads one object.
    pub(crate) fn exact(&self, field: &str) -> Option<&str> {
        self.terms.iter().find(|term| term.equal && term.field == field).map(|term| term.value.as_str())
    }
}

/// The terms between commas that are not escaped.
fn split(text: &str) -> Vec<&str> {
    let (mut parts, mut start, mut escaped) = (Vec::new(), 0, false);
    for (at, letter) in text.char_indices() {
        match letter {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            ',' => {
                parts.push(&text[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    parts.push(&text[start..]);
    parts
}

fn term(part: &str, whole: &str) -> Result<Term, String> {
    for (at, _) in part.char_indices() {
        for (operator, equal) in [("!=", false), ("==", true), ("=", true)] {
            if let Some(value) = part[at..].strip_prefix(operator) {
                return Ok(Term { field: part[..at].to_owned(), equal, value: unescape(value)? });
            }
        }
    }
    Err(format!("invalid selector: '{whole}'; can't understand '{part}'"))
}

fn unescape(value: &str) -> Result<String, String> {
    let mut plain = String::with_capacity(value.len());
    let mut letters = value.chars();
    while let Some(letter) = letters.next() {
        match letter {
            '\\' => match letters.next() {
                Some(escaped @ ('\\' | ',' | '=')) => plain.push(escaped),
                other => {
                    let sequence: String = std::iter::once('\\').chain(other).collect();
                    return Err(format!("invalid field selector: invalid escape sequence: {sequence}"));
                }
            },
            // Go prints the code point here.
            ',' | '=' => {
                let number = u32::from(letter);
                return Err(format!("invalid field selector: unescaped character in value: {number}"));
            }
            _ => plain.push(letter),
        }
    }
    Ok(plain)
}

impl fmt::Display for FieldSelector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, term) in self.terms.iter().enumerate() {
            let comma = if index > 0 { "," } else { "" };
            let operator = if term.equal { "=" } else { "!=" };
            let value = term.value.replace('\\', "\\\\").replace(',', "\\,").replace('=', "\\=");
            write!(f, "{comma}{}{operator}{value}", term.field)?;
        }
        Ok(())
    }
}

#[cfg(test)]
#[path = "field_tests.rs"]
mod tests;
