//! The whole command line: it is parsed here, and each command is called from here.

use std::process::ExitCode;

use clap::{CommandFactory as _, FromArgMatches as _, Parser, Subcommand};
use tokio::runtime::{Builder, Runtime};

use restow_core::controller::steering::Request;

use crate::args::Connection;
use crate::commands::apiserver::Apiserver;
use crate::commands::audit::Audit;
use crate::commands::cancel::Cancel;
use crate::commands::controller::Controller;
use crate::commands::convert::Convert;
use crate::commands::demo::Demo;
use crate::commands::init::Init;
use crate::commands::install::flags::Install;
use crate::commands::migrate::flags::Migrate;
use crate::commands::plan::Plan;
use crate::commands::retire::flags::Retire;
use crate::commands::status::Status;
use crate::commands::steer::{Resume, Retry, Suspend};
use crate::commands::uninstall::Uninstall;
use crate::commands::webhook::Webhook;
use crate::commands::{
    apiserver, audit, cancel, complete, controller, convert, demo, init, install, migrate, plan, retire,
    status, steer, uninstall, webhook,
};
use crate::error::CliError;
use crate::program::{program, version};
use crate::signals::stoppable;
use crate::{logging, output};

const ABOUT: &str = "Rewrites stored Kubernetes objects, so that every object is stored in the version, and under \
the encryption key, that the API servers use now.

To rewrite an object, restow sends a patch that changes nothing. Objects keep their content, and restow never \
reads it. A run starts only when all API servers agree on the storage version. It is done when a second pass \
finds nothing left to rewrite.";

const EXIT_CODES: &str = "Exit codes:
  0  done and verified
  1  failed, or plan --needed, migrate --all or init could not check everything
  2  wrong usage
  3  some objects were quarantined, plan --needed found a resource to migrate, or audit cannot decode a value
  4  unsafe: the API servers disagree, the storage version changed during the run, the encryption key is not proven, or audit found stale objects
  130  stopped by ctrl-C; continue with --resume";

#[derive(Parser)]
#[command(name = "restow", version, about = ABOUT, after_help = EXIT_CODES, max_term_width = 100)]
pub(crate) struct Cli {
    #[command(subcommand)]
    command: Command,
    #[command(flatten)]
    connection: Connection,
    /// Log more to stderr; give it twice to log requests too
    #[arg(short, long, global = true, action = clap::ArgAction::Count)]
    verbose: u8,
}

#[derive(Subcommand)]
enum Command {
    Demo(Demo),
    Plan(Plan),
    Migrate(Migrate),
    Retire(Retire),
    Audit(Audit),
    Status(Status),
    Suspend(Suspend),
    Resume(Resume),
    Retry(Retry),
    Cancel(Cancel),
    Init(Init),
    Install(Install),
    Uninstall(Uninstall),
    Controller(Controller),
    Convert(Convert),
    Webhook(Webhook),
    Apiserver(Apiserver),
    /// Print the version
    Version,
    /// Print the words that complete a command line
    #[command(name = "__complete", hide = true)]
    Complete {
        /// The words after the program's name
        #[arg(last = true)]
        words: Vec<String>,
    },
    /// Print a completion script for a shell
    ///
    /// For kubectl restow, link or copy restow to kubectl_complete-restow on the PATH.
    Completions {
        /// The shell
        shell: clap_complete::Shell,
    },
}

/// Commands that connect to no cluster: connection flags do nothing there.
const LOCAL: [&str; 5] = ["demo", "apiserver", "version", "__complete", "completions"];
/// Subcommands of `convert` that connect to no cluster.
const LOCAL_CONVERT: [&str; 2] = ["suggest", "test"];

/// The command line, where help lists a flag only if the command uses it.
fn command() -> clap::Command {
    let mut command = Cli::command();
    // Only a built command has the global flags in each of its subcommands.
    command.build();
    let command = LOCAL_CONVERT.into_iter().fold(command, |command, name| {
        command.mut_subcommand("convert", |convert| convert.mut_subcommand(name, hide_connection))
    });
    LOCAL.into_iter().fold(command, |command, name| command.mut_subcommand(name, hide_connection))
}

/// Hides the connection flags of a command and its subcommands.
fn hide_connection(command: clap::Command) -> clap::Command {
    let hide = |arg: clap::Arg| {
        let connects = arg.is_global_set() && arg.get_id() != "verbose";
        if connects { arg.hide(true) } else { arg }
    };
    command.mut_args(hide).mut_subcommands(hide_connection)
}

