//! The command line, as it is typed.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args as ClapArgs, CommandFactory as _, Parser, Subcommand, ValueEnum};
use restow_core::encryption::Demand;
use restow_core::pace::{Bounds, Preset};
use restow_migrate::migration::{ListMode, Settings};
use restow_migrate::rewrite::Manner;

use crate::controller::Controller;

const ABOUT: &str = "Rewrites what a Kubernetes cluster has stored, so that every object is kept in the version, \
and under the encryption key, that the API servers use now.

A rewrite is a patch that changes nothing: objects keep their content, and their data never reaches restow. \
A run starts only when all API servers agree on the storage version, and is done when a second pass found nothing \
left to rewrite.";

const EXIT_CODES: &str = "Exit codes:
  0  done and verified
  1  failed, or plan --needed, migrate --all or init could not look at everything
  2  wrong usage
  3  some objects were left (quarantined), or plan --needed found something
  4  unsafe: the API servers disagree, the version changed under the run, or the encryption key is not proven
  130  stopped by ctrl-C; --resume goes on";

#[derive(Parser)]
#[command(name = "restow", version, about = ABOUT, after_help = EXIT_CODES, max_term_width = 100)]
pub(crate) struct Args {
    #[command(subcommand)]
    pub(crate) command: Command,
    #[command(flatten)]
    pub(crate) connection: Connection,
    /// Say more on stderr; twice, for requests
    #[arg(short, long, global = true, action = clap::ArgAction::Count)]
    pub(crate) verbose: u8,
}

#[derive(Subcommand)]
pub(crate) enum Command {
    Demo(crate::demo::Demo),
    Plan(Plan),
    Migrate(Migrate),
    Status(crate::status::Status),
    Suspend(crate::steer::Suspend),
    Resume(crate::steer::Resume),
    Retry(crate::steer::Retry),
    Cancel(crate::cancel::Cancel),
    Init(crate::init::Init),
    Install(crate::install::Install),
    Uninstall(crate::uninstall::Uninstall),
    Controller(Controller),
    Apiserver(crate::apiserver::Apiserver),
    /// Print the version
    Version,
    /// Print what may stand in the last place of a command line
    #[command(name = "__complete", hide = true)]
    Complete {
        /// What was typed behind the program's name
        #[arg(last = true)]
        words: Vec<String>,
    },
    /// Print a completion script for a shell
    ///
    /// For kubectl restow, link or copy restow as kubectl_complete-restow on the PATH.
    Completions {
        /// The shell
        shell: clap_complete::Shell,
    },
}

/// Commands that reach no cluster, so that flags on how to do nothing there.
const LOCAL: [&str; 5] = ["demo", "apiserver", "version", "__complete", "completions"];

/// The command line, with flags listed just where they do something.
pub(crate) fn command() -> clap::Command {
    let mut command = Args::command();
    // Global flags are those of each command only then.
    command.build();
    let hide = |arg: clap::Arg| {
        let connects = arg.is_global_set() && arg.get_id() != "verbose";
        if connects { arg.hide(true) } else { arg }
    };
    LOCAL.into_iter().fold(command, |command, name| command.mut_subcommand(name, |one| one.mut_args(hide)))
}

/// The name and version of this program.
pub(crate) fn version() -> String {
    format!("restow {}", env!("CARGO_PKG_VERSION"))
}

/// How to reach the cluster, as in kubectl.
#[derive(ClapArgs)]
#[command(next_help_heading = "Connection")]
pub(crate) struct Connection {
    /// The kubeconfig file
    #[arg(long, global = true, value_name = "FILE")]
    pub(crate) kubeconfig: Option<PathBuf>,
    /// The context of the kubeconfig
    #[arg(long, global = true, value_name = "NAME")]
    pub(crate) context: Option<String>,
    /// The cluster of the kubeconfig
    #[arg(long, global = true, value_name = "NAME")]
    pub(crate) cluster: Option<String>,
    /// The user of the kubeconfig
    #[arg(long, global = true, value_name = "NAME")]
    pub(crate) user: Option<String>,
    /// The address of the API server, instead of the kubeconfig's
    #[arg(short, long, global = true, value_name = "URL")]
    pub(crate) server: Option<http::Uri>,
    /// Act as this user
    #[arg(long = "as", global = true, value_name = "USER")]
    pub(crate) as_user: Option<String>,
    /// Act as a member of this group (may be repeated)
    #[arg(long, global = true, value_name = "GROUP", requires = "as_user")]
    pub(crate) as_group: Vec<String>,
    /// A bearer token, instead of the kubeconfig's credentials
    #[arg(long, global = true, value_name = "TOKEN")]
    pub(crate) token: Option<String>,
    /// The certificates that sign the server's, instead of the kubeconfig's
    #[arg(long, global = true, value_name = "FILE", conflicts_with = "insecure_skip_tls_verify")]
    pub(crate) certificate_authority: Option<PathBuf>,
    /// Wait for an answer to one request no longer than this, up to 70s; 0 for no such limit [default: 0]
    #[arg(long, global = true, value_name = "DURATION", value_parser = request_timeout)]
    pub(crate) request_timeout: Option<Duration>,
    /// Do not verify the server's certificate
    #[arg(long, global = true)]
    pub(crate) insecure_skip_tls_verify: bool,
    /// An API server, asked directly whether it agrees; name every one (may be repeated)
    #[arg(long, global = true, value_name = "URL")]
    pub(crate) api_server: Vec<http::Uri>,
    /// Take your word that there is just one API server
    #[arg(long, global = true, conflicts_with = "api_server")]
    pub(crate) assume_single_server: bool,
    /// For managed clusters, whose API servers hide behind one address: watch that address for so long, up to 1h
    #[arg(long, global = true, value_name = "DURATION", value_parser = sampling,
          conflicts_with_all = ["api_server", "assume_single_server"])]
    pub(crate) sample_servers: Option<Duration>,
}

