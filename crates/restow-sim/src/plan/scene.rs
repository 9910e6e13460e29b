//! Which API servers and processes take part in a run.

use std::fmt;

/// The group of custom resources in a simulation.
pub const GROUP: &str = "sim.example";

/// Which API servers and processes take part.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Scene {
    /// One API server; a custom resource gets a new storage version.
    Single,
    /// Two API servers on one store.
    Pair,
    /// One API server whose handlers follow a CRD later than its discovery (kubernetes#130235).
    Lagging,
    /// Two API servers; the encryption key of Secrets changes on one after the other.
    Keys,
    /// The controllers, in one or two processes; a custom resource gets a new storage version.
    Controllers,
    /// The controllers, in one or two processes; the encryption key of Secrets is changed and reverted.
    Rotation,
}

impl Scene {
    /// The scenes in which the engine runs as in the command line.
    pub const ALL: [Self; 4] = [Self::Single, Self::Pair, Self::Lagging, Self::Keys];
    /// The scenes in which the controllers run.
    pub const CONTROLLERS: [Self; 2] = [Self::Controllers, Self::Rotation];

    /// Whether Secrets are encrypted and their key changes.
    pub fn encrypts(self) -> bool {
        matches!(self, Self::Keys | Self::Rotation)
    }

    /// The plural of the migrated resource.
    pub fn plural(self) -> &'static str {
        if self.encrypts() { "secrets" } else { "boats" }
    }

    /// The prefix of its objects in the store, if custom resources have this group.
    pub fn prefix(self, group: &str) -> String {
        if self.encrypts() { "/registry/secrets/".to_owned() } else { format!("/registry/{group}/boats/") }
    }

    /// How many API servers there are.
    pub fn servers(self) -> usize {
        if self == Self::Single { 1 } else { 2 }
    }
}

impl fmt::Display for Scene {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Single => "single",
            Self::Pair => "pair",
            Self::Lagging => "lagging",
            Self::Keys => "keys",
            Self::Controllers => "controllers",
            Self::Rotation => "rotation",
        })
    }
}

/// The setup of the controllers and their cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Setup {
    /// How many API servers there are.
    pub servers: usize,
    /// How many replicas the controllers have.
    pub replicas: usize,
    /// The clock skew of each replica in seconds.
    pub skews: [i64; 2],
    /// Whether the API servers serve StorageVersions.
    pub storage_versions: bool,
}
