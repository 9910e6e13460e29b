//! Migrations that failed, and when they are replaced.

use super::*;

#[test]
fn a_temporary_failure_is_retried_with_exponential_backoff() {
    for (reason, before, ago, expected) in [
        (Reason::ListRefused, None, 10, Some(50)),
        (Reason::ListRefused, None, 60, Some(0)),
        (Reason::ListRefused, Some(1), 60, Some(60)),
        (Reason::ListRefused, Some(3), 480, Some(0)),
        (Reason::NotServed, Some(20), 3600, Some(0)),
        (Reason::StorageVersionChanged, None, 61, Some(0)),
        (Reason::Quarantined, None, 86_400, None),
    ] {
        let mut unsettled = state("B A", "A");
        unsettled.replaced_migrations = before;
        let mut case = Case::new(agreed("A"), Some(unsettled));
        case.migrations = vec![failed(reason, ago), attempt("user's", "A", true, false)];
        let decision = case.decide();
        let what = format!("{reason} {before:?} {ago}");
        let Some(seconds) = expected else {
            assert_eq!(decision, Decision::default(), "{what}");
            continue;
        };
        let after = decision.state.clone().unwrap();
        if seconds == 0 {
            assert_eq!(decision.reason, Some(Reason::Retried), "{what}");
            assert_eq!(decision.delete, strings("failed"), "{what}");
            assert!(decision.create.is_some(), "{what}");
            assert_eq!(after.replaced_migrations, Some(before.unwrap_or_default() + 1), "{what}");
            assert_eq!(after.next_migration_time, None, "{what}");
        } else {
            assert_eq!(decision.reason, Some(Reason::RetryPlanned), "{what}");
            assert_eq!(decision.create, None, "{what}");
            let due = now() + SignedDuration::from_secs(seconds);
            assert_eq!(after.next_migration_time, Some(Time(due)), "{what}");
            // Told once, and carried out by whichever controller looks then.
            case.state = Some(after);
            assert_eq!(case.decide(), Decision::default(), "{what}");
            (case.began, case.now) = (due, due);
            assert_eq!(case.decide().reason, Some(Reason::Retried), "{what}");
        }
    }
}

#[test]
fn a_failure_is_not_retried_when_something_else_is_done_about_it() {
    // Settled by another migration.
    let mut case = Case::new(agreed("A"), Some(state("A", "A")));
    case.migrations = vec![failed(Reason::ListRefused, 3600)];
    assert_eq!(case.decide(), Decision::default());
    // One is under way.
    case.state = Some(state("B A", "A"));
    case.migrations.push(attempt("user's", "A", false, false));
    assert_eq!(case.decide(), Decision::default());
    // It was for something else.
    case.migrations = vec![failed(Reason::ListRefused, 3600)];
    case.migrations[0].made_for = None;
    assert_eq!(case.decide(), Decision::default());
    // Servers disagree.
    case.migrations = vec![failed(Reason::ListRefused, 3600)];
    case.storage = Consensus::Split(strings("A B"));
    assert_eq!(case.decide().create, None);
    // Success forgets the failures before it.
    let mut retried = state("B A", "A");
    retried.replaced_migrations = Some(4);
    let mut case = Case::new(agreed("A"), Some(retried.clone()));
    case.migrations = vec![attempt("m", "A", true, true)];
    assert_eq!(case.decide().state.unwrap().replaced_migrations, None);
    // So does a change.
    let mut case = Case::new(agreed("C"), Some(retried));
    case.migrations = vec![failed(Reason::ListRefused, 3600)];
    let changed = case.decide();
    assert_eq!(changed.reason, Some(Reason::StorageVersionChanged));
    assert_eq!(changed.state.unwrap().replaced_migrations, None);
}

#[test]
fn a_suspended_migration_of_a_user_does_not_prevent_a_retry() {
    let suspended = |made_for: Option<Wanted>| Attempt {
        suspended: true,
        made_for,
        ..attempt("suspended", "A", false, false)
    };
    let own = Some(Wanted { hash: "A".to_owned(), encryption: None });
    for (other, retried) in [(suspended(None), true), (suspended(own), false)] {
        let mut case = Case::new(agreed("A"), Some(state("B A", "A")));
        case.migrations = vec![failed(Reason::ListRefused, 61), other.clone()];
        let decision = case.decide();
        assert_eq!(decision.reason == Some(Reason::Retried), retried, "{other:?}");
        // The next controller goes on with it.
        case.state = decision.state.or(case.state);
        assert_eq!(case.decide().create.is_some(), retried, "{other:?}");
    }
    // All was proven under a definition that was changed since.
    let mut case = Case::new(agreed("A"), Some(state("B A", "A")));
    (case.definition, case.stored) = (Some("uid 2"), strings("A B"));
    case.migrations =
        vec![Attempt { definition: Some("uid 1".to_owned()), ..attempt("done", "A", true, true) }];
    assert_eq!(case.decide().reason, Some(Reason::StorageVersionChangedTwice));
    case.migrations.push(suspended(None));
    assert_eq!(case.decide().reason, Some(Reason::StorageVersionChangedTwice));
}
