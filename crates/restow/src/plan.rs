//! `restow plan`: what is stored, and what a migration of it would be.

use restow_core::estimate::{estimate, usual_rate};
use restow_core::inventory::{Needed, Obstacle, Origin, Resource, UNTOLD};
use restow_core::progress::{End, Quarantined, exit_code};
use restow_lease::Stop;
use restow_migrate::cluster::Cluster;
use restow_migrate::migration::{Migration, Settings};
use restow_migrate::rewrite::Manner;
use restow_migrate::throttle::Throttle;
use serde::Serialize;

use crate::args::{Connection, Output, Plan};
use crate::connect::{connect, unanswered};
use crate::failure::Failure;
use crate::migrate::rehearse;
use crate::needs::{Assessed, assess};
use crate::output::{self, count, counted, say, time};
use crate::report::{ResourceReport, summary};
use crate::select;
use crate::signals::stop_on_signals;
use crate::table::{Row, listing, right, width};
use crate::view::View;

/// The exit code of `--needed` when something is to be migrated.
const NEEDED: u8 = 3;
/// The exit code of `--needed` when something could not be looked at.
const UNSEEN: u8 = 1;

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
    /// Whether its objects cannot be listed, which may be just for now.
    #[serde(skip)]
    unlisted: bool,
    needed: &'static str,
    /// Why it is needed, or not.
    reason: String,
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
    // What cannot be seen may have to be migrated.
    let hidden = if flags.resources.is_empty() {
        !inventory.unavailable.is_empty()
    } else {
        chosen.iter().any(|resource| matches!(resource.obstacle, Some(Obstacle::Unavailable(_))))
    };
    chosen.retain(|resource| !flags.migratable || resource.obstacle.is_none());
    let assessed = assess(&cluster, chosen, flags.state_dir.as_deref()).await;
    let mut lines: Vec<(&Resource, Line)> =
        assessed.into_iter().map(|one| (one.resource, line(one, flags))).collect();
    lines.retain(|(_, line)| !flags.needed || line.needed != "no");
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
        rehearsed.iter().for_each(|report| output::print(&summary(report, "", width())));
        say!("{}", total(&lines));
    }
    let rehearsal = exit_code(rehearsed.iter().map(|report| report.end));
    if !flags.needed || rehearsal != 0 {
        return Ok(rehearsal);
    }
    let code = verdict(&lines, hidden);
    if code == UNSEEN {
        say!("warning: not everything could be looked at, so more may have to be migrated");
    }
    Ok(code)
}

/// The exit code of `--needed`. Nothing is called unneeded that was not looked at.
fn verdict(lines: &[Line], hidden: bool) -> u8 {
    match () {
        () if hidden || lines.iter().any(|line| line.needed == "maybe" && line.unlisted) => UNSEEN,
        () if lines.iter().any(|line| line.needed == "yes") => NEEDED,
        () => 0,
    }
}

/// What the lines come to, in one line.
fn total(lines: &[Line]) -> String {
    let of = |needed: &str| lines.iter().filter(|line| line.needed == needed).count() as u64;
    let needed = || lines.iter().filter(|line| line.needed == "yes");
    let mut text = format!("{}: {} to be migrated", counted(lines.len() as u64, "resource"), of("yes"));
    let seconds: f64 = needed().filter_map(|line| line.seconds).sum();
    if seconds > 0.0 {
        let objects = counted(needed().filter_map(|line| line.objects).sum(), "object");
        text.push_str(&format!(" ({objects}, about {})", time(std::time::Duration::from_secs_f64(seconds))));
    }
    match of("maybe") {
        0 => text,
        maybe => format!(
            "{text}, {} perhaps: nothing tells how their objects are stored until a migration is verified",
            count(maybe)
        ),
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
        Needed::Yes(why) => ("yes", why),
        Needed::Maybe(why) => ("maybe", why),
        Needed::No(why) => ("no", why),
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
    let view = View::new(resource.name.to_string(), throttle, true);
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
        // So that each can be given to `restow migrate`.
        Output::Name => {
            let names =
                lines.iter().filter(|line| line.migratable).map(|line| format!("{}\n", line.resource));
            names.collect()
        }
        Output::Table | Output::Wide => table(lines, form == Output::Wide, width()),
    };
    output::print(&text);
}

