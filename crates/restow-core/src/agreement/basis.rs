//! What an agreement rests on, and what it takes on trust.

use std::fmt;

use serde::{Deserialize, Serialize};

/// What an agreement rests on, the strongest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Basis {
    /// The StorageVersion object of the resource.
    StorageVersion,
    /// Every live API server was asked for its discovery.
    Direct,
    /// Every address of the `kubernetes` EndpointSlices was asked; no API server has an identity Lease.
    Endpoints,
    /// Every API server that the user named was asked; nothing shows that these are all of them.
    Named,
    /// New connections to one address showed the same hash for a period.
    Sampled,
    /// The user says that there is exactly one API server.
    Assumed,
}

impl fmt::Display for Basis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::StorageVersion => "storageversion",
            Self::Direct => "direct",
            Self::Endpoints => "endpoints",
            Self::Named => "named",
            Self::Sampled => "sampled",
            Self::Assumed => "assumed",
        })
    }
}

impl Basis {
    /// What such an agreement assumes, given whether identity Leases show which API servers exist.
    pub fn caveat(self, leased: bool) -> Option<&'static str> {
        match self {
            Self::Direct => None,
            Self::StorageVersion if leased => None,
            Self::StorageVersion => Some(
                "that every API server that stores the resource has registered: its servers hold no identity Leases",
            ),
            Self::Endpoints => Some(
                "that each address of the Service kubernetes is one API server, and that none restarted meanwhile: no \
                 API server has an identity Lease",
            ),
            Self::Named => Some(
                "that the addresses named with --api-server are those of all API servers: the identity Leases may not \
                 be read, or the servers do not show which of them answers",
            ),
            Self::Sampled => Some(
                "that every API server was reached: they are behind one address, which was sampled on fresh connections",
            ),
            Self::Assumed => Some("that there is one API server: --assume-single-server says so"),
        }
    }
}
