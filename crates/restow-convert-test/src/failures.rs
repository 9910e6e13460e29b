//! What failed in a check, for a person to read.

use std::fmt;

/// All that failed in a check. Its `Debug` form is the same report as its `Display` form, so that a test that returns it
/// shows it.
#[derive(Clone, PartialEq)]
pub struct Failures {
    /// What was checked, such as `3 rows`.
    pub checked: String,
    /// The failures, in the order in which they were found.
    pub failures: Vec<Failure>,
}

/// One failure.
#[derive(Clone, Debug, PartialEq)]
pub struct Failure {
    /// What failed: the name of a row, of a file or of a step.
    pub name: String,
    /// Why, with what differs.
    pub detail: String,
}

impl Failures {
    /// Nothing if there are no failures.
    pub(crate) fn unless_empty(checked: String, failures: Vec<Failure>) -> Result<(), Self> {
        if failures.is_empty() { Ok(()) } else { Err(Self { checked, failures }) }
    }
}

impl Failure {
    pub(crate) fn new(name: impl Into<String>, detail: impl Into<String>) -> Self {
        Self { name: name.into(), detail: detail.into() }
    }
}

impl fmt::Display for Failures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{} failed, of {}", self.failures.len(), self.checked)?;
        for failure in &self.failures {
            writeln!(f, "\n  {}", failure.name)?;
            for line in failure.detail.lines() {
                writeln!(f, "{}", format!("    {line}").trim_end())?;
            }
        }
        Ok(())
    }
}

impl fmt::Debug for Failures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl std::error::Error for Failures {}
