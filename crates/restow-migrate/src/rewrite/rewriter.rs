//! A [`Rewriter`]: what writes of one resource's objects need.

use super::health::Health;
use super::hold::Hold;
use crate::client::{Server, Throttle};
use crate::list::{Target, Waiting};

/// How objects are written.
#[derive(Clone, Copy, Debug, Default)]
pub struct WriteOptions {
    /// Send dry runs, which store nothing.
    pub dry_run: bool,
    /// Move managedFields entries of versions that are no longer served to the version of the request.
    pub repair_managed_fields: bool,
}

/// Writes objects of one resource.
pub struct Rewriter<'a> {
    /// The API server that writes are sent to.
    pub server: &'a Server,
    /// The resource.
    pub target: &'a Target,
    /// How objects are written.
    pub write_options: WriteOptions,
    /// Limits the pace.
    pub throttle: &'a Throttle,
    /// Is told about waits.
    pub waiting: &'a (dyn Waiting + Sync),
    /// What the writes show about the server's health.
    pub(crate) health: Health,
    /// Holds writes back.
    pub(crate) hold: Hold,
}
