//! Asks the API servers one by one what they publish for a resource.

use std::sync::PoisonError;
use std::time::Duration;

use restow_core::agreement;
use restow_core::agreement::identity::Identity;
use restow_core::agreement::member::Member;
use restow_core::agreement::version::{DiscoveryAnswers, ServerAnswer};
use restow_core::resource::inventory::{Resource, Served};

use super::discovery;
use super::handle::{Cluster, Connector, Trust};
use super::metrics::{identity, metrics};
use crate::client::{RequestError, Server};

/// How long the process at an address is remembered.
const PROCESS_FOR: Duration = Duration::from_secs(60);

impl Cluster {
    /// The servers to ask one by one, each with the reason if it cannot be asked. Empty if there is only one server, which is
    /// restow's own.
    pub(crate) fn peers(
        &self,
        members: &Result<Vec<Member>, String>,
    ) -> Vec<(String, Result<Server, String>)> {
        if let Trust::Named(urls) = &self.trust {
            let named = |url: &http::Uri| {
                let url = url.to_string().trim_end_matches('/').to_owned();
                (url.clone(), self.peer(&url))
            };
            return urls.iter().map(named).collect();
        }
        let live = agreement::member::live(members.as_deref().unwrap_or_default(), restow_clock::now());
        if live.len() <= 1 {
            return Vec::new();
        }
        let each = |(name, address): (String, Result<String, String>)| {
            let peer = address.and_then(|address| self.peer(&format!("https://{address}")));
            (name, peer)
        };
        agreement::identity::addresses(&live).into_iter().map(each).collect()
    }

    /// What each live member publishes for a resource, at its own address.
    pub(super) async fn ask_members(
        &self,
        members: &Result<Vec<Member>, String>,
        resource: &Resource,
    ) -> Result<Vec<ServerAnswer>, RequestError> {
        let peers = self.peers(members);
        if peers.is_empty() {
            let live = agreement::member::live(members.as_deref().unwrap_or_default(), restow_clock::now());
            let Some(only) = live.first() else { return Ok(Vec::new()) };
            let mut answer = published_hash(&self.server, resource).await?;
            answer.server.clone_from(&only.name);
            return Ok(vec![answer]);
        }
        let mut answers = Vec::new();
        for (server, peer) in peers {
            let hash = match peer {
                Ok(peer) => {
                    published_hash(&peer, resource).await.map_or_else(|e| Err(e.to_string()), |a| a.hash)
                }
                Err(why) => Err(why),
            };
            answers.push(ServerAnswer { server, hash });
        }
        Ok(answers)
    }

    /// What each named server publishes for a resource, and how many different servers these are.
    pub(super) async fn ask_named(
        &self,
        members: &Result<Vec<Member>, String>,
        resource: &Resource,
    ) -> DiscoveryAnswers {
        let (mut answers, mut met) = (Vec::new(), Vec::new());
        for (server, peer) in self.peers(members) {
            let hash = match peer {
                Ok(peer) => match with_identity(&peer, published_hash(&peer, resource)).await {
                    Ok((answer, identity)) => {
                        met.push((peer, identity));
                        answer.hash
                    }
                    Err(why) => Err(why),
                },
                Err(why) => Err(why),
            };
            answers.push(ServerAnswer { server, hash });
        }
        DiscoveryAnswers::Named { answers, distinct: self.distinct(met).await }
    }

    /// How many different servers have answered, by their addresses or else by their metrics.
    pub(crate) async fn distinct(&self, mut met: Vec<(Server, Identity)>) -> Option<usize> {
        let identities =
            |met: &[(Server, Identity)]| met.iter().map(|(_, one)| one.clone()).collect::<Vec<_>>();
        if agreement::identity::distinct(&identities(&met)).is_some_and(|count| count == met.len()) {
            return Some(met.len());
        }
        for (server, identity) in &mut met {
            identity.process = self.process(server).await;
        }
        agreement::identity::distinct(&identities(&met))
    }

    /// Identifies a server's process by its metrics. They are large, so they are not read for every page.
    async fn process(&self, server: &Server) -> String {
        let known = self.processes.lock().unwrap_or_else(PoisonError::into_inner).get(server.name()).cloned();
        if let Some((since, process)) = known
            && since.elapsed() < PROCESS_FOR
        {
            return process;
        }
        let process = metrics(server).await.map(|config| config.process()).unwrap_or_default();
        let kept = (restow_clock::Instant::now(), process.clone());
        self.processes.lock().unwrap_or_else(PoisonError::into_inner).insert(server.name().to_owned(), kept);
        process
    }

    /// Connects to restow's own address again.
    pub(super) fn fresh(&self) -> Result<Server, RequestError> {
        match &self.connector {
            Connector::Network(config) => {
                Server::connect(kube::Config::clone(config)).map_err(|error| unconnected(&error))
            }
            Connector::Clients(connect) => Ok(Server::over(self.server.name(), connect(self.server.name()))),
        }
    }

    /// The server at another address, with the same credentials.
    fn peer(&self, url: &str) -> Result<Server, String> {
        let mut peers = self.peers.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(peer) = peers.get(url) {
            return Ok(peer.clone());
        }
        let peer = match &self.connector {
            Connector::Network(config) => {
                let mut config = kube::Config::clone(config);
                config.cluster_url = url.parse().map_err(|error| format!("{url} is not a URL: {error}"))?;
                Server::connect(config).map_err(|error| error.to_string())?
            }
            Connector::Clients(connect) => Server::over(url, connect(url)),
        };
        peers.insert(url.to_owned(), peer.clone());
        Ok(peer)
    }
}

fn unconnected(error: &kube::Error) -> RequestError {
    RequestError::Refused { code: 0, message: error.to_string() }
}

/// The hash that a discovery document has for a resource.
pub(crate) fn published(served: &[Served], resource: &Resource) -> Option<String> {
    let served = served.iter().find(|served| served.name == resource.name.resource)?;
    served.hash.clone().filter(|hash| !hash.is_empty())
}

/// An answer and the server that gave it. The identity is read before and after, because several servers may share an
/// address.
pub(crate) async fn with_identity<T>(
    server: &Server,
    answer: impl Future<Output = Result<T, RequestError>>,
) -> Result<(T, Identity), String> {
    let before = identity(server).await.map_err(|error| error.to_string())?;
    let answer = answer.await.map_err(|error| error.to_string())?;
    let after = identity(server).await.map_err(|error| error.to_string())?;
    if before != after {
        let (one, other) = (before.address, after.address);
        return Err(format!("several API servers share this address: {one} and {other} answered"));
    }
    Ok((answer, after))
}

/// Asks one server for the hash that it publishes.
pub(super) async fn published_hash(
    server: &Server,
    resource: &Resource,
) -> Result<ServerAnswer, RequestError> {
    let Some(version) = resource.endpoint() else {
        return Ok(ServerAnswer {
            server: server.name().to_owned(),
            hash: Err("it is not served".to_owned()),
        });
    };
    let hash = match discovery::document_if_listed(server, version).await? {
        Some(served) => {
            published(&served, resource).ok_or_else(|| "it publishes no storage version".to_owned())
        }
        // This is an answer too: the server stores the resource in another way.
        None => Ok(format!("not served in {version}")),
    };
    Ok(ServerAnswer { server: server.name().to_owned(), hash })
}
