//! The next step of a retirement, and what stops it.

use super::policy::stability;
use super::requests::Requests;
use super::survival::{Survival, rewritten_from};
use crate::resource::inventory::Crd;

/// What is known about a CRD, one of whose versions is retired.
#[derive(Clone, Debug)]
pub struct Observed {
    /// The version to retire.
    pub version: String,
    /// The CRD as it is now.
    pub crd: Crd,
    /// Whether the CRD calls the version deprecated.
    pub deprecated: bool,
    /// The version to store objects in, if the user named one.
    pub to: Option<String>,
    /// The other versions that are served, the newest first.
    pub others: Vec<String>,
    /// Whether objects survive the conversion to the version that they will be stored in: see [`successor`].
    pub survival: Survival,
    /// Whether the CRD says that restow has retired the version.
    pub retired: bool,
    /// How many objects have managedFields entries of the version.
    pub owned: u64,
    /// How many objects cannot be read: they may be stored in the version, and nobody knows who owns their fields.
    pub unreadable: u64,
    /// The CRD (uid and generation) for which this process has verified that every object is stored in the storage version
    /// and that no field owner is left that could be moved.
    pub proof: Option<String>,
    /// Whether clients request the version.
    pub requests: Requests,
    /// What the user has accepted.
    pub accepted: Accepted,
}

/// Gates that the user has opened.
#[derive(Clone, Copy, Debug, Default)]
pub struct Accepted {
    /// Retire a version that is not deprecated.
    pub undeprecated: bool,
    /// Store objects in a version that some do not survive, or of which that is not known.
    pub losses: bool,
    /// Stop serving a version that is requested, or of which that is not known.
    pub requests: bool,
}

/// One step of a retirement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Convert every object to the version that it will be stored in and back, and compare; nothing is written.
    Check {
        /// The versions that objects may be stored in.
        from: Vec<String>,
        /// The version that they will be stored in.
        to: String,
    },
    /// Store objects in another version from now on.
    SetStorage {
        /// That version.
        to: String,
    },
    /// Rewrite all objects, verify that, and prune storedVersions.
    Rewrite,
    /// Count requests for the version for a while.
    WatchRequests,
    /// Stop serving the version.
    StopServing,
    /// Rewrite all objects once more, move managedFields entries of the version, verify that, and prune storedVersions.
    MoveOwners,
    /// Remove the version from the CRD.
    Drop,
    /// The CRD does not have the version, and nothing is left of it.
    Done,
}

impl Step {
    /// Whether the step changes the CRD's spec, which may be somebody else's.
    pub fn changes_crd(&self) -> bool {
        matches!(self, Self::SetStorage { .. } | Self::StopServing | Self::Drop)
    }

    /// Whether the step writes nothing.
    pub fn only_reads(&self) -> bool {
        matches!(self, Self::Check { .. } | Self::WatchRequests | Self::Done)
    }

    /// The name in reports for programs.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Check { .. } => "check",
            Self::SetStorage { .. } => "setStorage",
            Self::Rewrite => "rewrite",
            Self::WatchRequests => "watchRequests",
            Self::StopServing => "stopServing",
            Self::MoveOwners => "moveOwners",
            Self::Drop => "drop",
            Self::Done => "done",
        }
    }
}

