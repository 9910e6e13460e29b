//! When the leaf of a Secret that somebody else manages is served: a pure decision.
//!
//! cert-manager, for example, replaces authority and leaf in one write. A replica that served the new leaf at once would
//! not be trusted by API servers that do not know the new authority yet. CRDs trust both for a while, and the former leaf is
//! served until then.

use std::collections::BTreeSet;
use std::time::Duration;

use restow_clock::Instant;

use super::rotation::AuthorityId;

/// What is known about the leaf of such a Secret.
#[derive(Debug, Default)]
pub(super) struct ForeignLeaf {
    /// The authorities of the Secret when its leaf was last served.
    trusted: BTreeSet<AuthorityId>,
    /// The leaf that is not served yet, and since when it is known.
    waiting: Option<(AuthorityId, Instant)>,
}

impl ForeignLeaf {
    /// Whether to serve this leaf now. `serves` says whether another one can be served meanwhile.
    pub(super) fn may_serve(
        &mut self,
        leaf: &AuthorityId,
        authorities: &BTreeSet<AuthorityId>,
        serves: bool,
        settle: Duration,
        now: Instant,
    ) -> bool {
        let since = match &self.waiting {
            Some((known, since)) if known == leaf => *since,
            _ => now,
        };
        // Without authorities, whoever manages the caBundle knows when CRDs trust the leaf.
        let trusted = authorities.is_subset(&self.trusted);
        if serves && !trusted && now.duration_since(since) < settle {
            self.waiting = Some((leaf.clone(), since));
            return false;
        }
        self.waiting = None;
        self.trusted.clone_from(authorities);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_leaf_of_another_authority_waits_until_crds_trust_it() {
        let id = |name: &str| AuthorityId(name.to_owned());
        let of = |names: &[&str]| names.iter().map(|name| id(name)).collect::<BTreeSet<_>>();
        let (start, settle) = (Instant::now(), Duration::from_secs(300));
        let at = |seconds: u64| start + Duration::from_secs(seconds);
        let mut foreign = ForeignLeaf::default();
        assert!(foreign.may_serve(&id("one"), &of(&["a"]), false, settle, at(0)), "there is no other one");
        assert!(foreign.may_serve(&id("two"), &of(&["a"]), true, settle, at(1)), "the same authority");
        assert!(!foreign.may_serve(&id("three"), &of(&["b"]), true, settle, at(10)));
        assert!(!foreign.may_serve(&id("three"), &of(&["b"]), true, settle, at(309)));
        assert!(foreign.may_serve(&id("three"), &of(&["b"]), true, settle, at(310)));
        assert!(!foreign.may_serve(&id("four"), &of(&["c"]), true, settle, at(400)));
        assert!(
            foreign.may_serve(&id("four"), &of(&["c"]), false, settle, at(401)),
            "the former one has expired"
        );
        assert!(!foreign.may_serve(&id("five"), &of(&["d"]), true, settle, at(500)));
        assert!(!foreign.may_serve(&id("six"), &of(&["e"]), true, settle, at(799)), "it begins anew");
        assert!(
            foreign.may_serve(&id("seven"), &of(&[]), true, settle, at(800)),
            "nothing is known about trust"
        );
    }
}
