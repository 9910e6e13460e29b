//! Summarizes a migration for display, from its object and the time.

use std::time::Duration;

use jiff::Timestamp;
use kube::ResourceExt as _;
use restow_api::{ConditionType, MigrationCondition, QuarantinedObject, StorageVersionMigration};
use restow_core::controller::condition::Stage;
use serde::Serialize;

use crate::program::program;
use crate::render::pass::{self, Pass, round};
use crate::render::table::Row;
use crate::render::text::{count, time};

/// How many quarantined objects are named by default.
const NAMED: usize = 3;

/// The columns of the table of migrations.
pub(crate) const HEADER: [&str; 4] = ["MIGRATION", "PHASE", "PROGRESS", "AGE"];
/// The columns of the wide table.
pub(crate) const WIDE_HEADER: [&str; 7] =
    ["MIGRATION", "RESOURCE", "PHASE", "PROGRESS", "STORED AS", "AGREEMENT", "AGE"];

#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct MigrationSummary {
    pub(crate) name: String,
    pub(crate) resource: String,
    #[serde(serialize_with = "name_of")]
    pub(crate) phase: Stage,
    suspend: bool,
    retry_requested: bool,
    percent: Option<String>,
    done: u64,
    total: Option<u64>,
    /// Objects per second, on average.
    rate: Option<f64>,
    seconds_left: Option<f64>,
    rewritten: u64,
    current: u64,
    skipped: u64,
    pub(crate) quarantined: u64,
    quarantined_objects: Vec<QuarantinedObject>,
    reason: Option<String>,
    message: Option<String>,
    storage_version: Option<String>,
    storage_version_hash: Option<String>,
    agreement: Option<String>,
    verified: bool,
    age_seconds: Option<f64>,
}

fn name_of<S: serde::Serializer>(stage: &Stage, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(stage.name())
}

/// The condition that explains the phase of a migration.
fn telling(migration: &StorageVersionMigration, phase: Stage) -> Option<&MigrationCondition> {
    let status = migration.status.as_ref()?;
    match phase {
        Stage::Failed => status.condition(ConditionType::Failed),
        Stage::Succeeded => status.condition(ConditionType::Succeeded),
        Stage::Waiting | Stage::Suspended | Stage::Running => status.condition(ConditionType::Running),
    }
}

/// A text, unless it is empty.
fn said(text: &Option<String>) -> Option<String> {
    text.clone().filter(|text| !text.is_empty())
}

impl MigrationSummary {
    /// Summarizes a migration now.
    pub(crate) fn of(migration: &StorageVersionMigration, now: Timestamp) -> Self {
        let status = migration.status.clone().unwrap_or_default();
        let phase = Stage::of(migration.status.as_ref());
        let condition = telling(migration, phase);
        let progress = status.progress.unwrap_or_default();
        let pass = Pass::of(&progress);
        let rate = pass.rate(&progress);
        let running = phase == Stage::Running;
        let created = migration.creation_timestamp();
        Self {
            name: migration.name_any(),
            resource: migration.spec.resource.name(),
            phase,
            suspend: migration.is_suspended(),
            retry_requested: migration.retry_requested(),
            percent: progress.percent.clone(),
            done: pass.done,
            total: pass.total,
            rate,
            seconds_left: pass::seconds_left(&progress, rate, now).filter(|_| running),
            rewritten: progress.rewritten,
            current: progress.current,
            skipped: progress.skipped,
            quarantined: progress.quarantined,
            quarantined_objects: status.quarantined,
            reason: condition.and_then(|condition| said(&condition.reason)),
            message: condition.and_then(|condition| said(&condition.message)),
            storage_version: progress.storage_version,
            storage_version_hash: progress
                .storage_version_hash
                .or(migration.spec.storage_version_hash.clone()),
            agreement: progress.agreement,
            verified: progress.verified,
            age_seconds: created.map(|created| round(now.duration_since(created.0).as_secs_f64().max(0.0))),
        }
    }

