//! What to do about the certificates of a webhook, as a pure function of what is kept and a given `now`.
//!
//! An authority lives through four roles. It is *next* when it was made: CRDs shall trust it, and it signs nothing. It is
//! *signing* when every CRD that calls the webhook has trusted it for a while. It is *retired* when another one signs. It is
//! forgotten when the last leaf that it signed has expired, because a replica may serve a leaf until then, however late it
//! reads the Secret. So a leaf verifies in every CRD at any time, whichever replica serves it.

use std::collections::BTreeSet;
use std::fmt;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};

/// How many authorities are kept at most; a further rotation waits until one is forgotten.
const MAX_AUTHORITIES: usize = 64;
/// A certificate is renewed when this part of its life is left.
const RENEWED_WITH_LEFT: u32 = 3;

/// How long certificates are valid, and how rotations wait.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lifetimes {
    /// How long an authority is valid; a year by default.
    pub authority: Duration,
    /// How long a leaf is valid; 30 days by default.
    pub leaf: Duration,
    /// How long every CRD must have trusted an authority before it signs; five minutes by default.
    ///
    /// A kube-apiserver has one client for each content of a caBundle, and takes the one for a changed caBundle as soon as
    /// its watch of CRDs shows the change. Requests that have begun keep the former one for up to twice
    /// `--request-timeout`, which is one minute by default: two minutes. The other three are for a watch that lags, or
    /// a longer timeout.
    pub settle: Duration,
    /// How far the clock of an API server may be behind; an hour by default. Authorities are kept for so much longer.
    pub skew: Duration,
}

impl Default for Lifetimes {
    fn default() -> Self {
        let hour = Duration::from_secs(60 * 60);
        Self {
            authority: 365 * 24 * hour,
            leaf: 30 * 24 * hour,
            settle: Duration::from_secs(5 * 60),
            skew: hour,
        }
    }
}

/// What the certificates shall be.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Wanted {
    /// The DNS names and IP addresses that clients use.
    pub names: BTreeSet<String>,
    /// How long certificates are valid.
    pub lifetimes: Lifetimes,
}

/// The SHA-256 fingerprint of an authority's certificate, in hexadecimal digits.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct AuthorityId(pub String);

impl fmt::Display for AuthorityId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0.get(..16).unwrap_or(&self.0))
    }
}

impl fmt::Debug for AuthorityId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// What an authority is used for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Role {
    /// CRDs shall trust it, and it signs nothing yet.
    Next,
    /// It signs leaves.
    Signing,
    /// It signs no more; a replica may still serve a leaf that it signed.
    Retired,
}

/// A certificate authority, with its certificate and key as `A`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Authority<A> {
    /// Its fingerprint.
    pub id: AuthorityId,
    /// The end of its validity.
    pub not_after: Timestamp,
    /// What it is used for.
    pub role: Role,
    /// When the last leaf that it signed expires; none if it signed none.
    pub leaves_until: Option<Timestamp>,
    /// Its certificate and key.
    pub material: A,
}

/// The certificate that is served, with its chain and key as `L`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Leaf<L> {
    /// Who signed it.
    pub signed_by: AuthorityId,
    /// The end of its validity.
    pub not_after: Timestamp,
    /// The names that it is valid for.
    pub names: BTreeSet<String>,
    /// Its certificate and key.
    pub material: L,
}

/// All that is kept in the Secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kept<A, L> {
    /// The authorities that every CRD shall trust; exactly one of them signs.
    pub authorities: Vec<Authority<A>>,
    /// The certificate that every replica serves.
    pub leaf: Leaf<L>,
}

/// What to do next. Each step is one write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Make an authority and a leaf.
    Create,
    /// Nothing.
    Keep,
    /// Sign a new leaf by the same authority.
    RenewLeaf,
    /// Make the next authority, which signs nothing yet.
    Introduce,
    /// Let the next authority sign, and retire the one before.
    Switch,
    /// Make an authority that signs at once, because nothing that is kept can be served any more.
    Replace,
    /// Remove authorities whose leaves have all expired.
    Forget,
}