/// Show what is stored, whether it can and needs to be migrated, and what that would cost
#[derive(ClapArgs)]
#[command(after_help = "Examples:
  restow plan                            every resource
  restow plan --needed                   just what is to be migrated; for CI: exit code 3 if there is
                                         any, 1 if not everything could be looked at
  restow plan widgets.example.com        one
  restow plan secrets --dry-run-objects  send every write as a server-side dry run
  restow plan --needed -o name | while read -r name; do restow migrate \"$name\"; done

NEEDED is yes where a CRD's storedVersions name other versions than its storage version. It is maybe where nothing tells, \
as for built-in resources. A settled StorageState turns it into no while restow's controllers keep it up to date; so does a \
verified restow migrate, until an API server is restarted or takes up another encryption configuration.")]
pub(crate) struct Plan {
    /// Resources, such as secrets or widgets.example.com; all when none is named
    #[arg(value_name = "RESOURCE", value_delimiter = ',')]
    pub(crate) resources: Vec<String>,
    #[command(flatten)]
    pub(crate) scope: Scope,
    /// Send every write as a server-side dry run, and show what would be rejected
    #[arg(long)]
    pub(crate) dry_run_objects: bool,
    /// Leave out what cannot be migrated
    #[arg(long)]
    pub(crate) migratable: bool,
    /// Show just what needs to be migrated, or may; ends with exit code 3 if something does, and 1 if not everything
    /// could be looked at
    #[arg(long)]
    pub(crate) needed: bool,
    #[command(flatten)]
    pub(crate) pace: Pace,
    /// Where restow migrate keeps its progress, and what it has verified [default: $XDG_STATE_HOME/restow]
    #[arg(long, value_name = "DIR")]
    pub(crate) state_dir: Option<PathBuf>,
    /// Count events among what can be migrated
    #[arg(long)]
    pub(crate) include_events: bool,
    /// The form of the output; name lists just what can be migrated
    #[arg(short, long, value_enum, default_value_t = Output::Table)]
    pub(crate) output: Output,
}

/// Rewrite what is stored in an old version or under an old key, and verify it
#[derive(ClapArgs)]
#[command(after_help = "Examples:
  restow migrate widgets.example.com
  restow migrate secrets --encrypted secrets            after a key rotation
  restow migrate secrets configmaps --encrypted secrets,configmaps
  restow migrate widgets --prune-stored-versions        then v1beta1 can be dropped from the CRD
  restow migrate widgets --retry-quarantined            just those that were left
  restow migrate --all --resume                         go on after ctrl-C or a crash")]
