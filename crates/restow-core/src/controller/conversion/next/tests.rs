//! The next step from every state, and what happens to a Conversion under which the definition changes.

use jiff::Timestamp;
use restow_api::ConversionCheck;

use super::*;
use crate::controller::conversion::{DefinedVersion, InPlace, Strategy, record};
use crate::resource::name::GroupResource;

mod changed_definitions;

const OWN: &str = "own";

fn spec() -> ConversionSpec {
    ConversionSpec {
        group: "example.com".to_owned(),
        kind: "Widget".to_owned(),
        old_version: "v1".to_owned(),
        new_version: "v2".to_owned(),
        ..ConversionSpec::default()
    }
}

fn definition(generation: i64, storage: &str, stored: &[&str]) -> Definition {
    let version =
        |name: &str| DefinedVersion { name: name.to_owned(), served: true, storage: name == storage };
    Definition {
        name: GroupResource::parse("widgets.example.com"),
        uid: "u".to_owned(),
        generation,
        versions: ["v0", "v1", "v2"].map(version).to_vec(),
        stored_versions: stored.iter().map(|name| (*name).to_owned()).collect(),
        established: true,
        deleting: false,
        strategy: Strategy::None,
        converting: None,
        manager: None,
    }
}

fn with(status: &mut ConversionStatus, conditions: &[Condition]) {
    for condition in conditions {
        record(status, *condition, true, Reason::Checked, "", Timestamp::UNIX_EPOCH);
    }
}

fn completed(generation: i64, refused: u64) -> ConversionCheck {
    ConversionCheck {
        definition: format!("u/{generation}"),
        completed: true,
        refused,
        resource_version: Some("41".to_owned()),
        ..ConversionCheck::default()
    }
}

/// Checked in this generation.
fn checked(generation: i64) -> ConversionStatus {
    let check = completed(generation, 0);
    let mut status = ConversionStatus { check: Some(check), ..ConversionStatus::default() };
    with(&mut status, &[Condition::Checked]);
    status
}

/// The new version is the storage version since this generation.
fn just_set(generation: i64) -> ConversionStatus {
    let mut status = checked(generation - 1);
    status.definition = Some(format!("u/{generation}"));
    with(&mut status, &[Condition::StorageVersionSet]);
    status
}

/// And what was written meanwhile was checked.
fn set(generation: i64) -> ConversionStatus {
    rechecked(just_set(generation), generation)
}

fn rechecked(mut status: ConversionStatus, generation: i64) -> ConversionStatus {
    status.recheck = Some(completed(generation, 0));
    status
}

fn and(mut status: ConversionStatus, conditions: &[Condition]) -> ConversionStatus {
    with(&mut status, conditions);
    status
}

fn step(
    spec: &ConversionSpec,
    status: &ConversionStatus,
    definition: &Definition,
    all: &[Candidate],
) -> Step {
    next(&Observation {
        spec,
        status,
        definition: Some(definition),
        hash: "hash2",
        own: OWN,
        migrations: all,
        trigger_is_due: false,
    })
}

fn running(name: &str) -> Candidate {
    Candidate {
        name: name.to_owned(),
        made_for: Some("hash2".to_owned()),
        hash: Some("hash2".to_owned()),
        ..Candidate::default()
    }
}

fn verified(name: &str, generation: i64) -> Candidate {
    Candidate { definition: Some(format!("u/{generation}")), verified: true, finished: true, ..running(name) }
}

fn failed(reason: Reason) -> Candidate {
    Candidate { failed: Some((Some(reason), "why".to_owned())), finished: true, ..running(OWN) }
}

