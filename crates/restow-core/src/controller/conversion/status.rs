//! The status of a Conversion: its phase, conditions and counts.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use restow_api::ConversionConditionType as Type;
use restow_api::{ConversionCheck, ConversionStatus, Reason, RefusedObject, StorageVersionMigration};

use crate::controller::condition::{NAMED, Stage};
use crate::rewrite::progress::objects;

/// How many refused objects a message names.
const IN_MESSAGE: usize = 3;

/// What a Conversion is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
    /// Every object is converted there and back.
    Checking,
    /// The definition is changed.
    SettingStorageVersion,
    /// Rules convert every object.
    ConvertingInPlace,
    /// A migration rewrites all objects.
    Rewriting,
    /// A migration verifies all objects.
    Verifying,
    /// storedVersions is reduced.
    Pruning,
    /// The old version is no longer served.
    StoppingServing,
}

impl Work {
    /// The name in the status.
    pub fn name(self) -> &'static str {
        match self {
            Self::Checking => "Checking",
            Self::SettingStorageVersion => "SettingStorageVersion",
            Self::ConvertingInPlace => "ConvertingInPlace",
            Self::Rewriting => "Rewriting",
            Self::Verifying => "Verifying",
            Self::Pruning => "Pruning",
            Self::StoppingServing => "StoppingServing",
        }
    }
}

/// Sets the phase and the conditions Running, Succeeded and Failed.
pub fn report(
    status: &mut ConversionStatus,
    (stage, work): (Stage, Option<Work>),
    reason: Reason,
    message: &str,
    now: Timestamp,
) {
    status.phase = Some(stage.name().to_owned());
    status.step = work.map(|work| work.name().to_owned());
    record(status, Type::Running, stage == Stage::Running, reason, message, now);
    for (type_, ended) in [(Type::Succeeded, Stage::Succeeded), (Type::Failed, Stage::Failed)] {
        // A condition that was never True is not added as False.
        if stage == ended || status.condition(type_).is_some() {
            record(status, type_, stage == ended, reason, message, now);
        }
    }
}

/// Ends a Conversion: Succeeded or Failed.
pub fn end(status: &mut ConversionStatus, stage: Stage, reason: Reason, message: &str, now: Timestamp) {
    report(status, (stage, None), reason, message, now);
}

/// Sets one condition; its time changes only with its status.
pub fn record(
    status: &mut ConversionStatus,
    type_: Type,
    holds: bool,
    reason: Reason,
    message: &str,
    now: Timestamp,
) {
    let mut new = Condition {
        type_: type_.name().to_owned(),
        status: if holds { "True" } else { "False" }.to_owned(),
        last_transition_time: Time(now),
        reason: reason.to_string(),
        message: message.to_owned(),
        observed_generation: status.observed_generation,
    };
    match status.conditions.iter_mut().find(|condition| condition.type_ == new.type_) {
        Some(old) => {
            if old.status == new.status {
                new.last_transition_time = old.last_transition_time.clone();
            }
            *old = new;
        }
        None => status.conditions.push(new),
    }
}

/// Shows the progress of the migration that rewrites the objects; returns what it is doing.
pub fn mirror(status: &mut ConversionStatus, migration: &StorageVersionMigration) -> Work {
    status.migration = migration.metadata.name.clone();
    let of = migration.status.as_ref();
    status.progress = of.and_then(|of| of.progress.clone());
    status.quarantined = of.map(|of| of.quarantined.clone()).unwrap_or_default();
    let pass = status.progress.as_ref().and_then(|progress| progress.pass.as_deref());
    if pass == Some("verifying") { Work::Verifying } else { Work::Rewriting }
}

/// Which check a status is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pass {
    /// The one before anything is changed.
    First,
    /// The one after the storage version was set.
    Again,
}

impl Pass {
    /// The check in a status.
    pub fn of(self, status: &mut ConversionStatus) -> &mut Option<ConversionCheck> {
        match self {
            Self::First => &mut status.check,
            Self::Again => &mut status.recheck,
        }
    }
}

/// Adds objects that would not survive to a status, up to [`NAMED`].
pub fn name_refused(status: &mut ConversionStatus, pass: Pass, refused: Vec<RefusedObject>) {
    if let Some(check) = pass.of(status) {
        check.refused += refused.len() as u64;
    }
    let room = NAMED.saturating_sub(status.refused.len());
    status.refused.extend(refused.into_iter().take(room));
}

/// What a finished check has found, in a sentence.
pub fn summary(status: &ConversionStatus) -> String {
    let Some(check) = &status.check else { return "nothing was checked".to_owned() };
    if check.refused == 0 {
        return format!("{} survive the way to the new version and back", objects(check.objects));
    }
    refused_of(status, check)
}

