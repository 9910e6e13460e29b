//! What to do about a migration that is delegated to the built-in controller of Kubernetes.

use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use restow_api::{
    ConditionType, DELEGATED_RUN, InTreeMigrationStatus, MANAGED_BY, MANAGER, StorageVersionMigration,
};

/// How long to wait before waking the controller. It compares its cache with the resource's list, and in an idle cluster
/// nothing updates that cache for a minute or two.
const WAKE_AFTER: Duration = Duration::from_secs(5);
/// How long to wait before waking it again.
const WAKE_AGAIN: Duration = Duration::from_secs(60);
/// How long the built-in controller may not accept the migration before it fails.
const TAKEN_UP_WITHIN: Duration = Duration::from_secs(30);

/// What was observed of the delegate.
#[derive(Clone, Copy, Debug)]
pub struct DelegateObservation<'a> {
    /// The status as it was read.
    pub status: &'a InTreeMigrationStatus,
    /// How long restow has waited for it.
    pub waited: Duration,
    /// How long ago restow last woke the controller, if it did.
    pub woken: Option<Duration>,
}

/// What to do next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Wait, for this reason.
    Wait(&'static str),
    /// Write one object, so that the controller's cache is updated.
    Wake,
    /// The controller reports that it is done: verify it.
    Verify,
    /// Fail the migration, with this message.
    Fail(String),
}

/// Decides what to do after one observation.
pub fn step(observation: &DelegateObservation<'_>) -> Step {
    let status = observation.status;
    if let Some(failed) = status.condition(ConditionType::Failed).filter(|failed| failed.status == "True") {
        let message = if failed.message.is_empty() { &failed.reason } else { &failed.message };
        return Step::Fail(message.clone());
    }
    if status.is(ConditionType::Succeeded) {
        return Step::Verify;
    }
    let listed = status.resource_version.as_ref().is_some_and(|version| !version.is_empty());
    match observation.woken {
        _ if !listed => {}
        None if observation.waited >= WAKE_AFTER => return Step::Wake,
        Some(ago) if ago >= WAKE_AGAIN => return Step::Wake,
        _ => {}
    }
    Step::Wait(if listed {
        "the built-in controller is rewriting the objects"
    } else if status.is(ConditionType::Running) {
        "the built-in controller has accepted the migration"
    } else if observation.waited < TAKEN_UP_WITHIN {
        "the built-in controller has not accepted the migration yet"
    } else {
        "the built-in controller has not accepted the migration: it may be busy with another one of this resource, or \
         kube-controller-manager may run without storage-version-migrator-controller"
    })
}

/// Who created an object of the built-in API.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Claim {
    /// This run of this migration.
    Own,
    /// An earlier run, or an earlier migration of the same name.
    Stale,
    /// Someone else.
    Others,
}

/// Whether restow created an object of the built-in API.
pub fn is_delegate(object: &ObjectMeta) -> bool {
    object.labels.as_ref().and_then(|labels| labels.get(MANAGED_BY)).is_some_and(|manager| manager == MANAGER)
}

/// The migration that an object of the built-in API was created for.
pub fn owner(object: &ObjectMeta) -> Option<&OwnerReference> {
    let owners = object.owner_references.as_deref().unwrap_or_default();
    owners.iter().find(|owner| owner.api_version.starts_with("migration.k8s.io/"))
}

/// Who created an object that has the name of a migration with this uid, as seen in this run.
pub fn claim(object: &ObjectMeta, uid: &str, run: &str) -> Claim {
    if !is_delegate(object) {
        return Claim::Others;
    }
    let ours = owner(object).is_some_and(|owner| owner.uid == uid);
    let same = object.annotations.as_ref().and_then(|all| all.get(DELEGATED_RUN)).is_some_and(|of| of == run);
    if ours && same { Claim::Own } else { Claim::Stale }
}