/// What was seen besides the Secret's certificates.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    /// For how long every CRD that calls the webhook has been seen to trust the next authority; none if not all do, or if it is
    /// not known.
    pub next_trusted_for: Option<Duration>,
    /// Whether a user asks for a new authority.
    pub rotation_requested: bool,
}

/// Decides what to do next.
pub fn next_step<A, L>(kept: Option<&Kept<A, L>>, wanted: &Wanted, seen: Seen, now: Timestamp) -> Step {
    let Some(kept) = kept else { return Step::Create };
    let lifetimes = &wanted.lifetimes;
    let next = kept.next().filter(|next| next.not_after > now);
    let Some(signing) = kept.signing().filter(|signing| signing.not_after > now) else {
        return if next.is_some() { Step::Switch } else { Step::Replace };
    };
    let settled = seen.next_trusted_for.is_some_and(|trusted| trusted >= lifetimes.settle);
    if next.is_some() && settled {
        return Step::Switch;
    }
    if kept.leaf.needs_renewal(signing, wanted, now) {
        return Step::RenewLeaf;
    }
    if kept.authorities.iter().any(|authority| authority.is_done(lifetimes, now)) {
        return Step::Forget;
    }
    let due =
        left(signing.not_after, now) < lifetimes.authority / RENEWED_WITH_LEFT || seen.rotation_requested;
    if kept.next().is_none() && due && kept.authorities.len() < MAX_AUTHORITIES {
        return Step::Introduce;
    }
    Step::Keep
}

/// Makes authorities and leaves.
pub trait Mint {
    /// The certificate and key of an authority.
    type Authority;
    /// The certificate and key of a leaf.
    type Leaf;
    /// Why none could be made.
    type Error;

    /// Makes an authority that is valid until `not_after`.
    fn authority(
        &mut self,
        now: Timestamp,
        not_after: Timestamp,
    ) -> Result<(AuthorityId, Self::Authority), Self::Error>;

    /// Signs a leaf that is valid until `not_after`.
    fn leaf(
        &mut self,
        by: &Self::Authority,
        names: &BTreeSet<String>,
        now: Timestamp,
        not_after: Timestamp,
    ) -> Result<Self::Leaf, Self::Error>;

    /// Removes the key of an authority that signs no more.
    fn retire(&mut self, authority: &mut Self::Authority);
}

/// What is kept, with what a [`Mint`] makes.
type KeptOf<M> = Kept<<M as Mint>::Authority, <M as Mint>::Leaf>;

/// What shall be kept after a step.
///
/// # Errors
/// When a certificate cannot be made.
pub fn carry_out<M: Mint>(
    mint: &mut M,
    step: Step,
    kept: Option<KeptOf<M>>,
    wanted: &Wanted,
    now: Timestamp,
) -> Result<Option<KeptOf<M>>, M::Error> {
    let Some(mut kept) = kept else {
        return if step == Step::Keep { Ok(None) } else { create(mint, wanted, now).map(Some) };
    };
    match step {
        Step::Keep => {}
        Step::Create => return create(mint, wanted, now).map(Some),
        Step::RenewLeaf => kept.sign(mint, wanted, now)?,
        Step::Introduce => kept.authorities.push(introduce(mint, wanted, now)?),
        Step::Switch => kept.switch(mint, wanted, now)?,
        Step::Replace => {
            kept.authorities.retain(|authority| authority.role == Role::Retired);
            kept.authorities.push(introduce(mint, wanted, now)?);
            kept.switch(mint, wanted, now)?;
        }
        Step::Forget => kept.authorities.retain(|authority| !authority.is_done(&wanted.lifetimes, now)),
    }
    Ok(Some(kept))
}

fn create<M: Mint>(mint: &mut M, wanted: &Wanted, now: Timestamp) -> Result<KeptOf<M>, M::Error> {
    let mut authority = introduce(mint, wanted, now)?;
    authority.role = Role::Signing;
    let leaf = sign(mint, &mut authority, wanted.names.clone(), &wanted.lifetimes, now)?;
    Ok(Kept { authorities: vec![authority], leaf })
}

