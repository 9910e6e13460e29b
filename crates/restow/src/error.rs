//! The error of a command: a message, a hint, and the exit code.

use std::fmt::Display;
use std::process::ExitCode;

use crate::output::say;

/// A failure with a message for the user.
#[derive(Debug)]
pub(crate) struct CliError {
    code: u8,
    message: String,
    hint: Option<String>,
}

impl Display for CliError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.message)
    }
}

impl CliError {
    /// A failure with exit code 1.
    pub(crate) fn failed(message: impl Display) -> Self {
        Self { code: 1, message: message.to_string(), hint: None }
    }

    /// Incorrect usage, with exit code 2.
    pub(crate) fn usage(message: impl Display) -> Self {
        Self { code: 2, ..Self::failed(message) }
    }

    /// Adds the subject in front of the message.
    pub(crate) fn about(self, what: &str) -> Self {
        Self { message: format!("{what}: {}", self.message), ..self }
    }

    /// Adds a hint: what to do about it.
    pub(crate) fn hint(mut self, hint: impl Display) -> Self {
        self.hint = Some(hint.to_string());
        self
    }

    /// Prints it to stderr as a warning.
    pub(crate) fn warn(&self) {
        let hint = self.hint.as_ref().map(|hint| format!("; {hint}")).unwrap_or_default();
        say!("warning: {}{hint}", self.message);
    }

    /// Prints it to stderr.
    pub(crate) fn report(self) -> ExitCode {
        say!("\x1b[1;31merror:\x1b[0m {}", self.message);
        if let Some(hint) = self.hint {
            say!("\x1b[1;36mhint:\x1b[0m {hint}");
        }
        ExitCode::from(self.code)
    }
}

/// An error and its causes.
pub(crate) fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        text = format!("{text}: {error}");
        source = error.source();
    }
    text
}
