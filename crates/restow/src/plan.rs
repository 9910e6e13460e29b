//! `restow plan`: what is stored, and what a migration of it would be.

use futures::{StreamExt as _, stream};
use restow_core::estimate::{estimate, usual_rate};
use restow_core::inventory::{Need, Obstacle, Origin, Resource};
use restow_core::progress::{End, Quarantined, exit_code};
use restow_migrate::cluster::Cluster;
use restow_migrate::lookup;
use restow_migrate::migration::{Migration, Settings};
use restow_migrate::pages::Target;
use restow_migrate::rewrite::Manner;
use restow_migrate::stop::Stop;
use restow_migrate::throttle::Throttle;
use serde::Serialize;

use crate::args::{Connection, Output, Plan};
use crate::connect::{connect, unanswered};
use crate::failure::Failure;
use crate::migrate::rehearse;
use crate::output::say;
use crate::output::{self, count, time};
use crate::report::{ResourceReport, summary};
use crate::select;
use crate::signals::stop_on_signals;
use crate::table::table;
use crate::view::View;

/// How many resources are counted at once.
const AT_ONCE: usize = 8;

/// One line of the plan.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Line {
    resource: String,
    storage_version: String,
    storage_version_hash: String,
    served_by: Origin,
    objects: Option<u64>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    stored_versions: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    shares_storage_with: Vec<String>,
    migratable: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    why_not: Option<String>,
    needed: &'static str,
    requests: Option<u64>,
    seconds: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    rejected: Option<Vec<Quarantined>>,
}

pub(crate) async fn run(connection: &Connection, flags: &Plan) -> Result<u8, Failure> {
    let cluster = connect(connection).await?;
    let inventory = match cluster.inventory(flags.include_events).await {
        Ok(inventory) => inventory,
        Err(error) => return Err(unanswered(&cluster, error).await),
    };
    let mut chosen: Vec<&Resource> = if flags.resources.is_empty() {
        inventory.resources.iter().collect()
    } else {
        select::named(&inventory, &flags.resources)?
    };
    chosen.retain(|resource| !flags.migratable || resource.obstacle.is_none());
    let counted = stream::iter(chosen).map(|resource| line(&cluster, resource, flags));
    let mut lines: Vec<(&Resource, Line)> = counted.buffered(AT_ONCE).collect().await;
    let mut rehearsed = Vec::new();
    if flags.dry_run_objects {
        let stop = Stop::from(stop_on_signals(None).map_err(Failure::failed)?);
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
    show(&lines, flags.output);
    for (version, obstacle) in &inventory.unavailable {
        say!("warning: {version}: {}", obstacle.explain());
    }
    if matches!(flags.output, Output::Table | Output::Wide) {
        rehearsed.iter().for_each(|report| output::print(&summary(report, "")));
    }
    Ok(exit_code(rehearsed.iter().map(|report| report.end)))
}

async fn line<'r>(cluster: &Cluster, resource: &'r Resource, flags: &Plan) -> (&'r Resource, Line) {
    let (objects, unlisted) = match Target::of(resource) {
        Some(target) if resource.obstacle.is_none() => match lookup::count(cluster.server(), &target).await {
            Ok(objects) => (objects, None),
            Err(refusal) => (None, Some(format!("cannot be listed: {} ({})", refusal.message, refusal.code))),
        },
        _ => (None, None),
    };
    let rate = flags.pace.qps.unwrap_or(f64::INFINITY).min(usual_rate(flags.pace.preset()));
    let work = objects.map(|objects| estimate(objects, u64::from(flags.pace.page_size()), true, rate));
    let shares = match &resource.obstacle {
        Some(Obstacle::SharedWith(owner)) => vec![owner.to_string()],
        _ => resource.shared_by.iter().map(ToString::to_string).collect(),
    };
    let line = Line {
        resource: resource.name.to_string(),
        storage_version: resource.storage_version_name().to_owned(),
        storage_version_hash: resource.hash.clone().unwrap_or_default(),
        served_by: resource.origin,
        objects,
        stored_versions: resource.crd.as_ref().map(|crd| crd.stored_versions.clone()).unwrap_or_default(),
        shares_storage_with: shares,
        migratable: resource.obstacle.is_none(),
        why_not: resource.obstacle.as_ref().map(Obstacle::explain).or(unlisted),
        needed: match (objects, resource.need()) {
            (Some(0), _) => "no",
            (_, Need::Yes(_)) if matches!(resource.obstacle, Some(Obstacle::Unserved(_))) => "yes",
            _ if resource.obstacle.is_some() => "no",
            (_, Need::Yes(_)) => "yes",
            (_, Need::Unlikely) => "no",
            (_, Need::Unknown) => "maybe",
        },
        requests: work.map(|work| work.requests),
        seconds: work.map(|work| work.time.as_secs_f64()),
        rejected: None,
    };
    (resource, line)
}

