//! What `restow plan` prints.

use restow_core::resource::inventory::{NO_EVIDENCE, Origin};
use restow_core::rewrite::progress::Quarantined;
use serde::Serialize;

use crate::args::Output;
use crate::render::table::{Row, listing, right};
use crate::render::text::{count, counted, json, time, yaml};

/// One line of the plan.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Line {
    pub(crate) resource: String,
    pub(crate) storage_version: String,
    pub(crate) storage_version_hash: String,
    pub(crate) served_by: Origin,
    pub(crate) objects: Option<u64>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) stored_versions: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) shares_storage_with: Vec<String>,
    pub(crate) migratable: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) why_not: Option<String>,
    /// Whether its objects cannot be listed, perhaps only for now.
    #[serde(skip)]
    pub(crate) unlisted: bool,
    pub(crate) needed: &'static str,
    /// Why a migration is needed, or not.
    pub(crate) reason: String,
    pub(crate) requests: Option<u64>,
    pub(crate) seconds: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) rejected: Option<Vec<Quarantined>>,
}

/// Summarizes all lines in one.
pub(crate) fn total(lines: &[Line]) -> String {
    let of = |needed: &str| lines.iter().filter(|line| line.needed == needed).count() as u64;
    let needed = || lines.iter().filter(|line| line.needed == "yes");
    let mut text = format!("{}: {} to migrate", counted(lines.len() as u64, "resource"), of("yes"));
    let seconds: f64 = needed().filter_map(|line| line.seconds).sum();
    if seconds > 0.0 {
        let objects = counted(needed().filter_map(|line| line.objects).sum(), "object");
        text.push_str(&format!(" ({objects}, about {})", time(std::time::Duration::from_secs_f64(seconds))));
    }
    match of("maybe") {
        0 => text,
        maybe => format!(
            "{text}, {} unknown: nothing shows how their objects are stored until a migration is verified",
            count(maybe)
        ),
    }
}

/// The lines in an output format.
pub(crate) fn text(lines: &[Line], form: Output, width: Option<usize>) -> String {
    match form {
        Output::Json => json(&lines),
        Output::Yaml => yaml(&lines),
        // Each name can be passed to `restow migrate`.
        Output::Name => {
            let names =
                lines.iter().filter(|line| line.migratable).map(|line| format!("{}\n", line.resource));
            names.collect()
        }
        Output::Table | Output::Wide => table(lines, form == Output::Wide, width),
    }
}

/// The lines as a table. Notes that do not fit into a row are printed below it.
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
    // The reason why a resource cannot be migrated is printed below.
    let doubtful = line.needed == "maybe" && line.reason != NO_EVIDENCE;
    let explained = line.needed == "yes" || (wide || doubtful) && line.why_not.is_none();
    notes.extend(explained.then(|| line.reason.clone()));
    if line.migratable && !line.shares_storage_with.is_empty() {
        notes.push(format!("shares storage with {}", line.shares_storage_with.join(", ")));
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
    fn the_total_sums_up_the_plan() {
        let all = lines();
        let unknown = "unknown: nothing shows how their objects are stored until a migration is verified";
        for (lines, expected) in [
            (&all[..], format!("3 resources: 1 to migrate (3,000 objects, about 5m00s), 1 {unknown}")),
            (&all[..1], "1 resource: 1 to migrate (3,000 objects, about 5m00s)".to_owned()),
            (&all[1..2], format!("1 resource: 0 to migrate, 1 {unknown}")),
            (&all[2..], "1 resource: 0 to migrate".to_owned()),
            (&[], "0 resources: 0 to migrate".to_owned()),
        ] {
            assert_eq!(total(lines), expected);
        }
    }

    #[test]
    fn a_resource_name_is_never_wrapped() {
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

    #[test]
    fn every_form_of_the_plan_is_as_reviewed() {
        let mut lines = lines();
        lines.push(Line {
            migratable: false,
            why_not: Some("stored as events, migrated there".to_owned()),
            objects: None,
            seconds: None,
            ..line("events.events.k8s.io", 0, "no", "")
        });
        lines.push(Line {
            shares_storage_with: vec!["other.example.com".to_owned()],
            ..line("shared.example.com", 7, "maybe", NO_EVIDENCE)
        });
        let rejected = Quarantined {
            name: "w-1".to_owned(),
            reason: "Forbidden".to_owned(),
            message: "denied".to_owned(),
            namespace: String::new(),
            uid: String::new(),
        };
        lines.push(Line {
            rejected: Some(vec![rejected]),
            ..line("tried.example.com", 9, "yes", "storedVersions v1, v2")
        });
        for (name, form, width) in [
            ("table", Output::Table, None),
            ("table-80-columns", Output::Table, Some(80)),
            ("wide", Output::Wide, None),
            ("json", Output::Json, None),
            ("yaml", Output::Yaml, None),
            ("name", Output::Name, None),
        ] {
            crate::snapshots::check(&format!("plan/{name}"), &text(&lines, form, width));
        }
        crate::snapshots::check("plan/total", &(total(&lines) + "\n"));
    }
}
