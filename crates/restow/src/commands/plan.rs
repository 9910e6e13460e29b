//! `restow plan`: what is stored, and what its migration would cost.

use std::path::PathBuf;

use clap::Args as ClapArgs;
use restow_core::resource::inventory::{Obstacle, Recommendation, Resource};
use restow_core::rewrite::estimate::{estimate, usual_rate};
use restow_core::rewrite::progress::{End, exit_code};
use restow_lease::Stop;
use restow_migrate::client::Throttle;
use restow_migrate::cluster::Cluster;
use restow_migrate::migration::{Migration, MigrationSettings};
use restow_migrate::rewrite::WriteOptions;

use crate::args::{Connection, Output, Pace, Scope};
use crate::assessment::{Assessed, assess};
use crate::commands::migrate::dry_run::rehearse;
use crate::connect::{connect, unanswered};
use crate::error::CliError;
use crate::output::{self, say};
use crate::render::plan::{Line, text, total};
use crate::render::progress::ProgressView;
use crate::render::report::{ResourceReport, summary};
use crate::render::table::width;
use crate::resources;
use crate::signals::stop_on_signals;

/// Show which resources need a migration, which cannot be migrated, and what a migration would cost
#[derive(ClapArgs)]
#[command(after_help = "Examples:
  restow plan                            every resource
  restow plan --needed                   only resources that need a migration; for CI: exit code
                                         3 if there are any, 1 if not everything could be checked
  restow plan widgets.example.com        one resource
  restow plan secrets --dry-run-objects  send every write as a server-side dry run
  restow plan --needed -o name | while read -r name; do restow migrate \"$name\"; done

NEEDED is yes if a CRD's storedVersions list other versions than its storage version. It is maybe if nothing \
shows how the objects are stored, as for built-in resources. It is no while restow's controllers keep a settled \
StorageState of the resource up to date. It is also no after a verified restow migrate, until an API server \
restarts or loads another encryption configuration.")]
pub(crate) struct Plan {
    /// Resources, such as secrets or widgets.example.com [default: all]
    #[arg(value_name = "RESOURCE", value_delimiter = ',')]
    pub(crate) resources: Vec<String>,
    #[command(flatten)]
    pub(crate) scope: Scope,
    /// Send every write as a server-side dry run, and show which objects would be rejected
    #[arg(long)]
    pub(crate) dry_run_objects: bool,
    /// Omit resources that cannot be migrated
    #[arg(long)]
    pub(crate) migratable: bool,
    /// Show only resources that need, or may need, a migration; the exit code is 3 if one needs it, and 1 if not
    /// everything could be checked
    #[arg(long)]
    pub(crate) needed: bool,
    #[command(flatten)]
    pub(crate) pace: Pace,
    /// Where restow migrate keeps its progress, and what it has verified [default: $XDG_STATE_HOME/restow]
    #[arg(long, value_name = "DIR")]
    pub(crate) state_dir: Option<PathBuf>,
    /// Treat events as migratable
    #[arg(long)]
    pub(crate) include_events: bool,
    /// The output format; name lists only resources that can be migrated
    #[arg(short, long, value_enum, default_value_t = Output::Table)]
    pub(crate) output: Output,
}

/// The exit code of `--needed` if a migration is needed.
const NEEDED: u8 = 3;
/// The exit code of `--needed` if something could not be checked.
const UNSEEN: u8 = 1;

pub(crate) async fn run(connection: &Connection, flags: &Plan) -> Result<u8, CliError> {
    let cluster = connect(connection).await?;
    let inventory = match cluster.inventory(flags.include_events).await {
        Ok(inventory) => inventory,
        Err(error) => return Err(unanswered(&cluster, error).await),
    };
    let mut chosen: Vec<&Resource> = if flags.resources.is_empty() {
        inventory.resources.iter().collect()
    } else {
        resources::named(&inventory, &flags.resources)?
    };
    // A resource that cannot be checked may need a migration.
    let unanswered = flags.resources.is_empty() && !inventory.unavailable.is_empty();
    let hidden = unanswered || chosen.iter().any(|resource| resource.is_unseen());
    chosen.retain(|resource| !flags.migratable || resource.obstacle.is_none());
    let assessed = assess(&cluster, chosen, flags.state_dir.as_deref()).await;
    let mut lines: Vec<(&Resource, Line)> =
        assessed.into_iter().map(|one| (one.resource, line(one, flags))).collect();
    lines.retain(|(_, line)| !flags.needed || line.needed != "no");
    let mut rehearsed = Vec::new();
    if flags.dry_run_objects {
        let stop = Stop::from(stop_on_signals(None).map_err(CliError::failed)?);
        let throttle = Throttle::new(flags.pace.bounds());
        for (resource, line) in lines.iter_mut().filter(|(resource, _)| resource.obstacle.is_none()) {
            let report = try_objects(&cluster, resource, flags, &throttle, &stop).await;
            take_measure(line, &report, flags);
            rehearsed.push(report);
            if stop.is_stopped() {
                break;
            }
        }
    }
    let lines: Vec<Line> = lines.into_iter().map(|(_, line)| line).collect();
    output::print(&text(&lines, flags.output, width()));
    for (version, obstacle) in &inventory.unavailable {
        say!("warning: {version}: {}", obstacle.explain());
    }
    if matches!(flags.output, Output::Table | Output::Wide) {
        rehearsed.iter().for_each(|report| output::print(&summary(report, "", width())));
        say!("{}", total(&lines));
    }
    let rehearsal = exit_code(rehearsed.iter().map(|report| report.end));
    if !flags.needed || rehearsal != 0 {
        return Ok(rehearsal);
    }
    let code = verdict(&lines, hidden);
    if code == UNSEEN {
        say!("warning: not everything could be checked, so more resources may need a migration");
    }
    Ok(code)
}