/// Whether the delegate of a migration is kept: while the migration runs, and as a record when it has finished.
pub fn is_wanted(migration: &StorageVersionMigration) -> bool {
    let stands_still = migration.is_suspended() && !migration.is_finished();
    migration.metadata.deletion_timestamp.is_none() && !stands_still
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use jiff::Timestamp;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};

    use super::*;

    fn status(conditions: &str, resource_version: &str) -> InTreeMigrationStatus {
        let one = |text: &str| {
            let (type_, rest) = text.split_once('=').unwrap();
            let (status, message) = rest.split_once(':').unwrap_or((rest, ""));
            Condition {
                type_: type_.to_owned(),
                status: status.to_owned(),
                reason: "Because".to_owned(),
                message: message.to_owned(),
                last_transition_time: Time(Timestamp::UNIX_EPOCH),
                observed_generation: None,
            }
        };
        InTreeMigrationStatus {
            conditions: conditions.split_whitespace().map(one).collect(),
            resource_version: Some(resource_version.to_owned()).filter(|version| !version.is_empty()),
        }
    }

    #[test]
    fn a_delegated_migration_is_awaited_woken_and_judged() {
        // conditions, status.resourceVersion, seconds waited, seconds since it was woken; words of what is done
        for (conditions, version, waited, woken, words) in [
            ("", "", 0, None, "Wait not accepted the migration yet"),
            ("", "", 29, None, "Wait not accepted the migration yet"),
            ("", "", 30, None, "Wait may run without"),
            ("Running=True", "", 60, None, "Wait has accepted the migration"),
            ("Running=True", "7", 4, None, "Wait is rewriting the objects"),
            ("Running=True", "7", 5, None, "Wake"),
            ("Running=True", "7", 6, Some(1), "Wait is rewriting the objects"),
            ("Running=True", "7", 65, Some(60), "Wake"),
            ("Running=True Succeeded=True", "7", 65, Some(60), "Verify"),
            ("Running=False Succeeded=True", "7", 0, None, "Verify"),
            ("Running=True Failed=False Succeeded=Unknown", "7", 0, None, "Wait is rewriting the objects"),
            ("Running=False Failed=True:forbidden", "7", 9, None, "Fail forbidden"),
            ("Failed=True", "", 9, None, "Fail Because"),
        ] {
            let status = status(conditions, version);
            let seconds = Duration::from_secs;
            let found = step(&DelegateObservation {
                status: &status,
                waited: seconds(waited),
                woken: woken.map(seconds),
            });
            let shown = format!("{found:?}");
            let (name, more) = words.split_once(' ').unwrap_or((words, ""));
            let case = format!("{conditions:?} {version:?} {waited} {woken:?}: {shown}");
            assert!(shown.starts_with(name) && shown.contains(more), "{case}");
        }
    }

    #[test]
    fn an_object_is_own_stale_or_of_others() {
        let map = |key: &str, value: &str| Some(BTreeMap::from([(key.to_owned(), value.to_owned())]));
        let object = |manager: &str, api: &str, uid: &str, run: &str| ObjectMeta {
            labels: map(MANAGED_BY, manager),
            annotations: map(DELEGATED_RUN, run),
            owner_references: Some(vec![OwnerReference {
                api_version: api.to_owned(),
                uid: uid.to_owned(),
                ..OwnerReference::default()
            }]),
            ..ObjectMeta::default()
        };
        let ours = "migration.k8s.io/v1alpha1";
        for (object, expected) in [
            (object(MANAGER, ours, "u1", "r1"), Claim::Own),
            (object(MANAGER, ours, "u1", "r0"), Claim::Stale),
            (object(MANAGER, ours, "u0", "r1"), Claim::Stale),
            (object(MANAGER, "apps/v1", "u1", "r1"), Claim::Stale),
            (object("helm", ours, "u1", "r1"), Claim::Others),
            (ObjectMeta::default(), Claim::Others),
        ] {
            assert_eq!(claim(&object, "u1", "r1"), expected, "{object:?}");
        }
    }

    #[test]
    fn a_delegate_is_kept_while_its_migration_runs() {
        for (suspended, finished, deleting, expected) in [
            (false, false, false, true),
            (true, false, false, false),
            (true, true, false, true),
            (false, false, true, false),
            (false, true, true, false),
        ] {
            let mut migration = StorageVersionMigration::default();
            migration.spec.suspend = Some(suspended);
            migration.metadata.deletion_timestamp = deleting.then_some(Time(Timestamp::UNIX_EPOCH));
            if finished {
                let status = migration.status.get_or_insert_default();
                let stage = crate::controller::condition::Stage::Succeeded;
                crate::controller::condition::set(
                    status,
                    stage,
                    restow_api::Reason::Verified,
                    "",
                    Timestamp::UNIX_EPOCH,
                );
            }
            assert_eq!(is_wanted(&migration), expected, "{suspended} {finished} {deleting}");
        }
    }
}
