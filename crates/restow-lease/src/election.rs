//! Leader election: the leader holds one Lease, and its [`Term`] ends before another candidate may take the Lease.
//!
//! Every write of the Lease has the resourceVersion that was read as its precondition. The rules are in
//! `restow_core::protocol::election`.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use kube::Api;
use kube::api::{ObjectMeta, PostParams};
use restow_core::protocol::election::{LeaseAction, LeaseObserver, LeaseRecord, leads_for};
use restow_core::rewrite::outcome::backoff;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::request::{ObjectError, ask_within};
use crate::stop::Stop;
use crate::term::{Moment, Term};

/// The pause between two terms of one candidate.
const PAUSE_BETWEEN_TERMS: Duration = Duration::from_millis(50);
/// How often releasing the Lease is attempted.
const RELEASE_ATTEMPTS: u32 = 3;

/// One candidate for one Lease.
#[derive(Clone)]
pub struct Election {
    /// The client for the Lease.
    pub client: kube::Client,
    /// The Lease's namespace.
    pub namespace: String,
    /// The Lease's name.
    pub name: String,
    /// The candidate's name as holder of the Lease. It must be unique.
    pub identity: String,
    /// How long other candidates wait after the last renewal before they take the Lease; 15 seconds by default.
    pub duration: Duration,
    /// How often the leader renews the Lease, well below `duration`; 5 seconds by default.
    pub renew_every: Duration,
}

/// A unique name for this process: the host name and a random number.
pub fn identity() -> String {
    format!("{}_{}", host_name(), nonce())
}

/// The name of this machine, which is the pod's name in a pod.
pub fn host_name() -> String {
    let read = |path| std::fs::read_to_string(path).ok();
    read("/proc/sys/kernel/hostname")
        .or_else(|| read("/etc/hostname"))
        .or_else(|| std::env::var("HOSTNAME").ok())
        .map(|host| host.trim().to_owned())
        .filter(|host| !host.is_empty())
        .unwrap_or_else(|| restow_api::MANAGER.to_owned())
}

/// A random number as 16 hexadecimal digits.
pub fn nonce() -> String {
    format!("{:016x}", restow_clock::random())
}

impl Election {
    /// Takes part in the election until `stop` is cancelled, and then releases the Lease.
    ///
    /// The leader may act while `term` lasts. `leading` follows the term: it becomes false when the term is over, even if
    /// no server answers. End the work before you cancel `stop`, because another candidate leads a moment later.
    pub async fn run(&self, term: &Term, leading: &watch::Sender<bool>, stop: CancellationToken) {
        let mut candidate = Candidate {
            election: self,
            leases: Api::namespaced(self.client.clone(), &self.namespace),
            term,
            leading,
            observer: LeaseObserver::default(),
            holder: None,
            may_hold: false,
        };
        tokio::select! {
            biased;
            () = stop.cancelled() => {}
            () = expire(term, leading) => {}
            () = candidate.campaign() => {}
        }
        candidate.resign().await;
    }

    /// Runs `work` whenever this candidate leads, until `stop` is cancelled, and then releases the Lease.
    ///
    /// `work` gets a [`Stop`] and must end when that is stopped.
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
                            // Until this candidate no longer leads, or the channel is closed.
                            _ = leads.wait_for(|leads| !leads) => {}
                            () = within.stopped() => {}
                        }
                        // Work that began in one term must not go on in the next.
                        mandate.cancel();
                    };
                    futures::join!(work(within.clone()), ends);
                    // A term may be over before `leading` is false.
                    tokio::time::sleep(PAUSE_BETWEEN_TERMS).await;
                } else {
                    tokio::select! {
                        biased;
                        _ = leads.changed() => {}
                        () = stop.cancelled() => {}
                    }
                }
            }
            // Another candidate may lead only when this one no longer writes.
            resign.cancel();
        };
        futures::join!(self.run(&term, &leading, resign.clone()), works);
    }

    /// The timeout of one request: several fit into the rest of a term when the Lease is due for renewal.
    fn request_timeout(&self) -> Duration {
        self.duration / 6
    }

    /// How often a candidate checks whether the Lease is free, and a leader's longest pause before a retry.
    fn check_every(&self) -> Duration {
        self.renew_every / 5
    }
}