/// What the check after the storage version was set has found, in a sentence.
pub fn rechecked_summary(status: &ConversionStatus) -> String {
    let Some(check) = &status.recheck else { return "nothing was checked again".to_owned() };
    if check.refused == 0 {
        return format!("{} that were written meanwhile survive, too", objects(check.objects));
    }
    format!("checked again after the storage version was set: {}", refused_of(status, check))
}

/// Begins a failed Conversion again: everything is decided anew from what there is now.
pub fn begin_again(status: &mut ConversionStatus, retry: &str, now: Timestamp) {
    *status = ConversionStatus {
        observed_generation: status.observed_generation,
        resource: status.resource.take(),
        retried: Some(retry.to_owned()),
        ..ConversionStatus::default()
    };
    report(status, (Stage::Waiting, None), Reason::Retrying, "a retry was requested", now);
}

fn refused_of(status: &ConversionStatus, check: &ConversionCheck) -> String {
    let name = |object: &RefusedObject| {
        let slash = if object.namespace.is_empty() { "" } else { "/" };
        format!("{}{slash}{}: {}", object.namespace, object.name, object.message)
    };
    let named: Vec<String> = status.refused.iter().take(IN_MESSAGE).map(name).collect();
    let more = check.refused.saturating_sub(named.len() as u64);
    let more = if more > 0 { format!("; and {more} more, see status.refused") } else { String::new() };
    format!("{} of {} would not survive: {}{more}", check.refused, objects(check.objects), named.join("; "))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    #[test]
    fn conditions_follow_the_stage_and_keep_their_times() {
        let mut status = ConversionStatus::default();
        let mut shown = |stage, second| {
            report(&mut status, (stage, None), Reason::Checking, "", at(second));
            let line = |one: &Condition| {
                format!("{}={}@{}", one.type_, one.status, one.last_transition_time.0.as_second())
            };
            status.conditions.iter().map(line).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(shown(Stage::Waiting, 1), "Running=False@1");
        assert_eq!(shown(Stage::Running, 2), "Running=True@2");
        assert_eq!(shown(Stage::Running, 3), "Running=True@2");
        assert_eq!(shown(Stage::Failed, 4), "Running=False@4 Failed=True@4");
    }

    #[test]
    fn the_step_is_shown_while_there_is_one() {
        let mut status = ConversionStatus::default();
        report(&mut status, (Stage::Running, Some(Work::Checking)), Reason::Checking, "", at(0));
        assert_eq!((status.phase.as_deref(), status.step.as_deref()), (Some("Running"), Some("Checking")));
        end(&mut status, Stage::Succeeded, Reason::Converted, "", at(1));
        assert_eq!((status.phase.as_deref(), status.step), (Some("Succeeded"), None));
    }

    #[test]
    fn a_retry_begins_from_nothing() {
        let mut status = ConversionStatus {
            resource: Some("widgets.example.com".to_owned()),
            definition: Some("u/2".to_owned()),
            migration: Some("m".to_owned()),
            check: Some(ConversionCheck::default()),
            ..ConversionStatus::default()
        };
        record(&mut status, Type::StorageVersionSet, true, Reason::StorageVersionSet, "", at(0));
        end(&mut status, Stage::Failed, Reason::Quarantined, "", at(1));
        begin_again(&mut status, "now", at(2));
        assert!(!status.is_finished() && !status.is(Type::StorageVersionSet));
        assert_eq!((status.phase.as_deref(), status.retried.as_deref()), (Some("Waiting"), Some("now")));
        assert_eq!(status.resource.as_deref(), Some("widgets.example.com"));
        assert_eq!((status.definition, status.migration, status.check), (None, None, None));
    }

    #[test]
    fn all_refused_objects_are_counted_and_some_are_named() {
        let lost = |index: usize| RefusedObject {
            namespace: "default".to_owned(),
            name: format!("w-{index}"),
            fields: vec!["spec.colour".to_owned()],
            message: "would lose spec.colour".to_owned(),
            ..RefusedObject::default()
        };
        for (count, named, expected) in [
            (0, 0, "200 objects survive the way to the new version and back"),
            (1, 1, "1 of 200 objects would not survive: default/w-0: would lose spec.colour"),
            (
                5,
                5,
                "5 of 200 objects would not survive: default/w-0: would lose spec.colour; default/w-1: would lose \
                 spec.colour; default/w-2: would lose spec.colour; and 2 more, see status.refused",
            ),
            (150, 100, "and 147 more"),
        ] {
            let check = ConversionCheck { objects: 200, ..ConversionCheck::default() };
            let mut status = ConversionStatus { check: Some(check), ..ConversionStatus::default() };
            name_refused(&mut status, Pass::First, (0..count).map(lost).collect());
            assert_eq!(status.refused.len(), named);
            assert!(summary(&status).contains(expected), "{}", summary(&status));
        }
    }
}
