//! What happens when the definition is not as it was checked, and who may change it.

use super::*;

#[test]
fn objects_are_checked_again_when_the_definition_is_not_as_it_was_checked() {
    let new = |generation| definition(generation, "v2", &["v1", "v2"]);
    let set_by_others = and(
        ConversionStatus { definition: Some("u/2".to_owned()), ..checked(2) },
        &[Condition::StorageVersionSet],
    );
    let no_version = {
        let mut status = just_set(2);
        status.check.as_mut().unwrap().resource_version = None;
        status
    };
    let unfinished = {
        let mut status = set(2);
        status.recheck.as_mut().unwrap().completed = false;
        status
    };
    for (what, status, definition, expected) in [
        ("only the storage version was set", just_set(2), new(2), Some(Step::Recheck(Some(41)))),
        ("it is not done", unfinished, new(2), Some(Step::Recheck(Some(41)))),
        ("it is done", set(2), new(2), None),
        ("it was checked after that", set_by_others, new(2), None),
        ("nobody knows since when", no_version, new(2), Some(Step::Recheck(None))),
        ("schemas or the webhook were changed since", set(2), new(3), Some(Step::Recheck(None))),
        ("that was checked, too", rechecked(set(2), 3), new(3), None),
        (
            "nothing is stored in the old version",
            and(set(2), &[Condition::Verified, Condition::Pruned]),
            new(3),
            None,
        ),
    ] {
        let step = step(&spec(), &status, &definition, &[running(OWN)]);
        match expected {
            Some(expected) => assert_eq!(step, expected, "{what}"),
            None => assert!(!matches!(step, Step::Recheck(_)), "{what}: {step:?}"),
        }
    }
    let mut unserved = new(2);
    unserved.versions[1].served = false;
    let step = step(&spec(), &just_set(2), &unserved, &[]);
    assert!(matches!(step, Step::Refuse(Refusal::OldNotServed { .. })), "{step:?}");
}

#[test]
fn the_storage_version_is_set_back_if_objects_written_meanwhile_would_not_survive() {
    let refused = |generation| ConversionStatus { recheck: Some(completed(generation, 2)), ..just_set(2) };
    let new = |generation| definition(generation, "v2", &["v1", "v2"]);
    let lost = |step: Step| matches!(step, Step::Fail { reason: Some(Reason::FieldsLost), .. });
    assert_eq!(step(&spec(), &refused(2), &new(2), &[]), Step::SetBack);
    // Somebody else is at work on the definition: it is theirs.
    assert!(lost(step(&spec(), &refused(3), &new(3), &[])));
    // Killed after it was set back.
    assert!(lost(step(&spec(), &refused(2), &definition(3, "v1", &["v1", "v2"]), &[])));
}

#[test]
fn suspended_migrations_go_on_only_when_every_object_survives() {
    let new = definition(2, "v2", &["v1", "v2"]);
    let refused = ConversionStatus { recheck: Some(completed(2, 1)), ..just_set(2) };
    for (what, status, expected) in [
        ("to be checked", ConversionStatus::default(), false),
        ("to be checked again", just_set(2), false),
        ("some do not survive", refused, false),
        ("all survive", set(2), true),
    ] {
        let step = step(&spec(), &status, &new, &[running(OWN)]);
        assert_eq!(step.lets_migrations_run(), expected, "{what}: {step:?}");
    }
}

#[test]
fn a_managed_definition_is_changed_in_its_source() {
    use crate::controller::crd_manager::CrdManager;
    let manager = Some(CrdManager { tool: "Helm", evidence: "its label".to_owned() });
    let managed = |definition: Definition| Definition { manager: manager.clone(), ..definition };
    let old = managed(definition(1, "v1", &["v1"]));
    let pruned = managed(definition(2, "v2", &["v2"]));
    let done = and(set(2), &[Condition::Verified, Condition::Pruned]);
    let stop = ConversionSpec { stop_serving: Some(true), ..spec() };
    for (what, spec, status, definition, own) in [
        ("the storage version", spec(), checked(1), &old, Step::SetStorageVersion),
        ("serving", stop, done, &pruned, Step::StopServing),
    ] {
        let waits = step(&spec, &status, definition, &[]);
        assert!(
            matches!(&waits, Step::AwaitSource { manager, .. } if manager.starts_with("Helm")),
            "{what}: {waits:?}"
        );
        let changes = ConversionSpec { change_managed_definition: Some(true), ..spec };
        assert_eq!(step(&changes, &status, definition, &[]), own, "{what}");
    }
    // The change has arrived: objects are checked as the definition is now.
    let arrived = managed(definition(2, "v2", &["v1", "v2"]));
    assert_eq!(step(&spec(), &checked(1), &arrived, &[]), Step::Check);
    assert_eq!(step(&spec(), &checked(2), &arrived, &[]), Step::RecordStorageVersion("u/2".to_owned()));
}
