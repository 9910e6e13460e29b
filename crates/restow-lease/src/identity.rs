//! A server's identity Lease: made before anything is registered, renewed, and given up at the end.
//!
//! Who may not renew it stops counting as alive, and its entries are dropped. So a [`Tenure`] ends by itself, and with
//! it the right to write, well before others may take the server for gone.
//!
//! Two processes under one id would write as one server and register as one. So the Lease of another process is taken
//! over only when it has not changed for so long that its holder writes no more, or when its holder surely is no more.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use kube::api::{ObjectMeta, PostParams};
use kube::{Api, Client};
use restow_core::election::{Held, Move, Sight, taken_over_after, writes_for};
use restow_core::outcome::backoff;
use tokio_util::sync::CancellationToken;

use crate::election::nonce;
use crate::request::{RequestError, as_read, ask, delete_as_read, find};
use crate::stop::Stop;
use crate::term::Term;

/// The namespace of identity Leases.
pub const NAMESPACE: &str = "kube-system";
/// The label of identity Leases; its value is the kind of server.
pub const LABEL: &str = "apiserver.kubernetes.io/identity";
/// The annotation of identity Leases that says where a server can be asked, as `host:port`.
pub const ADDRESS: &str = "kubernetes.io/peer-advertise-address";
/// How often the Lease of another process is looked at, at least.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// How often a Lease is tried to be deleted.
const LEAVE_TRIES: u32 = 3;

/// One API server, as others know it.
#[derive(Clone)]
pub struct Identity {
    /// Reaches the Leases. A server that stores them itself gives a client that goes around its own gate.
    pub client: Client,
    /// The name of the Lease and of the entries: the same through restarts, never that of two servers at once.
    pub id: String,
    /// The kind of server. Not `kube-apiserver`, which would be expected to register every built-in resource.
    pub component: String,
    /// What no other process that is alive has, such as the name of a directory that this one has locked: a Lease of a
    /// former life that had the same is taken over at once. None if there is nothing like that.
    pub instance: Option<String>,
    /// Where others can ask it, as `host:port`; none for a server that only its own process reaches.
    pub address: Option<String>,
    /// How long others count it among the living without a renewal: an hour.
    pub duration: Duration,
    /// How long it goes on writing without a renewal: 30 seconds.
    pub silence: Duration,
    /// How often it renews: every 10 seconds.
    pub renew_every: Duration,
}

/// One uninterrupted life of a server as a member.
#[derive(Clone, Debug)]
pub struct Tenure(Arc<Life>);

#[derive(Debug)]
struct Life {
    id: String,
    holder: String,
    term: Term,
    over: CancellationToken,
}

impl Tenure {
    fn new(identity: &Identity) -> Self {
        let holder = format!("{}{}", identity.holders(), nonce());
        let id = &identity.id;
        Self(Arc::new(Life { id: id.clone(), holder, term: Term::default(), over: CancellationToken::new() }))
    }

    /// The server's id.
    pub fn id(&self) -> &str {
        &self.0.id
    }

    /// The name of this one life.
    pub fn holder(&self) -> &str {
        &self.0.holder
    }

    /// Whether the server surely counts as alive.
    pub fn stands(&self) -> bool {
        !self.0.over.is_cancelled() && !self.0.term.left().is_zero()
    }

    /// Ends when it no longer surely does.
    pub async fn ended(&self) {
        while self.stands() {
            tokio::select! {
                biased;
                () = self.0.over.cancelled() => {}
                () = self.0.term.over() => {}
            }
        }
    }

    /// It never stands again.
    fn end(&self) {
        self.0.over.cancel();
    }
}

impl Identity {
    /// A server with the usual times.
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

    /// Becomes a member, however long that takes; none when it was stopped before.
    pub async fn establish(&self, stop: &Stop) -> Option<Tenure> {
        self.establish_after(None, stop).await
    }

    /// Becomes a member once more: the Lease of its own former tenure, which is over, is taken over at once.
    pub async fn establish_after(&self, former: Option<&Tenure>, stop: &Stop) -> Option<Tenure> {
        let tenure = Tenure::new(self);
        let mut sight = Sight::default();
        let mut failures = 0;
        loop {
            let taken = stop.unless(self.take(&tenure, former, &mut sight)).await?;
            let wait = match taken {
                Ok(()) => break,
                Err(RequestError::Held(holder)) => {
                    failures = 0;
                    if sight.is_new() {
                        tracing::warn!(
                            id = %self.id, %holder,
                            "another process holds the identity Lease: if it is alive, give this server an id of \
                             its own; if it has crashed, this server takes its place in {:?}",
                            taken_over_after(self.silence)
                        );
                    }
                    self.renew_every.min(LOOK_EVERY)
                }
                Err(trouble) => {
                    failures += 1;
                    tracing::info!(id = %self.id, failures, "the identity Lease cannot be had: {trouble}");
                    backoff(failures, None)
                }
            };
            stop.unless(tokio::time::sleep(wait)).await?;
        }
        tracing::info!(holder = tenure.holder(), "a member");
        Some(tenure)
    }

