//! What a finished pass proves, and what it leaves unchecked.

use crate::agreement::encryption::{Check, KeyRequirement, UNREPORTED};
use crate::rewrite::progress::{Phase, Progress};

impl Progress {
    /// Concludes a pass under one agreement that found nothing to rewrite: the migration is verified, unless a requirement for
    /// the encryption key is not met.
    pub fn conclude(&mut self, key_requirement: KeyRequirement) {
        let reported = self.encryption.clone().filter(|hash| hash != UNREPORTED);
        let keys = Check { config_hash: self.keys.config_hash.clone().or(reported), ..self.keys.clone() };
        self.unproven = key_requirement.unmet(&keys);
        self.verified = self.unproven.is_none();
    }

    /// Whether the saved part of a pass still counts after a restart: the mark shows whether an API server restarted since,
    /// the fingerprint whether a key changed. Objects that seemed gone must have been confirmed.
    ///
    /// Numeric resourceVersions show which objects were written in the pass before the restart.
    pub fn is_valid_after_restart(&self, key_requirement: KeyRequirement) -> bool {
        let sealed = key_requirement == KeyRequirement::Nothing || self.fingerprint.is_some();
        let listed = self.phase != Phase::Verifying || self.began_at.is_some();
        self.is_marked() && !self.unconfirmed && sealed && listed
    }

    /// What was not checked in a run whose storage version is proven, one sentence each.
    pub fn unchecked(&self) -> Vec<String> {
        let mut unchecked = Vec::new();
        unchecked.extend(self.basis.and_then(|basis| basis.caveat(self.leased)).map(str::to_owned));
        unchecked.extend(self.keys.open().map(|why| format!("the encryption key: {why}")));
        unchecked
    }

    /// What a verified pass proves, in one sentence.
    pub fn proof(&self) -> String {
        let key = match (&self.keys.config_hash, self.keys.checked) {
            (Some(hash), true) => {
                let servers = match self.keys.servers.len() {
                    1 => "1 API server".to_owned(),
                    several => format!("{several} API servers"),
                };
                format!(" under encryption configuration {hash} on {servers}")
            }
            _ => String::new(),
        };
        let passes = match self.passes {
            1 => "the verifying pass".to_owned(),
            passes => format!("verifying pass {passes}"),
        };
        format!("proven: {passes} found every object stored as {}{key}", self.storage_version)
    }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use super::*;
    use crate::agreement::basis::Basis;
    use crate::agreement::encryption::{Config, MetricsError, agree};
    use crate::agreement::version::Agreement;
    use crate::resource::name::GroupResource;

    fn agreement(basis: Basis, leased: bool) -> Agreement {
        let (hash, mark) = ("x".to_owned(), "m".to_owned());
        Agreement { hash, basis, mark, definition: None, since: None, leased }
    }

    /// A pass whose looks rest on these, and at whose ends two servers' metrics said this: a hash, "-" for none, else
    /// why not.
    fn pass(looks: &[(Basis, bool)], keys: Option<[&str; 2]>) -> Progress {
        let name = GroupResource::parse("secrets");
        let mut progress = Progress::new(name, "v1", "x", Timestamp::default());
        progress.begin_verifying();
        looks.iter().for_each(|(basis, leased)| progress.observe_agreement(&agreement(*basis, *leased)));
        let config = |text: &str| match text {
            "-" => Ok(Config::default()),
            "403" => Err(MetricsError::Refused("forbidden".to_owned())),
            hash => Ok(Config { hash: Some(hash.to_owned()), ..Config::default() }),
        };
        if let Some([one, two]) = keys {
            let look = agree(&[("a".to_owned(), config(one)), ("b".to_owned(), config(two))]);
            progress.observe_keys(&look.fingerprint, look.check());
        }
        progress
    }

    #[test]
    fn a_reported_configuration_still_counts_when_no_server_reports_it_later() {
        for (encryption, looks, verified) in [
            (Some("k"), vec![["k", "k"]], true),
            (Some("k"), vec![["k", "k"], ["403", "403"]], false),
            (Some("k"), vec![["403", "403"], ["403", "403"]], false),
            (Some(UNREPORTED), vec![["403", "403"]], true),
            (None, vec![["403", "403"]], true),
        ] {
            let mut progress = pass(&[(Basis::Direct, true)], None);
            progress.encryption = encryption.map(str::to_owned);
            for look in &looks {
                let keys = pass(&[], Some(*look)).keys;
                progress.observe_keys("", keys);
            }
            progress.conclude(KeyRequirement::Reported);
            assert_eq!(progress.verified, verified, "{encryption:?} {looks:?} {:?}", progress.unproven);
        }
    }

    const BASES: [(Basis, bool, Option<&str>); 7] = [
        (Basis::StorageVersion, true, None),
        (Basis::StorageVersion, false, Some("has registered: its servers hold no identity Leases")),
        (Basis::Direct, true, None),
        (Basis::Endpoints, false, Some("no API server has an identity Lease")),
        (Basis::Named, false, Some("the addresses named with --api-server are those of all API servers")),
        (Basis::Sampled, true, Some("which was sampled on fresh connections")),
        (Basis::Assumed, false, Some("--assume-single-server says so")),
    ];

