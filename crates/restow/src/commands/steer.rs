//! `restow suspend`, `resume` and `retry`: requests for migrations that a controller runs.

mod conversion;

use std::time::Duration;

pub(crate) use conversion::retry_conversion;

use clap::{Args as ClapArgs, ValueEnum};
use jiff::Timestamp;
use kube::ResourceExt as _;
use restow_api::{RETRY, StorageVersionMigration};
use restow_core::controller::condition::named_left;
use restow_core::controller::steering::{Effect, Request, effect, ended};
use restow_core::rewrite::progress::{End, exit_code};
use restow_migrate::client::Server;
use serde_json::{Value, json};

use crate::args::{Connection, Scope, duration};
use crate::connect::connect;
use crate::error::CliError;
use crate::objects::{WriteMode, find, patch, typed_name};
use crate::output::print;
use crate::output::say;
use crate::program::program;
use crate::render::migration::MigrationSummary;
use crate::render::text::{count, counted};
use crate::signals::{STOPPED, in_time};
use crate::watch;

/// How often a write is retried after conflicts.
const TRIES: u32 = 10;

/// Suspend migrations; they stop within a page and keep their progress
#[derive(ClapArgs)]
#[command(after_help = "restow resume continues a suspended migration where it stopped.

Examples:
  restow suspend widgets.example.com-x7k2p
  restow suspend secrets-4jq9d --wait --timeout 1m     return once it has stopped")]
pub(crate) struct Suspend {
    #[command(flatten)]
    pub(crate) steer: Steer,
}

/// Continue suspended migrations where they stopped
#[derive(ClapArgs)]
#[command(after_help = "Examples:
  restow resume widgets.example.com-x7k2p
  restow resume secrets-4jq9d --wait                   return once it is running")]
pub(crate) struct Resume {
    #[command(flatten)]
    pub(crate) steer: Steer,
}

/// Retry failed migrations and Conversions
#[derive(ClapArgs)]
#[command(
    after_help = "Only what has failed can be retried. If the status of a migration lists all quarantined objects, only those \
    are retried; otherwise all objects of the resource are. A Conversion begins again with its check.

With --wait, the exit code is 0 if it succeeded, 3 if objects were quarantined again, and 1 if it failed otherwise.

Examples:
  restow status widgets.example.com                    which objects were quarantined, and why
  restow retry widgets.example.com-x7k2p
  restow retry widgets.example.com-x7k2p --wait --timeout 10m
  restow retry widgets-to-v1                           a Conversion, once the cause of its failure is gone"
)]
pub(crate) struct Retry {
    #[command(flatten)]
    pub(crate) steer: Steer,
}

