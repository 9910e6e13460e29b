//! Whether a StorageState or an earlier run shows that all objects are stored in the current version and under the
//! current key.

use jiff::Timestamp;
use restow_api::StorageStateStatus;

use crate::agreement::encryption::Encryption;
use crate::agreement::version::Agreement;
use crate::controller::trigger::{HEARTBEAT_TIMEOUT, distrust, explain, knows_key};
use crate::resource::inventory::Evidence;
use crate::rewrite::progress::Progress;

/// What the StorageState of a resource with this storage version hash shows at `now`.
///
/// It counts if it is settled, restow wrote it, and its heartbeat is recent.
pub fn of_state(state: &StorageStateStatus, hash: &str, now: Timestamp) -> Evidence {
    if !state.is_settled() || state.current_storage_version_hash.as_deref() != Some(hash) {
        return Evidence::Nothing;
    }
    match distrust(state, now, HEARTBEAT_TIMEOUT) {
        None => Evidence::Proof("its StorageState is settled".to_owned()),
        Some(reason) => Evidence::Doubt(format!("its StorageState is settled, but {}", explain(reason))),
    }
}

/// Whether a controller that starts now migrates a resource because it does not know how it is stored: its StorageState is
/// missing or not relied on, or its key is watched now (`keyed`) and was not before.
pub fn is_unknown(state: Option<&StorageStateStatus>, keyed: bool, now: Timestamp) -> bool {
    state
        .is_none_or(|state| distrust(state, now, HEARTBEAT_TIMEOUT).is_some() || (keyed && !knows_key(state)))
}

/// What the API servers report now about a resource.
#[derive(Clone, Debug)]
pub struct CurrentStorage {
    /// Their agreement on its storage version, or why there is none.
    pub agreement: Result<Agreement, String>,
    /// Their encryption configurations, or why they cannot be read.
    pub keys: Result<Encryption, String>,
}

/// What an earlier run shows about a resource with this storage version hash.
///
/// It counts if its proof still holds: no API server has restarted since, and the CRD and the encryption configuration are
/// the same. A version or key that changed and changed back leaves no other trace.
pub fn of_run(run: &Progress, hash: &str, present: &CurrentStorage) -> Evidence {
    if !run.verified {
        return Evidence::Nothing;
    }
    let verified = format!("verified on {}", run.updated.strftime("%F"));
    if run.storage_version_hash != hash {
        return Evidence::Doubt(format!("{verified}, when it was stored as {}", run.storage_version));
    }
    if let Some(doubt) = moved(run, &present.agreement).or_else(|| rekeyed(run, &present.keys)) {
        return Evidence::Doubt(format!("{verified}, but {doubt}"));
    }
    // The report of the run said that the key was not checked.
    let besides = if run.keys.unchecked.is_empty() { "" } else { ", except for the encryption key" };
    Evidence::Proof(format!("{verified}{besides}"))
}

/// Why the storage version may have changed since the run.
fn moved(run: &Progress, agreement: &Result<Agreement, String>) -> Option<String> {
    if !run.is_marked() {
        return Some("nothing shows whether an API server has been restarted since".to_owned());
    }
    match agreement {
        Err(why) => Some(format!("the API servers do not show that it is stored so now: {why}")),
        Ok(agreement) if agreement.hash != run.storage_version_hash => {
            Some("the API servers store it in another version now".to_owned())
        }
        Ok(agreement) if agreement.definition != run.definition => {
            Some("its CustomResourceDefinition has been changed since".to_owned())
        }
        Ok(agreement) if Some(&agreement.mark) != run.mark.as_ref() => {
            Some("an API server has been started or stopped since".to_owned())
        }
        Ok(_) => None,
    }
}

