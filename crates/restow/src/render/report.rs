//! The report of a run, as text and for scripts.

use std::path::PathBuf;
use std::time::Duration;

use restow_api::Reason;
use restow_core::agreement::encryption::Check;
use restow_core::controller::troubleshooting::explained;
use restow_core::rewrite::progress::{End, Phase, Progress, Quarantined};
use restow_migrate::prune::Pruned;
use serde::ser::SerializeSeq as _;
use serde::{Serialize, Serializer};

use crate::program::program;
use crate::render::table::{wrap, wrap_hanging};
use crate::render::text::{count, time};
use crate::state_dir::ResourceState;

/// How many quarantined objects a summary names.
const NAMED: usize = 10;

/// The report of a run.
#[derive(Default, Serialize)]
pub(crate) struct Report {
    pub(crate) succeeded: bool,
    /// Why the run failed before its first resource.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) error: Option<String>,
    pub(crate) resources: Vec<ResourceReport>,
    /// Versions that `--all` left out, because their server did not answer discovery.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) unavailable: Vec<Unavailable>,
}

/// A version of a group whose resources could not be listed.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Unavailable {
    pub(crate) group_version: String,
    pub(crate) message: String,
}

pub(crate) struct ResourceReport {
    pub(crate) progress: Progress,
    pub(crate) left: Left,
    pub(crate) end: End,
    pub(crate) error: Option<String>,
    pub(crate) pruned: Option<Pruned>,
    pub(crate) dry_run: bool,
    /// Whether only the objects that an earlier run quarantined were retried.
    pub(crate) retried: bool,
}

/// The quarantined objects, read from their file when needed, because there may be many.
pub(crate) enum Left {
    File(PathBuf),
    Here(Vec<Quarantined>),
}

impl ResourceReport {
    /// The report of a resource whose run is complete.
    pub(crate) fn finished(state: &ResourceState, progress: Progress) -> Self {
        Self {
            end: finished(&progress),
            error: unproven(&progress),
            left: Left::File(state.left_path().to_owned()),
            pruned: None,
            dry_run: false,
            retried: false,
            progress,
        }
    }

    /// The report of a resource that had not been started when the run was stopped.
    pub(crate) fn stopped(state: &ResourceState, progress: Progress) -> Self {
        // Whether an earlier proof still holds was not checked.
        let progress = Progress { verified: false, ..progress };
        let error = Some("the run was stopped before this resource's turn".to_owned());
        Self { end: End::Stopped, error, ..Self::finished(state, progress) }
    }

    /// The report of a resource whose unfinished run cannot be resumed.
    pub(crate) fn lost(progress: Progress, error: String) -> Self {
        let left = Left::Here(Vec::new());
        let (pruned, error) = (None, Some(error));
        Self { end: End::Failed, error, left, pruned, dry_run: false, retried: false, progress }
    }
}

impl Left {
    pub(crate) fn iter(&self) -> Box<dyn Iterator<Item = Quarantined> + '_> {
        match self {
            Self::Here(left) => Box::new(left.iter().cloned()),
            Self::File(path) => match std::fs::File::open(path) {
                Ok(file) => Box::new(
                    std::io::BufRead::lines(std::io::BufReader::new(file))
                        .map_while(Result::ok)
                        .filter_map(|line| serde_json::from_str(&line).ok()),
                ),
                Err(_) => Box::new(std::iter::empty()),
            },
        }
    }
}

impl Serialize for Left {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut seq = serializer.serialize_seq(None)?;
        for object in self.iter() {
            seq.serialize_element(&object)?;
        }
        seq.end()
    }
}

