//! What happened between two looks.

use super::*;

#[test]
fn stored_versions_show_a_double_change_between_two_observations() {
    let mut verified = state("A", "A");
    verified.verified_definition = Some("uid/5".to_owned());
    let mut case = Case::new(agreed("A"), Some(verified));
    case.stored = strings("A B");
    // Not yet cut down, but nothing changed since the proof.
    case.definition = Some("uid/5");
    expect(&case.decide(), "", None, None);
    case.definition = Some("uid/7");
    let decision = case.decide();
    expect(&decision, "", Some("A"), Some(("A B", "A")));
    assert_eq!(decision.reason, Some(Reason::StorageVersionChangedTwice));
    // A change of the schema alone.
    case.stored = strings("A");
    expect(&case.decide(), "", None, None);
}

#[test]
fn a_crd_that_changed_after_the_proof_is_migrated_again() {
    for (what, definition, stored, proven) in [
        ("nothing changed", "uid/5", "A B", true),
        ("it was changed forth and back", "uid/7", "A B", false),
        ("its schema was changed, and all was pruned", "uid/6", "A", true),
    ] {
        for persisted in ["Unknown", "B A"] {
            let mut case = Case::new(agreed("A"), Some(state(persisted, "A")));
            let proof = attempt("m", "A", true, true);
            case.migrations = vec![Attempt { definition: Some("uid/5".to_owned()), ..proof }];
            (case.stored, case.definition) = (strings(stored), Some(definition));
            let decision = case.decide();
            if proven {
                expect(&decision, "", None, Some(("A", "A")));
                continue;
            }
            assert_eq!((decision.delete, decision.create.is_some()), (strings("m"), true), "{what}");
            assert_eq!(decision.reason, Some(Reason::StorageVersionChangedTwice), "{what}");
            // Another one is under way.
            case.migrations.push(attempt("n", "A", false, false));
            assert_eq!(case.decide().create, None, "{what}");
        }
    }
}

#[test]
fn servers_that_disagreed_between_two_observations_prove_nothing() {
    let at = |second| Timestamp::from_second(second).unwrap();
    let state = |since: Option<i64>| StorageStateStatus {
        agreed_since: since.map(|second| Time(at(second))),
        ..state("A B", "A")
    };
    for (what, before, now, has_agreed_anew) in [
        ("nothing happened", Some(1), Some(1), false),
        ("they agreed anew", Some(1), Some(2), true),
        ("it was not known before", None, Some(2), false),
        ("it is not known now", Some(1), None, false),
    ] {
        let mut case = Case::new(agreed("A"), Some(state(before)));
        (case.since, case.migrations) = (now.map(at), vec![attempt("m", "A", true, true)]);
        let decision = case.decide();
        let (reason, persisted) = match has_agreed_anew {
            true => (Reason::StorageVersionChangedTwice, "A B Unknown"),
            false => (Reason::Migrated, "A"),
        };
        assert_eq!(decision.reason, Some(reason), "{what}");
        let after = decision.state.clone().unwrap();
        assert_eq!(after.agreed_since.map(|time| time.0), now.or(before).map(at), "{what}");
        let made = has_agreed_anew.then_some("A");
        expect(&decision, if has_agreed_anew { "m" } else { "" }, made, Some((persisted, "A")));
    }
    // A change that was seen is told as that.
    let mut case = Case::new(agreed("B"), Some(state(Some(1))));
    case.since = Some(at(2));
    assert_eq!(case.decide().reason, Some(Reason::StorageVersionChanged));
}