    #[test]
    fn no_report_claims_more_than_was_checked() {
        use KeyRequirement::{Declared, Nothing, Reported, Usual};
        let none = "no API server reports an encryption configuration";
        let unread = "metrics were not read";
        // What the servers' metrics said, what is demanded, whether that is verified, and what is said of the key.
        let keys = [
            (Some(["k", "k"]), Nothing, true, None),
            (Some(["k", "k"]), Reported, true, None),
            (Some(["k", "k"]), Usual, true, None),
            (Some(["k", "k"]), Declared, true, None),
            (Some(["-", "-"]), Reported, true, Some(none)),
            (Some(["-", "-"]), Usual, true, Some(none)),
            (Some(["-", "-"]), Declared, false, Some(none)),
            (Some(["k", "403"]), Reported, false, Some("b: forbidden")),
            (Some(["k", "403"]), Usual, false, Some("b: forbidden")),
            (Some(["k", "403"]), Declared, false, Some("b: forbidden")),
            (Some(["-", "403"]), Reported, true, Some("b: forbidden")),
            (Some(["-", "403"]), Usual, false, Some("b: forbidden")),
            (Some(["-", "403"]), Declared, false, Some("b: forbidden")),
            (None, Nothing, true, Some(unread)),
            (None, Reported, true, Some(unread)),
            (None, Usual, false, Some(unread)),
            (None, Declared, false, Some(unread)),
        ];
        for (basis, leased, caveat) in BASES {
            for (said, key_requirement, verified, key) in keys {
                let what = format!("{basis} {leased} {said:?} {key_requirement:?}");
                let mut progress = pass(&[(basis, leased)], said);
                progress.conclude(key_requirement);
                assert_eq!(progress.verified, verified, "{what}");
                let unchecked = progress.unchecked();
                let about_key = unchecked.iter().find(|open| open.starts_with("the encryption key"));
                let about_servers = unchecked.iter().find(|open| !open.starts_with("the encryption key"));
                for (found, wanted) in [(about_servers, caveat), (about_key, key)] {
                    match (found, wanted) {
                        (Some(found), Some(wanted)) => assert!(found.contains(wanted), "{what}: {found}"),
                        (found, wanted) => assert_eq!(found.is_some(), wanted.is_some(), "{what}: {found:?}"),
                    }
                }
                // A configuration is named only if every server reported it.
                let proof = progress.proof();
                assert_eq!(proof.contains("on 2 API servers"), said == Some(["k", "k"]), "{what}: {proof}");
            }
        }
    }

    #[test]
    fn what_a_restart_may_hide_is_not_kept() {
        let (marked, unmarked) = ((Basis::Direct, true), (Basis::Named, false));
        for (look, keys, key_requirement, expected) in [
            (marked, None, KeyRequirement::Nothing, true),
            (unmarked, None, KeyRequirement::Nothing, false),
            (marked, None, KeyRequirement::Declared, false),
            (marked, None, KeyRequirement::Reported, false),
            (marked, Some(["k", "k"]), KeyRequirement::Declared, true),
            (unmarked, Some(["k", "k"]), KeyRequirement::Declared, false),
        ] {
            let mut progress = Progress { phase: Phase::Done, ..pass(&[look], keys) };
            assert_eq!(
                progress.is_valid_after_restart(key_requirement),
                expected,
                "{look:?} {keys:?} {key_requirement:?}"
            );
            for (began_at, told) in [(None, false), (Some(7), true)] {
                let verifying = Progress { phase: Phase::Verifying, began_at, ..progress.clone() };
                assert_eq!(
                    verifying.is_valid_after_restart(key_requirement),
                    expected && told,
                    "{began_at:?} {key_requirement:?}"
                );
            }
            progress.unconfirmed = true;
            assert!(!progress.is_valid_after_restart(key_requirement));
        }
    }

    #[test]
    fn a_pass_counts_with_its_weakest_basis() {
        let (direct, named, assumed) =
            ((Basis::Direct, true), (Basis::Named, false), (Basis::Assumed, false));
        for (looks, basis, leased) in [
            (vec![direct, direct], Basis::Direct, true),
            (vec![direct, named, direct], Basis::Named, false),
            (vec![assumed, direct], Basis::Assumed, false),
            (
                [(Basis::Direct, true), (Basis::Direct, false), (Basis::Direct, true)].to_vec(),
                Basis::Direct,
                false,
            ),
        ] {
            let mut progress = pass(&looks, None);
            assert_eq!((progress.basis, progress.leased), (Some(basis), leased), "{looks:?}");
            assert_eq!(progress.is_marked(), leased, "{looks:?}");
            // Another pass begins anew.
            progress.begin_verifying();
            progress.observe_agreement(&agreement(Basis::Direct, true));
            assert_eq!((progress.basis, progress.leased), (Some(Basis::Direct), true), "{looks:?}");
        }
    }
}
