//! An API server's identity Lease: created before anything is registered, renewed, and deleted at the end.
//!
//! A server that does not renew its Lease no longer counts as alive, and its StorageVersion entries are removed. So a
//! [`Tenure`] ends by itself, and with it the right to write, well before other servers may remove the entries.
//!
//! Two processes with one id would write and register as one server. So a process takes over the Lease of another only
//! when the Lease has not changed for so long that its holder no longer writes, or when the holder is known to be dead.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use kube::api::{ObjectMeta, PostParams};
use kube::{Api, Client};
use restow_core::agreement::member::{Member, expires};
use restow_core::protocol::election::{
    LeaseAction, LeaseObserver, LeaseRecord, taken_over_after, writes_for,
};
use restow_core::rewrite::outcome::backoff;
use tokio_util::sync::CancellationToken;

use crate::election::nonce;
use crate::request::{ObjectError, as_read, ask, delete_as_read, find};
use crate::stop::Stop;
use crate::term::Term;

/// The namespace of identity Leases.
pub const NAMESPACE: &str = "kube-system";
/// The label of identity Leases; its value is the kind of server.
pub const LABEL: &str = "apiserver.kubernetes.io/identity";
/// The annotation of identity Leases with the server's address, as `host:port`.
pub const ADDRESS: &str = "kubernetes.io/peer-advertise-address";
/// The longest pause between two reads of a Lease that another process holds.
const CHECK_EVERY: Duration = Duration::from_secs(1);
/// How often deleting the Lease is attempted.
const DELETE_ATTEMPTS: u32 = 3;

/// One API server's identity among the others.
#[derive(Clone)]
pub struct Identity {
    /// The client for the Lease. A server that stores Leases itself passes a client that bypasses its own write gate.
    pub client: Client,
    /// The name of the Lease and of the StorageVersion entries: stable across restarts, never shared by two servers.
    pub id: String,
    /// The kind of server. Not `kube-apiserver`: restow expects that one to register every built-in resource.
    pub component: String,
    /// Something that only one live process can hold, such as a directory that it has locked. A Lease from an earlier
    /// process with the same value is taken over at once.
    pub instance: Option<String>,
    /// The server's address, as `host:port`; none if only its own process reaches it.
    pub address: Option<String>,
    /// How long the server counts as alive after a renewal; an hour by default.
    pub duration: Duration,
    /// How long the server may write after a renewal; 30 seconds by default.
    pub silence: Duration,
    /// How often it renews the Lease; every 10 seconds by default.
    pub renew_every: Duration,
}

/// One uninterrupted hold of an identity Lease: while it is valid, the server counts as alive and may write.
#[derive(Clone, Debug)]
pub struct Tenure(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    id: String,
    holder: String,
    term: Term,
    over: CancellationToken,
}

impl Tenure {
    fn new(identity: &Identity) -> Self {
        let holder = format!("{}{}", identity.holder_prefix(), nonce());
        let id = &identity.id;
        Self(Arc::new(Inner {
            id: id.clone(),
            holder,
            term: Term::default(),
            over: CancellationToken::new(),
        }))
    }

    /// The server's id, which is the name of its Lease.
    pub fn id(&self) -> &str {
        &self.0.id
    }

    /// The holder identity in the Lease, unique to this tenure.
    pub fn holder(&self) -> &str {
        &self.0.holder
    }

    /// Whether the server counts as alive at every other server.
    pub fn is_valid(&self) -> bool {
        !self.0.over.is_cancelled() && !self.0.term.left().is_zero()
    }

    /// Returns when the tenure is no longer valid.
    pub async fn ended(&self) {
        while self.is_valid() {
            tokio::select! {
                biased;
                () = self.0.over.cancelled() => {}
                () = self.0.term.over() => {}
            }
        }
    }

    /// Ends the tenure for good.
    fn end(&self) {
        self.0.over.cancel();
    }
}

impl Identity {
    /// An identity with the default times.
    pub fn new(client: Client, component: &str, id: &str) -> Self {
        Self {
            client,
            id: id.to_owned(),
            component: component.to_owned(),
            instance: None,
            address: None,
            duration: Duration::from_secs(3600),
            silence: Duration::from_secs(30),
            renew_every: Duration::from_secs(10),
        }
    }

