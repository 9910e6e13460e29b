//! Migrations that go on after nobody has watched their resource for too long.

use super::*;

fn own(name: &str, encryption: Option<&str>, finished: bool, verified: bool) -> Attempt {
    let encryption = encryption.map(str::to_owned);
    Attempt {
        made_for: Some(Wanted { hash: "A".to_owned(), encryption: encryption.clone() }),
        encryption,
        ..attempt(name, "A", finished, verified)
    }
}

fn stale(migrations: Vec<Attempt>) -> Case {
    let mut old = state("B A", "A");
    old.last_heartbeat_time = Some(Time(now() - Duration::from_secs(601)));
    let mut case = Case::new(agreed("A"), Some(old));
    case.migrations = migrations;
    case
}

#[test]
fn after_a_long_absence_an_unfinished_migration_continues() {
    let suspended = Attempt { suspended: true, ..own("m", None, false, false) };
    let other = Attempt {
        made_for: Some(Wanted { hash: "B".to_owned(), encryption: None }),
        ..attempt("m", "B", false, false)
    };
    for (what, migrations, name, delete) in [
        ("under way", vec![own("m", None, false, false)], "m", ""),
        ("suspended", vec![suspended], "m", ""),
        ("not begun", vec![Attempt { hash: None, ..own("m", None, false, false) }], "m", ""),
        // What has ended proves nothing about the time since.
        ("verified", vec![own("m", None, true, true)], "next", "m"),
        ("failed", vec![failed(Reason::Quarantined, 3600)], "next", "failed"),
        (
            "one verified, one under way",
            vec![own("v", None, true, true), own("m", None, false, false)],
            "m",
            "v",
        ),
        ("two under way", vec![own("m", None, false, false), own("n", None, false, false)], "m", "n"),
        ("for another version", vec![other], "next", "m"),
        // A migration of a user goes on, too, and the trigger makes its own besides.
        ("a user's", vec![attempt("user's", "A", false, false)], "next", ""),
        ("a user's for another version", vec![attempt("user's", "B", false, false)], "next", "user's"),
        ("a user's that was verified", vec![attempt("user's", "A", true, true)], "next", "user's"),
    ] {
        let decision = stale(migrations).decide();
        assert_eq!(decision.reason, Some(Reason::StaleHeartbeat), "{what}");
        let state = decision.state.clone().unwrap();
        assert_eq!(state.persisted_storage_version_hashes, strings(UNKNOWN), "{what}");
        assert_eq!(
            state.pending_migration.as_ref().map(|pending| pending.name.as_str()),
            Some(name),
            "{what}"
        );
        assert_eq!(state.pending_migration.unwrap().suspend, what == "suspended", "{what}");
        assert_eq!(decision.delete, strings(delete), "{what}");
        // The state says so before anything is deleted, so that nothing that has ended is taken for a proof.
        assert!(matches!(decision.steps(None)[0], Step::Write(_)), "{what}");
    }
}

#[test]
fn after_a_long_absence_a_migration_for_another_key_starts_over() {
    for (made, now, kept) in [
        (Some("k1"), Some("k1"), true),
        (Some("k1"), Some("k2"), false),
        (None, Some("k1"), false),
        (Some("k1"), None, true),
    ] {
        let mut case = stale(vec![own("m", made, false, false)]);
        let known = case.state.as_mut().unwrap();
        known.current_encryption_config_hash = now.map(str::to_owned);
        known.persisted_encryption_config_hashes = now.map(str::to_owned).into_iter().collect();
        case.encryption = now.map(agreed);
        assert_eq!(case.decide().delete.is_empty(), kept, "{made:?} {now:?}");
    }
}

#[test]
fn a_change_of_the_version_still_deletes_what_is_under_way() {
    let mut case = stale(vec![own("m", None, false, false)]);
    case.storage = agreed("B");
    assert_eq!(case.decide().delete, strings("m"));
    let mut case = Case::new(agreed("B"), Some(state("A", "A")));
    case.migrations = vec![own("m", None, false, false)];
    assert_eq!(case.decide().delete, strings("m"));
}
