//! One look at all resources and all API servers, with as few requests as that takes.

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
use super::peers::{published, told};
use super::sampling::{Documents, Round};
use crate::client::{RequestError, Server};

/// How many documents are asked for at once.
const AT_ONCE: usize = 4;
/// How long another server may take to answer before it counts as silent.
const ANSWERS_WITHIN: Duration = Duration::from_secs(15);

/// What all API servers say of all resources.
pub struct Survey {
    /// The resources, as the server restow talks to has them.
    pub resources: Vec<Resource>,
    /// Versions of groups that could not be asked.
    pub unavailable: Vec<(GroupVersion, Obstacle)>,
    members: Result<Members, String>,
    storage_versions: Result<HashMap<String, StorageVersion>, String>,
    defined: BTreeSet<GroupResource>,
    trust: Trust,
    documents: Documents,
    /// What the others say, each by its name.
    peers: Vec<(String, Result<Documents, String>)>,
    /// How many different servers the named ones are, as far as they tell.
    distinct: Option<usize>,
    /// What fresh connections have shown, where the servers hide behind one address.
    sampled: Round,
    now: Timestamp,
}

impl Cluster {
    /// Looks at everything once.
    pub async fn survey(&self, include_events: bool) -> Result<Survey, RequestError> {
        let Discovered { documents, crds, inventory } = self.discover(include_events).await?;
        let Inventory { resources, unavailable } = inventory;
        let members = match self.trust() {
            Trust::Single => Ok(Members::default()),
            _ => self.all_members().await?,
        };
        let storage_versions = self.storage_versions().await?;
        let is_registered = |resource: &Resource| {
            let name = storage_version::name(&resource.name);
            storage_versions.as_ref().is_ok_and(|all| all.contains_key(&name))
        };
        // Whom the user names, or has sampled, is asked even where a StorageVersion object speaks for all.
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
                        told_within(&peer, &endpoints).await.map(|(documents, identity)| {
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

/// The documents of a server that was named, and which server that is.
async fn told_within(
    server: &Server,
    versions: &BTreeSet<GroupVersion>,
) -> Result<(Documents, Identity), String> {
    let said = told(server, async { Ok(read(server, versions).await) });
    // Who it is is asked before and after.
    let within = ANSWERS_WITHIN * 3;
    let late = |_| format!("no answer within {} s", within.as_secs());
    tokio::time::timeout(within, said).await.map_err(late)?
}

async fn read(server: &Server, versions: &BTreeSet<GroupVersion>) -> Documents {
    // One that does not answer is not asked for everything else in turn.
    let silent = AtomicBool::new(false);
    let why = || format!("no answer within {} s", ANSWERS_WITHIN.as_secs());
    let ask = |version: GroupVersion| {
        let silent = &silent;
        async move {
            if silent.load(Ordering::Relaxed) {
                return (version, Err(why()));
            }
            let document = discovery::document_if_listed(server, &version);
            let answer = tokio::time::timeout(ANSWERS_WITHIN, document).await;
            silent.fetch_or(answer.is_err(), Ordering::Relaxed);
            let document = match answer {
                // An answer all the same: that server has no such version.
                Ok(Ok(served)) => Ok(served.unwrap_or_default()),
                Ok(Err(error)) => Err(error.to_string()),
                Err(_) => Err(why()),
            };
            (version, document)
        }
    };
    stream::iter(versions.iter().cloned()).map(ask).buffered(AT_ONCE).collect().await
}

impl Cluster {
    /// Whether no API server serves a resource, and none is about to: every live one is ready, was asked after that, and
    /// does not have it, and nothing defines it.
    ///
    /// A server that is starting has not registered all it serves, so what it lacks says nothing.
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
                let members = self.all_members().await?.map(|members| members.kube_apiservers);
                if members.is_err() && !matches!(self.trust(), Trust::Named(_)) {
                    return Ok(false);
                }
                self.peers(&members)
            }
        };
        for (_, peer) in peers {
            let lacks = match peer {
                Ok(peer) => tokio::time::timeout(ANSWERS_WITHIN, lacks(&peer, name)).await,
                Err(_) => return Ok(false),
            };
            // One that cannot be asked may serve it.
            if !matches!(lacks, Ok(Ok(true))) {
                return Ok(false);
            }
        }
        Ok(lacks(self.server(), name).await? && !self.is_defined(name).await?)
    }

    /// Whether there is a CustomResourceDefinition of a resource; its discovery may be behind.
    async fn is_defined(&self, name: &GroupResource) -> Result<bool, RequestError> {
        match discovery::crd(self.server(), name).await {
            Ok(_) => Ok(true),
            Err(error) if error.code() == Some(404) => Ok(false),
            Err(error) => Err(error),
        }
    }
}

/// Whether a server that is ready lacks a resource.
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
    /// Whether the server restow talks to lacks a resource that nothing defines, and nobody who could serve it was
    /// silent. [`Cluster::is_served_nowhere`] says whether that is so everywhere.
    pub fn is_missing(&self, name: &GroupResource) -> bool {
        let silent = self.unavailable.iter().any(|(version, _)| version.group == name.group);
        !silent
            && !self.defined.contains(name)
            && !self.resources.iter().any(|resource| resource.name == *name)
    }

    /// What the API servers say of one resource, and whether that is an agreement.
    pub fn consensus(&self, resource: &Resource) -> (Consensus, Result<Agreement, Disagreement>) {
        let seen = self.sighting(resource);
        let agreement = agreement::version::decide(&seen, self.now);
        // A definition is ahead of its discovery for a moment; it is not what the servers report.
        let consensus = match &agreement {
            Ok(agreement) => Consensus::Agreed(agreement.hash.clone()),
            Err(Disagreement::Split(_)) => Consensus::Split(agreement::version::hashes(&seen)),
            Err(_) => Consensus::Silent(agreement::version::hashes(&seen)),
        };
        (consensus, agreement)
    }

    fn sighting(&self, resource: &Resource) -> ServerObservation {
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

/// What one server's documents say of a resource.
fn answer(server: &str, documents: &Documents, resource: &Resource) -> ServerAnswer {
    let version = resource.endpoint();
    let hash = match version.and_then(|version| documents.get(version)) {
        Some(Ok(served)) => published(served, resource).map_or_else(
            || Ok(format!("nothing as {}", version.map(ToString::to_string).unwrap_or_default())),
            Ok,
        ),
        Some(Err(why)) => Err(why.clone()),
        None => Err("it was not asked".to_owned()),
    };
    ServerAnswer { server: server.to_owned(), hash }
}