    /// Acquires the Lease, however long that takes; none if `stop` comes first.
    pub async fn establish(&self, stop: &Stop) -> Option<Tenure> {
        self.establish_after(None, stop).await
    }

    /// Acquires the Lease again: the Lease of `former`, which is over, is taken over at once.
    pub async fn establish_after(&self, former: Option<&Tenure>, stop: &Stop) -> Option<Tenure> {
        let tenure = Tenure::new(self);
        let mut observer = LeaseObserver::default();
        let mut failures = 0;
        loop {
            let taken = stop.unless(self.take(&tenure, former, &mut observer)).await?;
            let wait = match taken {
                Ok(()) => break,
                Err(ObjectError::Held(holder)) => {
                    failures = 0;
                    if observer.is_new() {
                        tracing::warn!(
                            id = %self.id, %holder,
                            "another process holds the identity Lease: if it is running, give this server an id of \
                             its own; if it has crashed, this server takes over in {:?}",
                            taken_over_after(self.silence)
                        );
                    }
                    self.renew_every.min(CHECK_EVERY)
                }
                Err(error) => {
                    failures += 1;
                    tracing::info!(id = %self.id, failures, "cannot acquire the identity Lease: {error}; retrying");
                    backoff(failures, None)
                }
            };
            stop.unless(tokio::time::sleep(wait)).await?;
        }
        tracing::info!(holder = tenure.holder(), "acquired the identity Lease");
        Some(tenure)
    }

    /// Renews the Lease until `stop` is stopped or the tenure has ended.
    pub async fn keep(&self, tenure: &Tenure, stop: &Stop) {
        let renewing = async {
            let mut failures = 0;
            loop {
                let wait = if failures == 0 {
                    self.renew_every
                } else {
                    backoff(failures, None).min(self.renew_every)
                };
                tokio::time::sleep(wait).await;
                match self.renew(tenure).await {
                    Ok(()) => failures = 0,
                    Err(error) => {
                        failures += 1;
                        tracing::info!(id = %self.id, failures, "cannot renew the identity Lease: {error}; retrying");
                    }
                }
            }
        };
        tokio::select! {
            biased;
            () = stop.stopped() => {}
            () = tenure.ended() => {
                tenure.end();
                tracing::warn!(holder = tenure.holder(), "lost the identity Lease");
            }
            () = renewing => {}
        }
    }

    /// Ends a tenure, and deletes the Lease so that others need not wait until it expires.
    pub async fn leave(&self, tenure: &Tenure) {
        tenure.end();
        for attempt in 1..=DELETE_ATTEMPTS {
            match self.delete(tenure).await {
                Ok(()) => return,
                Err(error) => {
                    tracing::info!(id = %self.id, attempt, "cannot delete the identity Lease: {error}")
                }
            }
            tokio::time::sleep(backoff(attempt, None)).await;
        }
    }

    fn leases(&self) -> Api<Lease> {
        Api::namespaced(self.client.clone(), NAMESPACE)
    }

    /// The common prefix of the holder identities of all its tenures.
    fn holder_prefix(&self) -> String {
        match &self.instance {
            Some(instance) => format!("{}_{instance}_", self.id),
            None => format!("{}_", self.id),
        }
    }

    /// Whether the holder of a Lease certainly no longer writes: it released the Lease, or it was an earlier tenure of this
    /// process or of a process with the same `instance`.
    fn is_dead(&self, holder: &str, former: Option<&Tenure>) -> bool {
        holder.is_empty()
            || former.is_some_and(|former| former.holder() == holder)
            || (self.instance.is_some() && holder.starts_with(&self.holder_prefix()))
    }

