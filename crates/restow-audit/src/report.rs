//! The result of an audit.

use std::collections::BTreeMap;

use serde::Serialize;

/// What is stored.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Report {
    /// Where it was read.
    pub source: String,
    /// The revision of the store.
    pub revision: u64,
    /// The resources, by name.
    pub resources: Vec<ResourceReport>,
    /// Values that cannot be decoded: the first ones.
    pub undecodable: Vec<Undecodable>,
    /// Resources that no API serves any more.
    pub unserved: Vec<Unserved>,
    /// How many values cannot be decoded.
    #[serde(skip)]
    pub undecodable_count: u64,
    /// What could not be compared although something is expected.
    #[serde(skip)]
    pub gaps: Vec<Gap>,
    /// Keys without the prefix of the cluster.
    #[serde(skip)]
    pub outside: u64,
    /// The uid of the namespace `kube-system`, which names the cluster.
    #[serde(skip)]
    pub cluster: Option<String>,
}

/// The objects of one resource.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ResourceReport {
    /// Its name, such as `widgets.example.com`.
    pub resource: String,
    /// How many objects are stored.
    pub objects: u64,
    /// The bytes of their values.
    pub bytes: u64,
    /// How many objects are stored in each version. Those whose version cannot be seen are missing.
    pub versions: BTreeMap<String, u64>,
    /// How many objects are stored under each key.
    pub encryption: BTreeMap<String, u64>,
    /// How many objects are stored in another version or under another key than now; `None` if nothing says what is used now.
    pub stale: Option<u64>,
    /// Their namespaces and names: the first ones.
    pub stale_names: Vec<String>,
}

/// A value that cannot be decoded.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Undecodable {
    /// Its key in the store.
    pub key: String,
    /// Why it cannot be decoded.
    pub reason: String,
}

/// A resource that no API serves.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Unserved {
    /// Its name.
    pub resource: String,
    /// How many objects it has.
    pub objects: u64,
    /// The bytes of their values.
    pub bytes: u64,
}

/// What could not be compared.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Gap {
    /// The versions of some objects cannot be seen, because they are encrypted.
    Versions {
        /// The resource.
        resource: String,
        /// How many objects.
        objects: u64,
    },
    /// Objects are under several keys, and nothing says which one is used now.
    Keys {
        /// The resource.
        resource: String,
    },
}

/// What a report means, the worst first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Finding {
    /// Something is stored in another version or under another key than now.
    Stale,
    /// Something cannot be decoded.
    Undecodable,
    /// Something could not be compared.
    Incomplete,
    /// Nothing is stale, as far as something was expected.
    Nothing,
}

impl Report {
    /// What the report means.
    pub fn finding(&self) -> Finding {
        match () {
            () if self.stale() > 0 => Finding::Stale,
            () if self.undecodable_count > 0 => Finding::Undecodable,
            () if !self.gaps.is_empty() => Finding::Incomplete,
            () => Finding::Nothing,
        }
    }

    /// How many objects are stale.
    pub fn stale(&self) -> u64 {
        self.resources.iter().filter_map(|resource| resource.stale).sum()
    }

    /// How many objects there are.
    pub fn objects(&self) -> u64 {
        self.resources.iter().map(|resource| resource.objects).sum()
    }
}
