//! A cluster: the server restow talks to, and what the other API servers say.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use restow_core::agreement::{
    self, Agreement, Answered, Asked, Disagreement, Member, Sighting, StorageVersion,
};
use restow_core::encryption::{self, Config, Encryption, Unread};
use restow_core::inventory::{Crd, Document, Obstacle, Origin, Resource, Served, inventory};
use restow_core::resource::GroupVersion;
use restow_core::storage_version;
use serde::Deserialize;

use crate::discovery;
use crate::membership::{self, Members};
use crate::sampling::{Round, Samples};
use crate::server::{RequestError, Server};

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
enum Reach {
    /// Over the network, with these credentials.
    Network(Box<kube::Config>),
    /// By clients that somebody else makes.
    Clients(Box<dyn Fn(&str) -> kube::Client + Send + Sync>),
}

/// A cluster.
pub struct Cluster {
    reach: Reach,
    server: Server,
    trust: Trust,
    peers: Mutex<HashMap<String, Server>>,
    /// The versions of groups that hold a resource that can be migrated, as they were last discovered.
    versions: Mutex<BTreeSet<GroupVersion>>,
    /// When no API server was last seen to report an encryption configuration, and what was seen.
    unreported: Mutex<Option<(restow_clock::Instant, Encryption)>>,
    /// The last period of sampling; one at a time.
    samples: tokio::sync::Mutex<Option<Samples>>,
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

const STORAGE_VERSIONS: &str = "/apis/internal.apiserver.k8s.io/v1alpha1/storageversions";

#[derive(Deserialize)]
struct StorageVersionObject {
    metadata: StorageVersionMeta,
    #[serde(default)]
    status: StorageVersionStatus,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct StorageVersionMeta {
    name: String,
    resource_version: String,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct StorageVersionStatus {
    #[serde(default)]
    storage_versions: Vec<StorageVersionEntry>,
    common_encoding_version: Option<String>,
    #[serde(default)]
    conditions: Vec<StorageVersionCondition>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct StorageVersionCondition {
    #[serde(rename = "type")]
    kind: String,
    status: String,
    last_transition_time: Option<Timestamp>,
}

#[derive(Deserialize)]
struct StorageVersionEntry {
    #[serde(rename = "apiServerID")]
    id: String,
    #[serde(rename = "encodingVersion")]
    encoding: String,
}

impl From<StorageVersionObject> for StorageVersion {
    fn from(object: StorageVersionObject) -> Self {
        let equal = |condition: &&StorageVersionCondition| {
            condition.kind == storage_version::ALL_EQUAL && condition.status == "True"
        };
        Self {
            since: object.status.conditions.iter().find(equal).and_then(|equal| equal.last_transition_time),
            resource_version: object.metadata.resource_version,
            entries: object.status.storage_versions.into_iter().map(|e| (e.id, e.encoding)).collect(),
            common: object.status.common_encoding_version.filter(|version| !version.is_empty()),
        }
    }
}

/// The time between two samples of one address.
pub(crate) const SAMPLE_EVERY: Duration = Duration::from_secs(1);
/// How often the name of the cluster is asked for before its address has to do.
const IDENTITY_TRIES: u32 = 10;
/// How long it is taken for granted that no API server reports an encryption configuration, where nothing rests on it.
const UNREPORTED_FOR: Duration = Duration::from_secs(60);

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
            versions: Mutex::default(),
            unreported: Mutex::default(),
            samples: tokio::sync::Mutex::default(),
        }
    }

    /// The server everything but agreement goes through.
    pub fn server(&self) -> &Server {
        &self.server
    }

    /// All resources, and those discovery documents that could not be had.
    pub async fn inventory(&self, include_events: bool) -> Result<Inventory, RequestError> {
        self.discover(include_events).await.map(|discovered| discovered.inventory)
    }

    /// Everything that tells which resources there are, and what that comes to.
    pub(crate) async fn discover(&self, include_events: bool) -> Result<Discovered, RequestError> {
        let documents = discovery::documents(&self.server).await?;
        let crds = discovery::crds(&self.server).await?;
        let resources = inventory(&documents, &crds, include_events);
        let migratable = resources.iter().filter(|resource| resource.obstacle.is_none());
        let versions = migratable.filter_map(|resource| resource.endpoint().cloned()).collect();
        *self.versions.lock().unwrap_or_else(PoisonError::into_inner) = versions;
        let unavailable = |document: &Document| {
            let why = document.resources.as_ref().err()?;
            Some((document.version.clone(), Obstacle::Unavailable(why.clone())))
        };
        let unavailable = documents.iter().filter_map(unavailable).collect();
        Ok(Discovered { inventory: Inventory { resources, unavailable }, documents, crds })
    }