    /// Creates the Lease, or takes it over from an earlier process.
    async fn take(
        &self,
        tenure: &Tenure,
        former: Option<&Tenure>,
        observer: &mut LeaseObserver,
    ) -> Result<(), ObjectError> {
        let before = find(self.leases().get(&self.id)).await?;
        let sent = tenure.0.term.moment();
        let held = before.as_ref().map(|lease| LeaseRecord {
            holder: Some(holder(lease))
                .filter(|held| !self.is_dead(held, former))
                .unwrap_or_default()
                .to_owned(),
            duration: taken_over_after(self.silence),
            transitions: 0,
            resource_version: lease.metadata.resource_version.clone().unwrap_or_default(),
        });
        match (observer.observe(held, tenure.holder(), tenure.0.term.now()), before) {
            (LeaseAction::Wait, before) => {
                return Err(ObjectError::Held(before.as_ref().map(holder).unwrap_or_default().to_owned()));
            }
            (LeaseAction::Take { .. }, Some(before)) => {
                self.replace(&self.lease(Some(before), tenure)).await?
            }
            (LeaseAction::Create | LeaseAction::Take { .. }, _) => {
                ask(self.leases().create(&PostParams::default(), &self.lease(None, tenure))).await?
            }
        };
        tenure.0.term.begin(sent, writes_for(self.silence, self.duration));
        Ok(())
    }

    async fn renew(&self, tenure: &Tenure) -> Result<(), ObjectError> {
        let sent = tenure.0.term.moment();
        let lease = match find(self.leases().get(&self.id)).await? {
            Some(lease) if holder(&lease) == tenure.holder() => lease,
            // Deleted, or taken by a later process: other servers may know already.
            _ => {
                tenure.end();
                return Ok(());
            }
        };
        self.replace(&self.lease(Some(lease), tenure)).await?;
        tenure.0.term.renew(sent, writes_for(self.silence, self.duration));
        Ok(())
    }

    /// Writes the Lease as it was read and changed here: its uid and resourceVersion are the precondition.
    async fn replace(&self, lease: &Lease) -> Result<Lease, ObjectError> {
        as_read(&lease.metadata)?;
        ask(self.leases().replace(&self.id, &PostParams::default(), lease)).await
    }

    async fn delete(&self, tenure: &Tenure) -> Result<(), ObjectError> {
        let mine = |lease: &Lease| holder(lease) == tenure.holder();
        let Some(lease) = find(self.leases().get(&self.id)).await?.filter(mine) else { return Ok(()) };
        ask(self.leases().delete(&self.id, &delete_as_read(&lease.metadata)?)).await.map(drop)
    }

    /// The Lease of this tenure; other fields stay.
    fn lease(&self, before: Option<Lease>, tenure: &Tenure) -> Lease {
        let mut lease = before.unwrap_or_else(|| Lease {
            metadata: ObjectMeta {
                name: Some(self.id.clone()),
                namespace: Some(NAMESPACE.to_owned()),
                ..ObjectMeta::default()
            },
            spec: None,
        });
        let labels = lease.metadata.labels.get_or_insert_with(BTreeMap::new);
        labels.insert(LABEL.to_owned(), self.component.clone());
        let annotations = lease.metadata.annotations.get_or_insert_with(BTreeMap::new);
        match &self.address {
            Some(address) => annotations.insert(ADDRESS.to_owned(), address.clone()),
            // The address of an earlier process.
            None => annotations.remove(ADDRESS),
        };
        lease.spec = Some(LeaseSpec {
            holder_identity: Some(tenure.holder().to_owned()),
            lease_duration_seconds: Some(i32::try_from(self.duration.as_secs().max(1)).unwrap_or(i32::MAX)),
            renew_time: Some(MicroTime(restow_clock::now())),
            ..lease.spec.unwrap_or_default()
        });
        lease
    }
}

/// The API server that an identity Lease stands for. A Lease that was never renewed does not expire.
pub fn member(lease: Lease) -> Member {
    let spec = lease.spec.unwrap_or_default();
    let seconds = spec.lease_duration_seconds.and_then(|seconds| u64::try_from(seconds).ok());
    Member {
        name: lease.metadata.name.unwrap_or_default(),
        holder: spec.holder_identity.unwrap_or_default(),
        address: lease.metadata.annotations.unwrap_or_default().remove(ADDRESS),
        expires: Some(expires(spec.renew_time.map(|time| time.0), seconds)),
        component: lease.metadata.labels.unwrap_or_default().remove(LABEL).unwrap_or_default(),
    }
}

fn holder(lease: &Lease) -> &str {
    lease.spec.as_ref().and_then(|spec| spec.holder_identity.as_deref()).unwrap_or_default()
}