/// The flags of all these commands.
#[derive(ClapArgs)]
pub(crate) struct Steer {
    /// Migrations, by the names that restow status shows
    #[arg(value_name = "NAME", required = true)]
    pub(crate) names: Vec<String>,
    #[command(flatten)]
    scope: Scope,
    /// Send every write as a server-side dry run: nothing is stored
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Wait until it has taken effect
    #[arg(long, conflicts_with = "dry_run")]
    pub(crate) wait: bool,
    /// How long to wait; the request is carried out even if this time is over
    #[arg(long, value_name = "DURATION", value_parser = duration, requires = "wait")]
    pub(crate) timeout: Option<Duration>,
    /// Print only the names
    #[arg(short, long, value_enum, value_name = "FORM")]
    pub(crate) output: Option<NameOutput>,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum NameOutput {
    Name,
}

impl Steer {
    /// Prints the result for a migration, or only its name if that was requested.
    pub(crate) fn say(&self, name: &str, what: &str) {
        let dry = if self.dry_run { " (dry run)" } else { "" };
        match self.output {
            Some(NameOutput::Name) => print(&format!("{}\n", typed_name::<StorageVersionMigration>(name))),
            None => print(&format!("{name}: {what}{dry}\n")),
        }
    }
}

/// What to do about a migration.
#[derive(Debug, PartialEq)]
enum Step {
    /// Write it, and print this.
    Write(Value, String),
    /// It is so already.
    Nothing(String),
    /// Refuse, with this error.
    Refuse(String),
}

/// What to write to a migration, given its state.
fn decide(act: Request, migration: &StorageVersionMigration, now: Timestamp) -> Step {
    let standing = MigrationSummary::of(migration, now);
    let far = standing.far().map(|far| format!(" at {far}")).unwrap_or_default();
    match effect(act, migration) {
        Effect::Finished(stage) => Step::Nothing(format!("has already {}", stage.name().to_lowercase())),
        Effect::AlreadySuspended => Step::Nothing("is already suspended".to_owned()),
        Effect::NotSuspended => Step::Nothing("is not suspended".to_owned()),
        Effect::RetryPending => Step::Nothing("a retry was already requested".to_owned()),
        Effect::NothingToRetry => Step::Refuse("has succeeded: there is nothing to retry".to_owned()),
        Effect::NotFailed(phase) => {
            Step::Refuse(format!("is {}: only a failed migration can be retried", phase.name()))
        }
        Effect::Change => match act {
            Request::Suspend => Step::Write(json!({"spec": {"suspend": true}}), format!("suspended{far}")),
            Request::Resume => Step::Write(json!({"spec": {"suspend": false}}), format!("resumed{far}")),
            Request::Retry => Step::Write(
                json!({"metadata": {"annotations": {RETRY: now.to_string()}}}),
                retried(migration, standing.quarantined),
            ),
        },
    }
}

/// Describes what will be retried.
fn retried(migration: &StorageVersionMigration, left: u64) -> String {
    let named = migration.status.as_ref().and_then(|status| named_left(status, left));
    let mut text = match named.map(|named| named.len()) {
        _ if left == 0 => "will be retried".to_owned(),
        Some(1) => "retrying 1 quarantined object".to_owned(),
        Some(_) => format!("retrying {}", counted(left, "quarantined object")),
        None => {
            format!("retrying all objects: the status does not list all {} quarantined ones", count(left))
        }
    };
    if migration.is_suspended() {
        text.push_str(&format!(", after {} resume", program()));
    }
    text
}

/// Applies a request to the named migrations.
pub(crate) async fn run(connection: &Connection, act: Request, steer: &Steer) -> Result<u8, CliError> {
    let cluster = connect(connection).await?;
    let server = cluster.server();
    let (names, conversions) = match act {
        Request::Retry => conversion::among(server, &steer.names).await?,
        Request::Suspend | Request::Resume => (steer.names.clone(), Vec::new()),
    };
    let found = if names.is_empty() { Vec::new() } else { find(server, &names).await? };
    // Nothing is written unless the request can be applied to all of them.
    for migration in &found {
        if let Step::Refuse(why) = decide(act, migration, restow_clock::now()) {
            return Err(refusal(migration, &why));
        }
    }
    conversion::check(&conversions)?;
    let mut changed = Vec::new();
    for migration in found {
        changed.push(change(server, act, migration, steer).await?);
    }
    let (mode, only_names) = (WriteMode::unless(steer.dry_run), steer.output.is_some());
    let conversions = conversion::retry_all(server, conversions, mode, only_names).await?;
    if !steer.wait {
        return Ok(0);
    }
    let all = async {
        let mut ends = Vec::new();
        for before in &changed {
            ends.push(until_done(server, act, before, steer).await?);
        }
        for object in &conversions {
            let (end, line) = conversion::until_done(server, object).await?;
            if !only_names {
                print(&format!("{line}\n"));
            }
            ends.push(end);
        }
        Ok(exit_code(ends))
    };
    in_time(steer.timeout, all).await.unwrap_or_else(|| Ok(out_of_time()))
}

/// Prints that the wait timed out, and returns the exit code.
pub(crate) fn out_of_time() -> u8 {
    say!("timed out; the request was sent and is still being carried out");
    STOPPED
}

fn refusal(migration: &StorageVersionMigration, why: &str) -> CliError {
    let name = migration.name_any();
    CliError::usage(format!("{name} {why}"))
        .hint(format!("to see its state, run: {} status {name}", program()))
}

/// Writes the change; after a conflict, it is decided again.
async fn change(
    server: &Server,
    act: Request,
    mut migration: StorageVersionMigration,
    steer: &Steer,
) -> Result<StorageVersionMigration, CliError> {
    let name = migration.name_any();
    for _ in 0..TRIES {
        match decide(act, &migration, restow_clock::now()) {
            Step::Write(body, what) => {
                if let Some(changed) =
                    patch(server, &migration, body, WriteMode::unless(steer.dry_run)).await?
                {
                    steer.say(&name, &what);
                    return Ok(changed);
                }
            }
            Step::Nothing(what) => {
                steer.say(&name, &what);
                return Ok(migration);
            }
            Step::Refuse(why) => return Err(refusal(&migration, &why)),
        }
        let again = find(server, std::slice::from_ref(&name)).await?;
        migration = again.into_iter().next().unwrap_or(migration);
    }
    Err(CliError::failed(format!("others keep changing {name}; try again")))
}

/// Waits until the controller has carried out the request.
async fn until_done(
    server: &Server,
    act: Request,
    before: &StorageVersionMigration,
    steer: &Steer,
) -> Result<End, CliError> {
    let name = before.name_any();
    let mut begun = false;
    let ask = |now: Option<&StorageVersionMigration>| {
        let Some(now) = now.filter(|now| now.uid() == before.uid()) else {
            return Some((End::Failed, format!("{name}: deleted meanwhile")));
        };
        let end = ended(act, before, now, &mut begun)?;
        Some((end, MigrationSummary::of(now, restow_clock::now()).line()))
    };
    let (end, line) = watch::until(server, &name, ask).await?;
    if steer.output.is_none() {
        print(&format!("{line}\n"));
    }
    Ok(end)
}

#[cfg(test)]
mod tests {
    use restow_api::{MigrationProgress, QuarantinedObject};
    use restow_core::controller::condition::{self, Stage};

