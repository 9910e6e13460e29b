//! What goes to which stream: data to stdout, logs and progress to stderr.

use std::io::{IsTerminal as _, Write as _};

use serde::Serialize;
use tracing_subscriber::EnvFilter;

/// Sets logging up; what the HTTP client says of single requests is only for the curious.
pub(crate) fn log(verbose: u8) {
    let level = match verbose {
        0 => "off",
        1 => "restow=info,restow_migrate=info",
        _ => "restow=debug,restow_migrate=debug,kube=debug,tower_http=debug",
    };
    let filter = EnvFilter::try_from_env("RESTOW_LOG").unwrap_or_else(|_| EnvFilter::new(level));
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .log_internal_errors(false)
        .with_ansi(std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none())
        .init();
}

/// Sets the logging of a controller up, which is all it says.
pub(crate) fn log_all(verbose: u8, json: bool) {
    let level = match verbose {
        // The client's own complaints are told by whoever asked, once and with a reason.
        0 => "info,kube_client=off",
        1 => "info,restow=debug,restow_migrate=debug,restow_controller=debug",
        _ => "debug",
    };
    let filter = EnvFilter::try_from_env("RESTOW_LOG").unwrap_or_else(|_| EnvFilter::new(level));
    let log = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .log_internal_errors(false)
        .with_ansi(std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none());
    if json { log.json().init() } else { log.init() }
}

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

/// As JSON.
pub(crate) fn json(document: &impl Serialize) -> String {
    serde_json::to_string_pretty(document).map(|text| text + "\n").unwrap_or_default()
}

/// As YAML.
pub(crate) fn yaml(document: &impl Serialize) -> String {
    // By way of JSON, so that both have the same numbers and field names.
    let value = serde_json::to_value(document).unwrap_or_default();
    serde_saphyr::to_string(&value).unwrap_or_default()
}

/// A count with its thousands set apart.
pub(crate) fn count(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// A count of things: "1 object", "2 objects".
pub(crate) fn counted(number: u64, thing: &str) -> String {
    let plural = if number == 1 { "" } else { "s" };
    format!("{} {thing}{plural}", count(number))
}

/// A duration as a person says it.
pub(crate) fn time(duration: std::time::Duration) -> String {
    let seconds = duration.as_secs();
    match seconds {
        0..10 => format!("{:.1}s", duration.as_secs_f64()),
        10..120 => format!("{seconds}s"),
        120..7200 => format!("{}m{:02}s", seconds / 60, seconds % 60),
        _ => format!("{}h{:02}m", seconds / 3600, seconds % 3600 / 60),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn numbers_are_easy_to_read() {
        for (number, text) in [(0, "0"), (999, "999"), (1000, "1,000"), (1_234_567, "1,234,567")] {
            assert_eq!(count(number), text);
        }
        for (number, text) in [(0, "0 objects"), (1, "1 object"), (1000, "1,000 objects")] {
            assert_eq!(counted(number, "object"), text);
        }
        for (seconds, text) in [(0.25, "0.2s"), (42.0, "42s"), (125.0, "2m05s"), (7260.0, "2h01m")] {
            assert_eq!(time(Duration::from_secs_f64(seconds)), text);
        }
    }
}
