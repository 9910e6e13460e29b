//! `restow`: storage version migration for Kubernetes, from a terminal. It is a kubectl plugin as well: as
//! `kubectl-restow`, it calls itself `kubectl restow`.
#![warn(clippy::print_stderr, clippy::print_stdout)] // they panic when the reader of a pipe is gone

mod args;
mod assessment;
mod cli;
mod commands;
mod connect;
mod error;
mod logging;
mod objects;
mod output;
mod predecessor;
mod program;
mod render;
mod resources;
mod signals;
#[cfg(test)]
mod snapshots;
mod state_dir;
mod watch;

use std::process::ExitCode;

use crate::cli::Cli;

fn main() -> ExitCode {
    if let Some(words) = program::words_to_complete() {
        return cli::complete_for_kubectl(&words);
    }
    let cli = Cli::parse();
    cli.set_up_logging();
    let runtime = match cli.runtime() {
        Ok(runtime) => runtime,
        Err(error) => return error.report(),
    };
    match runtime.block_on(cli.run()) {
        Ok(code) => ExitCode::from(code),
        Err(error) => error.report(),
    }
}
