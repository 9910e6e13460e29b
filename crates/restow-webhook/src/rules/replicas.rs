//! Whether every replica of the webhook serves the same rules.
//!
//! Each replica writes what it serves into the status of the rules, and renews that. A replica that cannot renew is
//! not ready after [`UNREADY`], so it gets no requests; only later, after [`FORGOTTEN`], may others take its entry away.
//! Until then it is taken for one that may still answer with old rules. A replica becomes ready only after it has loaded the
//! rules, so one that has no entry yet cannot answer with old ones.

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use restow_convert::rules::{ConversionRulesStatus, ServingReplica};

/// How often a replica renews its entry.
pub const RENEW: SignedDuration = SignedDuration::from_secs(20);
/// After how long without renewal a replica says that it is not ready.
pub const UNREADY: SignedDuration = SignedDuration::from_secs(90);
/// After how long without renewal an entry counts as silent, and closes the gate.
pub const SILENT: SignedDuration = SignedDuration::from_secs(60);
/// After how long others remove an entry: much later than its replica has stopped to be ready.
pub const FORGOTTEN: SignedDuration = SignedDuration::from_secs(300);
/// No status has more entries.
pub const MOST: usize = 100;

/// Why not every replica serves the rules.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotServed {
    /// No replica has said anything.
    #[error("no replica of the webhook serves these rules yet")]
    Nobody,
    /// A replica serves another generation.
    #[error("replica {name} serves generation {served} of the rules, not {wanted}")]
    AnotherGeneration {
        /// The replica.
        name: String,
        /// What it serves.
        served: i64,
        /// What it should serve.
        wanted: i64,
    },
    /// A replica has checked the rules against another generation of the CRD.
    #[error("replica {name} has checked the rules against generation {checked} of the CRD, not {wanted}")]
    AnotherDefinition {
        /// The replica.
        name: String,
        /// What it has checked against.
        checked: i64,
        /// What it should have checked against.
        wanted: i64,
    },
    /// A replica has said nothing about these rules, but something about others.
    #[error("replica {name} has not read these rules yet")]
    NotHeard {
        /// The replica.
        name: String,
    },
    /// A replica has been silent for long, and may still serve something else.
    #[error(
        "replica {name} has been silent since {since}; wait until it returns or is forgotten, five minutes after that"
    )]
    Silent {
        /// The replica.
        name: String,
        /// When it was heard of last.
        since: Timestamp,
    },
}

/// Whether every replica serves this generation of the rules, checked against this generation of the CRD. A replica that
/// is known by the status of other rules only may get requests too.
///
/// # Errors
/// With the first replica of which that is not known.
pub fn every_replica_serves(
    status: &ConversionRulesStatus,
    generation: i64,
    definition_generation: i64,
    others: &[ConversionRulesStatus],
    now: Timestamp,
) -> Result<(), NotServed> {
    if status.replicas.is_empty() {
        return Err(NotServed::Nobody);
    }
    for replica in &status.replicas {
        let name = replica.name.clone();
        if age(replica, now) >= SILENT {
            return Err(NotServed::Silent { name, since: replica.renewed.0 });
        }
        if replica.generation != generation {
            return Err(NotServed::AnotherGeneration {
                name,
                served: replica.generation,
                wanted: generation,
            });
        }
        if replica.definition_generation != definition_generation {
            let checked = replica.definition_generation;
            return Err(NotServed::AnotherDefinition { name, checked, wanted: definition_generation });
        }
    }
    let is_heard = |name: &str| status.replicas.iter().any(|replica| replica.name == name);
    let mut elsewhere = others.iter().flat_map(|other| &other.replicas);
    match elsewhere.find(|replica| age(replica, now) < FORGOTTEN && !is_heard(&replica.name)) {
        Some(replica) => Err(NotServed::NotHeard { name: replica.name.clone() }),
        None => Ok(()),
    }
}

/// Whether other live replicas serve rules of which a replica serves none: it was started after they were broken. They can
/// answer, so it must not get requests. If nobody can, it does no harm.
pub fn is_behind(status: &ConversionRulesStatus, name: &str, now: Timestamp) -> bool {
    status.replicas.iter().any(|other| other.name != name && other.generation > 0 && age(other, now) < SILENT)
}

/// The entries after this replica has said what it serves. None if nothing needs to be written.
pub fn report(
    entries: &[ServingReplica],
    name: &str,
    (generation, definition_generation): (i64, i64),
    now: Timestamp,
) -> Option<Vec<ServingReplica>> {
    let own = entries.iter().find(|entry| entry.name == name);
    let same = |own: &ServingReplica| {
        (own.generation, own.definition_generation) == (generation, definition_generation)
            && age(own, now) < RENEW
            && age(own, now) > -SILENT
    };
    let forgotten = entries.iter().any(|entry| age(entry, now) >= FORGOTTEN);
    if own.is_some_and(same) && !forgotten {
        return None;
    }
    let mut others: Vec<_> =
        entries.iter().filter(|entry| entry.name != name && age(entry, now) < FORGOTTEN).cloned().collect();
    others.sort_by_key(|entry| std::cmp::Reverse(entry.renewed.0));
    others.truncate(MOST - 1);
    let name = name.to_owned();
    others.push(ServingReplica { name, generation, definition_generation, renewed: Time(now) });
    others.sort_by(|one, other| one.name.cmp(&other.name));
    Some(others)
}

/// The entries after this replica has ended. None if it has none.
pub fn leave(entries: &[ServingReplica], name: &str) -> Option<Vec<ServingReplica>> {
    let others: Vec<_> = entries.iter().filter(|entry| entry.name != name).cloned().collect();
    (others.len() < entries.len()).then_some(others)
}