impl Serialize for ResourceReport {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        #[serde(rename_all = "camelCase")]
        struct Shown<'a> {
            resource: String,
            storage_version: &'a str,
            storage_version_hash: &'a str,
            agreement: Option<restow_core::agreement::basis::Basis>,
            listed: u64,
            rewritten: u64,
            current: u64,
            conflicted: u64,
            gone: u64,
            #[serde(skip_serializing_if = "Option::is_none")]
            accepted: Option<u64>,
            quarantined: &'a Left,
            verified: bool,
            verify_passes: u32,
            #[serde(skip_serializing_if = "Option::is_none")]
            encryption: Option<&'a Check>,
            #[serde(skip_serializing_if = "Vec::is_empty")]
            not_checked: Vec<String>,
            #[serde(skip_serializing_if = "Option::is_none")]
            pruned_stored_versions: Option<&'a [String]>,
            #[serde(skip_serializing_if = "Option::is_none")]
            error: Option<&'a str>,
            seconds: f64,
        }
        let (progress, counts) = (&self.progress, &self.progress.counts);
        let shown = Shown {
            resource: progress.resource.to_string(),
            storage_version: &progress.storage_version,
            storage_version_hash: &progress.storage_version_hash,
            agreement: progress.basis,
            listed: counts.listed,
            rewritten: counts.rewritten,
            current: counts.current,
            conflicted: counts.conflicted,
            gone: counts.gone,
            accepted: self.dry_run.then_some(counts.accepted),
            quarantined: &self.left,
            verified: progress.verified,
            verify_passes: progress.passes,
            encryption: (!self.dry_run).then_some(&progress.keys),
            not_checked: not_checked(self),
            pruned_stored_versions: self.pruned.as_ref().map(|pruned| pruned.after.as_slice()),
            error: self.error.as_deref(),
            seconds: (progress.seconds * 1000.0).round() / 1000.0,
        };
        shown.serialize(serializer)
    }
}

/// The end of a complete run.
pub(crate) fn finished(progress: &Progress) -> End {
    match progress.unproven {
        _ if progress.counts.quarantined + progress.verify.quarantined > 0 => End::ObjectsLeft,
        Some(_) => End::Unsafe,
        None => End::Succeeded,
    }
}

/// What a complete run does not prove.
pub(crate) fn unproven(progress: &Progress) -> Option<String> {
    let why = progress.unproven.as_ref()?;
    let advice = if progress.keys.unchecked.is_empty() && !progress.keys.untold.is_empty() {
        "keep the old key; if this resource is not encrypted, list what is with --encrypted"
    } else {
        "let restow read /metrics of every API server (name them with --api-server), or list what is encrypted \
        with --encrypted"
    };
    let text = format!(
        "every object is stored as {}, but the encryption key is not proven: {why}; {advice}",
        progress.storage_version
    );
    Some(explained(Reason::Unverified, &text))
}

/// What a complete run did not check.
fn not_checked(report: &ResourceReport) -> Vec<String> {
    let ended = matches!(report.end, End::Succeeded | End::Unsafe | End::ObjectsLeft) && !report.dry_run;
    if ended && report.progress.phase == Phase::Done { report.progress.unchecked() } else { Vec::new() }
}

/// The summary of one resource, and the command for what is left to do. The text wraps at a width; the command does not, so
/// that it can be copied.
pub(crate) fn summary(report: &ResourceReport, flags: &str, width: Option<usize>) -> String {
    let mut text = String::new();
    for (index, line) in told(report).iter().enumerate() {
        if index == 0 { wrap_hanging(line, width, &mut text) } else { wrap(line, width, &mut text) }
    }
    if let Some((when, command)) = next(report, flags) {
        text.push_str(&format!("  {when}: {command}\n"));
    }
    text
}