    use restow_api::Reason;

    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn migration(
        stage: Stage,
        second: i64,
        suspend: bool,
        retry: bool,
        left: u64,
    ) -> StorageVersionMigration {
        let mut migration = StorageVersionMigration::default();
        migration.metadata.name = Some("mine".to_owned());
        migration.spec.suspend = suspend.then_some(true);
        if retry {
            migration.annotations_mut().insert(RETRY.to_owned(), String::new());
        }
        let status = migration.status.get_or_insert_default();
        condition::set(status, stage, Reason::Started, "", at(second));
        let percent = Some("50%".to_owned());
        status.progress = Some(MigrationProgress {
            rewritten: 10 - left,
            quarantined: left,
            remaining: Some(10),
            percent,
            ..MigrationProgress::default()
        });
        status.quarantined = vec![QuarantinedObject::default(); usize::try_from(left.min(2)).unwrap()];
        migration
    }

    #[test]
    fn requests_are_written_only_if_the_phase_allows_them() {
        use Stage::{Failed, Running, Succeeded, Suspended, Waiting};
        for (act, stage, suspend, retry, left, expected) in [
            (Request::Suspend, Running, false, false, 0, "suspended at 50%, 10/20"),
            (Request::Suspend, Waiting, false, false, 0, "suspended at 50%, 10/20"),
            (Request::Suspend, Running, true, false, 0, "-is already suspended"),
            (Request::Suspend, Failed, false, false, 0, "-has already failed"),
            (Request::Resume, Suspended, true, false, 0, "resumed at 50%, 10/20"),
            (Request::Resume, Running, false, false, 0, "-is not suspended"),
            (Request::Retry, Failed, false, false, 1, "retrying 1 quarantined object"),
            (Request::Retry, Failed, false, false, 2, "retrying 2 quarantined objects"),
            (
                Request::Retry,
                Failed,
                false,
                false,
                3,
                "retrying all objects: the status does not list all 3 quarantined ones",
            ),
            (Request::Retry, Failed, false, false, 0, "will be retried"),
            (Request::Retry, Failed, true, false, 0, "will be retried, after restow resume"),
            (Request::Retry, Failed, false, true, 0, "-a retry was already requested"),
            (Request::Retry, Running, false, false, 0, "!is Running: only a failed migration can be retried"),
            (Request::Retry, Succeeded, false, false, 0, "!has succeeded: there is nothing to retry"),
        ] {
            let said = match decide(act, &migration(stage, 0, suspend, retry, left), at(1)) {
                Step::Write(_, said) => said,
                Step::Nothing(said) => format!("-{said}"),
                Step::Refuse(said) => format!("!{said}"),
            };
            assert_eq!(said, expected, "{act:?} {stage:?}");
        }
    }
}
