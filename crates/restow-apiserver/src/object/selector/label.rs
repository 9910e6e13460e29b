//! Label selectors: `a=b,c!=d,e in (f,g),!h`.

use std::collections::BTreeSet;
use std::fmt;

use serde_json::{Value, json};

use super::lexer::{Token, tokens};
use crate::http::status::{Cause, StatusError};
use crate::object::meta;
use crate::object::meta::name::{label_key, label_value};

/// How a label and values are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Operator {
    /// `=`
    Equals,
    /// `==`
    DoubleEquals,
    /// `!=`
    NotEquals,
    /// `in`
    In,
    /// `notin`
    NotIn,
    /// `>`
    Greater,
    /// `<`
    Less,
    /// The label alone.
    Exists,
    /// `!` before the label.
    DoesNotExist,
}

/// A requirement on one label.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Requirement {
    /// The label.
    pub key: String,
    /// The comparison.
    pub operator: Operator,
    /// The values to compare with.
    pub values: BTreeSet<String>,
}

/// A label selector. Without requirements, it matches everything.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct LabelSelector {
    /// All requirements must match.
    pub requirements: Vec<Requirement>,
}

impl LabelSelector {
    /// Parses a selector. A malformed one is a bad request, with the message of kube-apiserver.
    pub(crate) fn parse(text: &str) -> Result<Self, StatusError> {
        let mut parser = Parser { tokens: tokens(text), at: 0 };
        let mut requirements = parser.selector().map_err(StatusError::bad_request)?;
        requirements.sort_by(|one, other| one.key.cmp(&other.key));
        Ok(Self { requirements })
    }

    /// Parses a `LabelSelector` object, as in specs.
    pub(crate) fn from_value(selector: &Value) -> Result<Self, String> {
        let mut requirements = Vec::new();
        for (key, value) in selector.get("matchLabels").and_then(Value::as_object).into_iter().flatten() {
            let value = value.as_str().unwrap_or_default().to_owned();
            requirements.push(requirement(key.clone(), Operator::In, BTreeSet::from([value]))?);
        }
        for term in selector.get("matchExpressions").and_then(Value::as_array).into_iter().flatten() {
            let text = |key| term.get(key).and_then(Value::as_str).unwrap_or_default();
            let operator = match text("operator") {
                "In" => Operator::In,
                "NotIn" => Operator::NotIn,
                "Exists" => Operator::Exists,
                "DoesNotExist" => Operator::DoesNotExist,
                other => return Err(format!("{other:?} is not a valid label selector operator")),
            };
            let values = term.get("values").and_then(Value::as_array).into_iter().flatten();
            let values = values.filter_map(Value::as_str).map(str::to_owned).collect();
            requirements.push(requirement(text("key").to_owned(), operator, values)?);
        }
        requirements.sort_by(|one, other| one.key.cmp(&other.key));
        Ok(Self { requirements })
    }

    /// Whether it matches everything.
    pub(crate) fn is_everything(&self) -> bool {
        self.requirements.is_empty()
    }

    /// Whether the labels of an object match.
    pub(crate) fn matches(&self, object: &Value) -> bool {
        if self.is_everything() {
            return true;
        }
        let labels = meta::field(object, "labels");
        self.matches_labels(|key| labels.and_then(|labels| labels.get(key)).and_then(Value::as_str))
    }

    /// Whether labels match.
    pub(crate) fn matches_labels<'a>(&self, label: impl Fn(&str) -> Option<&'a str>) -> bool {
        self.requirements.iter().all(|requirement| requirement.holds(label(&requirement.key)))
    }
}

impl Requirement {
    fn holds(&self, label: Option<&str>) -> bool {
        match self.operator {
            Operator::In | Operator::Equals | Operator::DoubleEquals => {
                label.is_some_and(|label| self.values.contains(label))
            }
            Operator::NotIn | Operator::NotEquals => label.is_none_or(|label| !self.values.contains(label)),
            Operator::Exists => label.is_some(),
            Operator::DoesNotExist => label.is_none(),
            Operator::Greater => self.compares(label, |label, bound| label > bound),
            Operator::Less => self.compares(label, |label, bound| label < bound),
        }
    }

