//! Removes the entries of API servers that are gone, and StorageVersions without entries.
//!
//! An election makes sure that one collector works at a time. Even so every write has the uid and resourceVersion that were
//! read as preconditions, and a server never counts as gone because something could not be read.

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
use restow_lease::request::{ObjectError, as_read, ask, delete_as_read};

/// The minimum time between two collections.
const MIN_INTERVAL: Duration = Duration::from_secs(1);

/// The StorageVersions that a collector handles.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Scope {
    /// Those of resources in these API groups.
    Groups(BTreeSet<String>),
    /// All, including those of kube-apiservers, for which Kubernetes has its own collector.
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

/// Collects what servers that are gone have left.
#[derive(Clone)]
pub struct Collector {
    /// The client for StorageVersions and Leases.
    pub client: Client,
    /// The id of the server that it runs in. A list of live servers without it is not used.
    pub id: String,
    /// The StorageVersions that it handles.
    pub scope: Scope,
    /// The kind of server whose expired Leases it deletes.
    pub component: String,
    /// How often it collects. It also collects whenever a Lease is deleted.
    pub every: Duration,
}

/// The result of one collection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Collected {
    /// Objects from which entries were removed.
    pub updated: usize,
    /// Objects that were deleted.
    pub deleted: usize,
    /// Expired Leases that were deleted.
    pub leases: usize,
    /// Objects that could not be written, because of a conflict for example. The next collection decides again.
    pub left: usize,
}

impl Collector {
    /// Collects whenever it leads, until it is told to stop.
    pub async fn run(&self, election: &Election, stop: &CancellationToken) {
        election.lead(stop, |within| self.collect(within)).await;
    }

    async fn collect(&self, stop: Stop) {
        while !stop.is_stopped() {
            // The watch starts before the collection, so that no deletion is missed.
            let watched = WatchParams::default().labels(LABEL);
            let leases = self.leases();
            let Some(departures) = stop.unless(ask(leases.watch_metadata(&watched, "0"))).await else {
                return;
            };
            match stop.unless(self.collect_once(&stop)).await {
                Some(Ok(collected)) if collected != Collected::default() => {
                    let Collected { updated, deleted, leases, left } = collected;
                    tracing::info!(
                        updated,
                        deleted,
                        leases,
                        left,
                        "collected entries of servers that are gone"
                    )
                }
                Some(Err(error)) => tracing::warn!("cannot collect: {error}"),
                _ => {}
            }
            let departure = async {
                departure(departures).await;
                tokio::time::sleep(MIN_INTERVAL).await;
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

    /// Collects once. The objects are read before the members, as [`storage_version::collect`] requires.
    pub async fn collect_once(&self, stop: &Stop) -> Result<Collected, ObjectError> {
        let storage_versions = Api::<StorageVersion>::all(self.client.clone());
        let objects = ask(storage_versions.list(&ListParams::default())).await?;
        let leases = membership::leases(&self.client).await?;
        let membership = Membership::as_seen_by(&self.id, membership::live(&leases));
        if let Membership::Unknown(why) = &membership {
            tracing::warn!("cannot collect: {why}");
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

    /// Deletes expired Leases. Their servers count as gone anyway.
    async fn delete_expired(&self, leases: &[Lease], stop: &Stop, collected: &mut Collected) {
        let live = membership::live(leases);
        let own = |lease: &&Lease| lease.labels().get(LABEL) == Some(&self.component);
        for lease in leases.iter().filter(own).filter(|lease| !live.contains(&lease.name_any())) {
            if stop.is_stopped() {
                return;
            }
            let deleted = match delete_as_read(&lease.metadata) {
                Ok(as_read) => ask(self.leases().delete(&lease.name_any(), &as_read)).await.map(drop),
                Err(error) => Err(error),
            };
            match deleted {
                Ok(()) => collected.leases += 1,
                Err(error) => tracing::info!(
                    lease = lease.name_any(),
                    "cannot write it now; leaving it for the next collection: {error}"
                ),
            }
        }
    }
}

/// Waits until a Lease is deleted or the watch ends; forever if the watch fails.
async fn departure<T>(events: Result<impl Stream<Item = kube::Result<WatchEvent<T>>>, ObjectError>) {
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
        Err(error) => {
            tracing::info!(%name, "cannot write it now; leaving it for the next collection: {error}");
            collected.left += 1;
        }
    }
}

pub(crate) async fn update(
    api: &Api<StorageVersion>,
    mut object: StorageVersion,
    entries: &[Entry],
) -> Result<(), ObjectError> {
    as_read(&object.metadata)?;
    let read = object.status.take();
    let context =
        StatusContext { generation: object.metadata.generation, registrant: None, now: restow_clock::now() };
    object.status = Some(storage_version::status(read.as_ref(), entries, context));
    ask(api.replace_status(&object.name_any(), &PostParams::default(), &object)).await.map(drop)
}

pub(crate) async fn delete(api: &Api<StorageVersion>, object: StorageVersion) -> Result<(), ObjectError> {
    let name = object.name_any();
    ask(api.delete(&name, &delete_as_read(&object.metadata)?)).await.map(drop)
}