/// Prints what kubectl asks for when it completes a command line of `kubectl restow`.
pub(crate) fn complete_for_kubectl(words: &[String]) -> ExitCode {
    let runtime = Builder::new_current_thread().enable_all().build();
    let found = runtime.map(|runtime| runtime.block_on(complete::complete(&command(), words)));
    // The last line tells kubectl not to complete file names.
    let lines = found.unwrap_or_default().into_iter().map(|word| word + "\n").chain([":4\n".to_owned()]);
    output::print(&lines.collect::<String>());
    ExitCode::SUCCESS
}

impl Cli {
    /// Parses the command line. Help, the version and incorrect usage end the program.
    pub(crate) fn parse() -> Self {
        let matches = command().bin_name(program()).try_get_matches();
        match matches.and_then(|matches| Self::from_arg_matches(&matches)) {
            Ok(cli) => cli,
            Err(error) => error.exit(),
        }
    }

    /// Sets up logging. Servers log what they do; other commands log only with `--verbose`.
    pub(crate) fn set_up_logging(&self) {
        match &self.command {
            Command::Controller(controller) => logging::of_server(self.verbose, controller.log_format()),
            Command::Apiserver(apiserver) => logging::of_server(self.verbose, apiserver.log_format()),
            Command::Webhook(webhook) if webhook.is_server() => {
                logging::of_server(self.verbose, webhook.log_format())
            }
            _ => logging::of_command(self.verbose),
        }
    }

    /// A server uses all cores. A command that only sends requests needs one thread.
    pub(crate) fn runtime(&self) -> Result<Runtime, CliError> {
        let mut builder = match self.command {
            Command::Apiserver(_) | Command::Webhook(_) => Builder::new_multi_thread(),
            _ => Builder::new_current_thread(),
        };
        builder.enable_all().build().map_err(CliError::failed)
    }

