//! A [`Cluster`]: restow's own server, how other API servers are reached, and what is cached about them.

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

/// How restow finds all API servers.
#[derive(Clone, Debug, Default)]
pub enum Trust {
    /// By their identity Leases; each is asked at its own address.
    #[default]
    Members,
    /// The user named all of them.
    Named(Vec<http::Uri>),
    /// They are behind a load balancer, which is sampled for this long.
    Sampled(Duration),
    /// The user says that there is exactly one.
    Single,
}

/// How API servers are reached.
pub(super) enum Connector {
    /// Over the network, with these credentials.
    Network(Box<kube::Config>),
    /// Through clients that the caller creates.
    Clients(Box<dyn Fn(&str) -> kube::Client + Send + Sync>),
}

/// A cluster and its API servers.
pub struct Cluster {
    pub(super) connector: Connector,
    pub(super) server: Server,
    pub(super) trust: Trust,
    pub(super) peers: Mutex<HashMap<String, Server>>,
    /// The process at each address, and when it was read.
    pub(super) processes: Mutex<HashMap<String, (restow_clock::Instant, String)>>,
    /// Whether the API servers have agreed on a resource before.
    pub(super) agreed: AtomicBool,
    /// The versions of groups with a resource that can be migrated, as last discovered.
    pub(super) versions: Mutex<BTreeSet<GroupVersion>>,
    /// The last result in which no API server reported an encryption configuration.
    pub(super) unreported: Mutex<Option<Unreported>>,
    /// The last period of sampling; only one runs at a time.
    pub(super) samples: tokio::sync::Mutex<Option<Samples>>,
}

/// A result in which no API server reported an encryption configuration.
#[derive(Clone)]
pub(super) struct Unreported {
    pub(super) since: restow_clock::Instant,
    /// The holders of the identity Leases: a server loads its first configuration when it starts.
    pub(super) holders: Vec<String>,
    pub(super) look: Encryption,
}

/// Why there is no agreement.
#[derive(Debug, thiserror::Error)]
pub enum AgreementError {
    /// The API servers do not agree.
    #[error("{0}")]
    Disagreement(Disagreement),
    /// A request to restow's own server failed.
    #[error(transparent)]
    Request(#[from] RequestError),
    /// The CRD of the resource was deleted.
    #[error("its CustomResourceDefinition was deleted")]
    Undefined,
}

/// The time between two samples of one address.
pub(crate) const SAMPLE_EVERY: Duration = Duration::from_secs(1);

impl Cluster {
    /// Connects with a kubeconfig.
    pub fn connect(config: kube::Config, trust: Trust) -> Result<Self, kube::Error> {
        let server = Server::connect(config.clone())?;
        Ok(Self::reached(Connector::Network(Box::new(config)), server, trust))
    }

    /// A cluster whose servers are reached through clients that `connect` creates for each address.
    pub fn over(
        url: &str,
        trust: Trust,
        connect: impl Fn(&str) -> kube::Client + Send + Sync + 'static,
    ) -> Self {
        let server = Server::over(url, connect(url));
        Self::reached(Connector::Clients(Box::new(connect)), server, trust)
    }

    fn reached(connector: Connector, server: Server, trust: Trust) -> Self {
        Self {
            connector,
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

    /// The server that receives all requests except those for agreement.
    pub fn server(&self) -> &Server {
        &self.server
    }

    /// How restow finds all API servers.
    pub fn trust(&self) -> &Trust {
        &self.trust
    }
}

/// What restow's own server lists.
pub(crate) struct Discovered {
    pub(crate) documents: Vec<Document>,
    pub(crate) crds: Vec<Crd>,
    pub(crate) inventory: Inventory,
}

/// The resources of a cluster.
pub struct Inventory {
    /// The resources that were found.
    pub resources: Vec<Resource>,
    /// Versions of groups whose discovery document could not be read.
    pub unavailable: Vec<(GroupVersion, Obstacle)>,
}
