//! How a command fails: what to say, what to do about it, and the exit code.

use std::fmt::Display;
use std::process::ExitCode;

use crate::output::say;

/// A failure told to a person.
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
    /// Exit code 1.
    pub(crate) fn failed(message: impl Display) -> Self {
        Self { code: 1, message: message.to_string(), hint: None }
    }

    /// Exit code 2.
    pub(crate) fn usage(message: impl Display) -> Self {
        Self { code: 2, ..Self::failed(message) }
    }

    /// Says first what it is about.
    pub(crate) fn about(self, what: &str) -> Self {
        Self { message: format!("{what}: {}", self.message), ..self }
    }

    /// Adds what can be done about it.
    pub(crate) fn hint(mut self, hint: impl Display) -> Self {
        self.hint = Some(hint.to_string());
        self
    }

    /// Says on stderr that it would fail, and goes on.
    pub(crate) fn warn(&self) {
        let hint = self.hint.as_ref().map(|hint| format!("; {hint}")).unwrap_or_default();
        say!("warning: {}{hint}", self.message);
    }

    /// Says it on stderr.
    pub(crate) fn report(self) -> ExitCode {
        say!("\x1b[1;31merror:\x1b[0m {}", self.message);
        if let Some(hint) = self.hint {
            say!("\x1b[1;36mhint:\x1b[0m {hint}");
        }
        ExitCode::from(self.code)
    }
}

/// An error and what it comes from.
pub(crate) fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        text = format!("{text}: {error}");
        source = error.source();
    }
    text
}
