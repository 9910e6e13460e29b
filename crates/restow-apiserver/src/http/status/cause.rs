//! An error of one field.

use std::collections::HashSet;

use serde_json::{Map, Value, json};

use super::golang::{quote, show};

/// The types of field errors.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs, reason = "the names are those of the API")]
pub(crate) enum CauseKind {
    /// No type.
    None,
    Required,
    Duplicate,
    Invalid,
    NotSupported,
    Forbidden,
    TooLong,
    TooMany,
    TypeInvalid,
    ResourceVersionTooLarge,
    NamespaceTerminating,
    FieldManagerConflict,
}

impl CauseKind {
    /// The `reason` in the API.
    pub(crate) fn reason(self) -> &'static str {
        match self {
            Self::None => "",
            Self::Required => "FieldValueRequired",
            Self::Duplicate => "FieldValueDuplicate",
            Self::Invalid => "FieldValueInvalid",
            Self::NotSupported => "FieldValueNotSupported",
            Self::Forbidden => "FieldValueForbidden",
            Self::TooLong => "FieldValueTooLong",
            Self::TooMany => "FieldValueTooMany",
            Self::TypeInvalid => "FieldValueTypeInvalid",
            Self::ResourceVersionTooLarge => "ResourceVersionTooLarge",
            Self::NamespaceTerminating => "NamespaceTerminating",
            Self::FieldManagerConflict => "FieldManagerConflict",
        }
    }

    fn title(self) -> &'static str {
        match self {
            Self::None
            | Self::ResourceVersionTooLarge
            | Self::NamespaceTerminating
            | Self::FieldManagerConflict => "",
            Self::Required => "Required value",
            Self::Duplicate => "Duplicate value",
            Self::Invalid | Self::TypeInvalid => "Invalid value",
            Self::NotSupported => "Unsupported value",
            Self::Forbidden => "Forbidden",
            Self::TooLong => "Too long",
            Self::TooMany => "Too many",
        }
    }
}

/// How many causes are reported, so that work and responses are bounded.
pub(crate) const MOST_CAUSES: usize = 100;

/// An error of one field.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Cause {
    /// The type of the error.
    pub kind: CauseKind,
    /// The message, without the field.
    pub message: String,
    /// The path of the field.
    pub field: String,
}

impl Cause {
    /// A cause with its own message.
    pub(crate) fn bare(kind: CauseKind, message: impl Into<String>, field: impl Into<String>) -> Self {
        Self { kind, message: message.into(), field: field.into() }
    }

    fn titled(kind: CauseKind, field: impl Into<String>, value: Option<&Value>, detail: &str) -> Self {
        let mut message = kind.title().to_owned();
        if let Some(value) = value {
            message.push_str(": ");
            message.push_str(&show(value));
        }
        if !detail.is_empty() {
            message.push_str(": ");
            message.push_str(detail);
        }
        Self::bare(kind, message, field)
    }

    /// The value is malformed.
    pub(crate) fn invalid(field: impl Into<String>, value: &Value, detail: &str) -> Self {
        Self::titled(CauseKind::Invalid, field, Some(value), detail)
    }

    /// The string is malformed.
    pub(crate) fn invalid_text(field: impl Into<String>, text: &str, detail: &str) -> Self {
        Self::invalid(field, &json!(text), detail)
    }

    /// The value has a wrong type.
    pub(crate) fn type_invalid(field: impl Into<String>, value: &Value, detail: &str) -> Self {
        Self::titled(CauseKind::TypeInvalid, field, Some(value), detail)
    }

    /// The value is missing.
    pub(crate) fn required(field: impl Into<String>, detail: &str) -> Self {
        Self::titled(CauseKind::Required, field, None, detail)
    }

    /// The value is not allowed here.
    pub(crate) fn forbidden(field: impl Into<String>, detail: &str) -> Self {
        Self::titled(CauseKind::Forbidden, field, None, detail)
    }

    /// The value is a duplicate.
    pub(crate) fn duplicate(field: impl Into<String>, value: &Value) -> Self {
        Self::titled(CauseKind::Duplicate, field, Some(value), "")
    }

    /// The value is not one of the supported ones.
    pub(crate) fn not_supported(field: impl Into<String>, value: &Value, known: &[&str]) -> Self {
        let quoted: Vec<_> = known.iter().map(|value| quote(value)).collect();
        let detail =
            if known.is_empty() { String::new() } else { format!("supported values: {}", quoted.join(", ")) };
        Self::titled(CauseKind::NotSupported, field, Some(value), &detail)
    }

    /// The string has more than `bytes` bytes.
    pub(crate) fn too_long(field: impl Into<String>, bytes: usize) -> Self {
        let unit = if bytes == 1 { "byte" } else { "bytes" };
        Self::titled(CauseKind::TooLong, field, None, &format!("may not be more than {bytes} {unit}"))
    }

    /// The list has more than `at_most` items.
    pub(crate) fn too_many(field: impl Into<String>, count: usize, at_most: usize) -> Self {
        let unit = if at_most == 1 { "item" } else { "items" };
        let detail = format!("must have at most {at_most} {unit}");
        Self::titled(CauseKind::TooMany, field, Some(&json!(count)), &detail)
    }

    /// The cause as an element of `details.causes`.
    pub(crate) fn to_value(&self) -> Value {
        let mut cause = Map::new();
        for (key, text) in
            [("reason", self.kind.reason()), ("message", &self.message), ("field", &self.field)]
        {
            if !text.is_empty() {
                cause.insert(key.into(), json!(text));
            }
        }
        Value::Object(cause)
    }

    /// All causes in one line, without duplicates.
    pub(crate) fn aggregate(causes: &[Self]) -> String {
        let mut seen = HashSet::new();
        let lines = causes.iter().map(|cause| format!("{}: {}", cause.field, cause.message));
        let lines: Vec<String> = lines.filter(|line| seen.insert(line.clone())).collect();
        match lines.as_slice() {
            [line] => line.clone(),
            _ => format!("[{}]", lines.join(", ")),
        }
    }
}
