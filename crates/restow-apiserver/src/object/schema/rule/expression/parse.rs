//! Parses expressions of the supported subset.

use serde_json::Value;

use super::{Comparison, Expression, Operand};

/// The deepest nesting: deeper rules could exhaust the stack.
const MAX_DEPTH: usize = 32;

const COMPARISONS: [(&str, Comparison); 6] = [
    ("==", Comparison::Equal),
    ("!=", Comparison::Unequal),
    ("<=", Comparison::AtMost),
    (">=", Comparison::AtLeast),
    ("<", Comparison::Below),
    (">", Comparison::Above),
];

impl Expression {
    /// Parses an expression; none if it is outside of the subset.
    pub(in super::super) fn parse(text: &str) -> Option<Self> {
        expression(text, MAX_DEPTH)
    }
}

/// A choice, or parts joined by `||`.
fn expression(text: &str, depth: usize) -> Option<Expression> {
    let depth = depth.checked_sub(1)?;
    if let Some([condition, one, other]) = choice(text)? {
        let part = |text| expression(text, depth);
        return Some(Expression::Choice(Box::new([part(condition)?, part(one)?, part(other)?])));
    }
    let parts = split(text, "||")?.into_iter().map(|text| all(text, depth)).collect::<Option<_>>()?;
    Some(Expression::Any(parts))
}

fn all(text: &str, depth: usize) -> Option<Expression> {
    let parts = split(text, "&&")?.into_iter().map(|text| one(text, depth)).collect::<Option<_>>()?;
    Some(Expression::All(parts))
}

fn one(text: &str, depth: usize) -> Option<Expression> {
    let depth = depth.checked_sub(1)?;
    let text = text.trim();
    // A comparison binds less tightly than `!` and calls.
    for (operator, comparison) in COMPARISONS {
        if let [left, right] = split(text, operator)?.as_slice() {
            return Some(Expression::Compare(operand(left, depth)?, comparison, operand(right, depth)?));
        }
    }
    if let Some(rest) = text.strip_prefix('!') {
        return one(rest, depth).map(|inner| Expression::Not(Box::new(inner)));
    }
    if let Some(inner) = call("has", text) {
        let inner = operand(inner, depth)?;
        return matches!(inner, Operand::New(_) | Operand::Old(_)).then_some(Expression::Has(inner));
    }
    if let Some(inner) = call("", text) {
        return expression(inner, depth);
    }
    operand(text, depth).map(Expression::Is)
}

/// A choice, or parts joined by `+`.
fn operand(text: &str, depth: usize) -> Option<Operand> {
    let depth = depth.checked_sub(1)?;
    if let Some([condition, one, other]) = choice(text)? {
        let parts = Box::new([operand(one, depth)?, operand(other, depth)?]);
        return Some(Operand::Choice(Box::new(expression(condition, depth)?), parts));
    }
    match split(text, "+")?.as_slice() {
        [text] => term(text.trim(), depth),
        parts => {
            Some(Operand::Sum(parts.iter().map(|text| term(text.trim(), depth)).collect::<Option<_>>()?))
        }
    }
}

fn term(text: &str, depth: usize) -> Option<Operand> {
    let size = |inner| operand(inner, depth).map(|inner| Operand::Size(Box::new(inner)));
    if let Some(inner) = call("size", text) {
        return size(inner);
    }
    if let Some(inner) = text.strip_suffix(".size()") {
        return size(inner);
    }
    if let Some(inner) = call("", text) {
        return operand(inner, depth);
    }
    let mut parts = text.split('.').map(str::to_owned);
    let first = parts.next()?;
    let path: Vec<_> = parts.collect();
    let plain = |part: &String| {
        !part.is_empty() && part.chars().all(|letter| letter.is_ascii_alphanumeric() || letter == '_')
    };
    match first.as_str() {
        "self" if path.iter().all(plain) => Some(Operand::New(path)),
        "oldSelf" if path.iter().all(plain) => Some(Operand::Old(path)),
        _ => literal(text),
    }
}

fn literal(text: &str) -> Option<Operand> {
    if let Some(inner) = text.strip_prefix('\'').and_then(|rest| rest.strip_suffix('\'')) {
        return (!inner.contains(['\'', '\\'])).then(|| Operand::Literal(Value::from(inner)));
    }
    let value: Value = serde_json::from_str(text).ok()?;
    (!value.is_array() && !value.is_object()).then_some(Operand::Literal(value))
}

/// The argument of a call of this function, or what parentheses enclose; none if the text is something else.
fn call<'a>(function: &str, text: &'a str) -> Option<&'a str> {
    let inner = text.strip_prefix(function)?.trim_start().strip_prefix('(')?.strip_suffix(')')?;
    // `(a) + (b)` is not enclosed: its parts are not balanced.
    split(inner, ",").map(|_| inner)
}

/// The parts of `a ? b : c`; none if there is no choice. The outer none means that it cannot be parsed.
fn choice(text: &str) -> Option<Option<[&str; 3]>> {
    let parts = split(text, "?")?;
    let [condition, rest] = match parts.as_slice() {
        [_] => return Some(None),
        [condition, rest] => [*condition, *rest],
        _ => return None,
    };
    match split(rest, ":")?.as_slice() {
        [one, other] => Some(Some([condition, one, other])),
        _ => None,
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_outside_of_the_subset_are_not_supported() {
        for rule in [
            "",
            "self.matches('a')",
            "self.all(x, x > 1)",
            "self.a in [1, 2]",
            "self.a ? 1",
            "self.a ? self.b ? true : false : true",
            "self.?a == 1",
            "has(1)",
            "has(self.a + self.b)",
            "self.a == 1)",
            "'a\\'b' == self",
            "1 < 2 < 3",
        ] {
            assert!(Expression::parse(rule).is_none(), "{rule}");
        }
    }

    #[test]
    fn deeply_nested_rules_are_not_supported() {
        for (open, close) in [("!", ""), ("(", ")"), ("size(", ")"), ("self.a ? (", ") : true")] {
            for (depth, expected) in [(2, true), (100_000, false)] {
                let innermost = if open == "size(" { "self" } else { "self.a" };
                let rule = format!("{}{innermost}{}", open.repeat(depth), close.repeat(depth));
                assert_eq!(Expression::parse(&rule).is_some(), expected, "{open} {depth}");
            }
        }
    }
}