/// The lines of the summary of one resource.
fn told(report: &ResourceReport) -> Vec<String> {
    let (progress, counts) = (&report.progress, &report.progress.counts);
    let name = &progress.resource;
    let mut parts = Vec::new();
    if report.dry_run {
        parts.push(format!("{} would be accepted", count(counts.accepted)));
    } else {
        parts.push(format!("{} rewritten", count(counts.rewritten)));
        parts.push(format!("{} already current", count(counts.current)));
    }
    let mut also = |number: u64, what: &str| {
        if number > 0 {
            parts.push(format!("{} {what}", count(number)));
        }
    };
    also(counts.conflicted, "written by others meanwhile");
    also(counts.gone, "deleted meanwhile");
    let quarantined = counts.quarantined + progress.verify.quarantined;
    also(quarantined, if report.dry_run { "would be rejected" } else { "quarantined" });
    let mark = match report.end {
        End::Succeeded if report.dry_run => "dry run",
        End::Succeeded if progress.verified => "verified",
        End::Succeeded => "done, not verified",
        End::ObjectsLeft => "incomplete",
        End::Unsafe => "unsafe",
        End::Failed => "failed",
        End::Stopped => "stopped",
    };
    let basis = progress.basis.map(|basis| format!(", agreement {basis}")).unwrap_or_default();
    let spent = time(Duration::from_secs_f64(progress.seconds));
    let mut lines = vec![format!(
        "{name} ({}): {mark}: {} in {spent}{basis}",
        progress.storage_version,
        parts.join(", ")
    )];
    if progress.verified || progress.unproven.is_some() {
        lines.push(progress.proof());
    }
    if report.error.is_none() {
        lines.extend(not_checked(report).iter().map(|what| format!("not checked: {what}")));
    }
    if let Some(pruned) = &report.pruned {
        lines.push(format!("storedVersions: {} -> {}", pruned.before.join(", "), pruned.after.join(", ")));
    }
    for object in report.left.iter().take(NAMED) {
        let place =
            if object.namespace.is_empty() { String::new() } else { format!("{}/", object.namespace) };
        lines.push(format!("quarantined: {place}{}: {}: {}", object.name, object.reason, object.message));
    }
    if quarantined > NAMED as u64 {
        let rest = count(quarantined - NAMED as u64);
        lines.push(match &report.left {
            Left::File(path) => format!("and {rest} more, all listed in {}", path.display()),
            Left::Here(_) => format!("and {rest} more; -o json lists all"),
        });
    }
    if report.end == End::ObjectsLeft && !report.dry_run {
        lines.push(explained(Reason::Quarantined, "what to do about quarantined objects"));
    }
    lines.extend(report.error.clone().filter(|_| report.end != End::Stopped));
    lines
}

