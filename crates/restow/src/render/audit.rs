//! What `restow audit` prints.

use std::collections::BTreeMap;

use restow_audit::{Report, ResourceReport};

use crate::render::table::{Row, listing, right};
use crate::render::text::{count, counted};

/// The length of a picture of shares, in characters.
const PICTURE: u64 = 30;
/// Each share of a picture has its own pattern; further ones repeat them.
const PATTERNS: [char; 4] = ['█', '▒', '░', '▓'];
/// How many names are printed below a resource.
const NAMES: usize = 10;

/// The report as a table. A terminal also gets a picture of the shares.
pub(crate) fn table(report: &Report, width: Option<usize>) -> String {
    let header = ["RESOURCE", "OBJECTS", "SIZE", "STALE", "VERSIONS", "KEYS"];
    let mut cells: Vec<Vec<String>> = report.resources.iter().map(cells).collect();
    right(&header, &mut cells, &["OBJECTS", "SIZE", "STALE"]);
    let rows: Vec<Row> = cells
        .into_iter()
        .zip(&report.resources)
        .map(|(cells, resource)| Row { cells, beneath: beneath(resource, width.is_some()) })
        .collect();
    let mut text = listing(&header, &rows, width);
    if !report.undecodable.is_empty() {
        text.push_str("\nCANNOT BE DECODED\n");
        for one in &report.undecodable {
            text.push_str(&format!("{}: {}\n", visible(&one.key), visible(&one.reason)));
        }
    }
    if !report.unserved.is_empty() {
        text.push_str("\nNOT SERVED BY ANY API\n");
        for one in &report.unserved {
            let (objects, size) = (counted(one.objects, "object"), size(one.bytes));
            text.push_str(&format!("{}: {objects}, {size}\n", one.resource));
        }
    }
    text
}

fn cells(resource: &ResourceReport) -> Vec<String> {
    let unseen = resource.objects - resource.versions.values().sum::<u64>();
    let mut versions: Vec<String> = by_count(&resource.versions).into_iter().map(share).collect();
    if unseen > 0 {
        versions.push(format!("unknown {}", count(unseen)));
    }
    let keys: Vec<String> = by_count(&resource.encryption).into_iter().map(share).collect();
    vec![
        resource.resource.clone(),
        count(resource.objects),
        size(resource.bytes),
        resource.stale.map_or_else(|| "?".to_owned(), count),
        versions.join(", "),
        keys.join(", "),
    ]
}

fn share((name, number): (&str, u64)) -> String {
    format!("{name} {}", count(number))
}

/// The names with the highest counts first.
fn by_count(counts: &BTreeMap<String, u64>) -> Vec<(&str, u64)> {
    let mut sorted: Vec<(&str, u64)> = counts.iter().map(|(name, count)| (name.as_str(), *count)).collect();
    sorted.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    sorted
}

fn beneath(resource: &ResourceReport, with_picture: bool) -> Vec<String> {
    let mut lines = Vec::new();
    if with_picture {
        for counts in [&resource.versions, &resource.encryption] {
            lines.extend(picture(counts, resource.objects));
        }
    }
    let stale = resource.stale.unwrap_or_default();
    if stale > 0 {
        let names: Vec<String> = resource.stale_names.iter().take(NAMES).map(|name| visible(name)).collect();
        let more = stale - names.len() as u64;
        let more = if more > 0 { format!(" and {} more", count(more)) } else { String::new() };
        lines.push(format!("stale: {}{more}", names.join(", ")));
    }
    lines
}

/// A bar of the shares with a legend; none if there is only one.
fn picture(counts: &BTreeMap<String, u64>, all: u64) -> Option<String> {
    if counts.len() < 2 {
        return None;
    }
    let (mut bar, mut legend) = (String::new(), Vec::new());
    for ((name, count), pattern) in by_count(counts).into_iter().zip(PATTERNS.into_iter().cycle()) {
        // Even the smallest share is visible.
        let length = (count * PICTURE / all.max(1)).max(1);
        bar.extend((0..length).map(|_| pattern));
        legend.push(format!("{pattern} {name} {}", percent(count, all)));
    }
    Some(format!("{bar}  {}", legend.join("  ")))
}

fn percent(part: u64, all: u64) -> String {
    match part as f64 * 100.0 / all.max(1) as f64 {
        share if share < 1.0 => "<1%".to_owned(),
        share if share > 99.0 && part < all => ">99%".to_owned(),
        share => format!("{share:.0}%"),
    }
}

fn size(bytes: u64) -> String {
    let units = ["B", "KiB", "MiB", "GiB", "TiB"];
    let (mut value, mut unit) = (bytes as f64, 0);
    while value >= 1024.0 && unit + 1 < units.len() {
        (value, unit) = (value / 1024.0, unit + 1);
    }
    if unit == 0 { format!("{bytes} B") } else { format!("{value:.1} {}", units[unit]) }
}

/// A name from the store, in which a terminal finds nothing to interpret.
fn visible(name: &str) -> String {
    name.chars().flat_map(|c| if c.is_control() { c.escape_default().collect() } else { vec![c] }).collect()
}

