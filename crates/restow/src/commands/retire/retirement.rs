//! A retirement under way, and why it may end early.

use restow_core::controller::retirement::{Observed, Refusal, Requests, Step, Survival};
use restow_lease::Stop;
use restow_migrate::cluster::Cluster;
use restow_migrate::owners::FieldOwners;

use super::flags::Retire;
use crate::error::CliError;

/// How often the CRD may change under the command before it gives up.
pub(super) const CONFLICTS: u32 = 10;

/// How often the same change of the CRD is made before somebody else must stop undoing it.
pub(super) const REPEATS: usize = 3;

/// Why a retirement does not go on.
pub(super) enum Halt {
    /// It was interrupted.
    Stopped,
    /// It ends with this exit code; why was said.
    Exit(u8),
    /// It failed.
    Failed(CliError),
}

impl From<CliError> for Halt {
    fn from(error: CliError) -> Self {
        Self::Failed(error)
    }
}

/// A retirement under way.
pub(super) struct Retirement<'a> {
    pub(super) cluster: &'a Cluster,
    pub(super) flags: &'a Retire,
    pub(super) stop: Stop,
    /// What is known beyond the CRD.
    pub(super) requests: Requests,
    pub(super) proof: Option<String>,
    pub(super) owners: Option<FieldOwners>,
    /// Whether objects survive, and the state of the CRD (uid and generation) that this was checked for.
    pub(super) survival: Option<(String, Survival)>,
    pub(super) conflicts: u32,
    /// The changes of the CRD that were made.
    pub(super) written: Vec<Step>,
    /// The steps that were taken, for the report.
    pub(super) taken: Vec<Step>,
    /// What was seen last.
    pub(super) seen: Option<Observed>,
    /// Why it did not go on.
    pub(super) refused: Option<Refusal>,
}