/// Why there is no next step.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// It is the only version.
    #[error("{0} is the only version of the CRD")]
    OnlyVersion(String),
    /// The CRD has no such version, and nothing shows that it ever had.
    #[error("there is no version {version}; the CRD has {}", known.join(", "))]
    NoSuchVersion {
        /// What the user typed.
        version: String,
        /// The versions that the CRD has.
        known: Vec<String>,
    },
    /// It is not deprecated.
    #[error("{version} is not deprecated")]
    Undeprecated {
        /// The version to retire, which clients may rely on.
        version: String,
        /// How long Kubernetes' policy keeps such a version after its deprecation.
        policy: &'static str,
    },
    /// The version to store objects in cannot be used.
    #[error("objects cannot be stored in {to}: the CRD {why}")]
    WrongTarget {
        /// The version that the user named, or the newest other one.
        to: String,
        /// What the CRD does, after "the CRD".
        why: &'static str,
    },
    /// No other version is served.
    #[error("no other version than {0} is served")]
    NothingServed(String),
    /// Objects would not survive being stored in the version.
    #[error("objects would not survive being stored in {to}: {}", .losses.join("; "))]
    Loses {
        /// The version to store objects in.
        to: String,
        /// Which objects, and what they would lose.
        losses: Vec<String>,
    },
    /// It is not known whether objects would survive.
    #[error("it could not be checked whether objects survive being stored in {to}: {why}")]
    Unchecked {
        /// The version to store objects in.
        to: String,
        /// Why not.
        why: String,
    },
    /// Clients request the version, or that is not known.
    #[error("{0}")]
    Requested(Requests),
    /// managedFields have entries of the version.
    #[error("{objects} with managedFields entries of {version}", objects = crate::rewrite::progress::objects(*.owned))]
    Owned {
        /// The version to retire.
        version: String,
        /// How many objects have them.
        owned: u64,
        /// Whether a webhook converts, so that entries cannot be moved.
        webhook: bool,
    },
    /// Objects cannot be read.
    #[error("{} cannot be read", crate::rewrite::progress::objects(*.0))]
    Unreadable(u64),
    /// storedVersions has the version after a verified run.
    #[error("status.storedVersions of the CRD still has {0}")]
    StillStored(String),
}

impl Refusal {
    /// The name in reports for programs.
    pub fn name(&self) -> &'static str {
        match self {
            Self::OnlyVersion(_) => "OnlyVersion",
            Self::NoSuchVersion { .. } => "NoSuchVersion",
            Self::Undeprecated { .. } => "Undeprecated",
            Self::WrongTarget { .. } => "WrongTarget",
            Self::NothingServed(_) => "NothingServed",
            Self::Loses { .. } => "FieldsLost",
            Self::Unchecked { .. } => "Unchecked",
            Self::Requested(_) => "Requested",
            Self::Owned { .. } => "Owned",
            Self::Unreadable(_) => "Unreadable",
            Self::StillStored(_) => "StillStored",
        }
    }
}

/// Decides the next step.
pub fn next_step(seen: &Observed) -> Result<Step, Refusal> {
    let Observed { version, crd, .. } = seen;
    let Some((_, served)) = crd.versions.iter().find(|(name, _)| name == version) else {
        return after_drop(seen);
    };
    if crd.versions.len() == 1 {
        return Err(Refusal::OnlyVersion(version.clone()));
    }
    check_policy(seen)?;
    let to = successor(seen)?;
    let stored = crd.stored_versions.contains(version);
    if let Some(check) = check_survival(seen, &to)? {
        return Ok(check);
    }
    if crd.storage_version == *version {
        return Ok(Step::SetStorage { to });
    }
    match (served, &seen.requests) {
        (true, _) if stored => Ok(Step::Rewrite),
        // Its owners can move only while it is served, because restow cannot move them.
        (true, _) if crd.webhook && seen.owned > 0 => Err(owned(seen)),
        (true, _) if seen.accepted.requests => Ok(Step::StopServing),
        (true, Requests::Unobserved) => Ok(Step::WatchRequests),
        (true, Requests::None) => Ok(Step::StopServing),
        (true, requests) => Err(Refusal::Requested(requests.clone())),
        // Somebody may have pruned storedVersions by hand, so only a proof counts.
        (false, _) if seen.proof.as_ref() != Some(&crd.definition()) => Ok(Step::MoveOwners),
        (false, _) if seen.owned > 0 => Err(owned(seen)),
        (false, _) if seen.unreadable > 0 => Err(Refusal::Unreadable(seen.unreadable)),
        (false, _) if stored => Err(Refusal::StillStored(version.clone())),
        (false, _) => Ok(Step::Drop),
    }
}

/// All steps from now on, if nothing but restow changes the CRD; and what would stop them.
pub fn plan(seen: &Observed) -> (Vec<Step>, Option<Refusal>) {
    let mut seen = seen.clone();
    let mut steps = Vec::new();
    loop {
        match next_step(&seen) {
            Ok(Step::Done) => return (steps, None),
            Ok(step) => {
                take(&mut seen, &step);
                steps.push(step);
            }
            Err(refusal) => return (steps, Some(refusal)),
        }
    }
}

