//! Expressions of the supported subset of CEL: parsed once, evaluated on each object.
//!
//! Operands are `self` and `oldSelf`, their fields, literals, `size(…)`, sums and a choice (`a ? b : c`). Expressions are
//! comparisons, `has(…)` and boolean operands, joined by `!`, `&&`, `||` and a choice. There are no loops, and nesting and the
//! results of sums are limited, so the cost of an evaluation is bounded by the sizes of the rule and of the object.

mod parse;

use std::borrow::Cow;
use std::cmp::Ordering;

use serde_json::Value;

/// The most bytes or items that a sum may have.
const MAX_SUM: usize = 64 * 1024;

/// Something that holds or does not.
#[derive(Clone, Debug)]
pub(super) enum Expression {
    Compare(Operand, Comparison, Operand),
    Has(Operand),
    Is(Operand),
    Not(Box<Expression>),
    All(Vec<Expression>),
    Any(Vec<Expression>),
    Choice(Box<[Expression; 3]>),
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Comparison {
    Equal,
    Unequal,
    AtMost,
    AtLeast,
    Below,
    Above,
}

/// Something with a value.
#[derive(Clone, Debug)]
pub(super) enum Operand {
    New(Vec<String>),
    Old(Vec<String>),
    Size(Box<Operand>),
    Sum(Vec<Operand>),
    Choice(Box<Expression>, Box<[Operand; 2]>),
    Literal(Value),
}

impl Expression {
    /// Whether it refers to `oldSelf`.
    pub(super) fn names_old(&self) -> bool {
        match self {
            Self::Compare(one, _, other) => one.names_old() || other.names_old(),
            Self::Has(one) | Self::Is(one) => one.names_old(),
            Self::Not(inner) => inner.names_old(),
            Self::All(parts) | Self::Any(parts) => parts.iter().any(Self::names_old),
            Self::Choice(parts) => parts.iter().any(Self::names_old),
        }
    }

    /// Whether it holds, or why it cannot be evaluated.
    pub(super) fn holds(&self, value: &Value, old: Option<&Value>) -> Result<bool, String> {
        match self {
            Self::Compare(one, comparison, other) => {
                let (one, other) = (one.value(value, old)?, other.value(value, old)?);
                comparison.holds(one.as_ref(), other.as_ref())
            }
            Self::Has(one) => Ok(one.value(value, old).is_ok()),
            Self::Is(one) => one.value(value, old)?.as_bool().ok_or_else(no_such_overload),
            Self::Not(inner) => inner.holds(value, old).map(|holds| !holds),
            Self::All(parts) => decided(parts, false, value, old),
            Self::Any(parts) => decided(parts, true, value, old),
            Self::Choice(parts) => {
                let [condition, one, other] = &**parts;
                let chosen = if condition.holds(value, old)? { one } else { other };
                chosen.holds(value, old)
            }
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
            (_, None) => Err(no_such_overload()),
            (Self::AtMost, Some(order)) => Ok(order.is_le()),
            (Self::AtLeast, Some(order)) => Ok(order.is_ge()),
            (Self::Below, Some(order)) => Ok(order.is_lt()),
            (Self::Above, Some(order)) => Ok(order.is_gt()),
        }
    }
}

impl Operand {
    fn names_old(&self) -> bool {
        match self {
            Self::Old(_) => true,
            Self::Size(inner) => inner.names_old(),
            Self::Sum(parts) => parts.iter().any(Self::names_old),
            Self::Choice(condition, parts) => condition.names_old() || parts.iter().any(Self::names_old),
            Self::New(_) | Self::Literal(_) => false,
        }
    }

    fn value<'a>(&'a self, value: &'a Value, old: Option<&'a Value>) -> Result<Cow<'a, Value>, String> {
        match self {
            Self::New(path) => below(value, path),
            Self::Old(path) => {
                old.ok_or_else(|| "no such attribute: oldSelf".to_owned()).and_then(|old| below(old, path))
            }
            Self::Literal(literal) => Ok(Cow::Borrowed(literal)),
            Self::Size(inner) => {
                let size = match inner.value(value, old)?.as_ref() {
                    Value::String(text) => text.chars().count(),
                    Value::Array(items) => items.len(),
                    Value::Object(fields) => fields.len(),
                    _ => return Err(no_such_overload()),
                };
                Ok(Cow::Owned(Value::from(size)))
            }
            Self::Sum(parts) => {
                let mut parts = parts.iter();
                let first = parts.next().ok_or_else(no_such_overload)?.value(value, old)?;
                parts.try_fold(first, |sum, part| add(sum, part.value(value, old)?.as_ref()))
            }
            Self::Choice(condition, parts) => {
                let [one, other] = &**parts;
                let chosen = if condition.holds(value, old)? { one } else { other };
                chosen.value(value, old)
            }
        }
    }
}

