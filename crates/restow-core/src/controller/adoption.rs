//! How restow serves migrations of the built-in API: each through a migration of its own.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use restow_api::{
    ADOPTED, ADOPTED_AT, ConditionStatus, ConditionType, InTreeMigrationStatus, MigrationCondition, Reason,
    StorageVersionMigration,
};

use crate::controller::object_name;

/// The longest message of a condition that the API server accepts.
const MESSAGE: usize = 32 * 1024;

/// A StorageVersionMigration of the built-in API, `storagemigration.k8s.io`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct AdoptionCandidate {
    /// `metadata.name`.
    pub name: String,
    /// `metadata.uid`.
    pub uid: String,
    /// `metadata.generation`.
    pub generation: Option<i64>,
    /// Whether it is being deleted.
    pub deleting: bool,
    /// Whether restow created it, to delegate a migration to the built-in controller.
    pub delegate: bool,
    /// The status as it was read.
    pub status: InTreeMigrationStatus,
}

/// What to do about a migration of the built-in API.
#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    /// Nothing.
    Leave,
    /// Create a migration of restow's own API for it.
    Make,
    /// Write its status.
    UpdateStatus(InTreeMigrationStatus),
}

/// The name of restow's migration for a built-in one of this name.
pub fn name_for(migration: &str) -> String {
    object_name::bounded(&format!("in-tree-{migration}"))
}

/// Decides what to do about a built-in migration, given restow's migration of the name that [`name_for`] returns.
pub fn step(migration: &AdoptionCandidate, ours: Option<&StorageVersionMigration>, now: Timestamp) -> Step {
    // Succeeded and Failed are final: the API server does not allow them to be removed.
    if migration.delegate || migration.deleting || migration.status.is_finished() {
        return Step::Leave;
    }
    let Some(ours) = ours else { return Step::Make };
    let status = match owner(ours) {
        Some(uid) if uid == migration.uid => status_from(migration, ours, now),
        // It is for a deleted migration of the same name, and will be deleted.
        Some(_) => return Step::Leave,
        None => name_taken(migration, ours, now),
    };
    if status == migration.status { Step::Leave } else { Step::UpdateStatus(status) }
}

/// Whether a migration was created for a built-in one that no longer exists.
pub fn is_orphan(ours: &StorageVersionMigration, all: &[AdoptionCandidate]) -> bool {
    let serves = |uid: &str| {
        all.iter().any(|migration| migration.uid == uid && !migration.deleting && !migration.delegate)
    };
    ours.metadata.deletion_timestamp.is_none() && owner(ours).is_some_and(|uid| !serves(uid))
}

/// The uid of the built-in migration that a migration was created for.
fn owner(ours: &StorageVersionMigration) -> Option<&str> {
    let adopted = ours.metadata.labels.as_ref().is_some_and(|labels| labels.contains_key(ADOPTED));
    let owners = ours.metadata.owner_references.as_deref().unwrap_or_default();
    let owner = owners.iter().find(|owner| owner.api_version.starts_with("storagemigration.k8s.io/"));
    owner.filter(|_| adopted).map(|owner| owner.uid.as_str())
}

/// The status of a built-in migration, from that of restow's migration.
fn status_from(
    migration: &AdoptionCandidate,
    ours: &StorageVersionMigration,
    now: Timestamp,
) -> InTreeMigrationStatus {
    let mut status = migration.status.clone();
    let conditions = ours.status.as_ref().map(|status| status.conditions.as_slice()).unwrap_or_default();
    for condition in conditions {
        let MigrationCondition { type_, status: value, reason, message, .. } = condition;
        let value = match value {
            ConditionStatus::True => "True",
            ConditionStatus::False => "False",
            ConditionStatus::Unknown => "Unknown",
        };
        let reason = reason.as_deref().filter(|reason| !reason.is_empty()).unwrap_or("Unknown");
        put(&mut status, migration, *type_, (value, reason, message.as_deref().unwrap_or_default()), now);
    }
    // The API server does not allow it to be changed once set.
    if status.resource_version.as_ref().is_none_or(String::is_empty) && !conditions.is_empty() {
        let at = ours.metadata.annotations.as_ref().and_then(|annotations| annotations.get(ADOPTED_AT));
        status.resource_version = at.filter(|at| !at.is_empty()).cloned();
    }
    status
}

