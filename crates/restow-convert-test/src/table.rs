//! Table tests: a name, an object, and what it becomes or why it is refused.

use restow_convert::{Convertible, causes};
use serde_json::Value;

use crate::compare::{difference, yaml};
use crate::failures::{Failure, Failures};
use crate::object::{is_annotated, version_of, without_annotation};

/// Rows that a conversion must fulfil.
#[derive(Clone, Debug, Default)]
pub struct Table {
    rows: Vec<Row>,
}

/// One object, and what is expected of its conversion.
#[derive(Clone, Debug)]
pub struct Row {
    name: String,
    input: Value,
    expected: Expected,
}

#[derive(Clone, Debug)]
enum Expected {
    Object(Value),
    Error { version: String, message: String },
}

impl Row {
    /// The object becomes this one. The version is that of `output`.
    ///
    /// If `output` has no annotation `restow.dev/conversion-data`, that of the result is not compared: it is how the
    /// conversion keeps what the version cannot express, and [`RoundTrips`](crate::RoundTrips) shows that it does.
    pub fn converts(name: &str, input: Value, output: Value) -> Self {
        Self { name: name.to_owned(), input, expected: Expected::Object(output) }
    }

    /// The conversion to the version fails, and its error or one of the causes contains the message.
    pub fn fails(name: &str, input: Value, version: &str, message: &str) -> Self {
        let expected = Expected::Error { version: version.to_owned(), message: message.to_owned() };
        Self { name: name.to_owned(), input, expected }
    }

    fn failure(&self, converter: &dyn Convertible) -> Option<String> {
        match &self.expected {
            Expected::Object(output) => {
                let Some(version) = version_of(output) else {
                    return Some("the expected object has no apiVersion".to_owned());
                };
                match converter.convert(self.input.clone(), version) {
                    Ok(found) => differs(output, found),
                    Err(error) => Some(format!("the conversion to {version} failed: {}", causes(&error))),
                }
            }
            Expected::Error { version, message: wanted } => {
                match converter.convert(self.input.clone(), version) {
                    Ok(found) => Some(format!(
                        "the conversion to {version} should fail with {wanted:?}, but the result is\n{}",
                        yaml(&found)
                    )),
                    Err(error) => {
                        let found = causes(&error);
                        (!found.contains(wanted))
                            .then(|| format!("the error should contain\n  {wanted}\nbut it is\n  {found}"))
                    }
                }
            }
        }
    }
}

fn differs(output: &Value, found: Value) -> Option<String> {
    let found = if is_annotated(output) { found } else { without_annotation(found) };
    let shown = difference(output, &found)?;
    Some(format!("the result differs (- expected, + result)\n{shown}"))
}

impl Table {
    /// A table without rows.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a row.
    #[must_use]
    pub fn row(mut self, row: Row) -> Self {
        self.rows.push(row);
        self
    }

    /// Checks all rows.
    ///
    /// # Errors
    /// All rows that failed.
    pub fn check(&self, converter: &dyn Convertible) -> Result<(), Failures> {
        let failures = self.rows.iter().filter_map(|row| {
            let detail = row.failure(converter)?;
            Some(Failure::new(&row.name, detail))
        });
        Failures::unless_empty(format!("{} rows", self.rows.len()), failures.collect())
    }
}
