//! Clears up after API servers that have gone: their entries, and objects without any.
//!
//! One collector works at a time, by election. Even so every write is on condition of the uid and resourceVersion of
//! what was read, and nothing that could not be read counts as gone.

use std::collections::BTreeSet;
use std::pin::pin;
use std::time::Duration;

use futures::{Stream, StreamExt as _};
use k8s_openapi::api::apiserverinternal::v1alpha1::StorageVersion;
use k8s_openapi::api::coordination::v1::Lease;
use kube::api::{ListParams, PostParams, WatchEvent, WatchParams};
use kube::{Api, Client, ResourceExt as _};
use restow_core::protocol::storage_version::{self, CollectAction, Entry, Membership, StatusContext};
use restow_lease::Stop;
use restow_lease::election::Election;
use tokio_util::sync::CancellationToken;

use crate::membership;
use restow_lease::identity::{LABEL, NAMESPACE};
use restow_lease::request::{RequestError, as_read, ask, delete_as_read};

/// However many servers leave, a look follows the one before no sooner.
const APART: Duration = Duration::from_secs(1);

/// Which StorageVersions a collector looks after.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Scope {
    /// Those of resources in these API groups.
    Groups(BTreeSet<String>),
    /// All, those of kube-apiservers too, which Kubernetes has a collector of its own for.
    All,
}

impl Scope {
    fn covers(&self, name: &str) -> bool {
        match self {
            Self::Groups(groups) => groups.contains(storage_version::group(name)),
            Self::All => true,
        }
    }
}

/// A collector.
#[derive(Clone)]
pub struct Collector {
    /// Reaches the StorageVersions and the Leases.
    pub client: Client,
    /// The id of the server it runs in: a list of live servers that lacks it is not believed.
    pub id: String,
    /// What it looks after.
    pub scope: Scope,
    /// The kind of server whose Leases it deletes when they have run out; other kinds see to their own.
    pub component: String,
    /// How often it looks, besides whenever a server has given up its Lease.
    pub every: Duration,
}

/// What one look has come to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Collected {
    /// Objects that lost entries.
    pub updated: usize,
    /// Objects that were deleted.
    pub deleted: usize,
    /// Leases that had run out and were deleted.
    pub leases: usize,
    /// Objects that somebody else wrote first, or that could not be written; the next look decides anew.
    pub left: usize,
}

impl Collector {
    /// Collects whenever the election is won, until told to stop.
    pub async fn run(&self, election: &Election, stop: &CancellationToken) {
        election.lead(stop, |within| self.collect(within)).await;
    }

    async fn collect(&self, stop: Stop) {
        while !stop.is_stopped() {
            // Opened before the look, so that no departure falls in between.
            let watched = WatchParams::default().labels(LABEL);
            let leases = self.leases();
            let Some(departures) = stop.unless(ask(leases.watch_metadata(&watched, "0"))).await else {
                return;
            };
            match stop.unless(self.look(&stop)).await {
                Some(Ok(collected)) if collected != Collected::default() => {
                    tracing::info!(?collected, "looked")
                }
                Some(Err(trouble)) => tracing::warn!("nothing is collected: {trouble}"),
                _ => {}
            }
            let departure = async {
                departure(departures).await;
                tokio::time::sleep(APART).await;
            };
            stop.unless(async {
                tokio::select! {
                    biased;
                    () = departure => {}
                    () = tokio::time::sleep(self.every) => {}
                }
            })
            .await;
        }
    }

    fn leases(&self) -> Api<Lease> {
        Api::namespaced(self.client.clone(), NAMESPACE)
    }

    /// Looks once. The objects are read first and the members after, as [`storage_version::collect`] needs it.
    pub async fn look(&self, stop: &Stop) -> Result<Collected, RequestError> {
        let storage_versions = Api::<StorageVersion>::all(self.client.clone());
        let objects = ask(storage_versions.list(&ListParams::default())).await?;
        let leases = membership::leases(&self.client).await?;
        let membership = Membership::as_seen_by(&self.id, membership::live(&leases));
        if let Membership::Unknown(why) = &membership {
            tracing::warn!("nothing is collected: {why}");
        }
        let mut collected = Collected::default();
        for object in objects.items.into_iter().filter(|object| self.scope.covers(&object.name_any())) {
            let entries = storage_version::entries(object.status.as_ref());
            let decided = storage_version::collect(&entries, &membership);
            if stop.is_stopped() {
                break;
            }
            carry_out(&storage_versions, object, decided, &mut collected).await;
        }
        if matches!(membership, Membership::Known(_)) {
            self.delete_expired(&leases, stop, &mut collected).await;
        }
        Ok(collected)
    }

    /// Deletes Leases that have run out. Their servers count as gone with or without them, and notice it alike.
    async fn delete_expired(&self, leases: &[Lease], stop: &Stop, collected: &mut Collected) {
        let live = membership::live(leases);
        let own = |lease: &&Lease| lease.labels().get(LABEL) == Some(&self.component);
        for lease in leases.iter().filter(own).filter(|lease| !live.contains(&lease.name_any())) {
            if stop.is_stopped() {
                return;
            }
            let deleted = match delete_as_read(&lease.metadata) {
                Ok(as_read) => ask(self.leases().delete(&lease.name_any(), &as_read)).await.map(drop),
                Err(trouble) => Err(trouble),
            };
            match deleted {
                Ok(()) => collected.leases += 1,
                Err(trouble) => tracing::info!(lease = lease.name_any(), "left for the next look: {trouble}"),
            }
        }
    }
}

/// Ends when a Lease is deleted, or the watch has run its time; never where nothing can be watched.
async fn departure<T>(events: Result<impl Stream<Item = kube::Result<WatchEvent<T>>>, RequestError>) {
    let Ok(events) = events else { return std::future::pending().await };
    let mut events = pin!(events);
    while let Some(event) = events.next().await {
        match event {
            Ok(WatchEvent::Deleted(_)) => return,
            Ok(_) => {}
            Err(_) => return std::future::pending().await,
        }
    }
}

async fn carry_out(
    api: &Api<StorageVersion>,
    object: StorageVersion,
    decided: CollectAction,
    collected: &mut Collected,
) {
    let name = object.name_any();
    let (done, count) = match decided {
        CollectAction::Keep => return,
        CollectAction::Update(entries) => (update(api, object, &entries).await, &mut collected.updated),
        CollectAction::Delete => (delete(api, object).await, &mut collected.deleted),
    };
    match done {
        Ok(()) => *count += 1,
        Err(trouble) => {
            tracing::info!(%name, "left for the next look: {trouble}");
            collected.left += 1;
        }
    }
}

pub(crate) async fn update(
    api: &Api<StorageVersion>,
    mut object: StorageVersion,
    entries: &[Entry],
) -> Result<(), RequestError> {
    as_read(&object.metadata)?;
    let read = object.status.take();
    let context =
        StatusContext { generation: object.metadata.generation, registrant: None, now: restow_clock::now() };
    object.status = Some(storage_version::status(read.as_ref(), entries, context));
    ask(api.replace_status(&object.name_any(), &PostParams::default(), &object)).await.map(drop)
}

pub(crate) async fn delete(api: &Api<StorageVersion>, object: StorageVersion) -> Result<(), RequestError> {
    let name = object.name_any();
    ask(api.delete(&name, &delete_as_read(&object.metadata)?)).await.map(drop)
}