fn name_taken(
    migration: &AdoptionCandidate,
    ours: &StorageVersionMigration,
    now: Timestamp,
) -> InTreeMigrationStatus {
    let mut status = migration.status.clone();
    let name = ours.metadata.name.as_deref().unwrap_or_default();
    let message =
        format!("the migration.k8s.io migration {name} already exists and does not belong to this one");
    put(&mut status, migration, ConditionType::Running, ("False", Reason::NameTaken.as_str(), &message), now);
    status
}

/// Sets one condition; its transition time changes only with its status.
fn put(
    status: &mut InTreeMigrationStatus,
    migration: &AdoptionCandidate,
    type_: ConditionType,
    (value, reason, message): (&str, &str, &str),
    now: Timestamp,
) {
    let old = status.conditions.iter().position(|condition| condition.type_ == type_.name());
    let since = old.map(|index| &status.conditions[index]).filter(|old| old.status == value);
    let new = Condition {
        type_: type_.name().to_owned(),
        status: value.to_owned(),
        reason: reason.to_owned(),
        message: bounded(message).to_owned(),
        last_transition_time: since.map_or(Time(now), |old| old.last_transition_time.clone()),
        observed_generation: migration.generation,
    };
    match old {
        Some(index) => status.conditions[index] = new,
        None => status.conditions.push(new),
    }
}