fn below<'a>(start: &'a Value, path: &[String]) -> Result<Cow<'a, Value>, String> {
    let mut found = start;
    for key in path {
        found = found.get(key).ok_or_else(|| format!("no such key: {key}"))?;
    }
    Ok(Cow::Borrowed(found))
}

fn add<'a>(sum: Cow<'a, Value>, part: &Value) -> Result<Cow<'a, Value>, String> {
    let fits = |size: usize| {
        (size <= MAX_SUM)
            .then_some(())
            .ok_or_else(|| "operation cancelled: actual cost limit exceeded".to_owned())
    };
    let sum = match (sum.into_owned(), part) {
        (Value::String(mut sum), Value::String(part)) => {
            fits(sum.len() + part.len())?;
            sum.push_str(part);
            Value::String(sum)
        }
        (Value::Array(mut sum), Value::Array(part)) => {
            fits(sum.len() + part.len())?;
            sum.extend(part.iter().cloned());
            Value::Array(sum)
        }
        (Value::Number(sum), Value::Number(part)) => match (sum.as_i64(), part.as_i64()) {
            (Some(sum), Some(part)) => Value::from(sum.checked_add(part).ok_or("integer overflow")?),
            _ => Value::from(sum.as_f64().zip(part.as_f64()).map(|(sum, part)| sum + part)),
        },
        _ => return Err(no_such_overload()),
    };
    Ok(Cow::Owned(sum))
}

fn no_such_overload() -> String {
    "no such overload".to_owned()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn evaluate(rule: &str, value: &Value) -> Result<bool, String> {
        Expression::parse(rule).unwrap_or_else(|| panic!("{rule} is not supported")).holds(value, None)
    }

    #[test]
    fn rules_are_evaluated_as_cel_does() {
        let value =
            json!({"a": 1, "b": 2.5, "s": "x", "t": "", "l": [1, 2], "m": [3], "on": true, "o": {"p": "q"}});
        for (rule, expected) in [
            ("self.on", Ok(true)),
            ("!self.on", Ok(false)),
            ("true", Ok(true)),
            ("self.s", Err("no such overload")),
            ("has(self.z) || self.on", Ok(true)),
            ("self.s + '.' + self.o.p == 'x.q'", Ok(true)),
            ("self.a + 2 == 3", Ok(true)),
            ("self.a + self.b == 3.5", Ok(true)),
            ("size(self.l + self.m) <= 2", Ok(false)),
            ("self.s + self.a == 'x1'", Err("no such overload")),
            ("(self.a) == (1)", Ok(true)),
            ("((self.on) && (self.a == 1))", Ok(true)),
            ("self.on ? self.a == 1 : self.a == 2", Ok(true)),
            ("has(self.z) ? self.z == 1 : self.a == 2", Ok(false)),
            ("self.a == (has(self.z) ? self.z : 1)", Ok(true)),
            ("self.s == (self.t != '' ? self.s + '.' + self.t : self.s)", Ok(true)),
            ("(self.on ? self.z : self.a) == 1", Err("no such key: z")),
            ("self.s == 'a ? b : c' || self.s == 'x'", Ok(true)),
        ] {
            assert_eq!(evaluate(rule, &value), expected.map_err(str::to_owned), "{rule}");
        }
    }

    #[test]
    fn the_rule_of_storage_states_is_supported() {
        let rule = "self.metadata.name == (has(self.spec.resource.group) && self.spec.resource.group != '' ? \
                    self.spec.resource.resource + '.' + self.spec.resource.group : self.spec.resource.resource)";
        for (name, resource, expected) in [
            ("secrets", json!({"resource": "secrets"}), true),
            ("secrets", json!({"group": "", "resource": "secrets"}), true),
            ("secrets.", json!({"group": "", "resource": "secrets"}), false),
            ("widgets.example.com", json!({"group": "example.com", "resource": "widgets"}), true),
            ("widgets", json!({"group": "example.com", "resource": "widgets"}), false),
        ] {
            let state = json!({"metadata": {"name": name}, "spec": {"resource": resource}});
            assert_eq!(evaluate(rule, &state), Ok(expected), "{state}");
        }
    }

    #[test]
    fn sums_are_bounded() {
        let value = json!({"s": "x".repeat(MAX_SUM / 2)});
        assert_eq!(evaluate("size(self.s + self.s) > 0", &value), Ok(true));
        let error = evaluate("size(self.s + self.s + self.s) > 0", &value).unwrap_err();
        assert!(error.contains("cost limit"), "{error}");
    }

    #[test]
    fn a_rule_names_the_old_object_at_any_depth() {
        for (rule, expected) in [
            ("self.a == 1", false),
            ("self.a == (self.b ? oldSelf.a : 1)", true),
            ("oldSelf.b ? true : self.a == 1", true),
            ("self.a + oldSelf.a == 2", true),
        ] {
            assert_eq!(Expression::parse(rule).unwrap().names_old(), expected, "{rule}");
        }
    }
}