    /// How the API servers are told apart.
    pub fn trust(&self) -> &Trust {
        &self.trust
    }

    /// The encryption configurations of all API servers, as their metrics tell.
    ///
    /// An error is of the server restow talks to, or says that no metrics at all may be read.
    pub async fn encryption(&self) -> Result<Encryption, RequestError> {
        let mut answers = Vec::new();
        let members =
            if matches!(self.trust, Trust::Single) { Ok(Vec::new()) } else { self.members().await? };
        if let Trust::Sampled(period) = self.trust {
            return self.sample_encryption(period, &members).await;
        }
        for (server, peer) in self.peers(&members) {
            let config = match peer {
                Ok(peer) => metrics(&peer).await.map_err(|error| unread(&error)),
                Err(why) => Err(Unread::Refused(why)),
            };
            answers.push((server, config));
        }
        if answers.iter().all(|(_, config)| config.is_err()) {
            // One of them at least is behind the address that everything else goes through.
            answers.push((self.server.name().to_owned(), Ok(metrics(&self.server).await?)));
        }
        if let (Trust::Members, Err(why)) = (&self.trust, &members) {
            answers.push((OTHERS.to_owned(), Err(Unread::Refused(why.clone()))));
        }
        Ok(encryption::agree(&answers))
    }

    /// As [`encryption`](Self::encryption), for a resource of which nobody says that it is encrypted: where no server
    /// reports a configuration, their metrics, which are large, are not read for every resource of a run.
    pub async fn encryption_if_reported(&self) -> Result<Encryption, RequestError> {
        let known = self.unreported.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if let Some((since, look)) = known
            && since.elapsed() < UNREPORTED_FOR
        {
            return Ok(look);
        }
        let look = self.encryption().await?;
        let reported = look.heard.iter().any(|(_, hash)| hash.is_some());
        *self.unreported.lock().unwrap_or_else(PoisonError::into_inner) =
            (!reported).then(|| (restow_clock::Instant::now(), look.clone()));
        Ok(look)
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
        for _ in 0..IDENTITY_TRIES {
            match self.server.get::<Namespace>("/api/v1/namespaces/kube-system").await {
                Ok(namespace) => return namespace.metadata.uid,
                Err(error) if error.is_final() => break,
                // A server that restarts must not get another name.
                Err(_) => tokio::time::sleep(SAMPLE_EVERY).await,
            }
        }
        self.server.name().replace(|c: char| !c.is_ascii_alphanumeric(), "-")
    }

    /// Whether the API servers agree on how a resource is stored.
    pub async fn agreement(&self, resource: &Resource) -> Result<Agreement, AgreementError> {
        let seen = self.look(resource).await?;
        agreement::decide(&seen, restow_clock::now()).map_err(AgreementError::Disagreement)
    }

    async fn look(&self, resource: &Resource) -> Result<Sighting, RequestError> {
        let kind = resource.kind.clone();
        let definition = self.definition(resource).await?;
        if let Trust::Single = self.trust {
            let asked = Asked::Single(answered(&self.server, resource).await?);
            return Ok(Sighting { kind, members: Ok(Vec::new()), storage_version: None, asked, definition });
        }
        let members = self.all_members().await?;
        let members = members.map(|members| members.that_may_store(resource.origin).to_vec());
        let storage_version = self.storage_version(resource).await?;
        let asked = match (&self.trust, &storage_version) {
            _ if resource.origin == Origin::Aggregated => Asked::Aggregated,
            // Whom the user names is asked, whatever else there is to go by.
            (Trust::Named(_), _) => Asked::Named(self.ask(&members, resource).await?),
            (Trust::Sampled(period), _) => {
                let version = resource.endpoint().into_iter().cloned().collect();
                self.sample(*period, version, &members).await?.of(resource)
            }
            (_, Some(_)) => Asked::Members(Vec::new()),
            (_, None) => Asked::Members(self.ask(&members, resource).await?),
        };
        Ok(Sighting { kind, members, storage_version, asked, definition })
    }

    /// The kube-apiservers, as [`all_members`](Self::all_members) has them.
    async fn members(&self) -> Result<Result<Vec<Member>, String>, RequestError> {
        Ok(self.all_members().await?.map(|members| members.kube_apiservers))
    }

