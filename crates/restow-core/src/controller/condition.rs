//! The status of a migration object: its phase, conditions and counts.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use restow_api::{
    ConditionStatus, ConditionType, MigrationCondition, MigrationProgress, QuarantinedObject, Reason,
    StorageVersionMigrationStatus,
};

use crate::rewrite::estimate::time_left;
use crate::rewrite::progress::{Phase, Progress, Quarantined, objects};

/// How many quarantined objects a status names.
pub const NAMED: usize = 100;
/// How many characters of a server's message a status keeps.
const MESSAGE: usize = 512;

/// The phase of a migration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// It waits for its turn or for the API servers.
    Waiting,
    /// A user has suspended it.
    Suspended,
    /// Objects are being written.
    Running,
    /// It is done and verified.
    Succeeded,
    /// It ended without success.
    Failed,
}

impl Stage {
    /// The phase as the status shows it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Waiting => "Waiting",
            Self::Suspended => "Suspended",
            Self::Running => "Running",
            Self::Succeeded => "Succeeded",
            Self::Failed => "Failed",
        }
    }

    /// Reads the stage from a status. The conditions take precedence over the phase, because another controller may not
    /// write a phase.
    pub fn of(status: Option<&StorageVersionMigrationStatus>) -> Self {
        let Some(status) = status else { return Self::Waiting };
        for (type_, stage) in [
            (ConditionType::Failed, Self::Failed),
            (ConditionType::Succeeded, Self::Succeeded),
            (ConditionType::Running, Self::Running),
        ] {
            if status.is(type_) {
                return stage;
            }
        }
        let suspended = status.phase.as_deref() == Some(Self::Suspended.name());
        if suspended { Self::Suspended } else { Self::Waiting }
    }
}

/// Sets the phase and all three conditions; times change only where a condition does.
pub fn set(
    status: &mut StorageVersionMigrationStatus,
    stage: Stage,
    reason: Reason,
    message: &str,
    now: Timestamp,
) {
    status.phase = Some(stage.name().to_owned());
    let is = |holds: bool| if holds { ConditionStatus::True } else { ConditionStatus::False };
    put(status, ConditionType::Running, is(stage == Stage::Running), reason, message, now);
    for (type_, ended) in
        [(ConditionType::Succeeded, Stage::Succeeded), (ConditionType::Failed, Stage::Failed)]
    {
        // A condition that was never True is not added as False.
        if stage == ended || status.condition(type_).is_some() {
            put(status, type_, is(stage == ended), reason, message, now);
        }
    }
}

fn put(
    status: &mut StorageVersionMigrationStatus,
    type_: ConditionType,
    value: ConditionStatus,
    reason: Reason,
    message: &str,
    now: Timestamp,
) {
    let new = MigrationCondition {
        type_,
        status: value,
        last_update_time: Some(Time(now)),
        reason: Some(reason.to_string()),
        message: (!message.is_empty()).then(|| message.to_owned()),
    };
    match status.conditions.iter_mut().find(|condition| condition.type_ == type_) {
        Some(old) => {
            let same = old.status == new.status && old.reason == new.reason && old.message == new.message;
            if !same {
                *old = new;
            }
        }
        None => status.conditions.push(new),
    }
}

