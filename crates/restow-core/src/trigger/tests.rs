//! Looks, and what follows from each.

use restow_api::StorageStateStatus;

use super::*;
use crate::agreement::Basis;

const NOW: &str = "2026-11-15T12:00:00Z";

fn now() -> Timestamp {
    NOW.parse().unwrap()
}

fn strings(text: &str) -> Vec<String> {
    text.split_whitespace().map(str::to_owned).collect()
}

fn state(persisted: &str, current: &str) -> StorageStateStatus {
    StorageStateStatus {
        persisted_storage_version_hashes: strings(persisted),
        current_storage_version_hash: Some(current.to_owned()),
        last_heartbeat_time: Some(Time(now() - Duration::from_secs(60))),
        agreement: Some("direct".to_owned()),
        ..StorageStateStatus::default()
    }
}

fn attempt(name: &str, hash: &str, finished: bool, verified: bool) -> Attempt {
    Attempt {
        name: name.to_owned(),
        finished,
        verified,
        hash: Some(hash.to_owned()),
        encryption: None,
        definition: None,
    }
}

/// A look, as a test changes it.
struct Case {
    storage: Word,
    encryption: Option<Word>,
    stored: Vec<String>,
    definition: Option<&'static str>,
    served: Vec<String>,
    state: Option<StorageStateStatus>,
    migrations: Vec<Attempt>,
    since: Option<Timestamp>,
    first: bool,
    silent_for: Duration,
}

impl Case {
    fn new(storage: Word, state: Option<StorageStateStatus>) -> Self {
        Self {
            storage,
            encryption: None,
            stored: Vec::new(),
            definition: None,
            served: Vec::new(),
            state,
            migrations: Vec::new(),
            since: None,
            first: false,
            silent_for: Duration::ZERO,
        }
    }

    fn decide(&self) -> Decision {
        let agreement = match &self.storage {
            Word::Agreed(hash) => {
                let (mark, definition, since) = (String::new(), None, self.since);
                Ok(Agreement { hash: hash.clone(), basis: Basis::Direct, mark, definition, since })
            }
            _ => Err(Disagreement::Unsteady),
        };
        decide(&Look {
            storage: &self.storage,
            agreement: &agreement,
            encryption: self.encryption.as_ref(),
            stored: &self.stored,
            definition: self.definition,
            served: &self.served,
            state: self.state.as_ref(),
            migrations: &self.migrations,
            first: self.first,
            stale: STALE,
            renew: Duration::from_secs(300),
            silent_for: self.silent_for,
            now: now(),
        })
    }
}

fn agreed(hash: &str) -> Word {
    Word::Agreed(hash.to_owned())
}

#[track_caller]
fn expect(decision: &Decision, delete: &str, create: Option<&str>, state: Option<(&str, &str)>) {
    assert_eq!(decision.delete, strings(delete), "{decision:#?}");
    assert_eq!(decision.create.as_ref().map(|wanted| wanted.hash.as_str()), create, "{decision:#?}");
    let shown = decision.state.as_ref().map(|state| {
        (
            state.persisted_storage_version_hashes.join(" "),
            state.current_storage_version_hash.clone().unwrap_or_default(),
        )
    });
    assert_eq!(shown, state.map(|(p, c)| (p.to_owned(), c.to_owned())), "{decision:#?}");
}