#[test]
fn the_steps_follow_one_another() {
    let stop = ConversionSpec { stop_serving: Some(true), ..spec() };
    let all = [Condition::Verified, Condition::Pruned];
    let old = definition(1, "v1", &["v1"]);
    let new = definition(2, "v2", &["v1", "v2"]);
    let pruned = definition(2, "v2", &["v2"]);
    let mut stopped = definition(3, "v2", &["v2"]);
    stopped.versions[1].served = false;
    for (what, spec, status, definition, migrations, expected) in [
        ("nothing was done", spec(), ConversionStatus::default(), &old, vec![], Step::Check),
        ("checked", spec(), checked(1), &old, vec![], Step::SetStorageVersion),
        ("checked an earlier definition", spec(), checked(0), &old, vec![], Step::Check),
        (
            "set, by this Conversion or by others together with another schema",
            spec(),
            checked(1),
            &new,
            vec![],
            Step::Check,
        ),
        ("checked since", spec(), checked(2), &new, vec![], Step::RecordStorageVersion("u/2".to_owned())),
        ("set, and changed again by others", spec(), checked(0), &new, vec![], Step::Check),
        ("set", spec(), just_set(2), &new, vec![], Step::Recheck(Some(41))),
        ("checked what was written meanwhile", spec(), set(2), &new, vec![], Step::Migrate),
        ("the migration runs", spec(), set(2), &new, vec![running(OWN)], Step::Follow(OWN.to_owned())),
        (
            "the trigger's runs",
            spec(),
            set(2),
            &new,
            vec![running("other")],
            Step::Follow("other".to_owned()),
        ),
        ("verified", spec(), set(2), &new, vec![verified(OWN, 2)], Step::RecordProof(OWN.to_owned())),
        (
            "recorded",
            spec(),
            and(set(2), &all[..1]),
            &new,
            vec![verified(OWN, 2)],
            Step::Prune(OWN.to_owned()),
        ),
        ("pruned", spec(), and(set(2), &all[..1]), &pruned, vec![verified(OWN, 2)], Step::RecordPruned),
        ("pruning recorded", spec(), and(set(2), &all), &pruned, vec![], Step::Succeed),
        ("still served", stop.clone(), and(set(2), &all), &pruned, vec![], Step::StopServing),
        ("served no more", stop.clone(), and(set(2), &all), &stopped, vec![], Step::RecordServingStopped),
        (
            "that recorded",
            stop,
            and(and(set(2), &all), &[Condition::ServingStopped]),
            &stopped,
            vec![],
            Step::Succeed,
        ),
    ] {
        assert_eq!(step(&spec, &status, definition, &migrations), expected, "{what}");
    }
}

#[test]
fn rolling_back_is_the_same_in_the_other_direction() {
    let back = ConversionSpec { old_version: "v2".to_owned(), new_version: "v1".to_owned(), ..spec() };
    let before = definition(5, "v2", &["v2"]);
    assert_eq!(step(&back, &ConversionStatus::default(), &before, &[]), Step::Check);
    assert_eq!(step(&back, &checked(5), &before, &[]), Step::SetStorageVersion);
    let after = definition(6, "v1", &["v2", "v1"]);
    assert_eq!(step(&back, &set(6), &after, &[]), Step::Migrate);
    // What was proven for the other version proves nothing here.
    assert_eq!(
        step(&back, &set(6), &after, &[Candidate { hash: Some("hash1".to_owned()), ..verified("x", 6) }]),
        Step::Migrate
    );
}

#[test]
fn what_cannot_be_carried_out_is_refused() {
    let refused = |change: &dyn Fn(&mut Definition), status: &ConversionStatus| {
        let mut definition = definition(2, "v1", &["v1"]);
        change(&mut definition);
        match step(&spec(), status, &definition, &[]) {
            Step::Refuse(refusal) => (false, refusal.reason()),
            Step::Wait(refusal) => (true, refusal.reason()),
            other => panic!("{other:?}"),
        }
    };
    let new = ConversionStatus::default();
    for (what, waits, reason, change, status) in [
        (
            "deleting",
            true,
            Reason::DefinitionMissing,
            (&|one: &mut Definition| one.deleting = true) as &dyn Fn(&mut Definition),
            &new,
        ),
        ("not established", true, Reason::DefinitionMissing, &|one| one.established = false, &new),
        ("made again", false, Reason::DefinitionChanged, &|one| one.uid = "other".to_owned(), &checked(2)),
        ("no old version", false, Reason::UnknownVersion, &|one| drop(one.versions.remove(1)), &new),
        ("no new version", false, Reason::UnknownVersion, &|one| drop(one.versions.remove(2)), &new),
        ("new not served", false, Reason::VersionNotServed, &|one| one.versions[2].served = false, &new),
        ("old not served", false, Reason::VersionNotServed, &|one| one.versions[1].served = false, &new),
        ("a third version", false, Reason::UnknownVersion, &|one| *one = definition(2, "v0", &["v0"]), &new),
        ("set back by others", false, Reason::Superseded, &|_| {}, &set(2)),
    ] {
        assert_eq!(refused(change, status), (waits, reason), "{what}");
    }
    let status = ConversionStatus::default();
    let nothing = Observation {
        spec: &spec(),
        status: &status,
        definition: None,
        hash: "hash2",
        own: OWN,
        migrations: &[],
        trigger_is_due: false,
    };
    assert!(matches!(next(&nothing), Step::Wait(Refusal::Undefined { .. })));
}

