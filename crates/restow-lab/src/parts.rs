//! The parts of a cluster.

use std::fmt;

use serde::{Deserialize, Serialize};

/// One process of a cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Part {
    /// The store.
    Etcd,
    /// The API server with this index.
    ApiServer(usize),
    /// The controller manager, if the spec has one.
    ControllerManager,
    /// The aggregated API server, if the spec has one.
    Aggregated,
}

impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Etcd => f.write_str("etcd"),
            Self::ApiServer(index) => write!(f, "API server {index}"),
            Self::ControllerManager => f.write_str("controller manager"),
            Self::Aggregated => f.write_str("aggregated API server"),
        }
    }
}
