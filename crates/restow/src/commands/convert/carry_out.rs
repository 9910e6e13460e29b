//! `restow convert run`: carries out one Conversion in this process, for a terminal or a Job.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use kube::api::PostParams;
use kube::{Api, ResourceExt as _};
use restow_api::ConversionConditionType as Condition;
use restow_api::{Conversion, ConversionStatus, Reason, StorageVersionMigration};
use restow_clock::Instant;
use restow_controller::run::{self, Options};
use restow_controller::settings::{Backend, ControllerSettings, Controllers};
use restow_lease::election::{self, Election};
use restow_migrate::client::plain;
use restow_migrate::cluster::Cluster;
use tokio_util::sync::CancellationToken;

use super::files::read;
use crate::args::{Connection, Pace, ReportOutput, duration};
use crate::commands::controller::own_namespace;
use crate::commands::steer::retry_conversion;
use crate::connect::connect;
use crate::error::CliError;
use crate::output::{self, say};
use crate::render::text::{json, yaml};
use crate::signals::{STOPPED, stop_on_signals};

/// How often the Conversion is read.
const READ_EVERY: Duration = Duration::from_millis(500);
/// After how long without any progress the reason is explained.
const EXPLAIN_AFTER: Duration = Duration::from_secs(20);
/// How long the controllers have to look at a Conversion that waited for its source when they started.
const LOOK_AGAIN: Duration = Duration::from_secs(15);
/// How long the leader of another process may be silent.
const LEASE_DURATION: Duration = Duration::from_secs(15);

/// Carry out one Conversion in this process, and return when it has ended
#[derive(Args)]
#[command(
    after_help = "A Conversion moves a custom resource from one version to another: it checks that every object
survives, sets the storage version, rewrites and verifies all objects, and prunes storedVersions.
It can be interrupted and run again: it continues where it stopped.

If the controllers of this cluster lead (restow install --controllers ...,conversion), they carry it out,
and this command only waits. The exit code is 0 if it succeeded, 3 if objects were left, 4 if it was
refused, and 1 if it failed otherwise.

Examples:
  restow convert run -f conversion.yaml                   create it, or continue with it
  restow convert run widgets-to-v1 --timeout 30m          one that exists already
  restow convert run widgets-to-v1 --retry                one that has failed, once its cause is gone
  restow convert run -f conversion.yaml --pace fast -o json"
)]
pub(crate) struct Run {
    /// The name of a Conversion that exists
    #[arg(value_name = "NAME", required_unless_present = "filename", conflicts_with = "filename")]
    name: Option<String>,
    /// A file with a Conversion, as YAML or JSON, which is created unless it exists; - is stdin
    #[arg(short, long, value_name = "FILE")]
    filename: Option<PathBuf>,
    /// If it has failed, try it again
    #[arg(long)]
    retry: bool,
    /// How long to wait for its end; it can be continued later
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    timeout: Option<Duration>,
    /// The namespace of the Lease with which the controllers elect a leader [default: the pod's own, else restow-system]
    #[arg(long, value_name = "NAMESPACE")]
    leader_election_namespace: Option<String>,
    /// How to print the Conversion at its end
    #[arg(short, long, value_enum, value_name = "FORMAT", default_value_t = ReportOutput::Table)]
    output: ReportOutput,
    #[command(flatten)]
    pace: Pace,
}

/// Runs the command, and returns its exit code.
pub(super) async fn run(connection: &Connection, flags: &Run) -> Result<u8, CliError> {
    let cluster = connect(connection).await?;
    let client = cluster.server().client().clone();
    let api = Api::<Conversion>::all(client);
    let wanted: Option<Conversion> = flags.filename.as_deref().map(read).transpose()?;
    let object = match (&wanted, &flags.name) {
        (Some(wanted), _) => create(&api, wanted).await?,
        (None, name) => find(&api, name.as_deref().unwrap_or_default()).await?,
    };
    defined(&cluster).await?;
    let object = match flags.retry && object.is_finished() {
        true => retry_conversion(cluster.server(), &object).await?.unwrap_or(object),
        false => object,
    };
    let stop = stop_on_signals(flags.timeout).map_err(CliError::failed)?;
    let work = stop.child_token();
    let options = options(cluster, flags, &object).await;
    let follow = async {
        let ended = follow(&api, &object, &stop).await;
        work.cancel();
        ended
    };
    let (_, ended) = tokio::join!(run::run(options, work.clone()), follow);
    let Some(ended) = ended? else { return Ok(STOPPED) };
    Ok(show(&ended, flags.output))
}

/// Creates a Conversion, or finds the same one.
async fn create(api: &Api<Conversion>, wanted: &Conversion) -> Result<Conversion, CliError> {
    let name = wanted.name_any();
    if name.is_empty() {
        return Err(CliError::usage("the Conversion has no metadata.name"));
    }
    match api.create(&PostParams::default(), wanted).await {
        Ok(created) => {
            say!("{name}: created");
            Ok(created)
        }
        Err(kube::Error::Api(status)) if status.code == 409 => {
            let found = find(api, &name).await?;
            let spec =
                |object: &Conversion| restow_api::ConversionSpec { suspend: None, ..object.spec.clone() };
            if spec(&found) == spec(wanted) {
                return Ok(found);
            }
            Err(CliError::usage(format!("another Conversion is called {name}, with another spec"))
                .hint("give it another name, or delete the other one"))
        }
        Err(error) => Err(refused(&format!("cannot create the Conversion {name}"), &error)),
    }
}