#[test]
fn a_version_that_is_not_served_any_more_needs_no_second_check() {
    let mut definition = definition(2, "v1", &["v1"]);
    definition.versions[1].served = false;
    assert_eq!(step(&spec(), &checked(2), &definition, &[]), Step::SetStorageVersion);
}

#[test]
fn only_a_proof_for_this_version_and_since_it_was_set_counts() {
    let new = definition(4, "v2", &["v1", "v2"]);
    let other_hash = Candidate { hash: Some("hash1".to_owned()), ..verified("x", 4) };
    let other_definition = Candidate { definition: Some("other/4".to_owned()), ..verified("x", 4) };
    let unverified = Candidate { verified: false, ..verified("x", 4) };
    for (what, candidate, counts) in [
        ("since", verified("x", 4), true),
        ("before", verified("x", 3), false),
        ("of another version", other_hash, false),
        ("of another definition", other_definition, false),
        ("unverified", unverified, false),
    ] {
        let step = step(&spec(), &set(4), &new, &[candidate]);
        assert_eq!(step, if counts { Step::RecordProof("x".to_owned()) } else { Step::Migrate }, "{what}");
    }
}

#[test]
fn a_definition_that_changed_since_the_proof_needs_another_one() {
    let status = and(set(2), &[Condition::Verified]);
    let changed = definition(3, "v2", &["v1", "v2"]);
    assert_eq!(step(&spec(), &status, &changed, &[verified(OWN, 2)]), Step::Recheck(None));
    let status = rechecked(status, 3);
    assert_eq!(step(&spec(), &status, &changed, &[verified(OWN, 2)]), Step::ProveAgain("u/3".to_owned()));
    // The trigger may have made another one already.
    let migrations = [verified(OWN, 2), verified("later", 3)];
    assert_eq!(step(&spec(), &status, &changed, &migrations), Step::Prune("later".to_owned()));
    // Others may have pruned, which proves nothing.
    let pruned = definition(3, "v2", &["v2"]);
    assert_eq!(step(&spec(), &status, &pruned, &[]), Step::ProveAgain("u/3".to_owned()));
    assert_eq!(step(&spec(), &status, &pruned, &[verified("later", 3)]), Step::RecordPruned);
}

#[test]
fn a_storage_version_changed_forth_and_back_needs_another_proof_at_every_step() {
    // Objects were written in v1 in between, while no controller looked.
    let again = definition(4, "v2", &["v2", "v1"]);
    let all = [Condition::Verified, Condition::Pruned, Condition::ServingStopped];
    for (what, done) in [("proven", 0), ("verified", 1), ("pruned", 2), ("serving stopped", 3)] {
        let status = rechecked(and(set(2), &all[..done]), 4);
        let step = step(&spec(), &status, &again, &[verified(OWN, 2)]);
        assert_eq!(step, Step::ProveAgain("u/4".to_owned()), "{what}");
    }
}

#[test]
fn a_conversion_in_place_that_has_not_ended_is_only_continued() {
    let mut half = definition(2, "v2", &["v1", "v2"]);
    half.converting = Some(InPlace { version: "v2".to_owned(), since: 7 });
    let on = ConversionSpec { convert_in_place: Some(true), ..spec() };
    let back = ConversionSpec { old_version: "v2".to_owned(), new_version: "v1".to_owned(), ..on.clone() };
    let new = ConversionStatus::default();
    assert_eq!(step(&on, &new, &half, &[]), Step::Check);
    // What is not converted yet has fields that nobody reads in v2, so the way back would drop them.
    for refused in [&back, &spec()] {
        let step = step(refused, &new, &half, &[]);
        assert!(matches!(step, Step::Refuse(Refusal::HalfConverted { .. })), "{step:?}");
    }
}

