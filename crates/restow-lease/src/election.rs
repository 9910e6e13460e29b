//! Leader election: holds one Lease, and a [`Term`] that ends before anybody else may take it.
//!
//! Every write of the Lease is conditioned on the resourceVersion that was read; what it decides by is in
//! `restow_core::election`.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use kube::Api;
use kube::api::{ObjectMeta, PostParams};
use restow_core::election::{Held, Move, Sight, leads_for};
use restow_core::outcome::backoff;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::stop::Stop;
use crate::term::{Moment, Term};

/// How long one rests between two terms.
const PAUSE: Duration = Duration::from_millis(50);
/// How often a Lease is tried to be given back.
const GIVE_BACK_TRIES: u32 = 3;

/// One candidate for one Lease.
#[derive(Clone)]
pub struct Election {
    /// Reaches the API server.
    pub client: kube::Client,
    /// The namespace of the Lease.
    pub namespace: String,
    /// The name of the Lease.
    pub name: String,
    /// Who this candidate is; no other one may ever have the same.
    pub identity: String,
    /// For how long the Lease binds others after it was last written: 15 seconds.
    pub duration: Duration,
    /// How often it is written; well below the duration: 5 seconds.
    pub renew_every: Duration,
}

/// A name for this process that no other one has: the host's, and a number made by chance.
pub fn identity() -> String {
    let read = |path| std::fs::read_to_string(path).ok();
    let host = read("/proc/sys/kernel/hostname")
        .or_else(|| read("/etc/hostname"))
        .or_else(|| std::env::var("HOSTNAME").ok())
        .map(|host| host.trim().to_owned())
        .filter(|host| !host.is_empty())
        .unwrap_or_else(|| restow_api::MANAGER.to_owned());
    format!("{host}_{}", nonce())
}

/// A number made by chance, as 16 hexadecimal digits.
pub fn nonce() -> String {
    format!("{:016x}", restow_clock::random())
}

impl Election {
    /// Stands for election until told to stop, and gives the Lease back then.
    ///
    /// Whoever leads may act while `term` lasts. `leading` follows it: it turns false when the term is over even if no
    /// server answers. Work should have ended before `stop` is told, because another one leads a moment after.
    pub async fn run(&self, term: &Term, leading: &watch::Sender<bool>, stop: CancellationToken) {
        let mut candidate = Candidate {
            election: self,
            leases: Api::namespaced(self.client.clone(), &self.namespace),
            term,
            leading,
            sight: Sight::default(),
            holder: None,
            wrote: false,
        };
        tokio::select! {
            biased;
            () = stop.cancelled() => {}
            () = expire(term, leading) => {}
            () = candidate.campaign() => {}
        }
        candidate.resign().await;
    }

    /// Works whenever this candidate leads, until told to stop, and gives the Lease back then.
    ///
    /// Work is given what tells it that it may no longer act, and must end then.
    pub async fn lead<F: Future<Output = ()>>(&self, stop: &CancellationToken, work: impl Fn(Stop) -> F) {
        let term = Arc::new(Term::default());
        let (leading, mut leads) = watch::channel(false);
        let resign = CancellationToken::new();
        let works = async {
            while !stop.is_cancelled() {
                let led = *leads.borrow_and_update();
                if led {
                    let mandate = stop.child_token();
                    let within = Stop::within(mandate.clone(), Some(Arc::clone(&term)));
                    let ends = async {
                        tokio::select! {
                            biased;
                            // Until the lead is lost or the channel with it.
                            _ = leads.wait_for(|leads| !leads) => {}
                            () = within.stopped() => {}
                        }
                        // A new term is not for this work.
                        mandate.cancel();
                    };
                    futures::join!(work(within.clone()), ends);
                    // A term may be over before the election has said so.
                    tokio::time::sleep(PAUSE).await;
                } else {
                    tokio::select! {
                        biased;
                        _ = leads.changed() => {}
                        () = stop.cancelled() => {}
                    }
                }
            }
            // Only when nothing is written any more may another one lead.
            resign.cancel();
        };
        futures::join!(self.run(&term, &leading, resign.clone()), works);
    }

    /// How long one answer is waited for: several fit into what is left of a term when it is to be renewed.
    fn patience(&self) -> Duration {
        self.duration / 6
    }

    /// How often a candidate looks whether the Lease has become free, and how long a leader waits at most to try again.
    fn look_every(&self) -> Duration {
        self.renew_every / 5
    }
}

/// Says that leading is over when the term is; never ends.
async fn expire(term: &Term, leading: &watch::Sender<bool>) {
    let mut changes = leading.subscribe();
    while changes.wait_for(|leads| *leads).await.is_ok() {
        term.over().await;
        if leading.send_replace(false) {
            tracing::warn!("no longer leading: the Lease could not be renewed in time");
        }
    }
}

