//! Operations on values of a type: validate, compare, merge, remove, and the set of all their fields.

pub(crate) mod compare;
pub(crate) mod field_set;
pub(crate) mod merge;
pub(crate) mod reconcile;
pub(crate) mod remove;
pub(crate) mod validate;

use std::fmt;

/// How many errors are collected.
const MOST_ERRORS: usize = 100;

/// Values that do not fit their types.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TypeErrors(Vec<(String, String)>);

impl TypeErrors {
    /// One error at the current path.
    pub(crate) fn one(message: impl Into<String>) -> Self {
        Self(vec![(String::new(), message.into())])
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Adds errors of something below this path.
    pub(crate) fn add(&mut self, within: impl fmt::Display, errors: Self) {
        if errors.0.is_empty() || self.0.len() >= MOST_ERRORS {
            return;
        }
        let within = within.to_string();
        let room = MOST_ERRORS - self.0.len();
        self.0.extend(
            errors.0.into_iter().take(room).map(|(path, message)| (format!("{within}{path}"), message)),
        );
    }

    pub(crate) fn is_full(&self) -> bool {
        self.0.len() >= MOST_ERRORS
    }
}

impl fmt::Display for TypeErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let line = |(path, message): &(String, String)| match path.as_str() {
            "" => message.clone(),
            path => format!("{path}: {message}"),
        };
        match self.0.as_slice() {
            [one] => f.write_str(&line(one)),
            many => {
                f.write_str("errors:")?;
                many.iter().try_for_each(|error| write!(f, "\n  {}", line(error)))
            }
        }
    }
}

impl std::error::Error for TypeErrors {}

#[cfg(test)]
mod tests;