    /// Sorts those that need attention first, then by name.
    pub(crate) fn order(&self) -> (u8, &str) {
        let first = match self.phase {
            Stage::Running => 0,
            Stage::Failed => 1,
            Stage::Suspended => 2,
            Stage::Waiting => 3,
            Stage::Succeeded => 4,
        };
        (first, &self.name)
    }

    /// The row in the table, and the lines below it.
    pub(crate) fn row(&self, wide: bool) -> Row {
        let age = self.age_seconds.map(seconds).unwrap_or_default();
        let (name, phase) = (self.name.clone(), self.phase.name().to_owned());
        let progress = self.progress().unwrap_or_default();
        let cells = if wide {
            let text = |text: &Option<String>| text.clone().unwrap_or_default();
            let (stored_as, agreement) = (text(&self.storage_version), text(&self.agreement));
            vec![name, self.resource.clone(), phase, progress, stored_as, agreement, age]
        } else {
            vec![name, phase, progress, age]
        };
        Row { cells, beneath: self.beneath(wide) }
    }

    fn progress(&self) -> Option<String> {
        match (&self.percent, self.objects()) {
            (Some(percent), objects) => Some(format!("{percent:>4}  {}", objects.unwrap_or_default())),
            (None, objects) => objects,
        }
    }

    /// How many objects of the pass are done, and of how many if that is known.
    fn objects(&self) -> Option<String> {
        match self.total {
            Some(total) => Some(format!("{}/{}", count(self.done), count(total))),
            None => (self.done > 0).then(|| format!("{} done", count(self.done))),
        }
    }

    /// The rate of a running migration, and how long it will take.
    fn speed(&self) -> impl Iterator<Item = String> {
        let running = self.phase == Stage::Running;
        let rate = self.rate.filter(|_| running).map(|rate| format!("{rate:.0}/s"));
        let left = self.seconds_left.filter(|_| running).map(|left| format!("{} left", seconds(left)));
        rate.into_iter().chain(left)
    }

    /// Whether no controller has processed it yet.
    pub(crate) fn is_untouched(&self) -> bool {
        self.phase == Stage::Waiting && self.reason.is_none() && self.message.is_none()
    }

    /// Explains its phase.
    fn why(&self) -> Option<String> {
        if self.is_untouched() {
            return Some("no controller has started it yet".to_owned());
        }
        let reason = self.reason.as_deref().filter(|reason| *reason != self.phase.name());
        let parts: Vec<&str> = reason.into_iter().chain(self.message.as_deref()).collect();
        (!parts.is_empty() && self.phase != Stage::Succeeded).then(|| parts.join(": "))
    }