#[test]
fn a_failed_migration_fails_the_conversion_unless_the_trigger_replaces_it() {
    let new = definition(2, "v2", &["v1", "v2"]);
    let status = set(2);
    let fail = Step::Fail { reason: Some(Reason::Quarantined), message: "why".to_owned() };
    assert_eq!(step(&spec(), &status, &new, &[failed(Reason::Quarantined)]), fail);
    let migrations = [failed(Reason::Quarantined), running("replacement")];
    assert_eq!(step(&spec(), &status, &new, &migrations), Step::Follow("replacement".to_owned()));
    // Others' failures are not this Conversion's.
    let other = Candidate { name: "other".to_owned(), ..failed(Reason::Quarantined) };
    assert_eq!(step(&spec(), &status, &new, &[other]), Step::Migrate);
    // Forth and back under the migration: it is made again for the definition as it is now.
    let again = definition(4, "v2", &["v1", "v2"]);
    let superseded = failed(Reason::StorageVersionChanged);
    let status = rechecked(status, 4);
    assert_eq!(step(&spec(), &status, &again, &[superseded]), Step::ProveAgain("u/4".to_owned()));
}

#[test]
fn a_migration_for_another_version_is_not_followed() {
    let new = definition(2, "v2", &["v1", "v2"]);
    let other = Candidate { made_for: Some("hash1".to_owned()), ..running("other") };
    assert_eq!(step(&spec(), &set(2), &new, &[other]), Step::Migrate);
    // One of a user, who named no version, is for the current one.
    let user = Candidate { made_for: None, hash: None, ..running("user") };
    assert_eq!(step(&spec(), &set(2), &new, std::slice::from_ref(&user)), Step::Follow("user".to_owned()));
    assert_eq!(step(&spec(), &set(2), &new, &[user, running("at-work")]), Step::Follow("at-work".to_owned()));
}

#[test]
fn the_trigger_is_given_time_to_create_the_migration() {
    let (spec, status, new) = (spec(), set(2), definition(2, "v2", &["v1", "v2"]));
    let seen = Observation {
        spec: &spec,
        status: &status,
        definition: Some(&new),
        hash: "hash2",
        own: OWN,
        migrations: &[],
        trigger_is_due: true,
    };
    assert_eq!(next(&seen), Step::AwaitTrigger);
}

#[test]
fn a_conversion_in_place_is_done_before_any_migration() {
    let in_place = |mut status: ConversionStatus| {
        status.check.as_mut().unwrap().converter = IN_PLACE.to_owned();
        status
    };
    let (old, new) = (definition(1, "v1", &["v1"]), definition(2, "v2", &["v1", "v2"]));
    let marked =
        Definition { converting: Some(InPlace { version: "v2".to_owned(), since: 7 }), ..new.clone() };
    let converted = and(set(2), &[Condition::ConvertedInPlace]);
    for (what, status, definition, migrations, expected) in [
        ("checked", checked(1), &old, vec![], Step::SetStorageVersion),
        ("a migration is at work", checked(1), &old, vec![running("x")], Step::AwaitMigrations),
        ("one has ended", checked(1), &old, vec![verified("x", 1)], Step::SetStorageVersion),
        (
            "set, and killed before that was recorded",
            checked(1),
            &marked,
            vec![],
            Step::RecordStorageVersion("u/2".to_owned()),
        ),
        ("set", set(2), &marked, vec![], Step::ConvertInPlace),
        ("converted", converted.clone(), &marked, vec![], Step::EndInPlace),
        ("ended", converted, &new, vec![], Step::Migrate),
    ] {
        let spec = ConversionSpec { convert_in_place: Some(true), ..spec() };
        assert_eq!(step(&spec, &in_place(status), definition, &migrations), expected, "{what}");
    }
}

#[test]
fn a_trial_ends_after_the_check() {
    let trial = ConversionSpec { namespace: Some("a".to_owned()), ..spec() };
    let old = definition(1, "v1", &["v1"]);
    assert_eq!(step(&trial, &ConversionStatus::default(), &old, &[]), Step::Check);
    assert_eq!(step(&trial, &checked(1), &old, &[]), Step::EndTrial);
}
