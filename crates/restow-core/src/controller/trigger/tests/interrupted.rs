//! Decisions whose steps are cut short, and suspended migrations.

use super::*;

/// Carries out the first steps of a decision.
fn carry_out(case: &mut Case, decision: &Decision, steps: usize) -> usize {
    let all = decision.steps(case.state.as_ref());
    for step in all.iter().take(steps) {
        match step.clone() {
            Step::Write(state) => case.state = Some(*state),
            Step::Delete(name) => case.migrations.retain(|attempt| attempt.name != name),
            Step::Create(pending, wanted) => case.migrations.push(Attempt {
                suspended: pending.suspend,
                made_for: Some(wanted),
                ..attempt(&pending.name, "", false, false)
            }),
        }
    }
    all.len()
}

/// What a look finds that makes a migration.
fn occasions() -> Vec<(&'static str, Case, &'static str)> {
    let verified = || attempt("old", "A", true, true);
    let mut first = Case::new(agreed("A"), None);
    first.migrations = vec![verified()];
    let mut upgraded = Case::new(agreed("B"), Some(state("A", "A")));
    upgraded.migrations = vec![verified(), attempt("user's", "A", false, false)];
    // What was proven before the change counts no more.
    let mut back = Case::new(agreed("A"), Some(state("A B", "B")));
    back.migrations = vec![verified()];
    let mut retried = Case::new(agreed("A"), Some(state("B A", "A")));
    retried.migrations = vec![failed(Reason::ListRefused, 61), attempt("user's", "A", true, false)];
    vec![
        ("first", first, ""),
        ("upgraded", upgraded, ""),
        ("back", back, ""),
        ("retried", retried, "user's "),
    ]
}

#[test]
fn no_crash_loses_a_migration() {
    for (what, before, left) in occasions() {
        let all = {
            let mut case = before.clone();
            let decision = case.decide();
            carry_out(&mut case, &decision, usize::MAX)
        };
        assert!(all >= 4, "{what}: {all}");
        for steps in 0..=all {
            let mut case = before.clone();
            let decision = case.decide();
            carry_out(&mut case, &decision, steps);
            // Another controller goes on, once more stopped in the middle.
            for steps in [1, usize::MAX, usize::MAX] {
                let decision = case.decide();
                carry_out(&mut case, &decision, steps);
            }
            let names: Vec<&str> = case.migrations.iter().map(|attempt| attempt.name.as_str()).collect();
            assert_eq!(names.join(" "), format!("{left}next"), "{what} after {steps} of {all}");
            assert_eq!(case.decide(), Decision::default(), "{what} after {steps} of {all}");
            let state = case.state.clone().unwrap();
            assert_eq!(state.pending_migration, None, "{what} after {steps} of {all}");
            assert_eq!(state.replaced_migrations, (what == "retried").then_some(1), "{what} after {steps}");
        }
    }
}

#[test]
fn nothing_is_deleted_or_created_before_the_state_is_written() {
    for (what, case, _) in occasions() {
        let decision = case.decide();
        let steps = decision.steps(case.state.as_ref());
        assert!(
            matches!(steps.first(), Some(Step::Write(state)) if state.pending_migration.is_some()),
            "{what}"
        );
        assert!(
            matches!(steps.last(), Some(Step::Write(state)) if state.pending_migration.is_none()),
            "{what}"
        );
    }
}

#[test]
fn a_migration_deleted_by_a_disagreement_is_recreated_after_any_crash() {
    let running = || Attempt {
        made_for: Some(Wanted { hash: "B".to_owned(), encryption: None }),
        ..attempt("running", "B", false, false)
    };
    let names = |case: &Case| {
        case.migrations.iter().map(|attempt| attempt.name.clone()).collect::<Vec<_>>().join(" ")
    };
    for (what, consensus) in [
        ("split", Consensus::Split(strings("A B"))),
        ("silent", Consensus::Silent(strings("A"))),
        ("back", agreed("B")),
    ] {
        for steps in 0..=2 {
            let mut case = Case::new(Consensus::Split(strings("A B")), Some(state("A B", "B")));
            case.migrations = vec![running()];
            let decision = case.decide();
            assert_eq!((decision.delete.len(), &decision.create), (1, &None));
            assert_eq!(carry_out(&mut case, &decision, steps), 2);
            // The next controller finds the servers as they are by then, and takes its time, too.
            case.storage = consensus.clone();
            for steps in [1, usize::MAX, usize::MAX] {
                let decision = case.decide();
                carry_out(&mut case, &decision, steps);
            }
            let expected = match what {
                "back" if steps == 0 => "running",
                "back" => "next",
                _ => "",
            };
            assert_eq!(names(&case), expected, "{what} after {steps}");
            assert_eq!(case.decide(), Decision::default(), "{what} after {steps}");
            case.storage = agreed("B");
            for _ in 0..2 {
                let decision = case.decide();
                carry_out(&mut case, &decision, usize::MAX);
            }
            let expected = if expected.is_empty() { "next" } else { expected };
            assert_eq!(names(&case), expected, "{what} after {steps}, and then agreed");
        }
    }
}