/// What will be seen after a step.
fn take(seen: &mut Observed, step: &Step) {
    let Observed { version, crd, .. } = seen;
    crd.generation += i64::from(step.changes_crd());
    match step {
        Step::Check { .. } => seen.survival = Survival::Proven,
        Step::SetStorage { to } => {
            // Objects may be written between the check and this step.
            seen.survival = Survival::Unchecked;
            crd.storage_version.clone_from(to);
            crd.stored_versions.push(to.clone());
        }
        Step::Rewrite => crd.stored_versions = vec![crd.storage_version.clone()],
        Step::WatchRequests => seen.requests = Requests::None,
        Step::StopServing => {
            crd.versions.iter_mut().filter(|one| one.0 == *version).for_each(|one| one.1 = false);
        }
        Step::MoveOwners => {
            crd.stored_versions = vec![crd.storage_version.clone()];
            seen.proof = Some(crd.definition());
            seen.owned = if crd.webhook { seen.owned } else { 0 };
        }
        Step::Drop => crd.versions.retain(|(name, _)| name != version),
        Step::Done => {}
    }
}

/// A version that was dropped too early may have left field owners behind, which the next write would wipe.
fn after_drop(seen: &Observed) -> Result<Step, Refusal> {
    match seen.owned {
        // What was stored in the version can no longer be decoded.
        0 if seen.unreadable > 0 => Err(Refusal::Unreadable(seen.unreadable)),
        0 if seen.retired || seen.proof.is_some() => Ok(Step::Done),
        // It may be a typing error, which must not look like a success.
        0 => Err(Refusal::NoSuchVersion {
            version: seen.version.clone(),
            known: seen.crd.versions.iter().map(|(name, _)| name.clone()).collect(),
        }),
        _ if seen.crd.webhook || seen.proof.as_ref() == Some(&seen.crd.definition()) => Err(owned(seen)),
        _ => Ok(Step::MoveOwners),
    }
}

fn owned(seen: &Observed) -> Refusal {
    Refusal::Owned { version: seen.version.clone(), owned: seen.owned, webhook: seen.crd.webhook }
}

/// Kubernetes promises how long a version is served after it was deprecated, except for alpha versions.
fn check_policy(seen: &Observed) -> Result<(), Refusal> {
    match stability(&seen.version).policy() {
        Some(policy) if !seen.deprecated && !seen.accepted.undeprecated => {
            Err(Refusal::Undeprecated { version: seen.version.clone(), policy })
        }
        _ => Ok(()),
    }
}

/// Every object must survive each conversion that a rewrite makes, whichever version it is stored in.
fn check_survival(seen: &Observed, to: &str) -> Result<Option<Step>, Refusal> {
    let from = rewritten_from(&seen.crd, to);
    if from.is_empty() || seen.accepted.losses {
        return Ok(None);
    }
    let to = to.to_owned();
    match &seen.survival {
        Survival::Proven => Ok(None),
        Survival::Unchecked => Ok(Some(Step::Check { from, to })),
        Survival::Lossy(losses) => Err(Refusal::Loses { to, losses: losses.clone() }),
        Survival::Unknown(why) => Err(Refusal::Unchecked { to, why: why.clone() }),
    }
}

/// The version that objects will be stored in.
///
/// # Errors
/// When there is none.
pub fn successor(seen: &Observed) -> Result<String, Refusal> {
    let Observed { version, crd, .. } = seen;
    let newest = || seen.others.first().ok_or_else(|| Refusal::NothingServed(version.clone()));
    let to = match &seen.to {
        Some(to) => to,
        None if crd.storage_version != *version => &crd.storage_version,
        None => newest()?,
    };
    let wrong = |why| Err(Refusal::WrongTarget { to: to.clone(), why });
    match crd.versions.iter().find(|(name, _)| name == to) {
        None => wrong("has no such version"),
        Some(_) if to == version => wrong("would still have to keep the version to retire"),
        Some((_, false)) => wrong("does not serve it"),
        Some(_) if crd.storage_version != *version && crd.storage_version != *to => {
            wrong("already stores objects in another version, which is kept")
        }
        Some(_) => Ok(to.clone()),
    }
}

#[cfg(test)]
mod tests;