    fn compares(&self, label: Option<&str>, holds: fn(i64, i64) -> bool) -> bool {
        let number = |text: &str| text.parse::<i64>().ok();
        let bound = self.values.first().and_then(|bound| number(bound));
        label.and_then(number).zip(bound).is_some_and(|(label, bound)| holds(label, bound))
    }
}

/// A requirement, if its key and values are valid.
fn requirement(key: String, operator: Operator, values: BTreeSet<String>) -> Result<Requirement, String> {
    let mut causes = Vec::new();
    let errors = label_key(&key);
    if !errors.is_empty() {
        causes.push(Cause::invalid_text("key", &key, &errors.join("; ")));
    }
    match operator {
        Operator::In | Operator::NotIn if values.is_empty() => {
            let detail = "for 'in', 'notin' operators, values set can't be empty";
            causes.push(Cause::invalid("values", &json!([]), detail));
        }
        Operator::Exists | Operator::DoesNotExist if !values.is_empty() => {
            let detail = "values set must be empty for exists and does not exist";
            causes.push(Cause::invalid("values", &json!(values), detail));
        }
        Operator::Greater | Operator::Less => {
            let detail = "for 'Gt', 'Lt' operators, the value must be an integer";
            for (index, value) in values.iter().enumerate().filter(|(_, value)| value.parse::<i64>().is_err())
            {
                causes.push(Cause::invalid_text(format!("values[{index}]"), value, detail));
            }
        }
        _ => {}
    }
    for (index, value) in values.iter().enumerate() {
        let errors = label_value(value);
        if !errors.is_empty() {
            causes.push(Cause::invalid_text(format!("values[{index}][{key}]"), value, &errors.join("; ")));
        }
    }
    if causes.is_empty() { Ok(Requirement { key, operator, values }) } else { Err(Cause::aggregate(&causes)) }
}

struct Parser {
    tokens: Vec<Token>,
    at: usize,
}

const BINARY: &str = "in, notin, =, ==, !=, gt, lt";

impl Parser {
    /// The next token, without taking it; after the last one there are only ends.
    fn peek(&self) -> Token {
        self.tokens.get(self.at).cloned().unwrap_or(Token::End)
    }

    fn take(&mut self) -> Token {
        let token = self.peek();
        self.at += 1;
        token
    }

    fn selector(&mut self) -> Result<Vec<Requirement>, String> {
        let mut requirements = Vec::new();
        loop {
            match self.peek().into_word() {
                Token::Word(_) | Token::Not => {
                    let found = self
                        .requirement()
                        .map_err(|error| format!("unable to parse requirement: {error}"))?;
                    requirements.push(found);
                    match self.take().into_word() {
                        Token::End => return Ok(requirements),
                        Token::Comma => self.expect_more()?,
                        other => {
                            return Err(format!(
                                "found '{}', expected: ',' or 'end of string'",
                                other.text()
                            ));
                        }
                    }
                }
                Token::End => return Ok(requirements),
                other => {
                    return Err(format!(
                        "found '{}', expected: !, identifier, or 'end of string'",
                        other.text()
                    ));
                }
            }
        }
    }

    fn expect_more(&self) -> Result<(), String> {
        match self.peek().into_word() {
            Token::Word(_) | Token::Not => Ok(()),
            other => Err(format!("found '{}', expected: identifier after ','", other.text())),
        }
    }

    fn requirement(&mut self) -> Result<Requirement, String> {
        let mut token = self.take().into_word();
        let negated = token == Token::Not;
        if negated {
            token = self.take().into_word();
        }
        let Token::Word(key) = token else {
            return Err(format!("found '{}', expected: identifier", token.text()));
        };
        let errors = label_key(&key);
        if !errors.is_empty() {
            return Err(Cause::aggregate(&[Cause::invalid_text("<nil>", &key, &errors.join("; "))]));
        }
        if negated {
            return requirement(key, Operator::DoesNotExist, BTreeSet::new());
        }
        if matches!(self.peek(), Token::End | Token::Comma) {
            return requirement(key, Operator::Exists, BTreeSet::new());
        }
        let operator = self.operator()?;
        let values = match operator {
            Operator::In | Operator::NotIn => self.values()?,
            _ => self.value()?,
        };
        requirement(key, operator, values)
    }

