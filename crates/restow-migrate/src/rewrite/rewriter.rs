//! A [`Rewriter`]: what the writes of one resource's objects need.

use super::health::Health;
use super::hold::Hold;
use crate::client::{Server, Throttle};
use crate::list::{Target, Waiting};

/// How objects are written.
#[derive(Clone, Copy, Debug, Default)]
pub struct Manner {
    /// Ask the server to do all but store.
    pub dry_run: bool,
    /// Move managedFields entries of versions that are no longer served to the version written through.
    pub repair_managed_fields: bool,
}

/// Writes objects of one resource.
pub struct Rewriter<'a> {
    /// Where to.
    pub server: &'a Server,
    /// What.
    pub target: &'a Target,
    /// How.
    pub manner: Manner,
    /// How fast.
    pub throttle: &'a Throttle,
    /// Whom to tell about waits.
    pub waiting: &'a (dyn Waiting + Sync),
    /// What the writes tell of the server.
    pub(crate) health: Health,
    /// Holds writes back.
    pub(crate) hold: Hold,
}
