//! Validation rules in the Common Expression Language.
//!
//! A subset of the language is supported (see `expression`). A rule outside of the subset is not enforced, and creating the
//! definition returns a warning.
//!
//! The crate `kube-cel` (0.8, on `cel` 0.13) is not used: it has no bound on the cost of an evaluation, panics on struct
//! literals, and checks no types, so it could not refuse at creation what kube-apiserver refuses.

mod expression;

use serde_json::Value;

use super::path::child;
use crate::http::status::{Cause, CauseKind};
use crate::object::path::Path;

use expression::Expression;

/// A validation rule.
#[derive(Clone, Debug)]
pub(crate) struct Rule {
    /// The expression.
    pub text: String,
    message: Option<String>,
    reason: CauseKind,
    field_path: Option<String>,
    optional_old_self: bool,
    expression: Option<Expression>,
}

impl Rule {
    /// Parses an item of `x-kubernetes-validations`.
    pub(crate) fn parse(rule: &Value) -> Option<Self> {
        let text = |key: &str| rule.get(key).and_then(Value::as_str).map(str::to_owned);
        let expression = text("rule")?;
        let reason = match rule.get("reason").and_then(Value::as_str) {
            Some("FieldValueForbidden") => CauseKind::Forbidden,
            Some("FieldValueRequired") => CauseKind::Required,
            Some("FieldValueDuplicate") => CauseKind::Duplicate,
            _ => CauseKind::Invalid,
        };
        Some(Self {
            expression: Expression::parse(&expression),
            text: expression,
            message: text("message").filter(|message| !message.is_empty()),
            reason,
            field_path: text("fieldPath").map(|path| path.trim_start_matches('.').to_owned()),
            optional_old_self: rule.get("optionalOldSelf") == Some(&Value::Bool(true)),
        })
    }

    /// Whether the rule can be evaluated, and so is enforced.
    pub(crate) fn is_supported(&self) -> bool {
        self.expression.is_some()
    }

    pub(super) fn is_transition(&self) -> bool {
        self.expression.as_ref().is_some_and(Expression::names_old)
    }

    /// The error of a value that violates the rule.
    pub(super) fn violation(&self, value: &Value, old: Option<&Value>, path: &Path<'_>) -> Option<Cause> {
        let expression = self.expression.as_ref()?;
        // A transition rule does not apply to new values, and unchanged values are not validated again.
        if (self.is_transition() && old.is_none() && !self.optional_old_self) || old == Some(value) {
            return None;
        }
        let default = format!("failed rule: {}", self.text.trim());
        let message = self.message.as_deref().unwrap_or(&default).trim();
        let field = |path: String| if path.is_empty() { "<nil>".to_owned() } else { path };
        match expression.holds(value, old) {
            Ok(true) => None,
            Ok(false) => {
                let path = path.to_string();
                let path = self.field_path.as_deref().map_or(path.clone(), |field| child(&path, field));
                Some(self.cause(field(path), value, message))
            }
            Err(why) => {
                let words = match &self.message {
                    Some(message) => format!("{why} evaluating rule: {}", message.trim()),
                    None => format!("{why} evaluating rule: {}", self.text.trim()),
                };
                Some(Cause::invalid_text(field(path.to_string()), type_of(value), &words))
            }
        }
    }

    fn cause(&self, field: String, value: &Value, message: &str) -> Cause {
        // Objects and lists are not shown.
        let hidden = value.is_object() || value.is_array();
        match self.reason {
            CauseKind::Required => Cause::required(field, message),
            CauseKind::Forbidden => Cause::forbidden(field, message),
            CauseKind::Duplicate if hidden => Cause::bare(CauseKind::Duplicate, "Duplicate value", field),
            CauseKind::Duplicate => Cause::duplicate(field, value),
            _ if hidden => Cause::bare(CauseKind::Invalid, format!("Invalid value: {message}"), field),
            _ => Cause::invalid(field, value, message),
        }
    }
}

fn type_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(number) if number.is_f64() => "number",
        Value::Number(_) => "integer",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}