/// The counts as a status shows them, and when the pass will end if it continues at the same rate.
pub fn counts(
    progress: &Progress,
    pass_began: Option<(Timestamp, u64)>,
    now: Timestamp,
) -> MigrationProgress {
    let (counts, pass) = (progress.overall_counts(), progress.pass());
    let remaining = if progress.phase == Phase::Done { Some(0) } else { progress.remaining() };
    let percent = match progress.phase {
        Phase::Done => Some(100),
        _ => progress
            .expected
            .map(|all| (pass.done() * 100).checked_div(all).map_or(100, |share| share.min(99))),
    };
    let estimated_completion =
        pass_began.filter(|_| progress.phase != Phase::Done).and_then(|(began, done)| {
            let spent = Duration::try_from(now.duration_since(began)).ok()?;
            let left = time_left(pass.done().saturating_sub(done), remaining?, spent)?;
            now.checked_add(left).ok().map(Time)
        });
    MigrationProgress {
        listed: counts.listed,
        rewritten: counts.rewritten,
        current: counts.current,
        skipped: counts.conflicted + counts.gone,
        quarantined: progress.counts.quarantined + progress.verify.quarantined,
        checked: progress.verify.done(),
        pass: match progress.phase {
            Phase::Rewriting => Some("rewriting".to_owned()),
            Phase::Verifying => Some("verifying".to_owned()),
            Phase::Done => None,
        },
        remaining,
        percent: percent.map(|percent| format!("{percent}%")),
        storage_version: Some(progress.storage_version.clone()),
        storage_version_hash: Some(progress.storage_version_hash.clone()),
        agreement: progress.basis.map(|basis| basis.to_string()),
        verified: progress.verified,
        started_at: Some(Time(progress.started)),
        updated_at: Some(Time(progress.updated)),
        estimated_completion,
    }
}

/// Adds the quarantined objects of a page to a status, up to [`NAMED`].
pub fn name_left(status: &mut StorageVersionMigrationStatus, left: &[Quarantined]) {
    let room = NAMED.saturating_sub(status.quarantined.len());
    status.quarantined.extend(left.iter().take(room).map(|object| QuarantinedObject {
        namespace: object.namespace.clone(),
        name: object.name.clone(),
        uid: object.uid.clone(),
        reason: object.reason.clone(),
        message: cut(&object.message),
    }));
}

/// The quarantined objects of a status; none if it does not name all of them.
pub fn named_left(status: &StorageVersionMigrationStatus, all: u64) -> Option<Vec<Quarantined>> {
    let named = status.quarantined.iter().map(|object| Quarantined {
        namespace: object.namespace.clone(),
        name: object.name.clone(),
        uid: object.uid.clone(),
        reason: object.reason.clone(),
        message: object.message.clone(),
    });
    (status.quarantined.len() as u64 == all).then(|| named.collect())
}

fn cut(message: &str) -> String {
    match message.char_indices().nth(MESSAGE) {
        Some((end, _)) => format!("{}…", &message[..end]),
        None => message.to_owned(),
    }
}