pub(crate) struct Migrate {
    /// Resources, such as secrets or widgets.example.com
    #[arg(value_name = "RESOURCE", value_delimiter = ',', required_unless_present_any = ["all", "resume"])]
    pub(crate) resources: Vec<String>,
    #[command(flatten)]
    pub(crate) scope: Scope,
    /// Every resource that can be migrated
    #[arg(long, conflicts_with = "resources")]
    pub(crate) all: bool,
    /// Send every write as a server-side dry run: nothing is stored
    #[arg(long, conflicts_with_all = ["resume", "retry_quarantined", "prune_stored_versions"])]
    pub(crate) dry_run: bool,
    /// Go on where an unfinished run was stopped
    #[arg(long, conflicts_with = "retry_quarantined")]
    pub(crate) resume: bool,
    /// Try once more just those objects that the last run left
    #[arg(long, conflicts_with = "all")]
    pub(crate) retry_quarantined: bool,
    /// What proves the end: a full second pass, or nothing
    #[arg(long, value_enum, default_value_t = Verify::Full, value_name = "HOW")]
    pub(crate) verify: Verify,
    /// After a verified run, cut a CRD's status.storedVersions down to its storage version
    #[arg(long)]
    pub(crate) prune_stored_versions: bool,
    /// Move managedFields entries of versions that are no longer served to the storage version
    #[arg(long)]
    pub(crate) repair_managed_fields: bool,
    /// What your encryption configuration covers, such as secrets,configmaps or *.*, or none: these are verified only
    /// if every API server reports one configuration, and no other is checked [default: secrets, as far as reported]
    #[arg(long, value_delimiter = ',', value_name = "RESOURCE")]
    pub(crate) encrypted: Vec<String>,
    /// Rewrite events too, which resets how long they live
    #[arg(long)]
    pub(crate) include_events: bool,
    /// Stop after so long; --resume goes on
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    pub(crate) timeout: Option<Duration>,
    #[command(flatten)]
    pub(crate) pace: Pace,
    /// Where progress is kept [default: $XDG_STATE_HOME/restow]
    #[arg(long, value_name = "DIR")]
    pub(crate) state_dir: Option<PathBuf>,
    /// The form of the report
    #[arg(short, long, value_enum, default_value_t = ReportOutput::Table)]
    pub(crate) output: ReportOutput,
}

/// What kubectl's users try, and what does not apply: a migration is of all namespaces.
#[derive(ClapArgs)]
pub(crate) struct Scope {
    #[arg(short, long, hide = true, value_name = "NAME", value_parser = cluster_wide)]
    namespace: Option<String>,
    #[arg(short = 'A', long, hide = true, num_args = 0, default_missing_value = "all", value_parser = cluster_wide)]
    all_namespaces: Option<String>,
}

/// Refuses a namespace.
fn cluster_wide(_: &str) -> Result<String, String> {
    Err("migration is cluster-wide: an API server stores a resource in one version for all namespaces, so leave this \
         out"
        .to_owned())
}

/// How fast, and what is never exceeded.
#[derive(ClapArgs)]
#[command(next_help_heading = "Pace")]
pub(crate) struct Pace {
    /// gentle: hardly noticed, 8 writes a second; steady: the cluster's own traffic first; fast: all the servers give
    #[arg(long, value_enum, default_value_t = PaceName::Steady, value_name = "PACE")]
    pub(crate) pace: PaceName,
    /// At most so many writes under way
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(crate) max_in_flight: Option<u32>,
    /// At most so many writes a second
    #[arg(long, value_name = "N", value_parser = positive)]
    pub(crate) qps: Option<f64>,
    /// At most so many bytes a second, such as 500K or 10M
    #[arg(long, value_name = "BYTES", value_parser = bytes)]
    pub(crate) bandwidth: Option<f64>,
    /// Objects in a page: what is sent again at most after a crash [default: 500 when fast, else 100]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=10000))]
    page_size: Option<u32>,
    /// How to list: in chunks, as one stream, which needs the right to watch, or auto: streaming from 10,000 objects on
    #[arg(long, value_enum, default_value_t = List::Auto, value_name = "HOW")]
    pub(crate) list: List,
}

impl Pace {
    /// The bounds these flags mean.
    pub(crate) fn bounds(&self) -> Bounds {
        let bounds = self.preset().bounds();
        Bounds {
            max_in_flight: self.max_in_flight.unwrap_or(bounds.max_in_flight),
            qps: self.qps.or(bounds.qps),
            bandwidth: self.bandwidth.or(bounds.bandwidth),
            ..bounds
        }
    }

    /// How many objects a page has.
    pub(crate) fn page_size(&self) -> u32 {
        self.page_size.unwrap_or_else(|| self.preset().page_size())
    }

    /// How a migration at this pace is done, unless more is said: verified, every write stored.
    pub(crate) fn settings(&self) -> Settings {
        Settings {
            page_size: self.page_size(),
            list: match self.list {
                List::Chunked => ListMode::Chunked,
                List::Streaming => ListMode::Streaming,
                List::Auto => ListMode::Auto,
            },
            verify: true,
            manner: Manner::default(),
            encrypted: Demand::default(),
        }
    }