    /// A request that has not taken effect yet.
    fn asked(&self) -> Option<&'static str> {
        match self.phase {
            Stage::Failed if self.retry_requested => Some("a retry was requested"),
            Stage::Running | Stage::Waiting if self.suspend => Some("a suspension was requested"),
            Stage::Suspended if !self.suspend => Some("a resume was requested"),
            _ => None,
        }
    }

    fn beneath(&self, wide: bool) -> Vec<String> {
        let mut lines = Vec::new();
        if !wide && !self.name.starts_with(&self.resource) {
            lines.push(format!("migrates {}", self.resource));
        }
        if self.phase == Stage::Running {
            let parts: Vec<String> = self.reason.iter().cloned().chain(self.speed()).collect();
            lines.extend((!parts.is_empty()).then(|| parts.join(", ")));
        } else if !self.is_untouched() {
            lines.extend(self.why());
        }
        lines.extend(self.asked().map(str::to_owned));
        self.left(wide, &mut lines);
        lines
    }

    /// The quarantined objects, or the first of them, and what to do about them.
    fn left(&self, wide: bool, lines: &mut Vec<String>) {
        let shown = if wide { usize::MAX } else { NAMED };
        let named = self.quarantined_objects.len().min(shown);
        lines.extend(self.quarantined_objects.iter().take(shown).map(|object| {
            let place =
                if object.namespace.is_empty() { String::new() } else { format!("{}/", object.namespace) };
            format!("quarantined: {place}{}: {}: {}", object.name, object.reason, object.message)
        }));
        let more = self.quarantined.saturating_sub(named as u64);
        if more > 0 {
            let all = self.quarantined_objects.len();
            let hint = if named < all { format!("; -o wide lists {all}") } else { String::new() };
            let more = count(more);
            let more = if named > 0 { format!("and {more} more") } else { format!("{more} quarantined") };
            lines.push(format!("{more}{hint}"));
        }
        if self.quarantined > 0 && self.phase == Stage::Failed && !self.retry_requested {
            lines.push(format!("once fixed, run: {} retry {}", program(), self.name));
        }
    }

    /// The summary in one line.
    pub(crate) fn line(&self) -> String {
        let mut parts = vec![self.phase.name().to_owned()];
        parts.extend(self.far());
        parts.extend(self.speed());
        parts.extend((self.quarantined > 0).then(|| format!("{} quarantined", count(self.quarantined))));
        parts.extend(self.asked().map(str::to_owned));
        let why = self.why().filter(|_| self.phase != Stage::Running);
        format!(
            "{}: {}{}",
            self.name,
            parts.join(", "),
            why.map(|why| format!(": {why}")).unwrap_or_default()
        )
    }

    /// The progress, if it is known.
    pub(crate) fn far(&self) -> Option<String> {
        self.progress().map(|progress| progress.trim().replace("  ", ", "))
    }

    /// What has been done so far.
    pub(crate) fn account(&self) -> String {
        if self.done == 0 && self.rewritten + self.current + self.skipped + self.quarantined == 0 {
            return "nothing has been done yet".to_owned();
        }
        let mut parts = vec![
            format!("{} rewritten", count(self.rewritten)),
            format!("{} already current", count(self.current)),
        ];
        for (number, what) in [(self.skipped, "skipped"), (self.quarantined, "quarantined")] {
            if number > 0 {
                parts.push(format!("{} {what}", count(number)));
            }
        }
        let at = self.far().map(|far| format!("{far}: ")).unwrap_or_default();
        format!("{at}{}", parts.join(", "))
    }
}

/// Seconds as text.
pub(crate) fn seconds(seconds: f64) -> String {
    time(Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX))
}

#[cfg(test)]
mod tests {
    use restow_api::MigrationProgress;
    use restow_core::controller::condition;
    use serde_json::json;

    use restow_api::Reason;

    use super::*;

    const START: &str = "2026-11-15T12:00:00Z";

    fn at(seconds: i64) -> Timestamp {
        let start: Timestamp = START.parse().unwrap();
        start + jiff::SignedDuration::from_secs(seconds)
    }

    fn migration(name: &str, stage: Option<(Stage, Reason, &str)>) -> StorageVersionMigration {
        let mut migration: StorageVersionMigration = serde_json::from_value(json!({
            "apiVersion": "migration.k8s.io/v1alpha1", "kind": "StorageVersionMigration",
            "metadata": {"name": name, "creationTimestamp": START},
            "spec": {"resource": {"group": "example.com", "version": "v1", "resource": "widgets"}},
        }))
        .unwrap();
        if let Some((stage, reason, message)) = stage {
            condition::set(migration.status.get_or_insert_default(), stage, reason, message, at(0));
        }
        migration
    }

    fn progress(
        rewritten: u64,
        quarantined: u64,
        remaining: Option<u64>,
        percent: &str,
    ) -> MigrationProgress {
        serde_json::from_value(json!({
            "listed": rewritten + quarantined, "rewritten": rewritten, "current": 0, "skipped": 0,
            "quarantined": quarantined, "remaining": remaining, "percent": (!percent.is_empty()).then_some(percent),
            "startedAt": START, "updatedAt": at(10).to_string(),
        }))
        .unwrap()
    }