/// When to continue, and with which command.
fn next(report: &ResourceReport, flags: &str) -> Option<(&'static str, String)> {
    let (program, name) = (program(), &report.progress.resource);
    match report.end {
        _ if report.dry_run => None,
        End::ObjectsLeft => {
            Some(("once fixed, run", format!("{program} migrate {name} --retry-quarantined{flags}")))
        }
        End::Stopped | End::Failed => {
            let how = match report.progress.phase {
                _ if report.retried => " --retry-quarantined",
                // There is no progress that could be resumed.
                Phase::Done => "",
                Phase::Rewriting | Phase::Verifying => " --resume",
            };
            Some(("to continue, run", format!("{program} migrate {name}{how}{flags}")))
        }
        End::Succeeded | End::Unsafe => None,
    }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use restow_core::agreement::basis::Basis;
    use restow_core::resource::name::GroupResource;
    use restow_core::rewrite::progress::Counts;

    use super::*;

    #[test]
    fn a_report_links_to_troubleshooting() {
        let progress = Progress::new(GroupResource::parse("secrets"), "v1", "x", Timestamp::default());
        let report = |end, progress: &Progress, dry_run| ResourceReport {
            error: unproven(progress),
            progress: progress.clone(),
            left: Left::Here(Vec::new()),
            end,
            pruned: None,
            dry_run,
            retried: false,
        };
        let unproven = Progress { unproven: Some("no metrics".to_owned()), ..progress.clone() };
        for (report, expected) in [
            (report(End::ObjectsLeft, &progress, false), Some("docs/TROUBLESHOOTING.md#quarantined")),
            (report(End::Unsafe, &unproven, false), Some("docs/TROUBLESHOOTING.md#unverified")),
            (report(End::Succeeded, &progress, false), None),
            // Nothing was left: nothing was done.
            (report(End::ObjectsLeft, &progress, true), None),
        ] {
            let text = summary(&report, "", None);
            assert_eq!(text.contains("TROUBLESHOOTING"), expected.is_some(), "{text}");
            assert!(text.contains(expected.unwrap_or_default()), "{text}");
        }
    }

    fn progress() -> Progress {
        let mut progress = Progress::new(
            GroupResource::parse("widgets.example.com"),
            "v2",
            "hashOfV2=",
            Timestamp::default(),
        );
        progress.basis = Some(Basis::Direct);
        progress.leased = true;
        progress.phase = Phase::Done;
        progress.passes = 1;
        progress.seconds = 12.5;
        progress.counts = Counts {
            listed: 3000,
            rewritten: 2900,
            current: 90,
            conflicted: 7,
            gone: 3,
            ..Counts::default()
        };
        progress
    }

    fn report(end: End, progress: Progress) -> ResourceReport {
        ResourceReport {
            error: unproven(&progress),
            progress,
            left: Left::Here(Vec::new()),
            end,
            pruned: None,
            dry_run: false,
            retried: false,
        }
    }

    /// Runs with every kind of end, by name.
    fn reports() -> Vec<(&'static str, ResourceReport)> {
        let left = |number: u64| {
            let one = |index| Quarantined {
                namespace: "default".to_owned(),
                name: format!("w-{index}"),
                reason: "Forbidden".to_owned(),
                message: "denied by policy".to_owned(),
                uid: String::new(),
            };
            Left::Here((0..number).map(one).collect())
        };
        let quarantined = |number| {
            let mut progress = progress();
            progress.counts.quarantined = number;
            progress
        };
        let verified = Progress { verified: true, ..progress() };
        let unproven =
            Progress { unproven: Some("api-2 reports no encryption configuration".to_owned()), ..progress() };
        let stopped = Progress { phase: Phase::Rewriting, passes: 0, ..progress() };
        let accepted = Counts { listed: 10, accepted: 8, quarantined: 2, ..Counts::default() };
        let pruned = Pruned { before: vec!["v1".to_owned(), "v2".to_owned()], after: vec!["v2".to_owned()] };
        vec![
            ("verified", report(End::Succeeded, verified.clone())),
            ("pruned", ResourceReport { pruned: Some(pruned), ..report(End::Succeeded, verified) }),
            ("unverified", report(End::Succeeded, progress())),
            ("quarantined", ResourceReport { left: left(12), ..report(End::ObjectsLeft, quarantined(12)) }),
            ("unsafe", report(End::Unsafe, unproven)),
            ("stopped", report(End::Stopped, stopped.clone())),
            (
                "failed",
                ResourceReport {
                    error: Some("the server is down".to_owned()),
                    ..report(End::Failed, stopped)
                },
            ),
            (
                "dry-run",
                ResourceReport {
                    dry_run: true,
                    left: left(2),
                    ..report(End::ObjectsLeft, Progress { counts: accepted, ..progress() })
                },
            ),
        ]
    }

    #[test]
    fn reports_are_as_reviewed() {
        let mut text = String::new();
        for (name, report) in reports() {
            text.push_str(&format!("# {name}\n{}\n", summary(&report, " --context lab", Some(100))));
        }
        crate::snapshots::check("reports/table", &text);
        let resources = reports().into_iter().map(|(_, report)| report).collect();
        let unavailable = vec![Unavailable {
            group_version: "metrics.k8s.io/v1beta1".to_owned(),
            message: "its API server does not answer".to_owned(),
        }];
        let report = Report { resources, unavailable, ..Report::default() };
        crate::snapshots::check("reports/json", &crate::render::text::json(&report));
        crate::snapshots::check("reports/yaml", &crate::render::text::yaml(&report));
    }
}