/// Why a round of the election came to nothing.
#[derive(Debug, thiserror::Error)]
enum Trouble {
    #[error("somebody else wrote the Lease at the same time")]
    Conflict,
    #[error("no answer in {0:?}")]
    Silence(Duration),
    #[error("the answer is not the Lease")]
    Foreign,
    #[error(transparent)]
    Request(kube::Error),
}

struct Candidate<'a> {
    election: &'a Election,
    leases: Api<Lease>,
    term: &'a Term,
    leading: &'a watch::Sender<bool>,
    sight: Sight,
    /// Who else was last seen to hold the Lease, so that it is told once.
    holder: Option<String>,
    /// Whether the Lease may be held here: a write without an answer may have been carried out.
    wrote: bool,
}

impl Candidate<'_> {
    /// Tries to lead, and to go on leading; never ends.
    async fn campaign(&mut self) {
        let mut failures = 0;
        loop {
            let began = self.term.now();
            let result = self.round().await;
            let leads = !self.term.left().is_zero();
            let wait = match result {
                Ok(()) => {
                    failures = 0;
                    let every = if leads { self.election.renew_every } else { self.election.look_every() };
                    every.saturating_sub(self.term.now().saturating_sub(began))
                }
                Err(trouble) => {
                    failures += 1;
                    self.tell(&trouble, failures);
                    let longest = if leads { self.election.look_every() } else { self.election.renew_every };
                    backoff(failures, None).min(longest)
                }
            };
            tokio::time::sleep(wait).await;
        }
    }

    fn tell(&self, trouble: &Trouble, failures: u32) {
        let (name, leading) = (&self.election.name, *self.leading.borrow());
        // A row of failures is told once.
        if failures == 1 && !matches!(trouble, Trouble::Conflict) {
            tracing::warn!(%name, leading, "the Lease cannot be had: {trouble}; trying on");
        } else {
            tracing::debug!(%name, leading, failures, "the Lease cannot be had: {trouble}");
        }
    }

    /// One look at the Lease, and what follows from it.
    async fn round(&mut self) -> Result<(), Trouble> {
        let lease = self.read().await?;
        let held = lease.as_ref().map(|lease| held(lease, self.election.duration));
        let decided = self.sight.look(held, &self.election.identity, self.term.now());
        match (decided, lease) {
            (Move::Take { transitions }, Some(lease)) => self.take(lease, transitions).await,
            (Move::Stand, lease) => {
                self.stand(lease.as_ref().map(holder));
                Ok(())
            }
            _ => self.create().await,
        }
    }

    async fn read(&self) -> Result<Option<Lease>, Trouble> {
        match self.ask(self.leases.get_opt(&self.election.name)).await? {
            Some(lease) => self.checked(lease).map(Some),
            None => Ok(None),
        }
    }

    /// Takes an answer for the Lease only if it is: what stands before a server may answer 200 and anything.
    fn checked(&self, lease: Lease) -> Result<Lease, Trouble> {
        let version = lease.metadata.resource_version.as_deref().unwrap_or_default();
        let is_it = lease.metadata.name.as_ref() == Some(&self.election.name) && !version.is_empty();
        if is_it { Ok(lease) } else { Err(Trouble::Foreign) }
    }

    /// Takes an answer for the Lease under one's own name only if it is.
    fn held_here(&self, lease: Lease) -> Result<(), Trouble> {
        let lease = self.checked(lease)?;
        if holder(&lease) == self.election.identity { Ok(()) } else { Err(Trouble::Foreign) }
    }

    /// Another one leads.
    fn stand(&mut self, holder: Option<&str>) {
        self.wrote = false;
        self.term.finish();
        let was_leading = self.leading.send_replace(false);
        if was_leading {
            tracing::warn!(holder, "no longer leading: the Lease was taken away");
        } else if self.holder.as_deref() != holder {
            tracing::info!(holder, "standing by");
        }
        self.holder = holder.map(str::to_owned);
    }

    async fn create(&mut self) -> Result<(), Trouble> {
        let lease = Lease {
            metadata: ObjectMeta {
                name: Some(self.election.name.clone()),
                namespace: Some(self.election.namespace.clone()),
                ..ObjectMeta::default()
            },
            spec: Some(self.spec(LeaseSpec::default(), 0)),
        };
        self.wrote = true;
        let sent = self.term.moment();
        let created = self.ask(self.leases.create(&PostParams::default(), &lease)).await?;
        self.held_here(created)?;
        self.lead(sent);
        Ok(())
    }

    async fn take(&mut self, mut lease: Lease, transitions: i32) -> Result<(), Trouble> {
        lease.spec = Some(self.spec(lease.spec.take().unwrap_or_default(), transitions));
        self.wrote = true;
        let sent = self.term.moment();
        let written = self.replace(&lease).await?;
        self.held_here(written)?;
        self.lead(sent);
        Ok(())
    }

    /// Writes the Lease as it was read and changed here: its uid and resourceVersion are the condition.
    async fn replace(&self, lease: &Lease) -> Result<Lease, Trouble> {
        self.ask(self.leases.replace(&self.election.name, &PostParams::default(), lease)).await
    }

    /// The Lease under one's own name; whatever else is in it stays.
    fn spec(&self, before: LeaseSpec, transitions: i32) -> LeaseSpec {
        let now = MicroTime(restow_clock::now());
        let mine = before.holder_identity.as_deref() == Some(&self.election.identity);
        LeaseSpec {
            acquire_time: before.acquire_time.filter(|_| mine).or_else(|| Some(now.clone())),
            renew_time: Some(now),
            holder_identity: Some(self.election.identity.clone()),
            lease_duration_seconds: Some(whole_seconds(self.election.duration)),
            lease_transitions: Some(transitions),
            ..before
        }
    }

    /// The Lease was written by a request that was sent at `sent`.
    fn lead(&mut self, sent: Moment) {
        self.holder = None;
        let long = leads_for(self.election.duration);
        if *self.leading.borrow() {
            // What was done by the right of a term that is over has stopped, or will.
            if !self.term.renew(sent, long) && self.leading.send_replace(false) {
                tracing::warn!("no longer leading: the Lease could not be renewed in time");
            }
            return;
        }
        self.term.begin(sent, long);
        // An answer that was long in coming may give no right any more.
        if !self.term.left().is_zero() {
            self.leading.send_replace(true);
            tracing::info!(identity = %self.election.identity, name = %self.election.name, "leading");
        }
    }

    /// Stops leading, and lets another one lead at once.
    async fn resign(&self) {
        self.term.finish();
        if self.leading.send_replace(false) {
            tracing::info!("no longer leading: stopping");
        }
        if !self.wrote {
            return;
        }
        let enough = self.election.patience() * GIVE_BACK_TRIES;
        match tokio::time::timeout(enough, self.give_back()).await {
            Ok(Ok(())) => {}
            Ok(Err(trouble)) => tracing::warn!("the Lease was not given back: {trouble}; it will run out"),
            Err(_) => tracing::warn!("the Lease was not given back in {enough:?}; it will run out"),
        }
    }

    async fn give_back(&self) -> Result<(), Trouble> {
        let mut tries = 1;
        loop {
            match self.try_to_give_back().await {
                Err(trouble) if tries < GIVE_BACK_TRIES => {
                    tracing::debug!("giving the Lease back: {trouble}");
                    tokio::time::sleep(backoff(tries, None)).await;
                }
                done => return done,
            }
            tries += 1;
        }
    }

    async fn try_to_give_back(&self) -> Result<(), Trouble> {
        let mine = |lease: &Lease| holder(lease) == self.election.identity;
        let Some(lease) = self.read().await?.filter(mine) else { return Ok(()) };
        let free = LeaseSpec {
            holder_identity: Some(String::new()),
            lease_duration_seconds: Some(1),
            renew_time: Some(MicroTime(restow_clock::now())),
            ..lease.spec.unwrap_or_default()
        };
        let written = self.replace(&Lease { spec: Some(free), ..lease }).await?;
        self.checked(written)?;
        tracing::info!(name = %self.election.name, "the Lease was given back");
        Ok(())
    }

    async fn ask<T>(&self, request: impl Future<Output = kube::Result<T>>) -> Result<T, Trouble> {
        let patience = self.election.patience();
        match tokio::time::timeout(patience, request).await {
            Err(_) => Err(Trouble::Silence(patience)),
            Ok(Err(kube::Error::Api(status))) if status.code == 409 => Err(Trouble::Conflict),
            Ok(result) => result.map_err(Trouble::Request),
        }
    }
}

/// Who holds it; empty when nobody does.
fn holder(lease: &Lease) -> &str {
    lease.spec.as_ref().and_then(|spec| spec.holder_identity.as_deref()).unwrap_or_default()
}

/// What there is to decide by.
fn held(lease: &Lease, usual: Duration) -> Held {
    let spec = lease.spec.as_ref();
    let seconds = spec.and_then(|spec| u64::try_from(spec.lease_duration_seconds?).ok());
    Held {
        holder: holder(lease).to_owned(),
        duration: seconds.map_or(usual, Duration::from_secs),
        transitions: spec.and_then(|spec| spec.lease_transitions).unwrap_or_default(),
        resource_version: lease.metadata.resource_version.clone().unwrap_or_default(),
    }
}

/// Rounded up, so that others wait rather too long.
fn whole_seconds(duration: Duration) -> i32 {
    let up = duration.as_secs() + u64::from(duration.subsec_nanos() > 0);
    i32::try_from(up).unwrap_or(i32::MAX)
}