    /// Runs the command, and returns its exit code.
    pub(crate) async fn run(self) -> Result<u8, CliError> {
        let connection = &self.connection;
        match self.command {
            Command::Plan(flags) => plan::run(connection, &flags).await,
            Command::Migrate(flags) => migrate::run(connection, &flags).await,
            Command::Retire(flags) => retire::run(connection, &flags).await,
            // It writes nothing, so a signal may end it anywhere.
            Command::Audit(flags) => audit::run(connection, &flags).await,
            Command::Controller(flags) => controller::run(connection, &flags).await,
            Command::Apiserver(flags) => apiserver::run(&flags).await,
            // It stops within a page, and releases the Lease.
            Command::Convert(flags) if flags.handles_signals() => convert::run(connection, &flags).await,
            Command::Convert(flags) => stoppable(convert::run(connection, &flags)).await,
            Command::Webhook(flags) if flags.is_server() => webhook::run(connection, &flags).await,
            Command::Webhook(flags) => stoppable(webhook::run(connection, &flags)).await,
            Command::Install(flags) => install::run(connection, &flags).await,
            Command::Uninstall(flags) => uninstall::run(connection, &flags).await,
            Command::Init(flags) => stoppable(init::run(connection, &flags)).await,
            Command::Status(flags) => stoppable(status::run(connection, &flags)).await,
            Command::Suspend(flags) => {
                stoppable(steer::run(connection, Request::Suspend, &flags.steer)).await
            }
            Command::Resume(flags) => stoppable(steer::run(connection, Request::Resume, &flags.steer)).await,
            Command::Retry(flags) => stoppable(steer::run(connection, Request::Retry, &flags.steer)).await,
            Command::Cancel(flags) => stoppable(cancel::run(connection, &flags)).await,
            Command::Demo(flags) => stoppable(demo::run(&flags)).await,
            Command::Version => {
                output::print(&format!("{}\n", version()));
                Ok(0)
            }
            Command::Complete { words } => {
                let found = complete::complete(&command(), &words).await;
                output::print(&found.into_iter().map(|word| word + "\n").collect::<String>());
                Ok(0)
            }
            Command::Completions { shell } => {
                output::print(&complete::script(shell, &mut command()));
                Ok(0)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_passes_claps_checks() {
        command().debug_assert();
    }

    #[test]
    fn help_lists_connection_flags_only_for_commands_that_connect() {
        for one in command().get_subcommands_mut().filter(|one| one.get_name() != "help") {
            let name = one.get_name().to_owned();
            let help = one.render_long_help().to_string();
            assert_eq!(help.contains("--kubeconfig"), !LOCAL.contains(&name.as_str()), "{name}: {help}");
        }
    }

    /// Every command of the examples in the help.
    fn examples(command: &clap::Command) -> Vec<String> {
        let help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
        let typed = help.lines().filter_map(|line| line.trim().strip_prefix("restow "));
        // After two spaces or a shell operator, the command ends.
        let bare = |line: &str| {
            line.split("  ").next().and_then(|line| line.split(['>', '|']).next()).map(str::to_owned)
        };
        typed.filter_map(bare).collect()
    }

    #[test]
    fn examples_in_the_help_parse() {
        let mut found = 0;
        for one in command().get_subcommands() {
            for example in examples(one) {
                let words = std::iter::once("restow").chain(example.split_whitespace());
                let parsed = Cli::try_parse_from(words);
                assert!(
                    parsed.is_ok(),
                    "{example}: {}",
                    parsed.err().map(|error| error.to_string()).unwrap_or_default()
                );
                found += 1;
            }
        }
        assert!(found > 20, "{found}");
    }

    #[test]
    fn namespace_flags_are_refused() {
        for words in [
            "plan -n default",
            "plan -A",
            "migrate secrets -n default",
            "migrate --all --all-namespaces",
            "status -n default",
            "status -A",
            "init --namespace default",
            "retry x -n default",
            "suspend x -A",
            "resume -n default x",
            "cancel x --namespace=default",
            "retire x v1 -n default",
        ] {
            let words = std::iter::once("restow").chain(words.split(' '));
            let error = Cli::try_parse_from(words).err().map(|error| error.to_string()).unwrap_or_default();
            assert!(error.contains("migration is cluster-wide"), "{error}");
        }
    }

    #[test]
    fn completion_offers_what_can_come_next() {
        let root = command();
        let of =
            |typed: &str| complete::next(&root, &typed.split(' ').map(str::to_owned).collect::<Vec<_>>());
        for typed in
            ["migrate ", "migrate --pace fast wid", "--context lab plan se", "init -o json s", "install "]
        {
            assert_eq!(of(typed), complete::Next::Resources, "{typed}");
        }
        for typed in ["status ", "cancel a b", "retry --kubeconfig f wid"] {
            assert_eq!(of(typed), complete::Next::Migrations, "{typed}");
        }
        let words = |typed: &str| match of(typed) {
            complete::Next::Words(words) => words,
            other => panic!("{typed}: {other:?}"),
        };
        assert_eq!(words("migrate --pace "), ["gentle", "steady", "fast"]);
        assert_eq!(words("plan -o j"), ["table", "wide", "json", "yaml", "name"]);
        assert!(words("completions ").contains(&"zsh".to_owned()));
        assert!(words("").contains(&"migrate".to_owned()) && words("m").contains(&"plan".to_owned()));
        assert!(!words("").iter().any(|word| word.starts_with('_')), "hidden commands stay hidden");
        assert!(words("migrate --pr").contains(&"--prune-stored-versions".to_owned()));
        assert!(words("demo --").iter().all(|flag| flag != "--kubeconfig"));
        assert!(words("plan --kubeconfig ").is_empty(), "the shell completes files");
    }

    #[test]
    fn help_is_as_reviewed() {
        let mut root = command().bin_name("restow").term_width(100);
        // Building again passes the width to the subcommands.
        root.build();
        crate::snapshots::check("help/restow", &root.render_long_help().to_string());
        for one in root.get_subcommands_mut().filter(|one| one.get_name() != "help") {
            let help = one.clone().term_width(100).render_long_help().to_string();
            crate::snapshots::check(&format!("help/{}", one.get_name()), &help);
            let name = one.get_name().to_owned();
            for below in one.get_subcommands_mut().filter(|one| one.get_name() != "help") {
                let help = below.clone().term_width(100).render_long_help().to_string();
                crate::snapshots::check(&format!("help/{name}-{}", below.get_name()), &help);
            }
        }
    }

    #[test]
    fn completion_scripts_are_as_reviewed() {
        use clap_complete::Shell;
        for shell in [Shell::Bash, Shell::Fish, Shell::Zsh] {
            crate::snapshots::check(
                &format!("completions/{shell}"),
                &complete::script(shell, &mut command()),
            );
        }
    }
}