    pub(crate) fn preset(&self) -> Preset {
        match self.pace {
            PaceName::Gentle => Preset::Gentle,
            PaceName::Steady => Preset::Steady,
            PaceName::Fast => Preset::Fast,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum PaceName {
    Gentle,
    Steady,
    Fast,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Verify {
    Full,
    None,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum List {
    Chunked,
    Streaming,
    Auto,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Output {
    Table,
    Wide,
    Json,
    Yaml,
    Name,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum ReportOutput {
    Table,
    Json,
    Yaml,
}

/// Reads `90s`, `5m` or `1h30m`.
pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    let parsed: jiff::SignedDuration =
        text.parse().map_err(|_| "give a number and a unit, such as 90s, 5m or 1h30m".to_owned())?;
    Duration::try_from(parsed).map_err(|_| "a duration cannot be negative".to_owned())
}

/// Reads how long a request may take; a bare number is of seconds, and zero means no limit, as kubectl has it.
fn request_timeout(text: &str) -> Result<Duration, String> {
    match text.parse().map(Duration::from_secs).or_else(|_| duration(text))? {
        timeout if timeout <= Duration::from_secs(70) => Ok(timeout),
        _ => Err("API servers end a request after a minute: give 70s at most, or 0 for no limit".to_owned()),
    }
}

/// Reads how long an address is sampled: long enough to meet a server, and no longer than a look may take.
fn sampling(text: &str) -> Result<Duration, String> {
    match duration(text)? {
        period if period < Duration::from_secs(1) || period > Duration::from_secs(3600) => {
            Err("give a time between 1s and 1h".to_owned())
        }
        period => Ok(period),
    }
}

fn positive(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(number) if number > 0.0 && f64::is_finite(number) => Ok(number),
        _ => Err("give a number above zero".to_owned()),
    }
}

fn bytes(text: &str) -> Result<f64, String> {
    let upper = text.trim().trim_end_matches("/s").to_uppercase();
    let (number, factor) = [("K", 1e3), ("M", 1e6), ("G", 1e9), ("KI", 1024.0), ("MI", 1024.0 * 1024.0)]
        .into_iter()
        .find_map(|(unit, factor)| {
            let bare = upper.strip_suffix('B').unwrap_or(&upper);
            bare.strip_suffix(unit).map(|number| (number.trim().to_owned(), factor))
        })
        .unwrap_or_else(|| (upper.trim_end_matches('B').to_owned(), 1.0));
    match number.parse::<f64>() {
        Ok(number) if number > 0.0 && number.is_finite() => Ok(number * factor),
        _ => Err("give a number of bytes above zero, such as 500K, 10M or 1048576".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_sound() {
        command().debug_assert();
    }

    #[test]
    fn connection_flags_are_listed_only_where_they_do_something() {
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
        // Behind two spaces or a sign of the shell, it is no longer the command.
        let bare = |line: &str| {
            line.split("  ").next().and_then(|line| line.split(['>', '|']).next()).map(str::to_owned)
        };
        typed.filter_map(bare).collect()
    }

    #[test]
    fn examples_in_the_help_are_right() {
        let mut found = 0;
        for one in command().get_subcommands() {
            for example in examples(one) {
                let words = std::iter::once("restow").chain(example.split_whitespace());
                let parsed = Args::try_parse_from(words);
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
    fn namespaces_do_not_apply() {
        for words in
            ["plan -n default", "plan -A", "migrate secrets -n default", "migrate --all --all-namespaces"]
        {
            let words = std::iter::once("restow").chain(words.split(' '));
            let error = Args::try_parse_from(words).err().map(|error| error.to_string()).unwrap_or_default();
            assert!(error.contains("migration is cluster-wide"), "{error}");
        }
    }

    #[test]
    fn sizes_and_durations_are_read_or_refused() {
        for (text, expected) in [
            ("500K", Some(5e5)),
            ("10M", Some(1e7)),
            ("10MB/s", Some(1e7)),
            ("1Mi", Some(1_048_576.0)),
            ("1048576", Some(1_048_576.0)),
            ("0", None),
            ("-1K", None),
            ("fast", None),
            ("", None),
        ] {
            assert_eq!(bytes(text).ok(), expected, "{text}");
        }
        assert_eq!(duration("90s"), Ok(Duration::from_secs(90)));
        assert_eq!(duration("1h30m"), Ok(Duration::from_secs(5400)));
        assert!(duration("90").is_err() && duration("-5s").is_err() && duration("soon").is_err());
        for (text, expected) in
            [("60s", Some(60)), ("1h", Some(3600)), ("61m", None), ("0s", None), ("x", None)]
        {
            assert_eq!(sampling(text).ok(), expected.map(Duration::from_secs), "{text}");
        }
        for (text, expected) in [
            ("30", Some(30)),
            ("1m", Some(60)),
            ("2m", None),
            ("0", Some(0)),
            ("0s", Some(0)),
            ("soon", None),
        ] {
            assert_eq!(request_timeout(text).ok(), expected.map(Duration::from_secs), "{text}");
        }
        assert!(positive("0").is_err() && positive("nan").is_err() && positive("2.5").is_ok());
    }
}
