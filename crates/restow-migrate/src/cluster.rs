//! A cluster: the server restow talks to, and what the other API servers say.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use restow_core::agreement::{
    self, Agreement, Answered, Asked, Disagreement, Member, Sighting, StorageVersion,
};
use restow_core::inventory::{Document, Obstacle, Origin, Resource, inventory};
use restow_core::resource::GroupVersion;
use serde::Deserialize;

use crate::server::{RequestError, Server};
use crate::{discovery, membership};

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

/// A cluster.
pub struct Cluster {
    config: kube::Config,
    server: Server,
    trust: Trust,
    peers: Mutex<HashMap<String, Server>>,
    sampled: Mutex<Option<Vec<Member>>>,
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
}

/// The time between two samples of one address.
const SAMPLE_EVERY: Duration = Duration::from_secs(1);

impl Cluster {
    /// Connects as a kubeconfig says.
    pub fn connect(config: kube::Config, trust: Trust) -> Result<Self, kube::Error> {
        let server = Server::connect(config.clone())?;
        Ok(Self { config, server, trust, peers: Mutex::default(), sampled: Mutex::default() })
    }

    /// The server everything but agreement goes through.
    pub fn server(&self) -> &Server {
        &self.server
    }

    /// All resources, and those discovery documents that could not be had.
    pub async fn inventory(&self, include_events: bool) -> Result<Inventory, RequestError> {
        let documents = discovery::documents(&self.server).await?;
        let crds = discovery::crds(&self.server).await?;
        let resources = inventory(&documents, &crds, include_events);
        let unavailable = documents
            .into_iter()
            .filter_map(|document: Document| {
                document.resources.err().map(|why| (document.version, Obstacle::Unavailable(why)))
            })
            .collect();
        Ok(Inventory { resources, unavailable })
    }

    /// A name for this cluster that outlives its addresses, where it may be read.
    pub async fn identity(&self) -> String {
        #[derive(Deserialize)]
        struct Namespace {
            metadata: Meta,
        }
        #[derive(Deserialize)]
        struct Meta {
            uid: String,
        }
        match self.server.get::<Namespace>("/api/v1/namespaces/kube-system").await {
            Ok(namespace) => namespace.metadata.uid,
            Err(_) => self.server.name().replace(|c: char| !c.is_ascii_alphanumeric(), "-"),
        }
    }

    /// Whether the API servers agree on how a resource is stored.
    pub async fn agreement(&self, resource: &Resource) -> Result<Agreement, AgreementError> {
        let seen = self.look(resource).await?;
        agreement::decide(&seen, Timestamp::now()).map_err(AgreementError::Disagreement)
    }

    async fn look(&self, resource: &Resource) -> Result<Sighting, RequestError> {
        let kind = resource.kind.clone();
        let definition = self.definition(resource).await?;
        if let Trust::Single = self.trust {
            let asked = Asked::Single(answered(&self.server, resource).await?);
            return Ok(Sighting { kind, members: Ok(Vec::new()), storage_version: None, asked, definition });
        }
        let members = self.members().await?;
        let storage_version = self.storage_version(resource).await?;
        let asked = match (&self.trust, &storage_version) {
            _ if resource.origin == Origin::Aggregated => Asked::Aggregated,
            (_, Some(_)) => Asked::Members(Vec::new()),
            (Trust::Named(urls), None) => Asked::Named(self.ask_named(urls, resource).await),
            (Trust::Sampled(period), None) => self.sample(*period, resource, &members).await?,
            (_, None) => Asked::Members(self.ask_members(&members, resource).await?),
        };
        Ok(Sighting { kind, members, storage_version, asked, definition })
    }

    /// The API servers, or why they cannot be listed at all; a server in trouble is an error, to be asked again.
    async fn members(&self) -> Result<Result<Vec<Member>, String>, RequestError> {
        match membership::members(&self.server).await {
            Ok(members) => Ok(Ok(members)),
            Err(error) if error.is_final() => Ok(Err(error.to_string())),
            Err(error) => Err(error),
        }
    }

    /// The state of a custom resource's CRD: its generation counts every change of its spec.
    async fn definition(&self, resource: &Resource) -> Result<Option<String>, RequestError> {
        match &resource.crd {
            Some(crd) => discovery::crd_generation(&self.server, &crd.name).await.map(Some),
            None => Ok(None),
        }
    }

