//! `restow`: storage version migration for Kubernetes, from a terminal. Also `kubectl restow`, told by its name.
#![warn(clippy::print_stderr, clippy::print_stdout)] // they panic when the reader of a pipe is gone

mod again;
mod apiserver;
mod args;
mod cancel;
mod complete;
mod connect;
mod controller;
mod demo;
mod explain;
mod failure;
mod follow;
mod init;
mod install;
mod migrate;
mod needs;
mod objects;
mod output;
mod owner;
mod pass;
mod plan;
mod predecessor;
mod report;
mod select;
mod signals;
mod standing;
mod state;
mod status;
mod steer;
mod storage;
mod table;
mod uninstall;
mod view;
mod watch;

use std::process::ExitCode;

use clap::FromArgMatches as _;

use crate::args::{Args, Command};
use crate::failure::Failure;
use crate::signals::stoppable;
use crate::steer::Act;

/// What this program calls itself in hints.
pub(crate) fn program() -> &'static str {
    let name = std::env::args_os().next().map(std::path::PathBuf::from);
    match name.as_ref().and_then(|path| path.file_stem()?.to_str()) {
        Some(name) if name.starts_with("kubectl-") || name.starts_with("kubectl_") => "kubectl restow",
        _ => "restow",
    }
}

/// The words to complete, where kubectl asks by the name `kubectl_complete-restow`.
fn to_complete() -> Option<Vec<String>> {
    let mut words = std::env::args_os();
    let name = std::path::PathBuf::from(words.next()?);
    let asked = name.file_stem()?.to_str()?.starts_with("kubectl_complete");
    asked.then(|| words.map(|word| word.to_string_lossy().into_owned()).collect())
}

fn main() -> ExitCode {
    if let Some(words) = to_complete() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let found = runtime.map(|runtime| runtime.block_on(complete::complete(&words))).unwrap_or_default();
        // The last line tells kubectl that these are no files.
        let lines = found.iter().map(|word| format!("{word}\n")).chain([":4\n".to_owned()]);
        output::print(&lines.collect::<String>());
        return ExitCode::SUCCESS;
    }
    let args = match args::command()
        .bin_name(program())
        .try_get_matches()
        .and_then(|matches| Args::from_arg_matches(&matches))
    {
        Ok(args) => args,
        Err(error) => error.exit(),
    };
    match &args.command {
        Command::Controller(controller) => controller.log(args.verbose),
        Command::Apiserver(apiserver) => apiserver.log(args.verbose),
        _ => output::log(args.verbose),
    }
    // A server uses all of the machine; whoever only asks servers has enough with one thread.
    let mut runtime = match args.command {
        Command::Apiserver(_) => tokio::runtime::Builder::new_multi_thread(),
        _ => tokio::runtime::Builder::new_current_thread(),
    };
    let runtime = match runtime.enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return Failure::failed(error).tell(),
    };
    match runtime.block_on(run(args)) {
        Ok(code) => ExitCode::from(code),
        Err(failure) => failure.tell(),
    }
}

async fn run(args: Args) -> Result<u8, Failure> {
    match args.command {
        Command::Plan(plan) => plan::run(&args.connection, &plan).await,
        Command::Migrate(migrate) => migrate::run(&args.connection, &migrate).await,
        Command::Controller(controller) => controller::run(&args.connection, &controller).await,
        Command::Apiserver(apiserver) => apiserver::run(&apiserver).await,
        Command::Install(install) => install::run(&args.connection, &install).await,
        Command::Uninstall(uninstall) => uninstall::run(&args.connection, &uninstall).await,
        Command::Init(init) => stoppable(init::run(&args.connection, &init)).await,
        Command::Status(status) => stoppable(status::run(&args.connection, &status)).await,
        Command::Suspend(flags) => stoppable(steer::run(&args.connection, Act::Suspend, &flags.steer)).await,
        Command::Resume(flags) => stoppable(steer::run(&args.connection, Act::Resume, &flags.steer)).await,
        Command::Retry(flags) => stoppable(steer::run(&args.connection, Act::Retry, &flags.steer)).await,
        Command::Cancel(cancel) => stoppable(cancel::run(&args.connection, &cancel)).await,
        Command::Demo(demo) => stoppable(demo::run(&demo)).await,
        Command::Version => {
            output::print(&format!("{}\n", args::version()));
            Ok(0)
        }
        Command::Complete { words } => {
            let found = complete::complete(&words).await;
            output::print(&found.iter().map(|word| format!("{word}\n")).collect::<String>());
            Ok(0)
        }
        Command::Completions { shell } => {
            let mut script = complete::script(shell).unwrap_or_default().as_bytes().to_vec();
            if script.is_empty() {
                clap_complete::generate(shell, &mut args::command(), "restow", &mut script);
            }
            output::print(&String::from_utf8_lossy(&script));
            Ok(0)
        }
    }
}
