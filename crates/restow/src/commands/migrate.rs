//! `restow migrate`: rewrites resources, one after the other.

mod choice;
pub(crate) mod dry_run;
mod explain;
pub(crate) mod flags;
mod rerun;
mod run;

use restow_core::resource::inventory::Resource;
use restow_core::rewrite::progress::{End, exit_code};
use restow_lease::Stop;
use restow_migrate::client::Throttle;
use restow_migrate::cluster::Cluster;
use restow_migrate::migration::MigrationSettings;
use restow_migrate::rewrite::WriteOptions;

use crate::args::{Connection, ReportOutput};
use crate::connect::{connect, unanswered};
use crate::error::CliError;
use crate::output::{self, say};
use crate::render::report::{Report, ResourceReport, summary};
use crate::render::table::width;
use crate::render::text::{json, yaml};
use crate::resources;
use crate::signals::stop_on_signals;
use crate::state_dir::{Saved, StateDir};
use choice::{Chosen, choose, unavailable};
use flags::{Migrate, Verify};
use run::Run;

pub(crate) async fn run(connection: &Connection, flags: &Migrate) -> Result<u8, CliError> {
    let ended = migrate(connection, flags).await;
    if let Err(failure) = &ended {
        // A script that requested a document gets one, however early the run failed.
        write(&Report { error: Some(failure.to_string()), ..Report::default() }, connection, flags);
    }
    ended
}

async fn migrate(connection: &Connection, flags: &Migrate) -> Result<u8, CliError> {
    let cluster = connect(connection).await?;
    let inventory = match cluster.inventory(flags.include_events).await {
        Ok(inventory) => inventory,
        Err(error) => return Err(unanswered(&cluster, error).await),
    };
    let dir = StateDir::open(flags.state_dir.as_deref(), &cluster.identity().await)?;
    let encrypted = resources::encrypted(&inventory, &flags.encrypted)?;
    let Chosen { resources: chosen, lost } = choose(flags, &inventory, &dir)?;
    resources::migratable(&chosen)?;
    resources::permitted(&cluster, &chosen, flags.prune_stored_versions).await?;
    let run = Run {
        id: format!("{:016x}", restow_clock::random()),
        cluster: &cluster,
        flags,
        settings: settings(flags),
        encrypted,
        throttle: Throttle::new(flags.pace.bounds()),
        stop: stop_on_signals(flags.timeout).map_err(CliError::failed)?.into(),
    };
    let unavailable = if flags.all { unavailable(&inventory) } else { Vec::new() };
    let mut report = Report { unavailable, resources: lost, ..Report::default() };
    if flags.dry_run {
        for resource in chosen {
            report.resources.push(run.rehearse(resource).await);
        }
    } else {
        // All states are locked and saved before the first write; each lock is an open file.
        raise_open_files();
        let mut states = Vec::new();
        for resource in &chosen {
            states.push(dir.resource(&resource.name, cluster.server().name())?);
        }
        let earlier = run.earlier(&mut states)?;
        let resumed = run.resumed(&earlier);
        let mut opened = Vec::new();
        for ((resource, state), earlier) in chosen.into_iter().zip(states).zip(earlier) {
            opened.push((resource, run.open(resource, state, earlier, resumed.as_deref())?));
        }
        for (resource, opened) in opened {
            let (state, progress) = opened;
            report.resources.push(if run.stop.is_stopped() {
                ResourceReport::stopped(&state, progress)
            } else {
                run.migrate(resource, state, progress).await
            });
        }
    }
    Ok(finish(report, connection, flags))
}

/// Migrates one resource as a step of another command. A run of the same version that was interrupted is continued.
pub(crate) async fn run_one(
    cluster: &Cluster,
    resource: &Resource,
    mut flags: Migrate,
    stop: &Stop,
) -> Result<ResourceReport, CliError> {
    resources::migratable(&[resource])?;
    let dir = StateDir::open(flags.state_dir.as_deref(), &cluster.identity().await)?;
    let mut state = dir.resource(&resource.name, cluster.server().name())?;
    let unfinished = |saved: &Saved| {
        saved.is_unfinished() && Some(&saved.progress.storage_version_hash) == resource.hash.as_ref()
    };
    flags.resume = state.load().ok().flatten().is_some_and(|saved| unfinished(&saved));
    let run = Run {
        id: format!("{:016x}", restow_clock::random()),
        cluster,
        flags: &flags,
        settings: settings(&flags),
        encrypted: None,
        throttle: Throttle::new(flags.pace.bounds()),
        stop: stop.clone(),
    };
    let earlier = run.earlier(std::slice::from_mut(&mut state))?;
    let resumed = run.resumed(&earlier);
    let (state, progress) =
        run.open(resource, state, earlier.into_iter().next().flatten(), resumed.as_deref())?;
    Ok(run.migrate(resource, state, progress).await)
}

/// Raises the limit of open files to the maximum: the usual limit is below the number of resources of some clusters.
fn raise_open_files() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    // If that fails, opening one file too many reports it.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit });
}

fn finish(mut report: Report, connection: &Connection, flags: &Migrate) -> u8 {
    // Every resource was requested, and these may be stored in any version.
    for left in &report.unavailable {
        say!("warning: skipped {}: {}", left.group_version, left.message);
    }
    let left_out = report.unavailable.iter().map(|_| End::Failed);
    let code = exit_code(report.resources.iter().map(|resource| resource.end).chain(left_out));
    report.succeeded = code == 0;
    write(&report, connection, flags);
    code
}

fn write(report: &Report, connection: &Connection, flags: &Migrate) {
    match flags.output {
        ReportOutput::Table => {
            let again = rerun::flags(connection, flags);
            report.resources.iter().for_each(|resource| output::print(&summary(resource, &again, width())));
        }
        ReportOutput::Json => output::print(&json(report)),
        ReportOutput::Yaml => output::print(&yaml(report)),
    }
}

fn settings(flags: &Migrate) -> MigrationSettings {
    MigrationSettings {
        verify: flags.verify == Verify::Full,
        write_options: WriteOptions {
            dry_run: flags.dry_run,
            repair_managed_fields: flags.repair_managed_fields,
        },
        ..flags.pace.settings()
    }
}