/// The report in one line.
pub(crate) fn summary(report: &Report) -> String {
    let mut text = format!(
        "{} of {} at revision {}",
        counted(report.objects(), "object"),
        counted(report.resources.len() as u64, "resource"),
        report.revision
    );
    let compared = report.resources.iter().filter(|resource| resource.stale.is_some());
    let compared: u64 = compared.map(|resource| resource.objects).sum();
    text.push_str(&match (compared, report.stale()) {
        (0, _) => ": nothing to compare them with; give --expect, or a cluster to ask".to_owned(),
        (_, stale) => format!(": {} stale", count(stale)),
    });
    if compared > 0 && compared < report.objects() {
        text.push_str(&format!(", {} not compared", count(report.objects() - compared)));
    }
    if report.undecodable_count > 0 {
        text.push_str(&format!(", {} cannot be decoded", count(report.undecodable_count)));
    }
    text
}

/// The report as CSV: a line for each count.
pub(crate) fn csv(report: &Report) -> String {
    let mut text = "resource,measure,value,count\n".to_owned();
    let mut line = |resource: &str, measure: &str, value: &str, count: u64| {
        text.push_str(&format!("{},{measure},{},{count}\n", quoted(resource), quoted(value)));
    };
    for one in &report.resources {
        line(&one.resource, "objects", "", one.objects);
        line(&one.resource, "bytes", "", one.bytes);
        one.versions.iter().for_each(|(version, count)| line(&one.resource, "version", version, *count));
        one.encryption.iter().for_each(|(key, count)| line(&one.resource, "encryption", key, *count));
        if let Some(stale) = one.stale {
            line(&one.resource, "stale", "", stale);
        }
        one.stale_names.iter().for_each(|name| line(&one.resource, "staleName", name, 1));
    }
    report.undecodable.iter().for_each(|one| line("", "undecodable", &one.key, 1));
    report.unserved.iter().for_each(|one| line(&one.resource, "unserved", "", one.objects));
    text
}

/// A field of CSV. A spreadsheet must not take it for a formula.
fn quoted(field: &str) -> String {
    let is_plain = |c: char| c.is_alphanumeric() || "._/:-".contains(c);
    let is_formula = field.starts_with(['=', '+', '-', '@']);
    match field.chars().all(is_plain) && !is_formula {
        true => field.to_owned(),
        false => {
            let text = visible(field).replace('"', "\"\"");
            format!("\"{}{text}\"", if is_formula { "'" } else { "" })
        }
    }
}

#[cfg(test)]
mod tests {
    use restow_audit::{Expectations, Served, Tally};

    use super::*;

    fn report(compared: bool) -> Report {
        let mut expected = Expectations::default();
        if compared {
            expected.expect_version("example.com/v2").unwrap();
            expected.expect_storage("configmaps", "v1");
            let resources = ["configmaps", "secrets", "widgets.example.com"].map(str::to_owned).into();
            expected.set_served(Served { resources, ..Served::default() });
        }
        let mut tally = Tally::new("/registry", expected);
        let object = |version: &str| format!(r#"{{"apiVersion":"{version}","kind":"A"}}"#).into_bytes();
        for index in 0..1300 {
            let version = if index % 100 == 0 { "example.com/v1" } else { "example.com/v2" };
            tally.add(
                format!("/registry/example.com/widgets/default/w-{index:04}").as_bytes(),
                &object(version),
            );
        }
        for index in 0..3 {
            let secret = format!("k8s:enc:aescbc:v1:key{}:xxxx", 1 + index / 2);
            tally.add(format!("/registry/secrets/default/s-{index}").as_bytes(), secret.as_bytes());
        }
        tally.add(b"/registry/configmaps/default/c", &object("v1"));
        tally.add(b"/registry/configmaps/default/=cmd()|\x1b[2J,\"x\"", b"garbage");
        tally.add(b"/registry/gone.example.com/leftovers/l", &object("gone.example.com/v1"));
        tally.report("backup.db", 4711)
    }

    #[test]
    fn every_form_of_the_report_is_as_reviewed() {
        let compared = report(true);
        crate::snapshots::check("audit/table", &table(&compared, None));
        crate::snapshots::check("audit/table-100-columns", &table(&compared, Some(100)));
        crate::snapshots::check("audit/json", &crate::render::text::json(&compared));
        crate::snapshots::check("audit/csv", &csv(&compared));
        crate::snapshots::check("audit/summary", &(summary(&compared) + "\n"));
        crate::snapshots::check("audit/summary-without-expectations", &(summary(&report(false)) + "\n"));
    }

    #[test]
    fn nothing_from_the_store_reaches_a_terminal_or_a_spreadsheet_as_a_command() {
        let report = report(true);
        for text in [table(&report, None), table(&report, Some(80)), csv(&report)] {
            assert!(!text.contains('\u{1b}'), "{text}");
        }
        for (field, expected) in
            [("=1+1", "\"'=1+1\""), ("a,b", "\"a,b\""), ("a\"b", "\"a\"\"b\""), ("a/b", "a/b")]
        {
            assert_eq!(quoted(field), expected);
        }
    }
}