/// The exit code of `--needed`. A resource that was not checked never counts as not needing a migration.
fn verdict(lines: &[Line], hidden: bool) -> u8 {
    match () {
        () if hidden || lines.iter().any(|line| line.needed == "maybe" && line.unlisted) => UNSEEN,
        () if lines.iter().any(|line| line.needed == "yes") => NEEDED,
        () => 0,
    }
}

fn line(assessed: Assessed<'_>, flags: &Plan) -> Line {
    let Assessed { resource, objects, unlisted, needed } = assessed;
    let rate = flags.pace.qps.unwrap_or(f64::INFINITY).min(usual_rate(flags.pace.preset()));
    let work = objects.map(|objects| estimate(objects, u64::from(flags.pace.page_size()), true, rate));
    let shares = match &resource.obstacle {
        Some(Obstacle::SharedWith(owner)) => vec![owner.to_string()],
        _ => resource.shared_by.iter().map(ToString::to_string).collect(),
    };
    let (needed, reason) = match needed {
        Recommendation::Yes(why) => ("yes", why),
        Recommendation::Maybe(why) => ("maybe", why),
        Recommendation::No(why) => ("no", why),
    };
    Line {
        resource: resource.name.to_string(),
        storage_version: resource.storage_version_name().to_owned(),
        storage_version_hash: resource.hash.clone().unwrap_or_default(),
        served_by: resource.origin,
        objects,
        stored_versions: resource.crd.as_ref().map(|crd| crd.stored_versions.clone()).unwrap_or_default(),
        shares_storage_with: shares,
        migratable: resource.obstacle.is_none() && unlisted.is_none(),
        unlisted: unlisted.is_some(),
        why_not: resource.obstacle.as_ref().map(Obstacle::explain).or(unlisted),
        needed,
        reason,
        requests: work.map(|work| work.requests),
        seconds: work.map(|work| work.time.as_secs_f64()),
        rejected: None,
    }
}

async fn try_objects(
    cluster: &Cluster,
    resource: &Resource,
    flags: &Plan,
    throttle: &Throttle,
    stop: &Stop,
) -> ResourceReport {
    let view = ProgressView::new(resource.name.to_string(), throttle, true);
    let migration = Migration {
        cluster,
        resource,
        settings: MigrationSettings {
            verify: false,
            write_options: WriteOptions { dry_run: true, ..WriteOptions::default() },
            ..flags.pace.settings()
        },
        throttle,
        observer: &view,
        stop,
    };
    let report = rehearse(&migration).await;
    view.end();
    report
}

/// Adds what a dry run measured: the real rate and the rejections.
fn take_measure(line: &mut Line, report: &ResourceReport, flags: &Plan) {
    let counts = &report.progress.counts;
    if report.end != End::Stopped && counts.done() > 0 && report.progress.seconds > 0.0 {
        let rate = counts.done() as f64 / report.progress.seconds;
        let work = estimate(counts.listed, u64::from(flags.pace.page_size()), true, rate);
        (line.requests, line.seconds) = (Some(work.requests), Some(work.time.as_secs_f64()));
    }
    line.rejected = Some(report.left.iter().collect());
}

#[cfg(test)]
mod tests {
    use restow_core::resource::inventory::Origin;

    use super::*;

    fn line(resource: &str, needed: &'static str) -> Line {
        Line {
            resource: resource.to_owned(),
            storage_version: "v1".to_owned(),
            storage_version_hash: "x".to_owned(),
            served_by: Origin::BuiltIn,
            objects: Some(0),
            stored_versions: Vec::new(),
            shares_storage_with: Vec::new(),
            migratable: true,
            why_not: None,
            unlisted: false,
            needed,
            reason: String::new(),
            requests: None,
            seconds: None,
            rejected: None,
        }
    }

    #[test]
    fn the_exit_code_shows_that_something_could_not_be_checked() {
        let all = [line("widgets.example.com", "yes"), line("secrets", "maybe"), line("pods", "no")];
        let unlisted = |needed: &'static str| vec![Line { unlisted: true, ..line("pods", needed) }];
        for (lines, hidden, expected) in [
            (&all[..], false, NEEDED),
            (&all[1..], false, 0),
            (&[], false, 0),
            (&[], true, UNSEEN),
            (&all[..], true, UNSEEN),
            (&unlisted("maybe"), false, UNSEEN),
            // Its CRD tells, whatever it has stored.
            (&unlisted("yes"), false, NEEDED),
            (&unlisted("no"), false, 0),
        ] {
            assert_eq!(verdict(lines, hidden), expected);
        }
    }
}