async fn try_objects(
    cluster: &Cluster,
    resource: &Resource,
    flags: &Plan,
    throttle: &Throttle,
    stop: &Stop,
) -> ResourceReport {
    let view = View::new(resource.name.to_string(), throttle, false);
    let migration = Migration {
        cluster,
        resource,
        settings: Settings {
            verify: false,
            manner: Manner { dry_run: true, ..Manner::default() },
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

/// A rehearsal shows the real rate and the real rejections.
fn take_measure(line: &mut Line, report: &ResourceReport, flags: &Plan) {
    let counts = &report.progress.counts;
    if report.end != End::Stopped && counts.done() > 0 && report.progress.seconds > 0.0 {
        let rate = counts.done() as f64 / report.progress.seconds;
        let work = estimate(counts.listed, u64::from(flags.pace.page_size()), true, rate);
        (line.requests, line.seconds) = (Some(work.requests), Some(work.time.as_secs_f64()));
    }
    line.rejected = Some(report.left.iter().collect());
}

fn show(lines: &[Line], form: Output) {
    let text = match form {
        Output::Json => output::json(&lines),
        Output::Yaml => output::yaml(&lines),
        Output::Name => lines.iter().map(|line| format!("{}\n", line.resource)).collect(),
        Output::Table => table(
            &["RESOURCE", "STORED AS", "OBJECTS", "NEEDED", "TIME", "NOTE"],
            lines.iter().map(|line| row(line, false)).collect(),
            &["OBJECTS", "TIME"],
        ),
        Output::Wide => table(
            &["RESOURCE", "STORED AS", "HASH", "SERVED BY", "OBJECTS", "NEEDED", "REQUESTS", "TIME", "NOTE"],
            lines.iter().map(|line| row(line, true)).collect(),
            &["OBJECTS", "REQUESTS", "TIME"],
        ),
    };
    output::print(&text);
}

fn row(line: &Line, wide: bool) -> Vec<String> {
    let number = |number: Option<u64>| number.map(count).unwrap_or_default();
    let mut notes = Vec::new();
    if line.stored_versions.iter().any(|version| *version != line.storage_version) {
        notes.push(format!("storedVersions {}", line.stored_versions.join(", ")));
    }
    if line.migratable && !line.shares_storage_with.is_empty() {
        notes.push(format!("also {}", line.shares_storage_with.join(", ")));
    }
    notes.extend(line.why_not.clone());
    if let Some(rejected) = line.rejected.as_ref().filter(|rejected| !rejected.is_empty()) {
        notes.push(format!("{} would be rejected", rejected.len()));
    }
    let mut row = vec![line.resource.clone(), line.storage_version.clone()];
    if wide {
        row.push(line.storage_version_hash.clone());
        row.push(
            match line.served_by {
                Origin::BuiltIn => "built-in",
                Origin::Custom => "custom",
                Origin::Aggregated => "aggregated",
            }
            .to_owned(),
        );
    }
    row.extend([number(line.objects), line.needed.to_owned()]);
    if wide {
        row.push(number(line.requests));
    }
    let seconds = line.seconds.filter(|_| line.migratable);
    row.push(seconds.map(|seconds| time(std::time::Duration::from_secs_f64(seconds))).unwrap_or_default());
    row.push(notes.join("; "));
    row
}