#[test]
fn a_users_migration_waits_for_the_end_of_a_disagreement() {
    let mut case = Case::new(Consensus::Split(strings("A B")), Some(state("A B", UNKNOWN)));
    case.migrations = vec![attempt("user's", "B", false, false)];
    assert_eq!(case.decide().delete, strings(""));
}

#[test]
fn a_change_before_the_migration_exists_leads_to_a_new_decision() {
    for (consensus, create) in [(agreed("C"), Some("C")), (Consensus::Split(strings("A B")), None)] {
        let mut case = Case::new(agreed("B"), Some(state("A", "A")));
        let decision = case.decide();
        carry_out(&mut case, &decision, 1);
        case.storage = consensus;
        let changed = case.decide();
        assert_eq!(changed.create.as_ref().map(|wanted| wanted.hash.as_str()), create);
        assert_eq!(changed.state.unwrap().pending_migration.is_some(), create.is_some());
    }
}

#[test]
fn a_planned_retry_yields_to_a_user_request() {
    let mut case = Case::new(agreed("A"), Some(state("B A", "A")));
    case.migrations = vec![failed(Reason::ListRefused, 61)];
    let decision = case.decide();
    carry_out(&mut case, &decision, 1);
    case.migrations[0].finished = false;
    let dropped = case.decide();
    assert_eq!((&dropped.delete, &dropped.create), (&Vec::new(), &None));
    carry_out(&mut case, &dropped, usize::MAX);
    assert_eq!(case.state.as_ref().unwrap().pending_migration, None);
    assert_eq!(case.decide(), Decision::default());
}

#[test]
fn the_replacement_of_a_suspended_migration_is_suspended() {
    let own = |suspended, verified| Attempt {
        suspended,
        made_for: Some(Wanted { hash: "A".to_owned(), encryption: None }),
        ..attempt("old", "A", verified, verified)
    };
    for (old, suspend) in [
        (own(false, false), false),
        (own(true, false), true),
        (own(true, true), false),
        (Attempt { made_for: None, ..own(true, false) }, false),
    ] {
        let mut case = Case::new(agreed("B"), Some(state("A", "A")));
        case.migrations = vec![old.clone()];
        let decision = case.decide();
        // However often the controller stops.
        carry_out(&mut case, &decision, 2);
        let decision = case.decide();
        carry_out(&mut case, &decision, usize::MAX);
        assert_eq!(case.migrations.len(), 1, "{old:?}");
        assert_eq!(case.migrations[0].suspended, suspend, "{old:?}");
    }
    // While the servers disagree, it waits, so that its successor is suspended too.
    let mut case = Case::new(Consensus::Split(strings("A B")), Some(state("A", "A")));
    case.migrations = vec![own(true, false)];
    let decision = case.decide();
    assert!(decision.delete.is_empty());
    carry_out(&mut case, &decision, usize::MAX);
    case.storage = agreed("B");
    assert!(case.decide().state.unwrap().pending_migration.unwrap().suspend);
}

#[test]
fn a_retry_planned_by_a_fast_clock_is_not_waited_for_forever() {
    let mut planned = state("B A", "A");
    planned.next_migration_time = Some(Time(now() + SignedDuration::from_hours(24)));
    let mut case = Case::new(agreed("A"), Some(planned));
    case.migrations = vec![failed(Reason::ListRefused, -86_000)];
    let decision = case.decide();
    let due = now() + Duration::from_secs(60);
    assert_eq!(decision.state.as_ref().unwrap().next_migration_time, Some(Time(due)));
    case.state = decision.state;
    case.pass(Duration::from_secs(30));
    assert_eq!(case.decide(), Decision::default());
    case.pass(Duration::from_secs(30));
    assert_eq!(case.decide().reason, Some(Reason::Retried));
}
