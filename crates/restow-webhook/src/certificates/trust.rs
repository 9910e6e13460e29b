//! For how long every CRD that calls the webhook has been seen to trust an authority.
//!
//! Only what was seen at both ends counts: an observation that is not made proves nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use restow_clock::Instant;
use tokio::sync::Notify;

use super::rotation::AuthorityId;

/// What one CRD that calls the webhook, or is about to, trusts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CrdTrust {
    /// The name of the CRD.
    pub name: String,
    /// The authorities in its caBundle.
    pub authorities: BTreeSet<AuthorityId>,
}

/// What observations of all CRDs have shown.
#[derive(Clone, Debug, Default)]
pub struct Trust {
    /// When each of some authorities was first seen to be trusted by all, without an interruption.
    since: BTreeMap<AuthorityId, Instant>,
    last: Option<Observation>,
}

/// Trust as those share it who observe CRDs and who keep certificates. Each wakes the other.
#[derive(Debug, Default)]
pub struct SharedTrust {
    trust: Mutex<Trust>,
    observed: Notify,
    certificates_changed: Notify,
}

impl SharedTrust {
    /// Takes in an observation, and wakes who keeps certificates.
    pub(crate) fn observe(&self, at: Instant, kept: &BTreeSet<AuthorityId>, crds: Vec<CrdTrust>) {
        self.lock().observe(at, kept, crds);
        self.observed.notify_one();
    }

    /// For how long all have trusted an authority.
    pub(crate) fn lasting(&self, id: &AuthorityId) -> Option<Duration> {
        self.lock().lasting(id)
    }

    /// The CRDs that did not trust an authority when they were last seen.
    pub fn missing(&self, id: &AuthorityId) -> Vec<String> {
        self.lock().missing(id).into_iter().map(str::to_owned).collect()
    }

    /// Wakes who observes CRDs.
    pub fn certificates_changed(&self) {
        self.certificates_changed.notify_one();
    }

    /// Returns when CRDs were observed.
    pub(crate) async fn observed(&self) {
        self.observed.notified().await;
    }

    /// Returns when certificates have changed.
    pub(crate) async fn until_certificates_change(&self) {
        self.certificates_changed.notified().await;
    }

    fn lock(&self) -> MutexGuard<'_, Trust> {
        self.trust.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[derive(Clone, Debug)]
struct Observation {
    at: Instant,
    crds: Vec<CrdTrust>,
}

impl Trust {
    /// Takes in an observation of all CRDs that call the webhook. `kept` are the authorities of the Secret, which is read
    /// before the CRDs are.
    pub fn observe<'a>(
        &mut self,
        at: Instant,
        kept: impl IntoIterator<Item = &'a AuthorityId>,
        crds: Vec<CrdTrust>,
    ) {
        let trusted = |id: &&AuthorityId| crds.iter().all(|crd| crd.authorities.contains(*id));
        let now: Vec<AuthorityId> = kept.into_iter().filter(trusted).cloned().collect();
        let since = |id: AuthorityId| {
            let since = self.since.get(&id).copied().unwrap_or(at);
            (id, since)
        };
        self.since = now.into_iter().map(since).collect();
        self.last = Some(Observation { at, crds });
    }

    /// For how long all have trusted an authority, from the first observation that showed it to the last one.
    pub fn lasting(&self, id: &AuthorityId) -> Option<Duration> {
        let last = self.last.as_ref()?;
        self.since.get(id).map(|since| last.at.duration_since(*since))
    }

    /// The CRDs that did not trust an authority when they were last seen.
    pub fn missing(&self, id: &AuthorityId) -> Vec<&str> {
        let crds = self.last.iter().flat_map(|last| &last.crds);
        crds.filter(|crd| !crd.authorities.contains(id)).map(|crd| crd.name.as_str()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(name: &str) -> AuthorityId {
        AuthorityId(name.to_owned())
    }

    fn crd(name: &str, authorities: &[&str]) -> CrdTrust {
        CrdTrust { name: name.to_owned(), authorities: authorities.iter().map(|name| id(name)).collect() }
    }

    #[test]
    fn only_what_every_observation_showed_counts() {
        let start = Instant::now();
        let at = |seconds: u64| start + Duration::from_secs(seconds);
        let kept = [id("a"), id("b")];
        let mut trust = Trust::default();
        assert_eq!(trust.lasting(&id("a")), None, "nothing was observed");
        trust.observe(at(0), &kept, vec![crd("widgets", &["a"]), crd("gadgets", &["a", "b"])]);
        assert_eq!(trust.lasting(&id("a")), Some(Duration::ZERO));
        assert_eq!(trust.lasting(&id("b")), None);
        assert_eq!(trust.missing(&id("b")), ["widgets"]);
        trust.observe(at(5), &kept, vec![crd("widgets", &["a", "b"]), crd("gadgets", &["a", "b"])]);
        trust.observe(at(7), &kept, vec![crd("widgets", &["a", "b"]), crd("gadgets", &["a", "b"])]);
        assert_eq!(trust.lasting(&id("a")), Some(Duration::from_secs(7)));
        assert_eq!(trust.lasting(&id("b")), Some(Duration::from_secs(2)));
        assert_eq!(trust.missing(&id("b")), Vec::<&str>::new());
        // A CRD that appears without it starts the wait again.
        trust.observe(at(8), &kept, vec![crd("widgets", &["a", "b"]), crd("others", &["a"])]);
        trust.observe(at(9), &kept, vec![crd("widgets", &["a", "b"]), crd("others", &["a", "b"])]);
        assert_eq!(trust.lasting(&id("b")), Some(Duration::ZERO));
    }

    #[test]
    fn without_crds_every_kept_authority_is_trusted() {
        let start = Instant::now();
        let mut trust = Trust::default();
        trust.observe(start, &[id("a")], Vec::new());
        trust.observe(start + Duration::from_secs(3), &[id("a"), id("b")], Vec::new());
        assert_eq!(trust.lasting(&id("a")), Some(Duration::from_secs(3)));
        assert_eq!(trust.lasting(&id("b")), Some(Duration::ZERO));
        assert_eq!(trust.lasting(&id("c")), None);
    }
}