async fn find(api: &Api<Conversion>, name: &str) -> Result<Conversion, CliError> {
    match api.get_opt(name).await {
        Ok(Some(found)) => Ok(found),
        Ok(None) => Err(CliError::usage(format!("there is no Conversion {name}"))
            .hint("to see all, run: kubectl get conversions; if there is no such resource: restow install --crds --apply")),
        Err(error) => Err(refused(&format!("cannot read the Conversion {name}"), &error)),
    }
}

fn refused(what: &str, error: &kube::Error) -> CliError {
    let failed = CliError::failed(format!("{what}: {}", plain(error)));
    match error {
        kube::Error::Api(status) if status.code == 404 => {
            failed.hint("to install the definitions, run: restow install --crds --apply")
        }
        _ => failed,
    }
}

/// Fails unless migrations can be listed: the controllers would wait for their definition.
async fn defined(cluster: &Cluster) -> Result<(), CliError> {
    let api = Api::<StorageVersionMigration>::all(cluster.server().client().clone());
    let listed = api.list_metadata(&kube::api::ListParams::default().limit(1)).await;
    listed.map(drop).map_err(|error| refused("cannot list migrations", &error))
}

/// The controllers that this Conversion needs, for nothing but it.
async fn options(cluster: Cluster, flags: &Run, object: &Conversion) -> Options {
    let identity = election::identity();
    let client = cluster.server().client().clone();
    let namespace = flags.leader_election_namespace.clone().unwrap_or_else(own_namespace);
    let namespaces = Api::<k8s_openapi::api::core::v1::Namespace>::all(client.clone());
    // Without the namespace there is no Lease, and so no other process that leads.
    let exists = !matches!(namespaces.get_opt(&namespace).await, Ok(None));
    let election = exists.then(|| Election {
        client,
        namespace,
        name: restow_api::MANAGER.to_owned(),
        identity: identity.clone(),
        duration: LEASE_DURATION,
        renew_every: LEASE_DURATION / 3,
    });
    Options {
        cluster,
        controllers: Controllers {
            migrator: true,
            trigger: false,
            encryption: false,
            pruner: false,
            conversion: true,
        },
        settings: ControllerSettings {
            migration: flags.pace.settings(),
            concurrent_migrations: 1,
            poll: Duration::from_secs(600),
            resources: None,
            encryption_resources: Some(Vec::new()),
            backend: Backend::Restow,
            adopt: false,
            only_conversion: Some(object.name_any()),
        },
        bounds: flags.pace.bounds(),
        identity,
        election,
        listener: None,
    }
}

/// Reports what is done, until it has ended; none if this command was stopped before.
async fn follow(
    api: &Api<Conversion>,
    object: &Conversion,
    stop: &CancellationToken,
) -> Result<Option<Conversion>, CliError> {
    let (name, began) = (object.name_any(), Instant::now());
    let (mut said, mut explained) = (String::new(), false);
    let mut left = source_change(object);
    loop {
        match api.get_opt(&name).await {
            Ok(Some(now)) if now.metadata.uid == object.metadata.uid => {
                let awaits = source_change(&now);
                // What an earlier run has left may not be true any more.
                let is_fresh = awaits != left || began.elapsed() > LOOK_AGAIN;
                if now.is_finished() || (awaits.is_some() && is_fresh) {
                    return Ok(Some(now));
                }
                if awaits.is_none() {
                    left = None;
                }
                let line = now.status.as_ref().map(line).unwrap_or_default();
                if line != said && !line.is_empty() {
                    say!("{name}: {line}");
                    said = line;
                } else if said.is_empty() && !explained && began.elapsed() > EXPLAIN_AFTER {
                    explained = true;
                    say!(
                        "{name}: waiting: another process leads, and has not begun with it; it must run the controller \
                         `conversion` (restow install --controllers ...,conversion)"
                    );
                }
            }
            Ok(_) => return Err(CliError::failed(format!("the Conversion {name} was deleted"))),
            // The controllers wait for the server, too.
            Err(error) => tracing::debug!(error = %plain(&error), "cannot read the Conversion; retrying"),
        }
        tokio::select! {
            () = stop.cancelled() => return Ok(None),
            () = tokio::time::sleep(READ_EVERY) => {}
        }
    }
}

/// The change in the source of a managed definition that it waits for, which this process cannot make.
fn source_change(object: &Conversion) -> Option<String> {
    let running = object.status.as_ref().and_then(|status| status.condition(Condition::Running));
    let waits = running.filter(|running| running.reason == Reason::DefinitionManaged.as_str());
    waits.map(|waits| waits.message.clone())
}