/// Why the encryption key may have changed since the run, if the run checked the key.
fn rekeyed(run: &Progress, keys: &Result<Encryption, String>) -> Option<String> {
    let fingerprint = run.fingerprint.as_ref().filter(|_| run.keys.unchecked.is_empty())?;
    let unseen = |why: String| Some(format!("the encryption key cannot be checked now: {why}"));
    match keys {
        Err(why) => unseen(why.clone()),
        Ok(keys) if !keys.check().unchecked.is_empty() => unseen(keys.check().open().unwrap_or_default()),
        Ok(keys) if keys.fingerprint != *fingerprint => {
            Some("an API server has taken up another encryption configuration since".to_owned())
        }
        Ok(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

    use super::*;
    use crate::agreement::basis::Basis;
    use crate::agreement::encryption::{Config, MetricsError, agree};
    use crate::resource::name::GroupResource;

    fn proof(text: &str) -> Evidence {
        Evidence::Proof(text.to_owned())
    }

    fn doubt(text: &str) -> Evidence {
        Evidence::Doubt(text.to_owned())
    }

    #[test]
    fn a_settled_state_counts_if_restow_wrote_it_recently() {
        let now = Timestamp::from_second(1_000_000).unwrap();
        let settled = "its StorageState is settled";
        let foreign = "its StorageState is settled, but its state was written by another controller, which does not \
                       verify migrations";
        let stale = "its StorageState is settled, but its storage version was not watched for too long";
        // What is current and persisted, what the agreement rests on, the age of the heartbeat in seconds.
        for (current, persisted, agreement, age, expected) in [
            ("x", &["x"][..], Some("direct"), Some(0), proof(settled)),
            ("x", &["x"], Some("direct"), Some(600), proof(settled)),
            ("x", &["x"], Some("direct"), Some(601), doubt(stale)),
            ("x", &["x"], Some("direct"), Some(-60), proof(settled)),
            ("x", &["x"], Some("direct"), Some(-61), doubt(stale)),
            ("x", &["x"], Some("direct"), None, doubt(stale)),
            ("x", &["x"], None, Some(0), doubt(foreign)),
            ("x", &["x"], None, Some(9999), doubt(foreign)),
            ("x", &["Unknown", "x"], Some("direct"), Some(0), Evidence::Nothing),
            ("old", &["old"], Some("direct"), Some(0), Evidence::Nothing),
        ] {
            let state = StorageStateStatus {
                current_storage_version_hash: Some(current.to_owned()),
                persisted_storage_version_hashes: persisted.iter().map(|&hash| hash.to_owned()).collect(),
                agreement: agreement.map(str::to_owned),
                last_heartbeat_time: age.map(|age: i64| Time(now - jiff::SignedDuration::from_secs(age))),
                ..StorageStateStatus::default()
            };
            assert_eq!(of_state(&state, "x", now), expected, "{persisted:?} {agreement:?} {age:?}");
        }
    }

    fn keys(said: [&str; 2]) -> Encryption {
        let config = |text: &str| match text {
            "403" => Err(MetricsError::Refused("forbidden".to_owned())),
            "-" => Ok(Config::default()),
            hash => Ok(Config { hash: Some(hash.to_owned()), ..Config::default() }),
        };
        agree(&[("a".to_owned(), config(said[0])), ("b".to_owned(), config(said[1]))])
    }

    fn agreement(hash: &str, mark: &str, definition: Option<&str>, leased: bool) -> Agreement {
        let (hash, mark, definition) = (hash.to_owned(), mark.to_owned(), definition.map(str::to_owned));
        Agreement { hash, basis: Basis::Direct, mark, definition, since: None, leased }
    }

    /// A verified run under this agreement, with these keys at the ends of its pass.
    fn run(agreement: &Agreement, said: Option<[&str; 2]>) -> Progress {
        let began = Timestamp::UNIX_EPOCH;
        let mut run = Progress::new(GroupResource::parse("secrets"), "v1", "x", began);
        run.begin_verifying();
        run.observe_agreement(agreement);
        if let Some(said) = said {
            run.observe_keys(&keys(said).fingerprint, keys(said).check());
        }
        run.verified = true;
        run
    }

    #[test]
    fn an_earlier_run_counts_if_its_proof_still_holds() {
        let then = agreement("x", "m", Some("u/1"), true);
        let present = |agreement: Agreement, said: [&str; 2]| CurrentStorage {
            agreement: Ok(agreement),
            keys: Ok(keys(said)),
        };
        let same = || present(then.clone(), ["k", "k"]);
        let day = "verified on 1970-01-01";
        let restarted = "verified on 1970-01-01, but an API server has been started or stopped since";
        let rekeyed =
            "verified on 1970-01-01, but an API server has taken up another encryption configuration since";
        let checked = run(&then, Some(["k", "k"]));
        for (what, run, hash, present, expected) in [
            ("the same", checked.clone(), "x", same(), proof(day)),
            ("unverified", Progress { verified: false, ..checked.clone() }, "x", same(), Evidence::Nothing),
            (
                "another version",
                checked.clone(),
                "y",
                same(),
                doubt("verified on 1970-01-01, when it was stored as v1"),
            ),
            // The servers were upgraded and rolled back.
            (
                "a restart",
                checked.clone(),
                "x",
                present(agreement("x", "n", Some("u/1"), true), ["k", "k"]),
                doubt(restarted),
            ),
            (
                "a definition that was changed twice",
                checked.clone(),
                "x",
                present(agreement("x", "m", Some("u/3"), true), ["k", "k"]),
                doubt("verified on 1970-01-01, but its CustomResourceDefinition has been changed since"),
            ),
            (
                "servers that have parted from discovery",
                checked.clone(),
                "x",
                present(agreement("y", "m", Some("u/1"), true), ["k", "k"]),
                doubt("verified on 1970-01-01, but the API servers store it in another version now"),
            ),
            (
                "no agreement",
                checked.clone(),
                "x",
                CurrentStorage { agreement: Err("no".to_owned()), ..same() },
                doubt("verified on 1970-01-01, but the API servers do not show that it is stored so now: no"),
            ),
            (
                "no Leases",
                run(&agreement("x", "m", Some("u/1"), false), Some(["k", "k"])),
                "x",
                same(),
                doubt(
                    "verified on 1970-01-01, but nothing shows whether an API server has been restarted since",
                ),
            ),
            ("another key", checked.clone(), "x", present(then.clone(), ["l", "l"]), doubt(rekeyed)),
            (
                "encryption turned off",
                checked.clone(),
                "x",
                present(then.clone(), ["-", "-"]),
                doubt(rekeyed),
            ),
            ("encryption turned on", run(&then, Some(["-", "-"])), "x", same(), doubt(rekeyed)),
            (
                "no encryption",
                run(&then, Some(["-", "-"])),
                "x",
                present(then.clone(), ["-", "-"]),
                proof(day),
            ),
            (
                "a server that is not heard now",
                checked.clone(),
                "x",
                present(then.clone(), ["k", "403"]),
                doubt("verified on 1970-01-01, but the encryption key cannot be checked now: b: forbidden"),
            ),
            (
                "metrics that cannot be read now",
                checked.clone(),
                "x",
                CurrentStorage { keys: Err("no".to_owned()), ..same() },
                doubt("verified on 1970-01-01, but the encryption key cannot be checked now: no"),
            ),
            (
                "a server that was not heard then",
                run(&then, Some(["-", "403"])),
                "x",
                same(),
                proof("verified on 1970-01-01, except for the encryption key"),
            ),
            (
                "a run whose key did not matter",
                run(&then, None),
                "x",
                present(then.clone(), ["l", "l"]),
                proof(day),
            ),
        ] {
            assert_eq!(of_run(&run, hash, &present), expected, "{what}");
        }
    }

    #[test]
    fn the_stronger_evidence_counts() {
        for (one, other, expected) in [
            (proof("a"), proof("b"), proof("a")),
            (doubt("a"), proof("b"), proof("b")),
            (Evidence::Nothing, proof("b"), proof("b")),
            (doubt("a"), doubt("b"), doubt("a")),
            (Evidence::Nothing, doubt("b"), doubt("b")),
            (doubt("a"), Evidence::Nothing, doubt("a")),
            (Evidence::Nothing, Evidence::Nothing, Evidence::Nothing),
        ] {
            assert_eq!(one.or(other), expected);
        }
    }
}
