//! Validation rules in the Common Expression Language.
//!
//! Only comparisons of `self` and `oldSelf`, or of fields of theirs, are understood, joined by `&&` and `||`:
//! enough for what is immutable. A rule that is not understood is not enforced, and [`Rule::is_understood`] tells it.

use serde_json::Value;

use super::{Schema, child};
use crate::failure::{Cause, CauseKind};

/// One rule.
#[derive(Clone, Debug)]
pub struct Rule {
    /// The expression, as it was written.
    pub text: String,
    message: Option<String>,
    reason: CauseKind,
    field_path: Option<String>,
    optional_old_self: bool,
    expression: Option<Expression>,
}

#[derive(Clone, Debug)]
enum Expression {
    Equal(Operand, Operand),
    Unequal(Operand, Operand),
    Has(Operand),
    Not(Box<Expression>),
    All(Vec<Expression>),
    Any(Vec<Expression>),
}

#[derive(Clone, Debug)]
enum Operand {
    New(Vec<String>),
    Old(Vec<String>),
    Literal(Value),
}

impl Rule {
    /// Reads a rule as it stands in a schema.
    pub fn parse(rule: &Value) -> Option<Self> {
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

    /// Whether the rule is enforced.
    pub fn is_understood(&self) -> bool {
        self.expression.is_some()
    }

    fn is_transition(&self) -> bool {
        self.expression.as_ref().is_some_and(Expression::names_old)
    }

    /// The fault of a value, if the rule is broken.
    fn fault(&self, value: &Value, old: Option<&Value>, path: &str) -> Option<Cause> {
        let expression = self.expression.as_ref()?;
        // A rule about changes says nothing of what was not there before, and what was not changed is let pass.
        if (self.is_transition() && old.is_none() && !self.optional_old_self) || old == Some(value) {
            return None;
        }
        if expression.holds(value, old) {
            return None;
        }
        let path = self.field_path.as_deref().map_or_else(|| path.to_owned(), |field| child(path, field));
        let field = if path.is_empty() { "<nil>".to_owned() } else { path };
        let default = format!("failed rule: {}", self.text.trim());
        let message = self.message.as_deref().unwrap_or(&default).trim();
        Some(self.cause(field, value, message))
    }

    fn cause(&self, field: String, value: &Value, message: &str) -> Cause {
        match self.reason {
            CauseKind::Required => Cause::required(field, message),
            CauseKind::Forbidden => Cause::forbidden(field, message),
            CauseKind::Duplicate => Cause::duplicate(field, &shown(value)),
            _ => Cause::invalid(field, &shown(value), message),
        }
    }
}

/// Objects and lists are told by their type alone.
fn shown(value: &Value) -> Value {
    match value {
        Value::Object(_) => Value::from("object"),
        Value::Array(_) => Value::from("array"),
        other => other.clone(),
    }
}

/// All rules that are broken, at any depth.
pub(super) fn faults(schema: &Schema, value: &Value, old: Option<&Value>, path: &str) -> Vec<Cause> {
    let mut causes: Vec<_> = schema.rules.iter().filter_map(|rule| rule.fault(value, old, path)).collect();
    match value {
        Value::Object(fields) => {
            for (key, value) in fields {
                let before = old.and_then(|old| old.get(key));
                if let Some(property) = schema.properties.get(key) {
                    causes.extend(faults(property, value, before, &child(path, key)));
                } else if let Some(additional) = schema.field(key) {
                    causes.extend(faults(additional, value, before, &format!("{path}[{key}]")));
                }
            }
        }
        Value::Array(items) => {
            let Some(item_schema) = &schema.items else { return causes };
            for (index, item) in items.iter().enumerate() {
                let before = old.and_then(|old| same_item(schema, item, old));
                causes.extend(faults(item_schema, item, before, &format!("{path}[{index}]")));
            }
        }
        _ => {}
    }
    causes
}

fn same_item<'a>(schema: &Schema, item: &Value, old: &'a Value) -> Option<&'a Value> {
    let super::ListType::Map(keys) = &schema.list else { return None };
    old.as_array()?.iter().find(|other| keys.iter().all(|key| other.get(key) == item.get(key)))
}

impl Expression {
    fn names_old(&self) -> bool {
        match self {
            Self::Equal(one, other) | Self::Unequal(one, other) => {
                matches!(one, Operand::Old(_)) || matches!(other, Operand::Old(_))
            }
            Self::Has(one) => matches!(one, Operand::Old(_)),
            Self::Not(inner) => inner.names_old(),
            Self::All(parts) | Self::Any(parts) => parts.iter().any(Self::names_old),
        }
    }

    fn holds(&self, value: &Value, old: Option<&Value>) -> bool {
        let same = |one: &Operand, other: &Operand| {
            let (one, other) = (one.value(value, old), other.value(value, old));
            // A field that is not there is an error in the language, and the rule is broken.
            one.zip(other).map(|(one, other)| {
                one == other || one.as_f64().zip(other.as_f64()).is_some_and(|(one, other)| one == other)
            })
        };
        match self {
            Self::Equal(one, other) => same(one, other) == Some(true),
            Self::Unequal(one, other) => same(one, other) == Some(false),
            Self::Has(one) => one.value(value, old).is_some(),
            Self::Not(inner) => !inner.holds(value, old),
            Self::All(parts) => parts.iter().all(|part| part.holds(value, old)),
            Self::Any(parts) => parts.iter().any(|part| part.holds(value, old)),
        }
    }
}

impl Operand {
    fn value<'a>(&'a self, value: &'a Value, old: Option<&'a Value>) -> Option<&'a Value> {
        let within =
            |start: &'a Value, path: &[String]| path.iter().try_fold(start, |value, key| value.get(key));
        match self {
            Self::New(path) => within(value, path),
            Self::Old(path) => old.and_then(|old| within(old, path)),
            Self::Literal(literal) => Some(literal),
        }
    }

    fn parse(text: &str) -> Option<Self> {
        let text = text.trim();
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
    for (operator, make) in
        [("==", Expression::Equal as fn(Operand, Operand) -> Expression), ("!=", Expression::Unequal)]
    {
        if let [left, right] = split(text, operator)?.as_slice() {
            return Some(make(Operand::parse(left)?, Operand::parse(right)?));
        }
    }
    None
}

/// The parts between an operator that stands outside of parentheses and quotes; none if those do not close.
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