fn age(entry: &ServingReplica, now: Timestamp) -> SignedDuration {
    now.duration_since(entry.renewed.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_second(1_000_000 + seconds).unwrap()
    }

    fn entry(name: &str, generations: (i64, i64), renewed: i64) -> ServingReplica {
        ServingReplica {
            name: name.to_owned(),
            generation: generations.0,
            definition_generation: generations.1,
            renewed: Time(at(renewed)),
        }
    }

    #[test]
    fn the_gate_opens_when_all_that_may_answer_serve_the_same() {
        let cases = [
            (vec![], "no replica"),
            (vec![entry("a", (2, 5), 0)], ""),
            (vec![entry("a", (2, 5), 0), entry("b", (2, 5), -59)], ""),
            (
                vec![entry("a", (2, 5), 0), entry("b", (1, 5), 0)],
                "replica b serves generation 1 of the rules, not 2",
            ),
            (vec![entry("a", (3, 5), 0)], "replica a serves generation 3"),
            (
                vec![entry("a", (2, 4), 0)],
                "replica a has checked the rules against generation 4 of the CRD, not 5",
            ),
            (vec![entry("a", (0, 0), 0)], "replica a serves generation 0"),
            (vec![entry("a", (2, 5), 0), entry("b", (2, 5), -60)], "replica b has been silent"),
        ];
        for (replicas, expected) in cases {
            let status = ConversionRulesStatus { replicas, ..Default::default() };
            let gate = every_replica_serves(&status, 2, 5, &[], at(0));
            let found = gate.err().map(|error| error.to_string()).unwrap_or_default();
            assert!(
                found.starts_with(expected) && found.is_empty() == expected.is_empty(),
                "{found}: {expected}"
            );
        }
    }

    #[test]
    fn a_replica_that_is_known_by_other_rules_must_serve_these_too() {
        let of = |replicas| ConversionRulesStatus { replicas, ..Default::default() };
        let here = |names: &[&str]| of(names.iter().map(|name| entry(name, (2, 5), 0)).collect());
        for (names, others, expected) in [
            (&["a"][..], vec![of(vec![entry("a", (1, 1), 0)])], None),
            (&["a"], vec![here(&[]), of(vec![entry("a", (1, 1), 0), entry("b", (1, 1), -10)])], Some("b")),
            (&["a", "b"], vec![of(vec![entry("b", (1, 1), -10)])], None),
            (&["a"], vec![of(vec![entry("b", (1, 1), -299)])], Some("b")),
            (&["a"], vec![of(vec![entry("b", (1, 1), -300)])], None),
        ] {
            let gate = every_replica_serves(&here(names), 2, 5, &others, at(0));
            let expected = expected.map(|name| NotServed::NotHeard { name: name.to_owned() });
            assert_eq!(gate.err(), expected, "{names:?}");
        }
    }

    #[test]
    fn a_replica_writes_when_something_changed_or_its_entry_is_old() {
        let entries = [entry("a", (2, 5), 0), entry("b", (2, 5), -10)];
        assert_eq!(report(&entries, "a", (2, 5), at(19)), None);
        assert_eq!(
            report(&entries, "a", (2, 5), at(20)).unwrap(),
            [entry("a", (2, 5), 20), entry("b", (2, 5), -10)]
        );
        assert_eq!(
            report(&entries, "a", (3, 5), at(1)).unwrap(),
            [entry("a", (3, 5), 1), entry("b", (2, 5), -10)]
        );
        assert_eq!(report(&entries, "c", (2, 5), at(1)).unwrap().len(), 3);
        // A clock that went back by much does not leave an entry in the future.
        assert_eq!(report(&entries, "a", (2, 5), at(-100)).unwrap()[0], entry("a", (2, 5), -100));
    }

    #[test]
    fn a_replica_that_serves_nothing_is_behind_those_that_do() {
        for (replicas, expected) in [
            (vec![], false),
            (vec![entry("own", (0, 0), 0)], false),
            (vec![entry("own", (0, 0), 0), entry("a", (0, 0), 0)], false),
            (vec![entry("own", (0, 0), 0), entry("a", (2, 5), 0)], true),
            (vec![entry("a", (2, 5), -60)], false),
        ] {
            let status = ConversionRulesStatus { replicas, ..Default::default() };
            assert_eq!(is_behind(&status, "own", at(0)), expected, "{status:?}");
        }
    }

    #[test]
    fn silent_replicas_are_forgotten_only_after_they_have_stopped_to_be_ready() {
        let entries = [entry("a", (2, 5), 299), entry("b", (2, 5), 0)];
        assert_eq!(report(&entries, "a", (2, 5), at(299)), None);
        assert_eq!(report(&entries, "a", (2, 5), at(300)).unwrap(), [entry("a", (2, 5), 300)]);
        assert!(SILENT < UNREADY && UNREADY + UNREADY < FORGOTTEN && RENEW + RENEW < SILENT);
    }

    #[test]
    fn entries_are_bounded_and_a_replica_that_ends_removes_its_own() {
        let entries: Vec<_> =
            (0..MOST as i64 + 50).map(|number| entry(&format!("r{number}"), (1, 1), number)).collect();
        let reported = report(&entries, "own", (1, 1), at(200)).unwrap();
        assert_eq!(reported.len(), MOST);
        assert!(reported.iter().any(|entry| entry.name == "own"));
        let left = leave(&reported, "own").unwrap();
        assert_eq!(left.len(), MOST - 1);
        assert_eq!(leave(&left, "own"), None);
    }
}