    #[test]
    fn rows_and_lines_show_phase_progress_and_reason() {
        let name = "widgets.example.com-x7k2p";
        for (stage, counts, progress_cell, beneath, line) in [
            (None, None, "", "", "Waiting: no controller has started it yet"),
            (
                Some((Stage::Waiting, Reason::WaitingForAgreement, "api-1 stores v1")),
                None,
                "",
                "WaitingForAgreement: api-1 stores v1",
                "Waiting: WaitingForAgreement: api-1 stores v1",
            ),
            (
                Some((Stage::Running, Reason::Rewriting, "")),
                Some(progress(1260, 0, Some(1740), "42%")),
                " 42%  1,260/3,000",
                "Rewriting, 126/s, 13s left",
                "Running, 42%, 1,260/3,000, 126/s, 13s left",
            ),
            (
                Some((Stage::Running, Reason::Rewriting, "")),
                Some(progress(1260, 0, None, "")),
                "1,260 done",
                "Rewriting, 126/s",
                "Running, 1,260 done, 126/s",
            ),
            (
                Some((Stage::Suspended, Reason::Suspended, "")),
                Some(progress(1260, 0, Some(1740), "42%")),
                " 42%  1,260/3,000",
                "a resume was requested",
                "Suspended, 42%, 1,260/3,000, a resume was requested",
            ),
            (
                Some((Stage::Succeeded, Reason::Verified, "3000 objects")),
                Some(progress(3000, 0, Some(0), "100%")),
                "100%  3,000/3,000",
                "",
                "Succeeded, 100%, 3,000/3,000",
            ),
        ] {
            let mut migration = migration(name, stage);
            if let Some(status) = &mut migration.status {
                status.progress = counts;
            }
            let standing = MigrationSummary::of(&migration, at(20));
            let row = standing.row(false);
            assert_eq!(row.cells, [name, standing.phase.name(), progress_cell, "20s"], "{stage:?}");
            assert_eq!(row.beneath.join("|"), beneath, "{stage:?}");
            assert_eq!(standing.line(), format!("{name}: {line}"), "{stage:?}");
        }
    }

    #[test]
    fn quarantined_objects_are_listed_in_full_only_in_wide_output() {
        let mut failed = migration("mine", Some((Stage::Failed, Reason::Quarantined, "5 objects were left")));
        let status = failed.status.get_or_insert_default();
        status.progress = Some(progress(95, 5, Some(0), "100%"));
        status.quarantined = (0..4)
            .map(|index| QuarantinedObject {
                namespace: "default".to_owned(),
                name: format!("w-{index}"),
                reason: "Forbidden".to_owned(),
                message: "denied".to_owned(),
                ..QuarantinedObject::default()
            })
            .collect();
        let standing = MigrationSummary::of(&failed, at(20));
        let beneath = standing.row(false).beneath;
        assert_eq!(beneath[0], "migrates widgets.example.com");
        assert_eq!(beneath[2], "quarantined: default/w-0: Forbidden: denied");
        assert_eq!(beneath[5], "and 2 more; -o wide lists 4");
        assert_eq!(beneath[6], "once fixed, run: restow retry mine");
        let wide = standing.row(true);
        assert_eq!(wide.cells[1], "widgets.example.com");
        assert_eq!(
            wide.beneath[4..],
            ["quarantined: default/w-3: Forbidden: denied", "and 1 more", &beneath[6]]
        );
        failed.annotations_mut().insert(restow_api::RETRY.to_owned(), String::new());
        let beneath = MigrationSummary::of(&failed, at(20)).row(false).beneath;
        assert!(beneath.iter().any(|line| line == "a retry was requested"), "{beneath:?}");
        assert!(beneath.iter().all(|line| !line.contains("restow retry")), "{beneath:?}");
    }

    #[test]
    fn an_account_lists_what_was_done() {
        let mut running = migration("mine", Some((Stage::Running, Reason::Rewriting, "")));
        assert_eq!(MigrationSummary::of(&running, at(0)).account(), "nothing has been done yet");
        running.status.get_or_insert_default().progress = Some(progress(1260, 2, Some(1738), "42%"));
        assert_eq!(
            MigrationSummary::of(&running, at(0)).account(),
            "42%, 1,262/3,000: 1,260 rewritten, 0 already current, 2 quarantined"
        );
    }
}