/// Summarizes a finished run in one line.
pub fn summary(progress: &Progress) -> String {
    let counts = progress.overall_counts();
    let mut parts =
        vec![format!("{} rewritten", counts.rewritten), format!("{} already current", counts.current)];
    for (number, what) in [
        (counts.conflicted, "written by others meanwhile"),
        (counts.gone, "deleted meanwhile"),
        (progress.counts.quarantined + progress.verify.quarantined, "quarantined"),
    ] {
        if number > 0 {
            parts.push(format!("{number} {what}"));
        }
    }
    let basis = progress.basis.map(|basis| format!(", agreement {basis}")).unwrap_or_default();
    let mut summary = format!("{}: {}{basis}", objects(counts.listed), parts.join(", "));
    if progress.verified || progress.unproven.is_some() {
        summary.push_str(&format!("; {}", progress.proof()));
        for what in progress.unchecked() {
            summary.push_str(&format!("; not checked: {what}"));
        }
    }
    summary
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resource::name::GroupResource;
    use crate::rewrite::progress::Counts;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    #[test]
    fn conditions_follow_the_stage_and_keep_their_times() {
        let mut status = StorageVersionMigrationStatus::default();
        let mut shown = |stage, reason: Reason, second| {
            set(&mut status, stage, reason, "", at(second));
            let line = |c: &MigrationCondition| {
                let time = c.last_update_time.as_ref().unwrap().0.as_second();
                format!("{:?}={:?}@{time}", c.type_, c.status)
            };
            status.conditions.iter().map(line).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(shown(Stage::Waiting, Reason::WaitingForAgreement, 1), "Running=False@1");
        assert_eq!(shown(Stage::Waiting, Reason::WaitingForAgreement, 2), "Running=False@1");
        assert_eq!(shown(Stage::Running, Reason::Rewriting, 3), "Running=True@3");
        assert_eq!(shown(Stage::Failed, Reason::Quarantined, 4), "Running=False@4 Failed=True@4");
        assert_eq!(shown(Stage::Running, Reason::Retrying, 5), "Running=True@5 Failed=False@5");
        assert_eq!(
            shown(Stage::Succeeded, Reason::Verified, 6),
            "Running=False@6 Failed=False@6 Succeeded=True@6"
        );
    }

    #[test]
    fn a_stage_round_trips_through_the_status() {
        let mut status = StorageVersionMigrationStatus::default();
        assert_eq!((Stage::of(None), Stage::of(Some(&status))), (Stage::Waiting, Stage::Waiting));
        for stage in [
            Stage::Waiting,
            Stage::Suspended,
            Stage::Running,
            Stage::Failed,
            Stage::Running,
            Stage::Succeeded,
        ] {
            set(&mut status, stage, Reason::Started, "", at(0));
            assert_eq!(Stage::of(Some(&status)), stage);
        }
        // The predecessor writes conditions only.
        status.phase = None;
        assert_eq!(Stage::of(Some(&status)), Stage::Succeeded);
    }

    #[test]
    fn a_status_shows_counts_and_the_estimated_end() {
        let mut progress = Progress::new(GroupResource::new("", "secrets"), "v1", "hash", at(0));
        progress.expected = Some(200);
        progress.counts = Counts { listed: 50, rewritten: 49, quarantined: 1, ..Counts::default() };
        let shown = counts(&progress, Some((at(0), 0)), at(10));
        assert_eq!((shown.remaining, shown.percent.as_deref()), (Some(150), Some("25%")));
        assert_eq!(shown.estimated_completion, Some(Time(at(40))));
        progress.phase = Phase::Done;
        let shown = counts(&progress, Some((at(0), 0)), at(10));
        assert_eq!((shown.remaining, shown.percent.as_deref()), (Some(0), Some("100%")));
        assert_eq!(shown.estimated_completion, None);
    }

    #[test]
    fn a_status_names_a_limited_number_of_quarantined_objects() {
        let left = |count: usize| {
            let one = |index: usize| Quarantined {
                namespace: "default".to_owned(),
                name: format!("w-{index}"),
                uid: "u".to_owned(),
                reason: "Forbidden".to_owned(),
                message: "é".repeat(1000),
            };
            (0..count).map(one).collect::<Vec<_>>()
        };
        for (count, named, all) in [(0, 0, true), (7, 7, true), (100, 100, true), (101, 100, false)] {
            let mut status = StorageVersionMigrationStatus::default();
            for page in left(count).chunks(30) {
                name_left(&mut status, page);
            }
            assert_eq!(status.quarantined.len(), named);
            assert_eq!(named_left(&status, count as u64).is_some(), all);
            assert!(status.quarantined.iter().all(|object| object.message.chars().count() == 513));
        }
    }

    #[test]
    fn a_summary_says_what_was_proven_and_what_was_not_checked() {
        use crate::agreement::basis::Basis;
        use crate::agreement::encryption::Check;
        let mut progress = Progress::new(GroupResource::new("", "secrets"), "v1", "hash", at(0));
        progress.counts = Counts { listed: 5, rewritten: 5, ..Counts::default() };
        (progress.basis, progress.passes) = (Some(Basis::Direct), 1);
        let start = "5 objects: 5 rewritten, 0 already current, agreement direct";
        assert_eq!(summary(&progress), start);
        let proven = "proven: the verifying pass found every object stored as v1";
        progress.verified = true;
        progress.keys = Check::none("api-2", "403");
        assert_eq!(
            summary(&progress),
            format!("{start}; {proven}; not checked: the encryption key: api-2: 403")
        );
        progress.keys = Check {
            checked: true,
            config_hash: Some("sha256:a".to_owned()),
            servers: vec!["api-1".to_owned(), "api-2".to_owned()],
            ..Check::default()
        };
        let key = "under encryption configuration sha256:a on 2 API servers";
        assert_eq!(summary(&progress), format!("{start}; {proven} {key}"));
        progress.basis = Some(Basis::Assumed);
        assert!(summary(&progress).contains("not checked: that there is one API server"));
    }
}
