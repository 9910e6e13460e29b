//! Reads the state of all resources from all API servers, with as few requests as possible.

use std::collections::{BTreeSet, HashMap};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures::{StreamExt as _, stream};
use jiff::Timestamp;
use restow_core::agreement;
use restow_core::agreement::consensus::Consensus;
use restow_core::agreement::identity::Identity;
use restow_core::agreement::version::{
    Agreement, Disagreement, DiscoveryAnswers, ServerAnswer, ServerObservation, StorageVersion,
};
use restow_core::protocol::storage_version;
use restow_core::resource::inventory::{Crd, Document, Obstacle, Origin, Resource};
use restow_core::resource::name::{GroupResource, GroupVersion};

use super::discovery;
use super::handle::{Cluster, Discovered, Inventory, Trust};
use super::membership::Members;
use super::peers::{published, with_identity};
use super::sampling::{Documents, Round};
use crate::client::{RequestError, Server};

/// How many discovery documents are requested concurrently.
const CONCURRENT_REQUESTS: usize = 4;
/// How long another server may take to answer before it counts as silent.
const PEER_TIMEOUT: Duration = Duration::from_secs(15);

/// What all API servers publish about all resources.
pub struct Survey {
    /// The resources that restow's own server lists.
    pub resources: Vec<Resource>,
    /// Versions of groups whose discovery document could not be read.
    pub unavailable: Vec<(GroupVersion, Obstacle)>,
    members: Result<Members, String>,
    storage_versions: Result<HashMap<String, StorageVersion>, String>,
    defined: BTreeSet<GroupResource>,
    trust: Trust,
    documents: Documents,
    /// The documents of the other servers, by name.
    peers: Vec<(String, Result<Documents, String>)>,
    /// How many different servers the named addresses lead to, if that is known.
    distinct: Option<usize>,
    /// What new connections have shown, where the servers are behind a load balancer.
    sampled: Round,
    now: Timestamp,
}

impl Cluster {
    /// Reads everything once.
    pub async fn survey(&self, include_events: bool) -> Result<Survey, RequestError> {
        let Discovered { documents, crds, inventory } = self.discover(include_events).await?;
        let Inventory { resources, unavailable } = inventory;
        let members = match self.trust() {
            Trust::Single => Ok(Members::default()),
            _ => self.all_members().await?.into_result(),
        };
        let storage_versions = self.storage_versions().await?.into_result();
        let is_registered = |resource: &Resource| {
            let name = storage_version::name(&resource.name);
            storage_versions.as_ref().is_ok_and(|all| all.contains_key(&name))
        };
        // Named and sampled servers are asked even for resources that have a StorageVersion object.
        let besides = matches!(self.trust(), Trust::Named(_) | Trust::Sampled(_));
        let endpoints: BTreeSet<GroupVersion> = resources
            .iter()
            .filter(|resource| resource.obstacle.is_none() && resource.origin != Origin::Aggregated)
            .filter(|resource| besides || !is_registered(resource))
            .filter_map(|resource| resource.endpoint().cloned())
            .collect();
        let kube_apiservers =
            members.as_ref().map(|members| members.kube_apiservers.clone()).map_err(String::clone);
        let sampled = match self.trust() {
            Trust::Sampled(period) => self.sample(*period, endpoints.clone(), &kube_apiservers).await?,
            _ => Round::default(),
        };
        let (mut peers, mut met) = (Vec::new(), Vec::new());
        if !matches!(self.trust(), Trust::Single | Trust::Sampled(_)) {
            for (name, peer) in self.peers(&kube_apiservers) {
                let said = match peer {
                    Ok(peer) if matches!(self.trust(), Trust::Named(_)) => {
                        documents_with_identity(&peer, &endpoints).await.map(|(documents, identity)| {
                            met.push((peer, identity));
                            documents
                        })
                    }
                    Ok(peer) => Ok(read(&peer, &endpoints).await),
                    Err(why) => Err(why),
                };
                peers.push((name, said));
            }
        }
        Ok(Survey {
            resources,
            unavailable,
            members,
            storage_versions,
            defined: crds.into_iter().map(|crd| crd.name).collect(),
            trust: self.trust().clone(),
            documents: documents.into_iter().map(|document| (document.version, document.resources)).collect(),
            peers,
            distinct: self.distinct(met).await,
            sampled,
            now: restow_clock::now(),
        })
    }
}

/// The documents of a named server, and its identity.
async fn documents_with_identity(
    server: &Server,
    versions: &BTreeSet<GroupVersion>,
) -> Result<(Documents, Identity), String> {
    let said = with_identity(server, async { Ok(read(server, versions).await) });
    // The identity is read before and after.
    let within = PEER_TIMEOUT * 3;
    let late = |_| format!("no answer within {} s", within.as_secs());
    tokio::time::timeout(within, said).await.map_err(late)?
}

async fn read(server: &Server, versions: &BTreeSet<GroupVersion>) -> Documents {
    // A server that does not answer is not asked for the remaining documents.
    let silent = AtomicBool::new(false);
    let why = || format!("no answer within {} s", PEER_TIMEOUT.as_secs());
    let ask = |version: GroupVersion| {
        let silent = &silent;
        async move {
            if silent.load(Ordering::Relaxed) {
                return (version, Err(why()));
            }
            let document = discovery::document_if_listed(server, &version);
            let answer = tokio::time::timeout(PEER_TIMEOUT, document).await;
            silent.fetch_or(answer.is_err(), Ordering::Relaxed);
            let document = match answer {
                // This is an answer too: the server does not serve that version.
                Ok(Ok(served)) => Ok(served.unwrap_or_default()),
                Ok(Err(error)) => Err(error.to_string()),
                Err(_) => Err(why()),
            };
            (version, document)
        }
    };
    stream::iter(versions.iter().cloned()).map(ask).buffered(CONCURRENT_REQUESTS).collect().await
}

