//! The error of a command: a message, a hint, and the exit code.

use std::fmt::Display;
use std::process::ExitCode;

/// An error followed by its causes.
pub(crate) use restow_convert::causes as chain;

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

    /// The message, and the hint behind it.
    pub(crate) fn with_hint(&self) -> String {
        let hint = self.hint.as_ref().map(|hint| format!("; {hint}")).unwrap_or_default();
        format!("{}{hint}", self.message)
    }

    /// Prints it to stderr as a warning.
    pub(crate) fn warn(&self) {
        say!("warning: {}", self.with_hint());
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
