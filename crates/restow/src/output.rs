//! Writes to stdout and stderr: data to stdout, messages and progress to stderr.

use std::io::Write as _;

/// Writes one document to stdout. A reader that has gone away is not a failure.
pub(crate) fn print(text: &str) {
    let mut stdout = std::io::stdout().lock();
    let _ = stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush());
}

/// Writes one line to stderr, in colour on a terminal. Unlike `eprintln!`, it does not panic when the reader is gone.
macro_rules! say {
    ($($line:tt)*) => {
        $crate::output::write_line(anstream::stderr(), format_args!($($line)*))
    };
}
pub(crate) use say;

/// Writes one line to stdout, in the same way.
macro_rules! show {
    ($($line:tt)*) => {
        $crate::output::write_line(anstream::stdout(), format_args!($($line)*))
    };
}
pub(crate) use show;

pub(crate) fn write_line(mut to: impl std::io::Write, line: std::fmt::Arguments<'_>) {
    let _ = writeln!(to, "{line}").and_then(|()| to.flush());
}