fn bounded(message: &str) -> &str {
    let end = (0..=message.len().min(MESSAGE)).rev().find(|end| message.is_char_boundary(*end));
    &message[..end.unwrap_or_default()]
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;

    use super::*;
    use crate::controller::condition::{self, Stage};

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn migration(flags: &str) -> AdoptionCandidate {
        let has = |flag| flags.split(' ').any(|other| other == flag);
        let mut migration = AdoptionCandidate {
            name: "x".to_owned(),
            uid: "u1".to_owned(),
            generation: has("generation").then_some(3),
            deleting: has("deleting"),
            delegate: has("delegate"),
            status: InTreeMigrationStatus::default(),
        };
        let whole = migration.clone();
        for (flag, type_) in [("succeeded", ConditionType::Succeeded), ("failed", ConditionType::Failed)] {
            if has(flag) {
                put(&mut migration.status, &whole, type_, ("True", "Done", ""), at(0));
            }
        }
        migration
    }

    fn reason(stage: Stage) -> Reason {
        match stage {
            Stage::Waiting => Reason::Queued,
            Stage::Suspended => Reason::Suspended,
            Stage::Running => Reason::Rewriting,
            Stage::Succeeded => Reason::Verified,
            Stage::Failed => Reason::Quarantined,
        }
    }

    fn ours(owner: Option<&str>, stage: Option<Stage>) -> StorageVersionMigration {
        let mut ours = StorageVersionMigration::default();
        ours.metadata.name = Some("in-tree-x".to_owned());
        if let Some(uid) = owner {
            ours.metadata.labels = Some(BTreeMap::from([(ADOPTED.to_owned(), "true".to_owned())]));
            ours.metadata.annotations = Some(BTreeMap::from([(ADOPTED_AT.to_owned(), "41".to_owned())]));
            ours.metadata.owner_references = Some(vec![OwnerReference {
                api_version: "storagemigration.k8s.io/v1beta1".to_owned(),
                uid: uid.to_owned(),
                ..OwnerReference::default()
            }]);
        }
        if let Some(stage) = stage {
            let status = ours.status.get_or_insert_default();
            condition::set(status, stage, reason(stage), "so it is", at(10));
        }
        ours
    }

    fn shown(step: &Step) -> String {
        let Step::UpdateStatus(status) = step else { return format!("{step:?}") };
        let line = |c: &Condition| {
            let time = c.last_transition_time.0.as_second();
            format!("{}={}@{time}", c.type_, c.status)
        };
        let conditions: Vec<String> = status.conditions.iter().map(line).collect();
        format!("{} at {}", conditions.join(" "), status.resource_version.as_deref().unwrap_or("none"))
    }

    #[test]
    fn a_built_in_migration_is_adopted_updated_and_released() {
        let own = Some("u1");
        // the built-in migration; the migration of its name; what to do
        let table: &[(&str, Option<StorageVersionMigration>, &str)] = &[
            ("", None, "Make"),
            ("delegate", None, "Leave"),
            ("deleting", None, "Leave"),
            ("succeeded", None, "Leave"),
            ("failed", None, "Leave"),
            ("", Some(ours(own, None)), "Leave"),
            ("", Some(ours(own, Some(Stage::Waiting))), "Running=False@20 at 41"),
            ("", Some(ours(own, Some(Stage::Running))), "Running=True@20 at 41"),
            ("", Some(ours(own, Some(Stage::Suspended))), "Running=False@20 at 41"),
            ("", Some(ours(own, Some(Stage::Succeeded))), "Running=False@20 Succeeded=True@20 at 41"),
            ("", Some(ours(own, Some(Stage::Failed))), "Running=False@20 Failed=True@20 at 41"),
            ("failed", Some(ours(own, Some(Stage::Succeeded))), "Leave"),
            ("", Some(ours(Some("u0"), Some(Stage::Succeeded))), "Leave"),
            ("", Some(ours(None, Some(Stage::Succeeded))), "Running=False@20 at none"),
        ];
        for (flags, ours, expected) in table {
            let migration = migration(flags);
            assert_eq!(shown(&step(&migration, ours.as_ref(), at(20))), *expected, "{flags:?} {ours:?}");
        }
    }

    #[test]
    fn an_unchanged_status_is_not_written_again() {
        let mut migration = migration("generation");
        let mut tell = |stage, second| {
            let step = step(&migration, Some(&ours(Some("u1"), Some(stage))), at(second));
            if let Step::UpdateStatus(status) = &step {
                migration.status = status.clone();
            }
            shown(&step)
        };
        assert_eq!(tell(Stage::Waiting, 20), "Running=False@20 at 41");
        assert_eq!(tell(Stage::Waiting, 21), "Leave");
        assert_eq!(tell(Stage::Suspended, 22), "Running=False@20 at 41", "another reason, the same status");
        assert_eq!(tell(Stage::Running, 23), "Running=True@23 at 41");
        assert_eq!(tell(Stage::Succeeded, 24), "Running=False@24 Succeeded=True@24 at 41");
        assert_eq!(tell(Stage::Failed, 25), "Leave", "an end is final");
        assert!(migration.status.conditions.iter().all(|condition| condition.observed_generation == Some(3)));
    }

    #[test]
    fn a_migration_is_an_orphan_when_its_built_in_migration_is_gone() {
        let uid = |uid: &str, flags| AdoptionCandidate { uid: uid.to_owned(), ..migration(flags) };
        for (owner, all, expected) in [
            (Some("u1"), vec![], true),
            (Some("u1"), vec![uid("u1", "")], false),
            (Some("u1"), vec![uid("u1", "succeeded")], false),
            (Some("u1"), vec![uid("u1", "deleting")], true),
            (Some("u1"), vec![uid("u2", "")], true),
            (None, vec![], false),
        ] {
            assert_eq!(is_orphan(&ours(owner, None), &all), expected, "{owner:?} {all:?}");
        }
    }

    #[test]
    fn long_names_are_bounded_unique_and_valid() {
        assert_eq!(name_for("widgets"), "in-tree-widgets");
        let dotted = |last: &str| format!("{}.{last}", "a".repeat(235));
        for long in ["a".repeat(253), "b".repeat(246), dotted("bcdefghijk"), dotted("-.-.-.-.bc")] {
            let made = name_for(&long);
            assert!(
                made.len() <= object_name::MAX_NAME_LENGTH && !made.contains(".-") && !made.contains("--"),
                "{made}"
            );
            assert_eq!(made, name_for(&long));
        }
        assert_eq!(name_for(&"c".repeat(245)).len(), object_name::MAX_NAME_LENGTH, "it fits as it is");
        assert_ne!(name_for(&format!("{}x", "a".repeat(252))), name_for(&format!("{}y", "a".repeat(252))));
    }

    #[test]
    fn a_message_is_truncated_at_a_character_boundary() {
        assert_eq!(bounded("é"), "é");
        let long = "é".repeat(MESSAGE);
        assert_eq!(bounded(&format!("x{long}")).len(), MESSAGE - 1);
    }
}