impl Cluster {
    /// Whether no API server serves a resource or is about to: every live server is ready and does not list it, and there is
    /// no CRD for it.
    ///
    /// A server that is starting does not list everything yet, so it does not count.
    pub async fn is_served_nowhere(&self, name: &GroupResource) -> Result<bool, RequestError> {
        let peers = match self.trust() {
            Trust::Single => Vec::new(),
            Trust::Sampled(period) => {
                if !self.is_lacked(*period, name).await? {
                    return Ok(false);
                }
                Vec::new()
            }
            _ => {
                let members = self.members().await?.into_result();
                if members.is_err() && !matches!(self.trust(), Trust::Named(_)) {
                    return Ok(false);
                }
                self.peers(&members)
            }
        };
        for (_, peer) in peers {
            let lacks = match peer {
                Ok(peer) => tokio::time::timeout(PEER_TIMEOUT, lacks(&peer, name)).await,
                Err(_) => return Ok(false),
            };
            // A server that cannot be asked may serve it.
            if !matches!(lacks, Ok(Ok(true))) {
                return Ok(false);
            }
        }
        Ok(lacks(self.server(), name).await? && !self.is_defined(name).await?)
    }

    /// Whether a resource has a CRD. Its discovery may lag behind.
    async fn is_defined(&self, name: &GroupResource) -> Result<bool, RequestError> {
        match discovery::crd(self.server(), name).await {
            Ok(_) => Ok(true),
            Err(error) if error.code() == Some(404) => Ok(false),
            Err(error) => Err(error),
        }
    }
}

/// Whether a server is ready and does not serve a resource.
pub(crate) async fn lacks(server: &Server, name: &GroupResource) -> Result<bool, RequestError> {
    if server.lines("/readyz", |_| ()).await.is_err() {
        return Ok(false);
    }
    let documents = discovery::documents(server).await?;
    let of_group = documents.iter().filter(|document| document.version.group == name.group);
    let lacks = |document: &Document| {
        let served = document.resources.as_ref();
        served.is_ok_and(|served| served.iter().all(|served| served.name != name.resource))
    };
    Ok(of_group.into_iter().all(lacks))
}

impl Survey {
    /// Whether restow's own server does not serve a resource, no CRD defines it, and no server that could serve it was
    /// silent. [`Cluster::is_served_nowhere`] checks all servers.
    pub fn is_missing(&self, name: &GroupResource) -> bool {
        let silent = self.unavailable.iter().any(|(version, _)| version.group == name.group);
        !silent
            && !self.defined.contains(name)
            && !self.resources.iter().any(|resource| resource.name == *name)
    }

    /// What the API servers publish for one resource, and whether they agree.
    pub fn consensus(&self, resource: &Resource) -> (Consensus, Result<Agreement, Disagreement>) {
        let seen = self.observation(resource);
        let agreement = agreement::version::decide(&seen, self.now);
        // A CRD changes a moment before discovery does, so it does not count as what the servers publish.
        let consensus = match &agreement {
            Ok(agreement) => Consensus::Agreed(agreement.hash.clone()),
            Err(Disagreement::Split(_)) => Consensus::Split(agreement::version::hashes(&seen)),
            Err(_) => Consensus::Silent(agreement::version::hashes(&seen)),
        };
        (consensus, agreement)
    }

    fn observation(&self, resource: &Resource) -> ServerObservation {
        let storage_version = match self.trust {
            Trust::Single => Ok(None),
            _ => self
                .storage_versions
                .as_ref()
                .map(|all| all.get(&storage_version::name(&resource.name)).cloned())
                .map_err(Clone::clone),
        };
        let own = || answer("the API server", &self.documents, resource);
        let asked = match &self.trust {
            Trust::Single => DiscoveryAnswers::Single(own()),
            _ if resource.origin == Origin::Aggregated => DiscoveryAnswers::Aggregated,
            Trust::Sampled(_) => self.sampled.of(resource),
            Trust::Named(_) => {
                DiscoveryAnswers::Named { answers: self.answers(resource), distinct: self.distinct }
            }
            Trust::Members if matches!(storage_version, Ok(Some(_))) => DiscoveryAnswers::Members(Vec::new()),
            Trust::Members if self.peers.is_empty() => DiscoveryAnswers::Members(vec![own()]),
            Trust::Members => DiscoveryAnswers::Members(self.answers(resource)),
        };
        let definition = resource.crd.as_ref().map(Crd::definition);
        ServerObservation {
            kind: resource.kind.clone(),
            members: self
                .members
                .as_ref()
                .map(|members| members.that_may_store(resource.origin).to_vec())
                .map_err(String::clone),
            storage_version,
            asked,
            definition,
        }
    }

    fn answers(&self, resource: &Resource) -> Vec<ServerAnswer> {
        let each = |(server, said): &(String, Result<Documents, String>)| match said {
            Ok(documents) => answer(server, documents, resource),
            Err(why) => ServerAnswer { server: server.clone(), hash: Err(why.clone()) },
        };
        self.peers.iter().map(each).collect()
    }
}

/// What one server's documents publish for a resource.
fn answer(server: &str, documents: &Documents, resource: &Resource) -> ServerAnswer {
    let version = resource.endpoint();
    let hash = match version.and_then(|version| documents.get(version)) {
        Some(Ok(served)) => published(served, resource).map_or_else(
            || Ok(format!("not served in {}", version.map(ToString::to_string).unwrap_or_default())),
            Ok,
        ),
        Some(Err(why)) => Err(why.clone()),
        None => Err("it was not asked".to_owned()),
    };
    ServerAnswer { server: server.to_owned(), hash }
}
