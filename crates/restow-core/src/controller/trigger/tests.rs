//! Looks, and what follows from each.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::*;
use crate::agreement::basis::Basis;
use crate::agreement::version::{Agreement, Disagreement};

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
    Attempt { name: name.to_owned(), finished, verified, hash: Some(hash.to_owned()), ..Attempt::default() }
}

/// A look, as a test changes it.
#[derive(Clone)]
struct Case {
    storage: Consensus,
    encryption: Option<Consensus>,
    stored: Vec<String>,
    definition: Option<&'static str>,
    served: Vec<String>,
    state: Option<StorageStateStatus>,
    migrations: Vec<Attempt>,
    since: Option<Timestamp>,
    silent_for: Duration,
    reloads: BTreeMap<String, String>,
    began: Timestamp,
    now: Timestamp,
}

impl Case {
    fn new(storage: Consensus, state: Option<StorageStateStatus>) -> Self {
        Self {
            storage,
            encryption: None,
            stored: Vec::new(),
            definition: None,
            served: Vec::new(),
            state,
            migrations: Vec::new(),
            since: None,
            silent_for: Duration::ZERO,
            reloads: BTreeMap::new(),
            began: now(),
            now: now(),
        }
    }

    /// Comes so much later.
    fn pass(&mut self, time: Duration) {
        (self.began, self.now) = (self.began + time, self.now + time);
    }

    fn decide(&self) -> Decision {
        self.decide_with(HEARTBEAT_TIMEOUT, Duration::from_secs(300))
    }

    fn decide_every(&self, poll: Duration) -> Decision {
        self.decide_with(stale_after(poll), renew_after(poll))
    }

    fn decide_with(&self, stale: Duration, renew: Duration) -> Decision {
        let agreement = match &self.storage {
            Consensus::Agreed(hash) => {
                let (mark, definition, since) = (String::new(), None, self.since);
                Ok(Agreement {
                    hash: hash.clone(),
                    basis: Basis::Direct,
                    mark,
                    definition,
                    since,
                    leased: true,
                })
            }
            _ => Err(Disagreement::ServersChanged),
        };
        decide(&Observation {
            storage: &self.storage,
            agreement: &agreement,
            encryption: self.encryption.as_ref(),
            reloads: &self.reloads,
            stored: &self.stored,
            definition: self.definition,
            served: &self.served,
            state: self.state.as_ref(),
            migrations: &self.migrations,
            stale,
            renew,
            silent_for: self.silent_for,
            name: "next",
            began: self.began,
            now: self.now,
        })
    }
}

/// The state when all steps of a decision are done.
fn after(decision: &Decision) -> Option<StorageStateStatus> {
    decision.steps(None).into_iter().rev().find_map(|step| match step {
        Step::Write(state) => Some(*state),
        _ => None,
    })
}

