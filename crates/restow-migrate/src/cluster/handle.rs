//! A [`Cluster`]: the server that restow talks to, how its other API servers are reached, and what is remembered of them.

use std::collections::{BTreeSet, HashMap};
use std::sync::Mutex;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use restow_core::agreement::encryption::Encryption;
use restow_core::agreement::version::Disagreement;
use restow_core::resource::inventory::{Crd, Document, Obstacle, Resource};
use restow_core::resource::name::GroupVersion;

use super::sampling::Samples;
use crate::client::{RequestError, Server};

/// How the API servers are told apart.
#[derive(Clone, Debug, Default)]
pub enum Trust {
    /// Each live identity is asked at its own address.
    #[default]
    Members,
    /// The user named them all.
    Named(Vec<http::Uri>),
    /// They hide behind one address, which is sampled for so long.
    Sampled(Duration),
    /// The user's word that there is one.
    Single,
}

/// How API servers are reached at their addresses.
pub(super) enum Reach {
    /// Over the network, with these credentials.
    Network(Box<kube::Config>),
    /// By clients that somebody else makes.
    Clients(Box<dyn Fn(&str) -> kube::Client + Send + Sync>),
}

/// A cluster.
pub struct Cluster {
    pub(super) reach: Reach,
    pub(super) server: Server,
    pub(super) trust: Trust,
    pub(super) peers: Mutex<HashMap<String, Server>>,
    /// Which process answered at an address, and when that was read.
    pub(super) processes: Mutex<HashMap<String, (restow_clock::Instant, String)>>,
    /// Whether the API servers have agreed on something before.
    pub(super) agreed: AtomicBool,
    /// The versions of groups that hold a resource that can be migrated, as they were last discovered.
    pub(super) versions: Mutex<BTreeSet<GroupVersion>>,
    /// The last look at which no API server reported an encryption configuration.
    pub(super) unreported: Mutex<Option<Unreported>>,
    /// The last period of sampling; one at a time.
    pub(super) samples: tokio::sync::Mutex<Option<Samples>>,
}

/// A look at which no API server reported an encryption configuration.
#[derive(Clone)]
pub(super) struct Unreported {
    pub(super) since: restow_clock::Instant,
    /// Who held the identity Leases: a server takes up its first configuration when it starts.
    pub(super) holders: Vec<String>,
    pub(super) look: Encryption,
}

/// Why there is no agreement to act on.
#[derive(Debug, thiserror::Error)]
pub enum AgreementError {
    /// The servers were asked, and do not agree.
    #[error("{0}")]
    Disagreement(Disagreement),
    /// The server restow talks to did not answer.
    #[error(transparent)]
    Request(#[from] RequestError),
    /// The definition of the resource was deleted.
    #[error("its CustomResourceDefinition was deleted")]
    Undefined,
}

/// The time between two samples of one address.
pub(crate) const SAMPLE_EVERY: Duration = Duration::from_secs(1);
impl Cluster {
    /// Connects as a kubeconfig says.
    pub fn connect(config: kube::Config, trust: Trust) -> Result<Self, kube::Error> {
        let server = Server::connect(config.clone())?;
        Ok(Self::reached(Reach::Network(Box::new(config)), server, trust))
    }

    /// A cluster whose servers are reached by clients that `connect` makes, for the main address and for each other.
    pub fn over(
        url: &str,
        trust: Trust,
        connect: impl Fn(&str) -> kube::Client + Send + Sync + 'static,
    ) -> Self {
        let server = Server::over(url, connect(url));
        Self::reached(Reach::Clients(Box::new(connect)), server, trust)
    }

    fn reached(reach: Reach, server: Server, trust: Trust) -> Self {
        Self {
            reach,
            server,
            trust,
            peers: Mutex::default(),
            processes: Mutex::default(),
            agreed: AtomicBool::default(),
            versions: Mutex::default(),
            unreported: Mutex::default(),
            samples: tokio::sync::Mutex::default(),
        }
    }

    /// The server everything but agreement goes through.
    pub fn server(&self) -> &Server {
        &self.server
    }

    /// How the API servers are told apart.
    pub fn trust(&self) -> &Trust {
        &self.trust
    }
}

/// What the server restow talks to says of its resources.
pub(crate) struct Discovered {
    pub(crate) documents: Vec<Document>,
    pub(crate) crds: Vec<Crd>,
    pub(crate) inventory: Inventory,
}

/// The resources of a cluster.
pub struct Inventory {
    /// Those that were found.
    pub resources: Vec<Resource>,
    /// Versions of groups that could not be asked.
    pub unavailable: Vec<(GroupVersion, Obstacle)>,
}
