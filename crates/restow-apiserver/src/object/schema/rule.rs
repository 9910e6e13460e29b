//! Validation rules in the Common Expression Language.
//!
//! A subset of the language is supported: comparisons of `self` and `oldSelf`, their fields, `size(…)` and literals, and
//! `has(…)`, joined by `!`, `&&` and `||`. A rule outside of the subset is not enforced, and creating the definition
//! returns a warning.
//!
//! The crate `kube-cel` (0.8, on `cel` 0.13) is not used: it has no bound on the cost of an evaluation, panics on struct
//! literals, and checks no types, so it could not refuse at creation what kube-apiserver refuses.

use std::borrow::Cow;
use std::cmp::Ordering;

use serde_json::Value;

use super::path::child;
use crate::http::status::{Cause, CauseKind};
use crate::object::path::Path;

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

#[derive(Clone, Debug)]
enum Expression {
    Compare(Operand, Comparison, Operand),
    Has(Operand),
    Not(Box<Expression>),
    All(Vec<Expression>),
    Any(Vec<Expression>),
}

#[derive(Clone, Copy, Debug)]
enum Comparison {
    Equal,
    Unequal,
    AtMost,
    AtLeast,
    Below,
    Above,
}

const COMPARISONS: [(&str, Comparison); 6] = [
    ("==", Comparison::Equal),
    ("!=", Comparison::Unequal),
    ("<=", Comparison::AtMost),
    (">=", Comparison::AtLeast),
    ("<", Comparison::Below),
    (">", Comparison::Above),
];

#[derive(Clone, Debug)]
enum Operand {
    New(Vec<String>),
    Old(Vec<String>),
    Size(Box<Operand>),
    Literal(Value),
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
            expression: any(&expression),
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

impl Expression {
    fn names_old(&self) -> bool {
        match self {
            Self::Compare(one, _, other) => one.is_old() || other.is_old(),
            Self::Has(one) => one.is_old(),
            Self::Not(inner) => inner.names_old(),
            Self::All(parts) | Self::Any(parts) => parts.iter().any(Self::names_old),
        }
    }

    /// Whether it holds, or why it cannot be evaluated.
    fn holds(&self, value: &Value, old: Option<&Value>) -> Result<bool, String> {
        match self {
            Self::Compare(one, comparison, other) => {
                let (one, other) = (one.value(value, old)?, other.value(value, old)?);
                comparison.holds(one.as_ref(), other.as_ref())
            }
            Self::Has(one) => Ok(one.value(value, old).is_ok()),
            Self::Not(inner) => inner.holds(value, old).map(|holds| !holds),
            Self::All(parts) => decided(parts, false, value, old),
            Self::Any(parts) => decided(parts, true, value, old),
        }
    }
}

/// The result of the first decisive part, even after a part that cannot be evaluated.
fn decided(parts: &[Expression], decisive: bool, value: &Value, old: Option<&Value>) -> Result<bool, String> {
    let mut result = Ok(!decisive);
    for part in parts {
        match part.holds(value, old) {
            Ok(holds) if holds == decisive => return Ok(decisive),
            Ok(_) => {}
            Err(why) => result = result.and(Err(why)),
        }
    }
    result
}

impl Comparison {
    fn holds(self, one: &Value, other: &Value) -> Result<bool, String> {
        let order = match (one, other) {
            (Value::String(one), Value::String(other)) => Some(one.cmp(other)),
            _ => one.as_f64().zip(other.as_f64()).and_then(|(one, other)| one.partial_cmp(&other)),
        };
        let equal = one == other || order == Some(Ordering::Equal);
        match (self, order) {
            (Self::Equal, _) => Ok(equal),
            (Self::Unequal, _) => Ok(!equal),
            (_, None) => Err("no such overload".to_owned()),
            (Self::AtMost, Some(order)) => Ok(order.is_le()),
            (Self::AtLeast, Some(order)) => Ok(order.is_ge()),
            (Self::Below, Some(order)) => Ok(order.is_lt()),
            (Self::Above, Some(order)) => Ok(order.is_gt()),
        }
    }
}

impl Operand {
    fn is_old(&self) -> bool {
        match self {
            Self::Old(_) => true,
            Self::Size(inner) => inner.is_old(),
            Self::New(_) | Self::Literal(_) => false,
        }
    }