    /// The StorageVersion object of a resource, where there is one that may be read.
    async fn storage_version(&self, resource: &Resource) -> Result<Option<StorageVersion>, RequestError> {
        #[derive(Deserialize)]
        struct Object {
            metadata: Meta,
            #[serde(default)]
            status: Status,
        }
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Meta {
            resource_version: String,
        }
        #[derive(Default, Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Status {
            #[serde(default)]
            storage_versions: Vec<Entry>,
            common_encoding_version: Option<String>,
        }
        #[derive(Deserialize)]
        struct Entry {
            #[serde(rename = "apiServerID")]
            id: String,
            #[serde(rename = "encodingVersion")]
            encoding: String,
        }
        let name = &resource.name;
        let group = if name.group.is_empty() { "core" } else { &name.group };
        let path =
            format!("/apis/internal.apiserver.k8s.io/v1alpha1/storageversions/{group}.{}", name.resource);
        match self.server.get::<Object>(&path).await {
            Ok(object) => Ok(Some(StorageVersion {
                resource_version: object.metadata.resource_version,
                entries: object.status.storage_versions.into_iter().map(|e| (e.id, e.encoding)).collect(),
                common: object.status.common_encoding_version.filter(|version| !version.is_empty()),
            })),
            Err(RequestError::Refused { code: 403 | 404, .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    async fn ask_members(
        &self,
        members: &Result<Vec<Member>, String>,
        resource: &Resource,
    ) -> Result<Vec<Answered>, RequestError> {
        let live =
            members.as_ref().map(|members| agreement::live(members, Timestamp::now())).unwrap_or_default();
        if let [only] = live.as_slice() {
            // Whoever answers is this one: a server that serves holds an identity Lease.
            let mut answer = answered(&self.server, resource).await?;
            answer.server.clone_from(&only.name);
            return Ok(vec![answer]);
        }
        let mut answers = Vec::new();
        for member in live {
            let hash = match &member.address {
                Some(address) => match self.peer(&format!("https://{address}")) {
                    Ok(peer) => answered(&peer, resource)
                        .await
                        .map_or_else(|e| Err(e.to_string()), |answer| answer.hash),
                    Err(why) => Err(why),
                },
                None => Err("its address is not known".to_owned()),
            };
            answers.push(Answered { server: member.name.clone(), hash });
        }
        Ok(answers)
    }

    async fn ask_named(&self, urls: &[http::Uri], resource: &Resource) -> Vec<Answered> {
        let mut answers = Vec::new();
        for url in urls {
            let url = url.to_string().trim_end_matches('/').to_owned();
            let hash = match self.peer(&url) {
                Ok(peer) => answered(&peer, resource).await.map_or_else(|e| Err(e.to_string()), |a| a.hash),
                Err(why) => Err(why),
            };
            answers.push(Answered { server: url, hash });
        }
        answers
    }

    /// The first look takes the whole period; later ones add one fresh connection each.
    async fn sample(
        &self,
        period: Duration,
        resource: &Resource,
        members: &Result<Vec<Member>, String>,
    ) -> Result<Asked, RequestError> {
        let holders = |members: &[Member]| -> Vec<String> {
            agreement::live(members, Timestamp::now()).iter().map(|member| member.holder.clone()).collect()
        };
        let before = members.clone().unwrap_or_default();
        let first = self.sampled.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let mut answers = Vec::new();
        let ends = tokio::time::Instant::now() + if first.is_none() { period } else { Duration::ZERO };
        loop {
            let fresh = Server::connect(self.config.clone()).map_err(|error| unconnected(&error))?;
            answers.push(answered(&fresh, resource).await?);
            if tokio::time::Instant::now() >= ends {
                break;
            }
            tokio::time::sleep(SAMPLE_EVERY).await;
        }
        let after = self.members().await?.unwrap_or_default();
        let reference = first.as_deref().unwrap_or(&before);
        let steady = members.is_ok() && holders(reference) == holders(&after);
        if steady && first.is_none() {
            *self.sampled.lock().unwrap_or_else(PoisonError::into_inner) = Some(after);
        }
        Ok(Asked::Samples { answers, steady })
    }

    /// The server at another address, reached with the same credentials.
    fn peer(&self, url: &str) -> Result<Server, String> {
        let mut peers = self.peers.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(peer) = peers.get(url) {
            return Ok(peer.clone());
        }
        let mut config = self.config.clone();
        config.cluster_url = url.parse().map_err(|error| format!("{url} is no URL: {error}"))?;
        let peer = Server::connect(config).map_err(|error| error.to_string())?;
        peers.insert(url.to_owned(), peer.clone());
        Ok(peer)
    }
}

/// The resources of a cluster.
pub struct Inventory {
    /// Those that were found.
    pub resources: Vec<Resource>,
    /// Versions of groups that could not be asked.
    pub unavailable: Vec<(GroupVersion, Obstacle)>,
}

fn unconnected(error: &kube::Error) -> RequestError {
    RequestError::Refused { code: 0, message: error.to_string() }
}

/// Asks one server for the hash it publishes.
async fn answered(server: &Server, resource: &Resource) -> Result<Answered, RequestError> {
    let Some(version) = resource.endpoint() else {
        return Ok(Answered { server: server.name().to_owned(), hash: Err("it is not served".to_owned()) });
    };
    let hash = match discovery::document(server, version).await {
        Ok(served) => served
            .into_iter()
            .find(|served| served.name == resource.name.resource)
            .and_then(|served| served.hash)
            .filter(|hash| !hash.is_empty())
            .ok_or_else(|| "it publishes no storage version".to_owned()),
        // An answer all the same: that server stores it in another way.
        Err(error) if error.code() == Some(404) => Ok(format!("nothing as {version}")),
        Err(error) => return Err(error),
    };
    Ok(Answered { server: server.name().to_owned(), hash })
}
