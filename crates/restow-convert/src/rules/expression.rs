//! Expressions in the Common Expression Language, for what no other rule can say.
//!
//! The crate `kube-cel` evaluates them. It has no bound on the cost of an evaluation, panics on struct literals, knows no
//! types and visits maps in a random order. So an expression is checked before it is used ([`guard`]): its length, its
//! names, its functions, and that it iterates over nothing but lists. While it runs, every iteration is counted
//! ([`functions`]), and a panic is that object's error. The result must fit the schema of the field.

mod functions;
mod guard;
mod value;
mod visible;

use std::panic::{AssertUnwindSafe, catch_unwind};

use kube_cel::cel;
use serde_json::Value;

use crate::schema::Schema;
pub(super) use visible::Visible;

/// The longest expression, in bytes.
const MAX_LENGTH: usize = 2048;
/// The largest input: the texts, names and values of all fields that the expression can see.
const MAX_INPUT: usize = 32 * 1024;

/// An expression that may be evaluated.
#[derive(Debug)]
pub(super) struct Expression(cel::IdedExpr);

impl Expression {
    /// Parses and checks an expression.
    ///
    /// # Errors
    /// What is wrong with it.
    pub(super) fn compile(text: &str, visible: Visible<'_>) -> Result<Self, String> {
        if text.len() > MAX_LENGTH {
            return Err(format!("it has {} bytes; {MAX_LENGTH} are allowed", text.len()));
        }
        let parsed = catch_unwind(|| cel::parser::Parser::new().parse(text));
        let mut parsed = match parsed {
            Ok(Ok(parsed)) => parsed,
            Ok(Err(errors)) => {
                let first =
                    errors.errors.first().map_or_else(|| errors.to_string(), |error| error.msg.clone());
                return Err(format!("it cannot be parsed: {}", first.lines().next().unwrap_or_default()));
            }
            Err(_) => return Err("it cannot be parsed".to_owned()),
        };
        guard::check(&parsed, visible)?;
        guard::meter(&mut parsed);
        Ok(Self(parsed))
    }

    /// The value of the expression, if it fits the schema of the field that it is for. Null if there is none.
    ///
    /// # Errors
    /// Why there is no value.
    pub(super) fn evaluate(
        &self,
        source: &Value,
        visible: Visible<'_>,
        wanted: Schema<'_>,
    ) -> Result<Value, String> {
        let input = visible.of(source);
        if value::size(&input) > MAX_INPUT {
            return Err(format!("its input is larger than {MAX_INPUT} bytes"));
        }
        let input = value::from_json(&input, visible.schema);
        // The interpreter has panics of its own, and functions that were never meant to fail.
        let evaluated = catch_unwind(AssertUnwindSafe(|| functions::evaluate(&self.0, input)));
        let result = evaluated.unwrap_or_else(|_| Err("the evaluation panicked".to_owned()))?;
        let result = value::to_json(&result)?;
        match wanted.misfit(&result) {
            None => Ok(result),
            Some(problem) => Err(format!("the result does not fit the schema: {problem}")),
        }
    }
}

#[cfg(test)]
mod tests;