/// Sets `leading` to false when the term is over; never returns.
async fn expire(term: &Term, leading: &watch::Sender<bool>) {
    let mut changes = leading.subscribe();
    while changes.wait_for(|leads| *leads).await.is_ok() {
        term.over().await;
        if leading.send_replace(false) {
            tracing::warn!("no longer leading: could not renew the Lease in time");
        }
    }
}

struct Candidate<'a> {
    election: &'a Election,
    leases: Api<Lease>,
    term: &'a Term,
    leading: &'a watch::Sender<bool>,
    observer: LeaseObserver,
    /// The other holder that was last logged, so that each is logged once.
    holder: Option<String>,
    /// Whether this candidate may hold the Lease: a write without an answer may have succeeded.
    may_hold: bool,
}

impl Candidate<'_> {
    /// Acquires and renews the Lease; never returns.
    async fn campaign(&mut self) {
        let mut failures = 0;
        loop {
            let began = self.term.now();
            let result = self.round().await;
            let leads = !self.term.left().is_zero();
            let wait = match result {
                Ok(()) => {
                    failures = 0;
                    let every = if leads { self.election.renew_every } else { self.election.check_every() };
                    every.saturating_sub(self.term.now().saturating_sub(began))
                }
                Err(error) => {
                    failures += 1;
                    self.report(&error, failures);
                    let longest = if leads { self.election.check_every() } else { self.election.renew_every };
                    backoff(failures, None).min(longest)
                }
            };
            tokio::time::sleep(wait).await;
        }
    }

    fn report(&self, error: &ObjectError, failures: u32) {
        let (name, leading) = (&self.election.name, *self.leading.borrow());
        let failed = if leading { "cannot renew the Lease" } else { "cannot acquire the Lease" };
        // Only the first of several failures in a row is a warning.
        if failures == 1 && !matches!(error, ObjectError::Conflict) {
            tracing::warn!(%name, leading, "{failed}: {error}; retrying");
        } else {
            tracing::debug!(%name, leading, failures, "{failed}: {error}");
        }
    }

    /// Reads the Lease once, and does what follows from it.
    async fn round(&mut self) -> Result<(), ObjectError> {
        let lease = self.read().await?;
        let held = lease.as_ref().map(|lease| held(lease, self.election.duration));
        let decided = self.observer.observe(held, &self.election.identity, self.term.now());
        match (decided, lease) {
            (LeaseAction::Take { transitions }, Some(lease)) => self.take(lease, transitions).await,
            (LeaseAction::Wait, lease) => {
                self.follow(lease.as_ref().map(holder));
                Ok(())
            }
            _ => self.create().await,
        }
    }

    async fn read(&self) -> Result<Option<Lease>, ObjectError> {
        match self.ask(self.leases.get_opt(&self.election.name)).await? {
            Some(lease) => self.checked(lease).map(Some),
            None => Ok(None),
        }
    }

    /// Checks that an answer is the Lease: a proxy in front of the server may answer 200 with anything.
    fn checked(&self, lease: Lease) -> Result<Lease, ObjectError> {
        let version = lease.metadata.resource_version.as_deref().unwrap_or_default();
        let is_it = lease.metadata.name.as_ref() == Some(&self.election.name) && !version.is_empty();
        if is_it { Ok(lease) } else { Err(ObjectError::NotTheObject) }
    }

    /// Checks that an answer is the Lease, and that this candidate holds it.
    fn held_here(&self, lease: Lease) -> Result<(), ObjectError> {
        let lease = self.checked(lease)?;
        if holder(&lease) == self.election.identity { Ok(()) } else { Err(ObjectError::NotTheObject) }
    }

    /// Another candidate leads.
    fn follow(&mut self, holder: Option<&str>) {
        self.may_hold = false;
        self.term.finish();
        let was_leading = self.leading.send_replace(false);
        if was_leading {
            tracing::warn!(holder, "no longer leading: another process took the Lease");
        } else if self.holder.as_deref() != holder {
            tracing::info!(holder, "not leading; waiting for the Lease");
        }
        self.holder = holder.map(str::to_owned);
    }

    async fn create(&mut self) -> Result<(), ObjectError> {
        let lease = Lease {
            metadata: ObjectMeta {
                name: Some(self.election.name.clone()),
                namespace: Some(self.election.namespace.clone()),
                ..ObjectMeta::default()
            },
            spec: Some(self.spec(LeaseSpec::default(), 0)),
        };
        self.may_hold = true;
        let sent = self.term.moment();
        let created = self.ask(self.leases.create(&PostParams::default(), &lease)).await?;
        self.held_here(created)?;
        self.lead(sent);
        Ok(())
    }

    async fn take(&mut self, mut lease: Lease, transitions: i32) -> Result<(), ObjectError> {
        lease.spec = Some(self.spec(lease.spec.take().unwrap_or_default(), transitions));
        self.may_hold = true;
        let sent = self.term.moment();
        let written = self.replace(&lease).await?;
        self.held_here(written)?;
        self.lead(sent);
        Ok(())
    }

    /// Writes the Lease as it was read and changed here: its uid and resourceVersion are the precondition.
    async fn replace(&self, lease: &Lease) -> Result<Lease, ObjectError> {
        self.ask(self.leases.replace(&self.election.name, &PostParams::default(), lease)).await
    }

    /// The Lease with this candidate as holder; other fields stay.
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

    /// Begins or renews the term after a write of the Lease that was sent at `sent`.
    fn lead(&mut self, sent: Moment) {
        self.holder = None;
        let long = leads_for(self.election.duration);
        if *self.leading.borrow() {
            // A term that is over is not renewed: its work has stopped or is stopping.
            if !self.term.renew(sent, long) && self.leading.send_replace(false) {
                tracing::warn!("no longer leading: could not renew the Lease in time");
            }
            return;
        }
        self.term.begin(sent, long);
        // The term may be over already if the answer took long.
        if !self.term.left().is_zero() {
            self.leading.send_replace(true);
            tracing::info!(identity = %self.election.identity, name = %self.election.name, "leading");
        }
    }

    /// Stops leading, and releases the Lease so that another candidate can lead at once.
    async fn resign(&self) {
        self.term.finish();
        if self.leading.send_replace(false) {
            tracing::info!("no longer leading: stopping");
        }
        if !self.may_hold {
            return;
        }
        let timeout = self.election.request_timeout() * RELEASE_ATTEMPTS;
        match tokio::time::timeout(timeout, self.release()).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::warn!("could not release the Lease: {error}; it will expire"),
            Err(_) => tracing::warn!("could not release the Lease within {timeout:?}; it will expire"),
        }
    }

    async fn release(&self) -> Result<(), ObjectError> {
        let mut attempts = 1;
        loop {
            match self.try_release().await {
                Err(error) if attempts < RELEASE_ATTEMPTS => {
                    tracing::debug!("could not release the Lease: {error}; retrying");
                    tokio::time::sleep(backoff(attempts, None)).await;
                }
                done => return done,
            }
            attempts += 1;
        }
    }

    async fn try_release(&self) -> Result<(), ObjectError> {
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
        tracing::info!(name = %self.election.name, "released the Lease");
        Ok(())
    }

    async fn ask<T>(&self, request: impl Future<Output = kube::Result<T>>) -> Result<T, ObjectError> {
        ask_within(self.election.request_timeout(), request).await
    }
}

/// The holder's name; empty if the Lease is free.
fn holder(lease: &Lease) -> &str {
    lease.spec.as_ref().and_then(|spec| spec.holder_identity.as_deref()).unwrap_or_default()
}

/// The parts of a Lease that the rules need.
fn held(lease: &Lease, usual: Duration) -> LeaseRecord {
    let spec = lease.spec.as_ref();
    let seconds = spec.and_then(|spec| u64::try_from(spec.lease_duration_seconds?).ok());
    LeaseRecord {
        holder: holder(lease).to_owned(),
        duration: seconds.map_or(usual, Duration::from_secs),
        transitions: spec.and_then(|spec| spec.lease_transitions).unwrap_or_default(),
        resource_version: lease.metadata.resource_version.clone().unwrap_or_default(),
    }
}

/// Rounded up, so that others wait too long rather than too short.
fn whole_seconds(duration: Duration) -> i32 {
    let up = duration.as_secs() + u64::from(duration.subsec_nanos() > 0);
    i32::try_from(up).unwrap_or(i32::MAX)
}