#[test]
fn the_life_of_a_state() {
    // Installed: nothing is known.
    let mut case = Case::new(agreed("A"), None);
    case.migrations = vec![attempt("old", "A", true, true)];
    let first = case.decide();
    expect(&first, "old", Some("A"), Some(("Unknown", "A")));
    // Under way: nothing to do.
    let mut case = Case::new(agreed("A"), first.state.clone());
    case.migrations = vec![attempt("m1", "A", false, false)];
    expect(&case.decide(), "", None, None);
    // Ended, not verified: it proves nothing.
    case.migrations = vec![attempt("m1", "A", true, false)];
    expect(&case.decide(), "", None, None);
    // Ended and verified.
    case.migrations = vec![attempt("m1", "A", true, true)];
    let done = case.decide();
    expect(&done, "", None, Some(("A", "A")));
    assert_eq!(done.reason, Some(Reason::Migrated));
    // Upgraded.
    let mut case = Case::new(agreed("B"), done.state.clone());
    case.migrations = vec![attempt("m1", "A", true, true)];
    let upgraded = case.decide();
    expect(&upgraded, "m1", Some("B"), Some(("A B", "B")));
    // Rolled back in the middle.
    let mut case = Case::new(agreed("A"), upgraded.state.clone());
    case.migrations = vec![attempt("m2", "B", false, false)];
    let back = case.decide();
    expect(&back, "m2", Some("A"), Some(("A B", "A")));
    // A completion refines just the hash it ran for.
    let mut case = Case::new(agreed("A"), back.state.clone());
    case.migrations = vec![attempt("m2", "B", true, true)];
    expect(&case.decide(), "", None, None);
    case.migrations.push(attempt("m3", "A", true, true));
    expect(&case.decide(), "", None, Some(("A", "A")));
}

#[test]
fn a_state_that_says_nothing_is_unknown() {
    // As a predecessor may have left it.
    let empty =
        StorageStateStatus { last_heartbeat_time: Some(Time(now())), ..StorageStateStatus::default() };
    expect(&Case::new(agreed("A"), Some(empty)).decide(), "", Some("A"), Some(("Unknown", "A")));
}

#[test]
fn a_short_absence_is_forgiven_and_a_long_one_is_not() {
    for (seconds, reset) in [(60, false), (599, false), (601, true), (86_400, true)] {
        let mut old = state("A", "A");
        old.last_heartbeat_time = Some(Time(now() - Duration::from_secs(seconds)));
        let mut case = Case::new(agreed("A"), Some(old));
        case.first = true;
        let decision = case.decide();
        let expected = reset.then_some(("Unknown", "A"));
        if reset {
            expect(&decision, "", Some("A"), expected);
        } else {
            assert_eq!(decision.create, None, "{seconds}");
        }
        // Only on start: a controller that runs knows what it saw.
        case.first = false;
        assert_eq!(case.decide().create, None, "{seconds}");
    }
}

#[test]
fn a_heartbeat_is_renewed_when_it_is_due_and_no_earlier() {
    for (seconds, writes) in [(60, false), (299, false), (300, true), (500, true)] {
        let mut old = state("A", "A");
        old.last_heartbeat_time = Some(Time(now() - Duration::from_secs(seconds)));
        assert_eq!(Case::new(agreed("A"), Some(old)).decide().state.is_some(), writes, "{seconds}");
    }
}

#[test]
fn disagreement_lists_all_and_starts_nothing() {
    let split = Word::Split(strings("A B"));
    expect(&Case::new(split.clone(), None).decide(), "", None, Some(("Unknown A B", "Unknown")));
    let mut case = Case::new(split, Some(state("A", "A")));
    case.migrations = vec![attempt("running", "A", false, false), attempt("done", "A", true, true)];
    let decision = case.decide();
    expect(&decision, "running", None, Some(("A B", "Unknown")));
    // Agreement again, on either: everything is migrated anew, and what was proven before counts no more.
    for hash in ["A", "B"] {
        let mut case = Case::new(agreed(hash), decision.state.clone());
        case.migrations = vec![attempt("done", "A", true, true)];
        expect(&case.decide(), "done", Some(hash), Some(("A B", hash)));
    }
}

#[test]
fn silence_is_borne_for_a_while() {
    let silent = Word::Silent(strings("A"));
    let mut case = Case::new(silent.clone(), Some(state("A", "A")));
    case.migrations = vec![attempt("m", "A", false, false)];
    expect(&case.decide(), "", None, None);
    case.silent_for = SILENCE;
    expect(&case.decide(), "m", None, Some(("A Unknown", "Unknown")));
    // A resource never seen before has nothing to lose.
    expect(&Case::new(silent, None).decide(), "", None, Some(("Unknown A", "Unknown")));
}

