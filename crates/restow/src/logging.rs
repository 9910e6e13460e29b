//! Sets up what is logged to stderr.

use std::io::IsTerminal as _;

use clap::ValueEnum;
use tracing_subscriber::EnvFilter;

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum LogFormat {
    Text,
    Json,
}

/// Logging of a command that a person runs: nothing, unless `--verbose` is given.
pub(crate) fn of_command(verbose: u8) {
    let level = match verbose {
        0 => "off",
        1 => "restow=info,restow_migrate=info",
        _ => "restow=debug,restow_migrate=debug,kube=debug,tower_http=debug",
    };
    subscriber(level).init();
}

/// Logging of a controller or an API server, which print nothing else.
pub(crate) fn of_server(verbose: u8, format: LogFormat) {
    let level = match verbose {
        // The code that sent a request logs its failure once, with the reason; the client would log it again.
        0 => "info,kube_client=off,kube_runtime=error",
        1 => "info,restow=debug,restow_migrate=debug,restow_controller=debug",
        _ => "debug",
    };
    match format {
        LogFormat::Json => subscriber(level).json().init(),
        LogFormat::Text => subscriber(level).init(),
    }
}

type Subscriber = tracing_subscriber::fmt::SubscriberBuilder<
    tracing_subscriber::fmt::format::DefaultFields,
    tracing_subscriber::fmt::format::Format,
    EnvFilter,
    fn() -> std::io::Stderr,
>;

fn subscriber(level: &str) -> Subscriber {
    let filter = EnvFilter::try_from_env("RESTOW_LOG").unwrap_or_else(|_| EnvFilter::new(level));
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr as fn() -> std::io::Stderr)
        .log_internal_errors(false)
        .with_ansi(std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none())
}