    /// The API servers, or why they cannot be listed at all; a server in trouble is an error, to be asked again.
    pub(crate) async fn all_members(&self) -> Result<Result<Members, String>, RequestError> {
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
        let path = format!("{STORAGE_VERSIONS}/{}", storage_version::name(&resource.name));
        match self.server.get::<StorageVersionObject>(&path).await {
            Ok(object) => Ok(Some(object.into())),
            Err(RequestError::Refused { code: 403 | 404, .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Every StorageVersion object, by name, where they may be read.
    pub(crate) async fn storage_versions(&self) -> Result<HashMap<String, StorageVersion>, RequestError> {
        #[derive(Deserialize)]
        struct List {
            items: Vec<StorageVersionObject>,
        }
        match self.server.get::<List>(STORAGE_VERSIONS).await {
            Ok(list) => {
                let each = |object: StorageVersionObject| (object.metadata.name.clone(), object.into());
                Ok(list.items.into_iter().map(each).collect())
            }
            Err(RequestError::Refused { code: 403 | 404, .. }) => Ok(HashMap::new()),
            Err(error) => Err(error),
        }
    }

    /// The servers to be asked one by one, or why one cannot be; none where there is just one, which answers for
    /// itself: a server that serves holds an identity Lease.
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
        let live = agreement::live(members.as_deref().unwrap_or_default(), restow_clock::now());
        if live.len() <= 1 {
            return Vec::new();
        }
        let each = |member: &&Member| {
            let peer = match &member.address {
                Some(address) => self.peer(&format!("https://{address}")),
                None => Err("its address is not known".to_owned()),
            };
            (member.name.clone(), peer)
        };
        live.iter().map(each).collect()
    }

    async fn ask(
        &self,
        members: &Result<Vec<Member>, String>,
        resource: &Resource,
    ) -> Result<Vec<Answered>, RequestError> {
        let peers = self.peers(members);
        if peers.is_empty() {
            let live = agreement::live(members.as_deref().unwrap_or_default(), restow_clock::now());
            let Some(only) = live.first() else { return Ok(Vec::new()) };
            let mut answer = answered(&self.server, resource).await?;
            answer.server.clone_from(&only.name);
            return Ok(vec![answer]);
        }
        let mut answers = Vec::new();
        for (server, peer) in peers {
            let hash = match peer {
                Ok(peer) => answered(&peer, resource).await.map_or_else(|e| Err(e.to_string()), |a| a.hash),
                Err(why) => Err(why),
            };
            answers.push(Answered { server, hash });
        }
        Ok(answers)
    }

    /// What fresh connections show: those of a whole period, and one more now.
    ///
    /// One period is for every resource. It is due anew when an API server came, went or restarted, when the new
    /// connection shows something that the period did not, and when it was long ago.
    pub(crate) async fn sample(
        &self,
        period: Duration,
        wanted: BTreeSet<GroupVersion>,
        members: &Result<Vec<Member>, String>,
    ) -> Result<Round, RequestError> {
        // Without Leases there is no agreement, so nothing is worth waiting for.
        let Ok(members) = members else { return Ok(Round::default()) };
        let mut kept = self.samples.lock().await;
        let mut now = self.sample_once(&wanted).await?;
        let holders = agreement::holders(members, restow_clock::now());
        if let Some(samples) = kept.as_ref()
            && samples.still_hold(&holders, &now, period)
        {
            return Ok(samples.round(now, true));
        }
        let mut versions = self.versions.lock().unwrap_or_else(PoisonError::into_inner).clone();
        versions.extend(wanted);
        let ends = restow_clock::Instant::now() + period;
        let mut samples = Samples::new(holders.clone());
        loop {
            now = self.sample_once(&versions).await?;
            samples.add(now.clone());
            if restow_clock::Instant::now() >= ends {
                break;
            }
            tokio::time::sleep(SAMPLE_EVERY).await;
        }
        let after = self.members().await?;
        let steady = after.is_ok_and(|after| agreement::holders(&after, restow_clock::now()) == holders);
        let round = samples.round(now, steady);
        *kept = steady.then_some(samples);
        Ok(round)
    }

    /// The discovery documents of these versions, over one fresh connection.
    async fn sample_once(&self, versions: &BTreeSet<GroupVersion>) -> Result<Documents, RequestError> {
        let fresh = self.fresh()?;
        let mut documents = Documents::new();
        for version in versions {
            let document = match discovery::document(&fresh, version).await {
                Ok(served) => Ok(served),
                // An answer all the same: that server has no such version.
                Err(error) if error.code() == Some(404) => Ok(Vec::new()),
                // The group's own trouble, which is not that of the others.
                Err(error) if error.code().is_some() => Err(error.to_string()),
                Err(error) => return Err(error),
            };
            documents.insert(version.clone(), document);
        }
        Ok(documents)
    }

    /// Meets the servers behind one address on fresh connections, until as many were met as there are.
    async fn sample_encryption(
        &self,
        period: Duration,
        members: &Result<Vec<Member>, String>,
    ) -> Result<Encryption, RequestError> {
        let live = match members {
            Ok(members) => match agreement::live(members, restow_clock::now()).len() {
                0 => Err("no identity Lease is alive by this machine's clock".to_owned()),
                live => Ok(live),
            },
            Err(why) => Err(why.clone()),
        };
        let ends = restow_clock::Instant::now() + period;
        let mut met: HashMap<String, Config> = HashMap::new();
        loop {
            let fresh = self.fresh()?;
            let config = metrics(&fresh).await?;
            met.insert(config.id.clone(), config);
            let all = live.as_ref().is_ok_and(|live| met.len() >= *live);
            if all || restow_clock::Instant::now() >= ends {
                break;
            }
            tokio::time::sleep(SAMPLE_EVERY).await;
        }
        let count = met.len();
        // One that reports nothing does not say which it is, so several of them look like one.
        let unnamed = met.contains_key("");
        let mut answers: Vec<_> = met.into_iter().map(|(id, config)| (id, Ok(config))).collect();
        answers.sort_by(|(one, _), (other, _)| one.cmp(other));
        let missed = match live {
            Ok(live) if count >= live => None,
            Ok(_) if unnamed && count == 1 => None,
            Ok(live) => {
                let missing = live - count;
                Some(format!("{missing} of {live} API servers were not met in {} s", period.as_secs()))
            }
            Err(why) => Some(why.clone()),
        };
        answers.extend(missed.map(|why| (OTHERS.to_owned(), Err(Unread::Refused(why)))));
        Ok(encryption::agree(&answers))
    }

    /// The main address over a new connection.
    fn fresh(&self) -> Result<Server, RequestError> {
        match &self.reach {
            Reach::Network(config) => {
                Server::connect(kube::Config::clone(config)).map_err(|error| unconnected(&error))
            }
            Reach::Clients(connect) => Ok(Server::over(self.server.name(), connect(self.server.name()))),
        }
    }

    /// The server at another address, reached with the same credentials.
    fn peer(&self, url: &str) -> Result<Server, String> {
        let mut peers = self.peers.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(peer) = peers.get(url) {
            return Ok(peer.clone());
        }
        let peer = match &self.reach {
            Reach::Network(config) => {
                let mut config = kube::Config::clone(config);
                config.cluster_url = url.parse().map_err(|error| format!("{url} is no URL: {error}"))?;
                Server::connect(config).map_err(|error| error.to_string())?
            }
            Reach::Clients(connect) => Server::over(url, connect(url)),
        };
        peers.insert(url.to_owned(), peer.clone());
        Ok(peer)
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

/// Stands for the API servers that could not even be told apart.
const OTHERS: &str = "the other API servers";

/// The discovery documents of one server, or why one could not be had.
pub(crate) type Documents = HashMap<GroupVersion, Result<Vec<Served>, String>>;

fn unread(error: &RequestError) -> Unread {
    let why = format!("its metrics cannot be read: {error}");
    if error.is_final() { Unread::Refused(why) } else { Unread::Silent(why) }
}

fn unconnected(error: &kube::Error) -> RequestError {
    RequestError::Refused { code: 0, message: error.to_string() }
}

/// What one server's metrics say of its encryption configuration; they are large, and read by line.
async fn metrics(server: &Server) -> Result<Config, RequestError> {
    let mut config = Config::default();
    server.lines("/metrics", |line| config.read(line)).await?;
    Ok(config)
}

/// The hash a document publishes for a resource.
pub(crate) fn published(served: &[Served], resource: &Resource) -> Option<String> {
    let served = served.iter().find(|served| served.name == resource.name.resource)?;
    served.hash.clone().filter(|hash| !hash.is_empty())
}

/// Asks one server for the hash it publishes.
async fn answered(server: &Server, resource: &Resource) -> Result<Answered, RequestError> {
    let Some(version) = resource.endpoint() else {
        return Ok(Answered { server: server.name().to_owned(), hash: Err("it is not served".to_owned()) });
    };
    let hash = match discovery::document(server, version).await {
        Ok(served) => {
            published(&served, resource).ok_or_else(|| "it publishes no storage version".to_owned())
        }
        // An answer all the same: that server stores it in another way.
        Err(error) if error.code() == Some(404) => Ok(format!("nothing as {version}")),
        Err(error) => return Err(error),
    };
    Ok(Answered { server: server.name().to_owned(), hash })
}