#[test]
fn a_double_change_between_two_looks_is_told_by_the_stored_versions() {
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
fn servers_that_have_parted_between_two_looks_prove_nothing() {
    let at = |second| Timestamp::from_second(second).unwrap();
    let state = |since: Option<i64>| StorageStateStatus {
        agreed_since: since.map(|second| Time(at(second))),
        ..state("A B", "A")
    };
    for (what, before, now, parted) in [
        ("nothing happened", Some(1), Some(1), false),
        ("they agreed anew", Some(1), Some(2), true),
        ("it was not known before", None, Some(2), false),
        ("it is not known now", Some(1), None, false),
    ] {
        let mut case = Case::new(agreed("A"), Some(state(before)));
        (case.since, case.migrations) = (now.map(at), vec![attempt("m", "A", true, true)]);
        let decision = case.decide();
        let (reason, persisted) = match parted {
            true => (Reason::StorageVersionChangedTwice, "A B Unknown"),
            false => (Reason::Migrated, "A"),
        };
        assert_eq!(decision.reason, Some(reason), "{what}");
        let after = decision.state.clone().unwrap();
        assert_eq!(after.agreed_since.map(|time| time.0), now.or(before).map(at), "{what}");
        let made = parted.then_some("A");
        expect(&decision, if parted { "m" } else { "" }, made, Some((persisted, "A")));
    }
    // A change that was seen is told as that.
    let mut case = Case::new(agreed("B"), Some(state(Some(1))));
    case.since = Some(at(2));
    assert_eq!(case.decide().reason, Some(Reason::StorageVersionChanged));
}

#[test]
fn a_version_that_is_served_no_more_is_cleaned_up_after_once() {
    let mut known = state("A", "A");
    known.served_versions = strings("v1 v2");
    let mut case = Case::new(agreed("A"), Some(known));
    for (served, creates) in [("v1 v2", false), ("v1 v2 v3", false), ("v2", true)] {
        case.served = strings(served);
        assert_eq!(case.decide().create.is_some(), creates, "{served}");
    }
    let retired = case.decide();
    expect(&retired, "", Some("A"), Some(("A", "A")));
    assert_eq!(retired.reason, Some(Reason::VersionRetired));
    case.state = retired.state;
    expect(&case.decide(), "", None, None);
}

#[test]
fn a_key_is_migrated_to_when_all_servers_have_it() {
    let mut known = state("A", "A");
    known.current_encryption_config_hash = Some("k1".to_owned());
    known.persisted_encryption_config_hashes = strings("k1");
    let mut case = Case::new(agreed("A"), Some(known));
    case.encryption = Some(agreed("k1"));
    expect(&case.decide(), "", None, None);
    // One server lags.
    case.encryption = Some(Word::Split(strings("k1 k2")));
    let lagging = case.decide();
    expect(&lagging, "", None, Some(("A", "A")));
    let keys = |decision: &Decision| {
        let state = decision.state.clone().unwrap();
        (
            state.persisted_encryption_config_hashes.join(" "),
            state.current_encryption_config_hash.unwrap_or_default(),
        )
    };
    assert_eq!(keys(&lagging), ("k1 k2".to_owned(), UNKNOWN.to_owned()));
    // Both have it.
    case.state = lagging.state;
    case.encryption = Some(agreed("k2"));
    let both = case.decide();
    assert_eq!(both.create, Some(Wanted { hash: "A".to_owned(), encryption: Some("k2".to_owned()) }));
    assert_eq!(keys(&both), ("k1 k2".to_owned(), "k2".to_owned()));
    // A migration under the old key proves nothing of the new one.
    case.state = both.state;
    case.migrations =
        vec![Attempt { encryption: Some("k1".to_owned()), ..attempt("user's", "A", true, true) }];
    expect(&case.decide(), "", None, None);
    case.migrations[0].encryption = Some("k2".to_owned());
    assert_eq!(keys(&case.decide()), ("k2".to_owned(), "k2".to_owned()));
}

#[test]
fn heartbeats_are_renewed_before_they_are_stale() {
    for (poll, stale, every) in [(1, 600, 1), (300, 600, 300), (600, 600, 300), (3600, 3600, 1800)] {
        let poll = Duration::from_secs(poll);
        assert_eq!(stale_after(poll), Duration::from_secs(stale));
        assert_eq!(look_every(poll), Duration::from_secs(every));
    }
}