/// The lines as a table. Where its notes do not fit beside the rest, they stand beneath.
fn table(lines: &[Line], wide: bool, width: Option<usize>) -> String {
    let mut header = vec!["RESOURCE", "STORED AS", "OBJECTS", "NEEDED", "TIME", "NOTE"];
    if wide {
        header = vec![
            "RESOURCE",
            "STORED AS",
            "HASH",
            "SERVED BY",
            "OBJECTS",
            "NEEDED",
            "REQUESTS",
            "TIME",
            "NOTE",
        ];
    }
    let mut cells: Vec<Vec<String>> = lines.iter().map(|line| row(line, wide)).collect();
    right(&header, &mut cells, &["OBJECTS", "REQUESTS", "TIME"]);
    let rows: Vec<Row> = cells.into_iter().map(|cells| Row { cells, beneath: Vec::new() }).collect();
    let text = listing(&header, &rows, None);
    match width {
        Some(width) if text.lines().any(|line| console::measure_text_width(line) > width) => {
            header.pop();
            let apart = |mut row: Row| {
                let note = row.cells.pop().filter(|note| !note.is_empty());
                Row { beneath: note.into_iter().collect(), ..row }
            };
            let rows: Vec<Row> = rows.into_iter().map(apart).collect();
            listing(&header, &rows, Some(width))
        }
        _ => text,
    }
}

fn row(line: &Line, wide: bool) -> Vec<String> {
    let number = |number: Option<u64>| number.map(count).unwrap_or_default();
    let mut notes = Vec::new();
    // What cannot be migrated says so below.
    let doubtful = line.needed == "maybe" && line.reason != UNTOLD;
    let explained = line.needed == "yes" || (wide || doubtful) && line.why_not.is_none();
    notes.extend(explained.then(|| line.reason.clone()));
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

#[cfg(test)]
mod tests {
    use super::*;

    fn line(resource: &str, objects: u64, needed: &'static str, reason: &str) -> Line {
        Line {
            resource: resource.to_owned(),
            storage_version: "v1".to_owned(),
            storage_version_hash: "x".to_owned(),
            served_by: Origin::BuiltIn,
            objects: Some(objects),
            stored_versions: Vec::new(),
            shares_storage_with: Vec::new(),
            migratable: true,
            why_not: None,
            unlisted: false,
            needed,
            reason: reason.to_owned(),
            requests: Some(objects),
            seconds: Some(objects as f64 / 10.0),
            rejected: None,
        }
    }

    fn lines() -> Vec<Line> {
        vec![
            line("widgets.example.com", 3000, "yes", "storedVersions v1beta1, v1"),
            line("secrets", 12, "maybe", "nothing tells"),
            line(
                "validatingadmissionpolicybindings.admissionregistration.k8s.io",
                0,
                "no",
                "it has no objects",
            ),
        ]
    }

    #[test]
    fn one_line_tells_what_the_plan_comes_to() {
        let all = lines();
        let perhaps = "perhaps: nothing tells how their objects are stored until a migration is verified";
        for (lines, expected) in [
            (&all[..], format!("3 resources: 1 to be migrated (3,000 objects, about 5m00s), 1 {perhaps}")),
            (&all[..1], "1 resource: 1 to be migrated (3,000 objects, about 5m00s)".to_owned()),
            (&all[1..2], format!("1 resource: 0 to be migrated, 1 {perhaps}")),
            (&all[2..], "1 resource: 0 to be migrated".to_owned()),
            (&[], "0 resources: 0 to be migrated".to_owned()),
        ] {
            assert_eq!(total(lines), expected);
        }
    }

    #[test]
    fn what_could_not_be_looked_at_is_told_by_the_exit_code() {
        let all = lines();
        let unlisted = |needed: &'static str| vec![Line { unlisted: true, ..line("pods", 0, needed, "") }];
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

    #[test]
    fn a_name_is_never_broken() {
        let lines = lines();
        let wide = table(&lines, false, None);
        assert!(wide.contains("3,000  yes     5m00s  storedVersions v1beta1, v1\n"), "{wide}");
        for width in [60, 80, 120, 200] {
            let text = table(&lines, false, Some(width));
            for line in &lines {
                assert!(
                    text.lines().any(|shown| shown.split(' ').next() == Some(&line.resource)),
                    "{width}:\n{text}"
                );
            }
            // The one name that is longer than a terminal is the only line that may be.
            let long = text.lines().filter(|line| console::measure_text_width(line) > width);
            assert!(long.count() <= usize::from(width < 64), "{width}:\n{text}");
        }
    }
}