    /// Renews the Lease until it is time to stop or the tenure has ended.
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
                    Err(trouble) => {
                        failures += 1;
                        tracing::info!(id = %self.id, failures, "the identity Lease is not renewed: {trouble}");
                    }
                }
            }
        };
        tokio::select! {
            biased;
            () = stop.stopped() => {}
            () = tenure.ended() => {
                tenure.end();
                tracing::warn!(holder = tenure.holder(), "no longer a member");
            }
            () = renewing => {}
        }
    }

    /// Ends a tenure, and tells others at once by deleting the Lease; else it runs out.
    pub async fn leave(&self, tenure: &Tenure) {
        tenure.end();
        for tries in 1..=LEAVE_TRIES {
            match self.delete(tenure).await {
                Ok(()) => return,
                Err(trouble) => {
                    tracing::info!(id = %self.id, tries, "the identity Lease is not deleted: {trouble}")
                }
            }
            tokio::time::sleep(backoff(tries, None)).await;
        }
    }

    fn leases(&self) -> Api<Lease> {
        Api::namespaced(self.client.clone(), NAMESPACE)
    }

    /// What the names of all its lives begin with.
    fn holders(&self) -> String {
        match &self.instance {
            Some(instance) => format!("{}_{instance}_", self.id),
            None => format!("{}_", self.id),
        }
    }

    /// Whether the holder of a Lease surely writes no more: it gave the Lease back, or was a former life of this process
    /// or of another that had what only one can have.
    fn is_over(&self, holder: &str, former: Option<&Tenure>) -> bool {
        holder.is_empty()
            || former.is_some_and(|former| former.holder() == holder)
            || (self.instance.is_some() && holder.starts_with(&self.holders()))
    }

    /// Makes the Lease, or takes over that of a former life.
    async fn take(
        &self,
        tenure: &Tenure,
        former: Option<&Tenure>,
        sight: &mut Sight,
    ) -> Result<(), RequestError> {
        let before = find(self.leases().get(&self.id)).await?;
        let sent = tenure.0.term.moment();
        let held = before.as_ref().map(|lease| Held {
            holder: Some(holder(lease))
                .filter(|held| !self.is_over(held, former))
                .unwrap_or_default()
                .to_owned(),
            duration: taken_over_after(self.silence),
            transitions: 0,
            resource_version: lease.metadata.resource_version.clone().unwrap_or_default(),
        });
        match (sight.look(held, tenure.holder(), tenure.0.term.now()), before) {
            (Move::Stand, before) => {
                return Err(RequestError::Held(before.as_ref().map(holder).unwrap_or_default().to_owned()));
            }
            (Move::Take { .. }, Some(before)) => self.replace(&self.lease(Some(before), tenure)).await?,
            (Move::Create | Move::Take { .. }, _) => {
                ask(self.leases().create(&PostParams::default(), &self.lease(None, tenure))).await?
            }
        };
        tenure.0.term.begin(sent, writes_for(self.silence, self.duration));
        Ok(())
    }

    async fn renew(&self, tenure: &Tenure) -> Result<(), RequestError> {
        let sent = tenure.0.term.moment();
        let lease = match find(self.leases().get(&self.id)).await? {
            Some(lease) if holder(&lease) == tenure.holder() => lease,
            // Deleted, or taken by a later life: others may have seen that already.
            _ => {
                tenure.end();
                return Ok(());
            }
        };
        self.replace(&self.lease(Some(lease), tenure)).await?;
        tenure.0.term.renew(sent, writes_for(self.silence, self.duration));
        Ok(())
    }

    /// Writes the Lease as it was read and changed here: its uid and resourceVersion are the condition.
    async fn replace(&self, lease: &Lease) -> Result<Lease, RequestError> {
        as_read(&lease.metadata)?;
        ask(self.leases().replace(&self.id, &PostParams::default(), lease)).await
    }

    async fn delete(&self, tenure: &Tenure) -> Result<(), RequestError> {
        let mine = |lease: &Lease| holder(lease) == tenure.holder();
        let Some(lease) = find(self.leases().get(&self.id)).await?.filter(mine) else { return Ok(()) };
        ask(self.leases().delete(&self.id, &delete_as_read(&lease.metadata)?)).await.map(drop)
    }

    /// The Lease of this life; whatever else was in it stays.
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
            // That of a former life, which nobody answers any more.
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

fn holder(lease: &Lease) -> &str {
    lease.spec.as_ref().and_then(|spec| spec.holder_identity.as_deref()).unwrap_or_default()
}
