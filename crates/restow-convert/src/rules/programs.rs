//! The expressions of rules, compiled once.

use std::collections::HashMap;

use serde_json::Value;

use super::document::{Cel, Computed, Each, Rule};
use super::expression::{Expression, Visible};
use super::path::Path;
use crate::schema::Schema;

/// The expressions of a pair of versions, by their text. Those that are wrong are missing; the check reports them.
#[derive(Debug, Default)]
pub(super) struct Programs(HashMap<String, Expression>);

impl Programs {
    /// Compiles all expressions of rules.
    pub(super) fn compile(rules: &[Rule], older: &Value, newer: &Value) -> Self {
        let mut programs = Self::default();
        programs.add(rules, Schema::new(Some(older)), Schema::new(Some(newer)));
        programs
    }

    fn add(&mut self, rules: &[Rule], older: Schema<'_>, newer: Schema<'_>) {
        for rule in rules {
            match rule {
                Rule::Cel(Cel { older: old, newer: new }) => {
                    self.add_fields(old, &paths(new), newer);
                    self.add_fields(new, &paths(old), older);
                }
                Rule::Each(Each { older: old, newer: new, rules }) => {
                    let (older, newer) =
                        (older.at(old.fields()).elements(), newer.at(new.fields()).elements());
                    self.add(rules, older, newer);
                }
                _ => {}
            }
        }
    }

    fn add_fields(&mut self, fields: &[Computed], paths: &[&Path], schema: Schema<'_>) {
        for text in fields.iter().filter_map(|field| field.value.as_ref()) {
            if let Ok(expression) = Expression::compile(text, Visible { paths, schema }) {
                self.0.insert(text.clone(), expression);
            }
        }
    }

    /// The value of an expression.
    ///
    /// # Errors
    /// Why it has none.
    pub(super) fn evaluate(
        &self,
        text: &str,
        source: &Value,
        visible: Visible<'_>,
        wanted: Schema<'_>,
    ) -> Result<Value, String> {
        let expression = self.0.get(text).ok_or_else(|| "it was not compiled".to_owned())?;
        expression.evaluate(source, visible, wanted)
    }
}

/// The fields of one side of a rule.
pub(super) fn paths(fields: &[Computed]) -> Vec<&Path> {
    fields.iter().map(|field| &field.path).collect()
}
