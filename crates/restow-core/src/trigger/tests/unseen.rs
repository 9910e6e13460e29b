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
fn a_key_that_nobody_could_see_for_a_while_may_have_been_another_one() {
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
    (case.encryption, case.silent_for) = (None, SILENCE);
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
fn a_key_that_was_never_seen_is_not_waited_for() {
    let mut old = state("A", "A");
    old.last_heartbeat_time = Some(Time(now() - Duration::from_secs(301)));
    let decision = Case::new(agreed("A"), Some(old)).decide();
    assert_eq!((decision.reason, decision.create), (None, None));
    assert_eq!(decision.state.unwrap().last_heartbeat_time, Some(Time(now())));
}

#[test]
fn a_migration_that_waits_for_a_key_is_made_when_the_key_cannot_be_seen() {
    // The storage version changes while the key is unseen.
    let mut case = Case::new(agreed("B"), Some(known()));
    let waits = case.decide();
    assert_eq!((waits.reason, &waits.create), (Some(Reason::Disagreement), &None));
    case.state = waits.state;
    assert_eq!(case.decide(), Decision::default());
    case.silent_for = SILENCE;
    let made = case.decide();
    assert_eq!((made.reason, &made.create), (Some(Reason::EncryptionUnseen), &with_key("B", None)));
    expect(&made, "", Some("B"), Some(("A B", "B")));
    // One that fails is replaced, though it was made when the key could be seen.
    let mut case = Case::new(agreed("A"), Some(state("B A", "A")));
    case.migrations = vec![failed("ListRefused", 61)];
    case.migrations[0].made_for = with_key("A", Some("k1"));
    assert_eq!(case.decide().reason, Some(Reason::Retried));
}

#[test]
fn a_look_that_takes_long_does_not_make_its_own_state_stale() {
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