fn introduce<M: Mint>(
    mint: &mut M,
    wanted: &Wanted,
    now: Timestamp,
) -> Result<Authority<M::Authority>, M::Error> {
    let not_after = later(now, wanted.lifetimes.authority);
    let (id, material) = mint.authority(now, not_after)?;
    Ok(Authority { id, not_after, role: Role::Next, leaves_until: None, material })
}

fn sign<M: Mint>(
    mint: &mut M,
    by: &mut Authority<M::Authority>,
    names: BTreeSet<String>,
    lifetimes: &Lifetimes,
    now: Timestamp,
) -> Result<Leaf<M::Leaf>, M::Error> {
    let not_after = later(now, lifetimes.leaf).min(by.not_after);
    let material = mint.leaf(&by.material, &names, now, not_after)?;
    by.leaves_until = by.leaves_until.max(Some(not_after));
    Ok(Leaf { signed_by: by.id.clone(), not_after, names, material })
}

impl<A, L> Kept<A, L> {
    /// The authority that signs.
    pub fn signing(&self) -> Option<&Authority<A>> {
        self.authorities.iter().find(|authority| authority.role == Role::Signing)
    }

    /// The authority that will sign.
    pub fn next(&self) -> Option<&Authority<A>> {
        self.authorities.iter().find(|authority| authority.role == Role::Next)
    }

    /// Signs a new leaf. It keeps the names of the former one, so that replicas with different settings do not fight.
    fn sign<M: Mint<Authority = A, Leaf = L>>(
        &mut self,
        mint: &mut M,
        wanted: &Wanted,
        now: Timestamp,
    ) -> Result<(), M::Error> {
        let names = wanted.names.union(&self.leaf.names).cloned().collect();
        let signing = self.authorities.iter_mut().find(|authority| authority.role == Role::Signing);
        if let Some(signing) = signing {
            self.leaf = sign(mint, signing, names, &wanted.lifetimes, now)?;
        }
        Ok(())
    }

    fn switch<M: Mint<Authority = A, Leaf = L>>(
        &mut self,
        mint: &mut M,
        wanted: &Wanted,
        now: Timestamp,
    ) -> Result<(), M::Error> {
        if self.next().is_none() {
            return Ok(());
        }
        for authority in &mut self.authorities {
            match authority.role {
                Role::Next => authority.role = Role::Signing,
                Role::Signing => {
                    authority.role = Role::Retired;
                    mint.retire(&mut authority.material);
                }
                Role::Retired => {}
            }
        }
        self.sign(mint, wanted, now)
    }
}

impl<A> Authority<A> {
    /// Whether nobody needs to trust it any more. The clock of an API server may be behind.
    fn is_done(&self, lifetimes: &Lifetimes, now: Timestamp) -> bool {
        match self.role {
            Role::Next => self.not_after <= now,
            Role::Signing => false,
            Role::Retired => self.leaves_until.is_none_or(|until| later(until, lifetimes.skew) <= now),
        }
    }
}

impl<L> Leaf<L> {
    fn needs_renewal<A>(&self, signing: &Authority<A>, wanted: &Wanted, now: Timestamp) -> bool {
        let lifetimes = &wanted.lifetimes;
        // A leaf cannot outlive its authority: a new one must be valid for longer.
        let gains = later(now, lifetimes.leaf).min(signing.not_after) > self.not_after;
        let ends = left(self.not_after, now) < lifetimes.leaf / RENEWED_WITH_LEFT;
        self.signed_by != signing.id || !wanted.names.is_subset(&self.names) || (ends && gains)
    }
}

/// How long something is still valid.
fn left(until: Timestamp, now: Timestamp) -> Duration {
    Duration::try_from(until.duration_since(now)).unwrap_or_default()
}

/// A moment after another one.
fn later(moment: Timestamp, by: Duration) -> Timestamp {
    let by = SignedDuration::try_from(by).unwrap_or(SignedDuration::MAX);
    moment.checked_add(by).unwrap_or(Timestamp::MAX)
}

#[cfg(test)]
mod model;
#[cfg(test)]
mod tests;