    fn value<'a>(&'a self, value: &'a Value, old: Option<&'a Value>) -> Result<Cow<'a, Value>, String> {
        let within = |start: &'a Value, path: &[String]| {
            let mut found = start;
            for key in path {
                found = found.get(key).ok_or_else(|| format!("no such key: {key}"))?;
            }
            Ok(Cow::Borrowed(found))
        };
        match self {
            Self::New(path) => within(value, path),
            Self::Old(path) => {
                old.ok_or_else(|| "no such attribute: oldSelf".to_owned()).and_then(|old| within(old, path))
            }
            Self::Literal(literal) => Ok(Cow::Borrowed(literal)),
            Self::Size(inner) => {
                let size = match inner.value(value, old)?.as_ref() {
                    Value::String(text) => text.chars().count(),
                    Value::Array(items) => items.len(),
                    Value::Object(fields) => fields.len(),
                    _ => return Err("no such overload".to_owned()),
                };
                Ok(Cow::Owned(Value::from(size)))
            }
        }
    }

    fn parse(text: &str) -> Option<Self> {
        let text = text.trim();
        if let Some(inner) = text.strip_prefix("size(").and_then(|rest| rest.strip_suffix(')')) {
            return Self::parse(inner).map(|inner| Self::Size(Box::new(inner)));
        }
        if let Some(inner) = text.strip_suffix(".size()") {
            return Self::parse(inner).map(|inner| Self::Size(Box::new(inner)));
        }
        let mut parts = text.split('.').map(str::to_owned);
        let first = parts.next()?;
        let path: Vec<_> = parts.collect();
        let plain = |part: &String| {
            !part.is_empty() && part.chars().all(|letter| letter.is_ascii_alphanumeric() || letter == '_')
        };
        match first.as_str() {
            "self" if path.iter().all(plain) => Some(Self::New(path)),
            "oldSelf" if path.iter().all(plain) => Some(Self::Old(path)),
            _ => Self::literal(text),
        }
    }

    fn literal(text: &str) -> Option<Self> {
        if let Some(inner) = text.strip_prefix('\'').and_then(|rest| rest.strip_suffix('\'')) {
            return (!inner.contains(['\'', '\\'])).then(|| Self::Literal(Value::from(inner)));
        }
        let value: Value = serde_json::from_str(text).ok()?;
        (!value.is_array() && !value.is_object()).then_some(Self::Literal(value))
    }
}

fn any(text: &str) -> Option<Expression> {
    let parts: Vec<_> = split(text, "||")?.into_iter().map(all).collect::<Option<_>>()?;
    Some(Expression::Any(parts))
}

fn all(text: &str) -> Option<Expression> {
    let parts: Vec<_> = split(text, "&&")?.into_iter().map(one).collect::<Option<_>>()?;
    Some(Expression::All(parts))
}

fn one(text: &str) -> Option<Expression> {
    let text = text.trim();
    if let Some(rest) = text.strip_prefix('!') {
        return one(rest).map(|inner| Expression::Not(Box::new(inner)));
    }
    if let Some(inner) = text.strip_prefix("has(").and_then(|rest| rest.strip_suffix(')')) {
        return Operand::parse(inner).filter(|one| !matches!(one, Operand::Literal(_))).map(Expression::Has);
    }
    if let Some(inner) = text.strip_prefix('(').and_then(|rest| rest.strip_suffix(')')) {
        return any(inner);
    }
    for (operator, comparison) in COMPARISONS {
        if let [left, right] = split(text, operator)?.as_slice() {
            return Some(Expression::Compare(Operand::parse(left)?, comparison, Operand::parse(right)?));
        }
    }
    None
}

/// Splits at an operator outside of parentheses and quotes; none if those are not closed.
fn split<'a>(text: &'a str, operator: &str) -> Option<Vec<&'a str>> {
    let (mut parts, mut start, mut depth) = (Vec::new(), 0, 0usize);
    let mut quote: Option<char> = None;
    for (at, letter) in text.char_indices() {
        match (quote, letter) {
            (Some(open), _) if open == letter => quote = None,
            (Some(_), _) => {}
            (None, '\'' | '"') => quote = Some(letter),
            (None, '(') => depth += 1,
            (None, ')') => depth = depth.checked_sub(1)?,
            _ if depth == 0 && at >= start && text[at..].starts_with(operator) => {
                parts.push(&text[start..at]);
                start = at + operator.len();
            }
            _ => {}
        }
    }
    parts.push(text.get(start..)?);
    (depth == 0 && quote.is_none()).then_some(parts)
}