fn agreed(hash: &str) -> Consensus {
    Consensus::Agreed(hash.to_owned())
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
fn a_state_follows_a_storage_version_change_from_start_to_end() {
    // Installed: nothing is known.
    let mut case = Case::new(agreed("A"), None);
    case.migrations = vec![attempt("old", "A", true, true)];
    let first = case.decide();
    expect(&first, "old", Some("A"), Some(("Unknown", "A")));
    // Under way: nothing to do.
    let mut case = Case::new(agreed("A"), after(&first));
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
    let mut case = Case::new(agreed("A"), after(&upgraded));
    case.migrations = vec![attempt("m2", "B", false, false)];
    let back = case.decide();
    expect(&back, "m2", Some("A"), Some(("A B", "A")));
    // A completion refines just the hash it ran for.
    let mut case = Case::new(agreed("A"), after(&back));
    case.migrations = vec![attempt("m2", "B", true, true)];
    expect(&case.decide(), "", None, None);
    case.migrations.push(attempt("m3", "A", true, true));
    expect(&case.decide(), "", None, Some(("A", "A")));
}

#[test]
fn a_state_without_information_is_unknown() {
    // As a predecessor may have left it.
    let empty =
        StorageStateStatus { last_heartbeat_time: Some(Time(now())), ..StorageStateStatus::default() };
    expect(&Case::new(agreed("A"), Some(empty)).decide(), "", Some("A"), Some(("Unknown", "A")));
}

#[test]
fn a_state_of_another_controller_is_not_trusted() {
    let mut foreign = state("A", "A");
    foreign.agreement = None;
    let mut case = Case::new(agreed("A"), Some(foreign));
    case.migrations = vec![attempt("m1", "A", true, false)];
    let decision = case.decide();
    expect(&decision, "m1", Some("A"), Some(("Unknown", "A")));
    assert_eq!(decision.reason, Some(Reason::ForeignState));
    // Not even while a server is silent.
    case.storage = Consensus::Silent(strings("A"));
    expect(&case.decide(), "", None, Some(("Unknown A", "Unknown")));
}

#[test]
fn only_a_decision_that_renews_the_heartbeat_is_a_heartbeat() {
    let known = state("A", "A");
    let foreign = StorageStateStatus { agreement: None, ..known.clone() };
    let minutes = |minutes: u64| Duration::from_secs(60 * minutes);
    for (what, state, storage, later, expected) in [
        ("due", &known, "A", minutes(5), true),
        ("not due", &known, "A", minutes(1), false),
        ("stale", &known, "A", minutes(11), false),
        ("another version", &known, "B", minutes(5), false),
        ("written by another controller", &foreign, "A", minutes(5), false),
    ] {
        let mut case = Case::new(agreed(storage), Some(state.clone()));
        case.pass(later);
        let decision = case.decide();
        assert_eq!(decision.is_heartbeat(case.state.as_ref()), expected, "{what}: {decision:#?}");
    }
    let mut migrated = Case::new(agreed("A"), Some(state("B A", "A")));
    migrated.migrations = vec![attempt("m1", "A", true, true)];
    migrated.pass(minutes(5));
    assert!(!migrated.decide().is_heartbeat(migrated.state.as_ref()));
}

#[test]
fn a_state_is_forgotten_after_a_long_absence_only() {
    // A heartbeat in the future is another clock's.
    for (seconds, reset) in
        [(60, false), (599, false), (601, true), (86_400, true), (-60, false), (-61, true), (-599, true)]
    {
        let mut old = state("A", "A");
        old.last_heartbeat_time = Some(Time(now() - SignedDuration::from_secs(seconds)));
        let decision = Case::new(agreed("A"), Some(old)).decide();
        if reset {
            expect(&decision, "", Some("A"), Some(("Unknown", "A")));
            assert_eq!(decision.reason, Some(Reason::StaleHeartbeat));
        } else {
            assert_eq!(decision.create, None, "{seconds}");
        }
    }
}

#[test]
fn a_stale_state_is_forgotten_even_while_a_server_is_silent() {
    let mut old = state("A", "A");
    old.last_heartbeat_time = Some(Time(now() - Duration::from_secs(601)));
    old.current_encryption_config_hash = Some("k1".to_owned());
    old.persisted_encryption_config_hashes = strings("k1");
    let beat = old.last_heartbeat_time.clone();
    for (storage, encryption) in [
        (Consensus::Silent(strings("A")), agreed("k1")),
        (agreed("A"), Consensus::Silent(strings("k1"))),
        (Consensus::Silent(strings("A")), Consensus::Silent(strings("k1"))),
    ] {
        let mut case = Case::new(storage, Some(old.clone()));
        case.encryption = Some(encryption);
        case.migrations = vec![attempt("running", "A", false, false), attempt("done", "A", true, true)];
        let forgotten = case.decide();
        assert_eq!((&forgotten.create, forgotten.reason), (&None, Some(Reason::StaleHeartbeat)));
        assert_eq!(forgotten.delete, strings("running"));
        let after = forgotten.state.unwrap();
        for persisted in [&after.persisted_storage_version_hashes, &after.persisted_encryption_config_hashes]
        {
            assert_eq!(persisted[0], UNKNOWN, "{after:#?}");
        }
        assert!(!after.is_settled(), "{after:#?}");
        // Nobody was heard by this look, so it is no heartbeat.
        assert_eq!(after.last_heartbeat_time, beat);
        // The next look, another controller's perhaps, finds nothing more to forget.
        case.state = Some(after);
        case.migrations.remove(0);
        assert_eq!(case.decide(), Decision::default());
        // Whenever all are heard again, everything is migrated, and what was proven before counts no more.
        case.storage = agreed("A");
        case.encryption = Some(agreed("k1"));
        let again = case.decide();
        assert_eq!(again.create, Some(Wanted { hash: "A".to_owned(), encryption: Some("k1".to_owned()) }));
        assert_eq!(again.delete, strings("done"));
        assert_eq!(again.state.unwrap().last_heartbeat_time, Some(Time(now())));
    }
}

#[test]
fn the_heartbeat_of_a_running_controller_stays_fresh() {
    let mut random = 1_u64;
    let mut draw = |below: u64| {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (random >> 33) % below
    };
    // How long a look may take at most, after the pause before it.
    let slow = 60;
    for poll in [1, 10, 60, 200, 300, 600, 3600] {
        let poll = Duration::from_secs(poll);
        let (stale, every) = (stale_after(poll), observation_interval(poll));
        let mut case = Case::new(agreed("A"), Some(state("A", "A")));
        let mut beat = case.now;
        case.state.as_mut().unwrap().last_heartbeat_time = Some(Time(beat));
        for step in 0..2000 {
            // Looks come early whenever something changes, now and then just before a heartbeat is due.
            let early = match step % 3 {
                0 => draw(every.as_secs() + 1),
                1 => every.as_secs().saturating_sub(1),
                _ => every.as_secs(),
            };
            case.pass(Duration::from_secs(early + draw(slow + 1)));
            let age = case.now.duration_since(beat).unsigned_abs();
            assert!(age <= stale - stale / 3 + Duration::from_secs(2 * slow), "{poll:?}: {age:?}");
            assert!(age < stale, "{poll:?}: {age:?}");
            let decision = case.decide_every(poll);
            assert_eq!(decision.reason, None);
            if let Some(state) = decision.state {
                beat = state.last_heartbeat_time.as_ref().unwrap().0;
                case.state = Some(state);
            }
        }
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
fn a_disagreement_lists_all_versions_and_starts_nothing() {
    let split = Consensus::Split(strings("A B"));
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
fn silent_servers_are_waited_for_a_limited_time() {
    let silent = Consensus::Silent(strings("A"));
    let mut case = Case::new(silent.clone(), Some(state("A", "A")));
    case.migrations = vec![attempt("m", "A", false, false)];
    expect(&case.decide(), "", None, None);
    case.silent_for = SILENT_SERVER_TIMEOUT;
    expect(&case.decide(), "m", None, Some(("A Unknown", "Unknown")));
    // A look that could not hear everybody is no heartbeat.
    assert_eq!(case.decide().state.unwrap().last_heartbeat_time, state("A", "A").last_heartbeat_time);
    // What is heard besides is news at once, however long the others are silent.
    for heard in ["B", "A B"] {
        let case = Case::new(Consensus::Silent(strings(heard)), Some(state("A", "A")));
        expect(&case.decide(), "", None, Some(("A B Unknown", UNKNOWN)));
    }
    let mut keys = Case::new(agreed("B"), Some(state("A", "A")));
    keys.encryption = Some(Consensus::Silent(strings("k1")));
    assert!(keys.decide().state.is_some(), "a new storage version is taken in although a key is not told");
    // What is not known anyway is not waited for: the silent one may be writing anything.
    let mut split = Case::new(silent.clone(), Some(state("A B", UNKNOWN)));
    expect(&split.decide(), "", None, Some(("A B Unknown", UNKNOWN)));
    split.state = split.decide().state;
    expect(&split.decide(), "", None, None);
    // A resource never seen before has nothing to lose.
    expect(&Case::new(silent, None).decide(), "", None, Some(("Unknown A", "Unknown")));
}

#[test]
fn a_retired_version_triggers_one_migration() {
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
    case.state = after(&retired);
    expect(&case.decide(), "", None, None);
}

#[test]
fn a_key_migration_starts_when_all_servers_use_the_key() {
    let mut known = state("A", "A");
    known.current_encryption_config_hash = Some("k1".to_owned());
    known.persisted_encryption_config_hashes = strings("k1");
    known.encryption_config_reloads = Some(BTreeMap::new());
    let mut case = Case::new(agreed("A"), Some(known));
    case.encryption = Some(agreed("k1"));
    expect(&case.decide(), "", None, None);
    // One server lags.
    case.encryption = Some(Consensus::Split(strings("k1 k2")));
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
    case.state = after(&both);
    case.migrations =
        vec![Attempt { encryption: Some("k1".to_owned()), ..attempt("user's", "A", true, true) }];
    expect(&case.decide(), "", None, None);
    case.migrations[0].encryption = Some("k2".to_owned());
    assert_eq!(keys(&case.decide()), ("k2".to_owned(), "k2".to_owned()));
}

#[test]
fn heartbeats_are_renewed_before_they_are_stale() {
    for (poll, stale, every) in [(1, 600, 1), (200, 600, 200), (600, 600, 200), (3600, 3600, 1200)] {
        let poll = Duration::from_secs(poll);
        assert_eq!(stale_after(poll), Duration::from_secs(stale));
        assert_eq!(observation_interval(poll), Duration::from_secs(every));
    }
}

#[test]
fn a_reload_shows_a_configuration_used_between_two_observations() {
    let reloads = |text: &str| -> BTreeMap<String, String> {
        let pair = |text: &str| text.split_once('@').map(|(a, b)| (a.to_owned(), b.to_owned())).unwrap();
        text.split_whitespace().map(pair).collect()
    };
    for (what, before, now, consensus, made) in [
        ("nothing happened", Some("a@1 b@1"), "a@1 b@1", agreed("k1"), false),
        ("one took up another one, and this one again", Some("a@1 b@1"), "a@1 b@2", agreed("k1"), true),
        ("the first time since it started", Some("a@1"), "a@1 b@2", agreed("k1"), true),
        ("a restart forgets", Some("a@1 b@1"), "a@1", agreed("k1"), false),
        ("it was not known before", None, "a@1 b@1", agreed("k1"), false),
        ("known to be none before", Some(""), "a@1", agreed("k1"), true),
    ] {
        let mut known = state("A", "A");
        known.current_encryption_config_hash = Some("k1".to_owned());
        known.persisted_encryption_config_hashes = strings("k1");
        known.encryption_config_reloads = before.map(reloads);
        let mut case = Case::new(agreed("A"), Some(known));
        (case.encryption, case.reloads) = (Some(consensus), reloads(now));
        case.migrations =
            vec![Attempt { encryption: Some("k1".to_owned()), ..attempt("done", "A", true, true) }];
        let decision = case.decide();
        assert_eq!(decision.create.is_some(), made, "{what}");
        if made {
            assert_eq!(decision.reason, Some(Reason::EncryptionChangedTwice), "{what}");
            let after = decision.state.clone().unwrap();
            assert_eq!(after.persisted_encryption_config_hashes, strings("k1 Unknown"), "{what}");
            assert_eq!(decision.delete, strings("done"), "{what}");
        }
        if let Some(after) = &decision.state {
            assert_eq!(after.encryption_config_reloads, Some(reloads(now)), "{what}");
            case.state = self::after(&decision);
            case.migrations.clear();
            assert_eq!(case.decide().create, None, "{what}: once");
        }
    }
    // A change that was seen is told as that.
    let mut known = state("A", "A");
    known.current_encryption_config_hash = Some("k1".to_owned());
    known.persisted_encryption_config_hashes = strings("k1");
    known.encryption_config_reloads = Some(reloads("a@1 b@1"));
    let mut case = Case::new(agreed("A"), Some(known));
    (case.encryption, case.reloads) = (Some(agreed("k2")), reloads("a@2 b@2"));
    assert_eq!(case.decide().reason, Some(Reason::EncryptionChanged));
    // What a silent server said before still stands.
    (case.encryption, case.reloads, case.silent_for) =
        (Some(Consensus::Silent(strings("k1"))), reloads("a@2"), SILENT_SERVER_TIMEOUT);
    assert_eq!(case.decide().state.unwrap().encryption_config_reloads, Some(reloads("a@2 b@1")));
}

/// A migration that the trigger made for A, and that failed so many seconds ago.
fn failed(reason: Reason, ago: i64) -> Attempt {
    Attempt {
        made_for: Some(Wanted { hash: "A".to_owned(), encryption: None }),
        failed: Some(AttemptFailure { reason: Some(reason), at: now() - SignedDuration::from_secs(ago) }),
        ..attempt("failed", "A", true, false)
    }
}

mod in_between;
mod interrupted;
mod kept;
mod retried;
mod unseen;