/// What a Conversion is doing, in a line.
fn line(status: &ConversionStatus) -> String {
    let running = status.condition(Condition::Running);
    let message = running.map(|running| running.message.clone()).unwrap_or_default();
    let phase = status.step.as_deref().or(status.phase.as_deref()).unwrap_or_default();
    let percent = status.progress.as_ref().and_then(|progress| progress.percent.clone());
    match (percent, &status.check) {
        (Some(percent), _) => format!("{phase}: {percent}"),
        (None, Some(check)) if !check.completed => format!("{phase}: {} objects", check.objects),
        _ if message.is_empty() => phase.to_owned(),
        _ => format!("{phase}: {message}"),
    }
}

/// Prints how a Conversion ended, and returns the exit code.
fn show(object: &Conversion, format: ReportOutput) -> u8 {
    let status = object.status.clone().unwrap_or_default();
    match format {
        ReportOutput::Json => output::print(&json(object)),
        ReportOutput::Yaml => output::print(&yaml(object)),
        ReportOutput::Table => output::print(&report(&object.name_any(), &status)),
    }
    exit_code(&status)
}

/// How a Conversion ended, as text.
fn report(name: &str, status: &ConversionStatus) -> String {
    let ended = [Condition::Succeeded, Condition::Failed].into_iter().find(|ended| status.is(*ended));
    let shown = ended.unwrap_or(Condition::Running);
    let message = status.condition(shown).map(|shown| shown.message.clone()).unwrap_or_default();
    let word = ended.map_or("Waiting", Condition::name);
    let mut text = format!("{name}: {word}: {message}\n");
    let place = |namespace: &str, name: &str| {
        if namespace.is_empty() { name.to_owned() } else { format!("{namespace}/{name}") }
    };
    for object in &status.refused {
        text.push_str(&format!("  {}: {}\n", place(&object.namespace, &object.name), object.message));
    }
    for object in &status.quarantined {
        text.push_str(&format!("  {}: {}\n", place(&object.namespace, &object.name), object.message));
    }
    text
}

/// The exit code for the end of a Conversion.
fn exit_code(status: &ConversionStatus) -> u8 {
    if status.is(Condition::Succeeded) {
        return 0;
    }
    let failed = status.condition(Condition::Failed).filter(|_| status.is(Condition::Failed));
    match failed.or(status.condition(Condition::Running)).and_then(|why| why.reason.parse().ok()) {
        Some(Reason::Quarantined) => 3,
        Some(
            Reason::ConversionRefused
            | Reason::ConvertingInPlace
            | Reason::DefinitionChanged
            | Reason::DefinitionManaged
            | Reason::DefinitionMissing
            | Reason::Disagreement
            | Reason::FieldsLost
            | Reason::InvalidSpec
            | Reason::StorageVersionChanged
            | Reason::Superseded
            | Reason::UnknownVersion
            | Reason::VersionNotServed
            | Reason::WebhookUnavailable,
        ) => 4,
        _ => 1,
    }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use restow_api::{ConversionCheck, RefusedObject};
    use restow_core::controller::condition::Stage;
    use restow_core::controller::conversion::{Work, end, report as running};

    use super::*;

    fn ended(stage: Stage, reason: Reason) -> ConversionStatus {
        let mut status = ConversionStatus::default();
        end(&mut status, stage, reason, "so it ended", Timestamp::UNIX_EPOCH);
        status
    }

    #[test]
    fn exit_codes_tell_a_refusal_from_a_failure() {
        for (stage, reason, expected) in [
            (Stage::Succeeded, Reason::Converted, 0),
            (Stage::Succeeded, Reason::Tried, 0),
            (Stage::Failed, Reason::Quarantined, 3),
            (Stage::Failed, Reason::FieldsLost, 4),
            (Stage::Failed, Reason::VersionNotServed, 4),
            (Stage::Failed, Reason::Superseded, 4),
            (Stage::Failed, Reason::Unverified, 1),
            (Stage::Failed, Reason::InvalidSpec, 4),
            (Stage::Waiting, Reason::DefinitionManaged, 4),
        ] {
            assert_eq!(exit_code(&ended(stage, reason)), expected, "{reason}");
        }
    }

    #[test]
    fn the_report_names_the_objects_that_would_not_survive() {
        let mut status = ended(Stage::Failed, Reason::FieldsLost);
        status.refused = vec![RefusedObject {
            namespace: "default".to_owned(),
            name: "w-1".to_owned(),
            message: "would lose spec.colour".to_owned(),
            ..RefusedObject::default()
        }];
        let expected = "x: Failed: so it ended\n  default/w-1: would lose spec.colour\n";
        assert_eq!(report("x", &status), expected);
    }

    #[test]
    fn a_line_says_what_is_being_done() {
        let mut status = ConversionStatus::default();
        running(&mut status, (Stage::Waiting, None), Reason::Queued, "waits", Timestamp::UNIX_EPOCH);
        assert_eq!(line(&status), "Waiting: waits");
        running(
            &mut status,
            (Stage::Running, Some(Work::Checking)),
            Reason::Checking,
            "",
            Timestamp::UNIX_EPOCH,
        );
        status.check = Some(ConversionCheck { objects: 40, ..ConversionCheck::default() });
        assert_eq!(line(&status), "Checking: 40 objects");
    }
}
