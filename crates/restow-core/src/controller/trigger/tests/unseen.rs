//! Keys that cannot be seen, and looks that take long.

use super::*;

fn known() -> StorageStateStatus {
    let mut known = state("A", "A");
    known.current_encryption_config_hash = Some("k1".to_owned());
    known.persisted_encryption_config_hashes = strings("k1");
    known.encryption_config_reloads = Some(BTreeMap::new());
    known
}

fn with_key(hash: &str, key: Option<&str>) -> Option<Wanted> {
    Some(Wanted { hash: hash.to_owned(), encryption: key.map(str::to_owned) })
}

#[test]
fn a_key_that_was_unreadable_for_a_while_may_have_changed() {
    let mut due = known();
    due.last_heartbeat_time = Some(Time(now() - Duration::from_secs(301)));
    let mut case = Case::new(agreed("A"), Some(due.clone()));
    case.migrations = vec![Attempt { encryption: Some("k1".to_owned()), ..attempt("done", "A", true, true) }];
    // For a moment that is borne, and renews no heartbeat.
    assert_eq!(case.decide(), Decision::default());
    assert!(is_incomplete(&case.storage, None, case.state.as_ref()));
    // Seen again in time, it is the one that was known.
    case.encryption = Some(agreed("k1"));
    assert_eq!(case.decide().create, None);
    // After that, nothing is known of it.
    (case.encryption, case.silent_for) = (None, SILENT_SERVER_TIMEOUT);
    let unseen = case.decide();
    assert_eq!((unseen.reason, &unseen.create), (Some(Reason::EncryptionUnseen), &None));
    let state = unseen.state.unwrap();
    assert_eq!(state.last_heartbeat_time, Some(Time(now())));
    assert_eq!((&state.current_encryption_config_hash, &state.encryption_config_reloads), (&None, &None));
    assert!(state.persisted_encryption_config_hashes.is_empty() && state.is_settled());
    assert!(!is_incomplete(&case.storage, None, Some(&state)));
    // So it is news when it can be seen again, whatever it is by then.
    (case.state, case.encryption, case.silent_for) = (Some(state), Some(agreed("k1")), Duration::ZERO);
    let seen = case.decide();
    assert_eq!((seen.reason, seen.create), (Some(Reason::EncryptionUnwatched), with_key("A", Some("k1"))));
    assert_eq!(seen.state.unwrap().persisted_encryption_config_hashes, strings(UNKNOWN));
    assert_eq!(seen.delete, strings("done"));
}

#[test]
fn an_unreadable_key_does_not_settle_a_rotation() {
    let mut rotating = known();
    rotating.current_encryption_config_hash = Some("k2".to_owned());
    rotating.persisted_encryption_config_hashes = strings("k1 k2");
    let mut stale = rotating.clone();
    stale.last_heartbeat_time = Some(Time(now() - HEARTBEAT_TIMEOUT * 2));
    for (what, before) in [("fresh", rotating), ("stale", stale)] {
        let mut case = Case::new(agreed("A"), Some(before));
        case.migrations =
            vec![Attempt { made_for: with_key("A", Some("k2")), ..attempt("running", "A", false, false) }];
        case.silent_for = SILENT_SERVER_TIMEOUT;
        let unseen = case.decide();
        let forgotten = after(&unseen).unwrap();
        assert_eq!(forgotten.persisted_encryption_config_hashes, strings(UNKNOWN), "{what}");
        assert_eq!(forgotten.current_encryption_config_hash, None, "{what}");
        assert!(!forgotten.is_settled(), "{what}");
        assert!(
            forgotten.message.as_deref().is_some_and(|text| text.contains("more than one key")),
            "{what}"
        );
        // It is forgotten once, and waited for no more.
        assert!(!is_incomplete(&case.storage, None, Some(&forgotten)), "{what}");
        (case.state, case.silent_for) = (Some(forgotten), Duration::ZERO);
        assert_eq!(case.decide(), Decision::default(), "{what}");
        // Without the key, nothing is proven of it.
        case.migrations = vec![attempt("done", "A", true, true)];
        assert!(case.decide().state.is_none_or(|state| !state.is_settled()), "{what}");
        // One that fails is replaced.
        case.migrations = vec![failed(Reason::ListRefused, 61)];
        assert_eq!(case.decide().reason, Some(Reason::Retried), "{what}");
        // Seen again, everything is migrated.
        case.encryption = Some(agreed("k2"));
        let seen = case.decide();
        assert_eq!(
            (seen.reason, &seen.create),
            (Some(Reason::EncryptionUnwatched), &with_key("A", Some("k2"))),
            "{what}"
        );
        case.state = after(&seen);
        case.migrations =
            vec![Attempt { encryption: Some("k2".to_owned()), ..attempt("next", "A", true, true) }];
        let done = case.decide().state.unwrap();
        assert!(done.is_settled() && done.message.is_none(), "{what}");
    }
}

#[test]
fn a_state_says_that_unreported_keys_are_not_watched() {
    let mut case = Case::new(agreed("A"), None);
    for (consensus, says) in [(agreed("k1"), false), (agreed(crate::agreement::encryption::UNREPORTED), true)]
    {
        case.encryption = Some(consensus);
        let message = case.decide().state.unwrap().message;
        assert_eq!(message.is_some_and(|text| text.contains("a key rotation is not seen")), says);
    }
}

#[test]
fn a_key_that_was_never_readable_is_not_waited_for() {
    let mut old = state("A", "A");
    old.last_heartbeat_time = Some(Time(now() - Duration::from_secs(301)));
    let decision = Case::new(agreed("A"), Some(old)).decide();
    assert_eq!((decision.reason, decision.create), (None, None));
    assert_eq!(decision.state.unwrap().last_heartbeat_time, Some(Time(now())));
}

#[test]
fn a_migration_is_created_when_its_key_stays_unreadable() {
    // The storage version changes while the key is unseen.
    let mut case = Case::new(agreed("B"), Some(known()));
    let waits = case.decide();
    assert_eq!((waits.reason, &waits.create), (Some(Reason::Disagreement), &None));
    case.state = waits.state;
    assert_eq!(case.decide(), Decision::default());
    case.silent_for = SILENT_SERVER_TIMEOUT;
    let made = case.decide();
    assert_eq!((made.reason, &made.create), (Some(Reason::EncryptionUnseen), &with_key("B", None)));
    expect(&made, "", Some("B"), Some(("A B", "B")));
    // One that fails is replaced, though it was made when the key could be seen.
    let mut case = Case::new(agreed("A"), Some(state("B A", "A")));
    case.migrations = vec![failed(Reason::ListRefused, 61)];
    case.migrations[0].made_for = with_key("A", Some("k1"));
    assert_eq!(case.decide().reason, Some(Reason::Retried));
}

#[test]
fn a_slow_observation_does_not_make_its_own_state_stale() {
    for (age, lasts, stale) in [(500, 0, false), (500, 3600, false), (601, 0, true), (601, 3600, true)] {
        let mut old = state("A", "A");
        old.last_heartbeat_time = Some(Time(now() - Duration::from_secs(age)));
        let mut case = Case::new(agreed("A"), Some(old));
        case.now += Duration::from_secs(lasts);
        let decision = case.decide();
        assert_eq!(decision.reason == Some(Reason::StaleHeartbeat), stale, "{age} {lasts}");
        // What it heard, it heard until now.
        assert_eq!(decision.state.unwrap().last_heartbeat_time, Some(Time(case.now)), "{age} {lasts}");
    }
}