    fn operator(&mut self) -> Result<Operator, String> {
        Ok(match self.take() {
            Token::In => Operator::In,
            Token::Equals => Operator::Equals,
            Token::DoubleEquals => Operator::DoubleEquals,
            Token::Greater => Operator::Greater,
            Token::Less => Operator::Less,
            Token::NotIn => Operator::NotIn,
            Token::NotEquals => Operator::NotEquals,
            other => return Err(format!("found '{}', expected: {BINARY}", other.text())),
        })
    }

    /// The value of an exact match; it may be empty.
    fn value(&mut self) -> Result<BTreeSet<String>, String> {
        if matches!(self.peek(), Token::End | Token::Comma) {
            return Ok(BTreeSet::from([String::new()]));
        }
        match self.take().into_word() {
            Token::Word(value) => Ok(BTreeSet::from([value])),
            other => Err(format!("found '{}', expected: identifier", other.text())),
        }
    }

    /// Values in parentheses.
    fn values(&mut self) -> Result<BTreeSet<String>, String> {
        let open = self.take().into_word();
        if open != Token::Open {
            return Err(format!("found '{}' expected: '('", open.text()));
        }
        let first = self.peek().into_word();
        match first {
            Token::Word(_) | Token::Comma => {
                let values = self.list()?;
                match self.take() {
                    Token::Closed => Ok(values),
                    _ => Err(format!("found '{}', expected: ')'", first.text())),
                }
            }
            Token::Closed => {
                self.take();
                Ok(BTreeSet::from([String::new()]))
            }
            other => Err(format!("found '{}', expected: ',', ')' or identifier", other.text())),
        }
    }

    /// Values and commas; between two commas there is an empty value.
    fn list(&mut self) -> Result<BTreeSet<String>, String> {
        let mut values = BTreeSet::new();
        loop {
            match self.take().into_word() {
                Token::Word(value) => {
                    values.insert(value);
                    match self.peek().into_word() {
                        Token::Comma => {}
                        Token::Closed => return Ok(values),
                        other => return Err(format!("found '{}', expected: ',' or ')'", other.text())),
                    }
                }
                Token::Comma => {
                    if values.is_empty() {
                        values.insert(String::new());
                    }
                    match self.peek() {
                        Token::Closed => {
                            values.insert(String::new());
                            return Ok(values);
                        }
                        Token::Comma => {
                            values.insert(String::new());
                        }
                        _ => {}
                    }
                }
                other => return Err(format!("found '{}', expected: ',', or identifier", other.text())),
            }
        }
    }
}

impl fmt::Display for LabelSelector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, requirement) in self.requirements.iter().enumerate() {
            if index > 0 {
                f.write_str(",")?;
            }
            write!(f, "{requirement}")?;
        }
        Ok(())
    }
}

impl fmt::Display for Requirement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (key, values) = (&self.key, self.values.iter().map(String::as_str).collect::<Vec<_>>().join(","));
        match self.operator {
            Operator::Exists => f.write_str(key),
            Operator::DoesNotExist => write!(f, "!{key}"),
            Operator::Equals => write!(f, "{key}={values}"),
            Operator::DoubleEquals => write!(f, "{key}=={values}"),
            Operator::NotEquals => write!(f, "{key}!={values}"),
            Operator::Greater => write!(f, "{key}>{values}"),
            Operator::Less => write!(f, "{key}<{values}"),
            Operator::In => write!(f, "{key} in ({values})"),
            Operator::NotIn => write!(f, "{key} notin ({values})"),
        }
    }
}

#[cfg(test)]
#[path = "label_tests.rs"]
mod tests;
