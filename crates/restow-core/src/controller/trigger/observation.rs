//! What the trigger observes of a resource: the API servers' consensus, its StorageState and its migrations.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;
use restow_api::{Reason, StorageStateStatus};

use crate::agreement::consensus::Consensus;
use crate::agreement::version::{Agreement, Disagreement};

/// A migration: what it is for, and how it ended.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Attempt {
    /// The name of the migration.
    pub name: String,
    /// Whether it has succeeded or failed.
    pub finished: bool,
    /// Whether it succeeded and was verified.
    pub verified: bool,
    /// Whether a user has suspended it.
    pub suspended: bool,
    /// The storage version hash it ran for.
    pub hash: Option<String>,
    /// The hash of the encryption configuration it ran under.
    pub encryption: Option<String>,
    /// The definition it ran under.
    pub definition: Option<String>,
    /// What the trigger created it for; none when a user created it.
    pub made_for: Option<Wanted>,
    /// How it failed.
    pub failed: Option<AttemptFailure>,
}

/// How a migration failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AttemptFailure {
    /// The reason of its condition; none when it is not one of restow's.
    pub reason: Option<Reason>,
    /// When.
    pub at: Timestamp,
}

/// Everything observed about one resource at one moment.
#[derive(Clone, Debug)]
pub struct Observation<'a> {
    /// Its storage version.
    pub storage: &'a Consensus,
    /// What that rests on, or why there is no agreement.
    pub agreement: &'a Result<Agreement, Disagreement>,
    /// The encryption configuration, where it is watched for this resource.
    pub encryption: Option<&'a Consensus>,
    /// When each API server last took up an encryption configuration without a restart.
    pub reloads: &'a BTreeMap<String, String>,
    /// The hashes of all versions that the API server itself says were stored, for a custom resource.
    pub stored: &'a [String],
    /// Its CustomResourceDefinition, as uid and generation.
    pub definition: Option<&'a str>,
    /// The versions its CustomResourceDefinition serves.
    pub served: &'a [String],
    /// Its StorageState.
    pub state: Option<&'a StorageStateStatus>,
    /// The migrations of the resource, in any state.
    pub migrations: &'a [Attempt],
    /// A heartbeat older than this is stale.
    pub stale: Duration,
    /// A heartbeat older than this is renewed.
    pub renew: Duration,
    /// How long API servers have not answered.
    pub silent_for: Duration,
    /// The name for a migration that this observation creates.
    pub name: &'a str,
    /// When the observation began.
    pub began: Timestamp,
    /// When the decision is made.
    pub now: Timestamp,
}

/// What a new migration is for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// The storage version hash.
    pub hash: String,
    /// The hash of the encryption configuration.
    pub encryption: Option<String>,
}

impl Wanted {
    /// Whether a migration for this also serves another purpose.
    pub(super) fn covers(&self, other: &Self) -> bool {
        self.hash == other.hash && (other.encryption.is_none() || self.encryption == other.encryption)
    }
}

/// What a migration would be for, when all servers agree on everything.
pub(super) fn wanted(observation: &Observation<'_>) -> Option<Wanted> {
    let Consensus::Agreed(hash) = observation.storage else { return None };
    let encryption = match observation.encryption {
        None => None,
        Some(Consensus::Agreed(hash)) => Some(hash.clone()),
        Some(_) => return None,
    };
    Some(Wanted { hash: hash.clone(), encryption })
}

/// The migrations that were verified for the current hash and key, and whether each proof still holds: a CRD that has
/// changed since may have stored another version in between.
pub(super) fn proofs<'a>(
    observation: &'a Observation<'_>,
    wanted: &Wanted,
) -> impl Iterator<Item = (&'a Attempt, bool)> {
    let fits = |attempt: &&Attempt| {
        attempt.verified
            && attempt.hash.as_ref() == Some(&wanted.hash)
            && (wanted.encryption.is_none() || attempt.encryption == wanted.encryption)
    };
    let holds = |attempt: &Attempt| match (attempt.definition.as_deref(), observation.definition) {
        (Some(then), Some(now)) => then == now || observation.stored.iter().all(|hash| *hash == wanted.hash),
        _ => true,
    };
    observation.migrations.iter().filter(fits).map(move |attempt| (attempt, holds(attempt)))
}
