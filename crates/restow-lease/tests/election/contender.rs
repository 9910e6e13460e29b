//! Candidates in this process, and a thread that checks all the time that only one of them leads.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use kube::{Api, Client};
use restow_lease::Election;
use restow_lease::Term;
use restow_lease::election::identity;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

pub(crate) const NAMESPACE: &str = "default";

/// A running candidate.
pub(crate) struct Contender {
    pub(crate) identity: String,
    pub(crate) seen: Seen,
    stop: CancellationToken,
    task: JoinHandle<()>,
}

/// Whether a candidate leads.
#[derive(Clone)]
pub(crate) struct Seen {
    term: Arc<Term>,
    leading: watch::Receiver<bool>,
}

impl Seen {
    /// Whether it may act, or claims to.
    pub(crate) fn leads(&self) -> bool {
        !self.term.left().is_zero() || *self.leading.borrow()
    }

    /// Waits until it begins or ceases to lead, and returns when that was.
    pub(crate) async fn until(&mut self, leads: bool) -> Instant {
        let change = self.leading.wait_for(|now| *now == leads);
        tokio::time::timeout(Duration::from_secs(60), change).await.expect("a change").unwrap();
        Instant::now()
    }
}

impl Contender {
    /// Starts a candidate for the Lease of a test, with the times of a real controller.
    pub(crate) fn start(client: Client, name: &str) -> Self {
        Self::with_times(client, name, Duration::from_secs(15), Duration::from_secs(5))
    }

    /// Starts a candidate with short times.
    pub(crate) fn with_short_times(client: Client, name: &str) -> Self {
        Self::with_times(client, name, Duration::from_secs(3), Duration::from_secs(1))
    }

    fn with_times(client: Client, name: &str, duration: Duration, renew_every: Duration) -> Self {
        let identity = identity();
        let election = Election {
            client,
            namespace: NAMESPACE.to_owned(),
            name: name.to_owned(),
            identity: identity.clone(),
            duration,
            renew_every,
        };
        let (term, stop) = (Arc::<Term>::default(), CancellationToken::new());
        let (sender, leading) = watch::channel(false);
        let seen = Seen { term: Arc::clone(&term), leading };
        let token = stop.clone();
        let task = tokio::spawn(async move { election.run(&term, &sender, token).await });
        Self { identity, seen, stop, task }
    }

    pub(crate) fn leads(&self) -> bool {
        self.seen.leads()
    }

    /// Stops it, and waits until it has ended.
    pub(crate) async fn stop(self) {
        self.stop.cancel();
        tokio::time::timeout(Duration::from_secs(30), self.task).await.expect("an end").unwrap();
        assert!(!self.seen.leads(), "a candidate that has stopped leads");
    }
}

/// A thread that checks all candidates all the time.
pub(crate) struct Watcher {
    done: Arc<AtomicBool>,
    thread: std::thread::JoinHandle<(u64, u64)>,
}

impl Watcher {
    pub(crate) fn of(contenders: &[&Contender]) -> Self {
        let all: Vec<Seen> = contenders.iter().map(|contender| contender.seen.clone()).collect();
        let done = Arc::<AtomicBool>::default();
        let stop = Arc::clone(&done);
        let thread = std::thread::spawn(move || {
            let (mut checks, mut doubles) = (0, 0);
            while !stop.load(Ordering::SeqCst) {
                checks += 1;
                doubles += u64::from(two_lead(&all));
                std::thread::sleep(Duration::from_micros(200));
            }
            (checks, doubles)
        });
        Self { done, thread }
    }

    /// Fails if there ever were two leaders.
    pub(crate) fn finish(self) {
        self.done.store(true, Ordering::SeqCst);
        let (checks, doubles) = self.thread.join().unwrap();
        assert!(checks > 500, "only {checks} checks");
        assert_eq!(doubles, 0, "two led at once in {doubles} of {checks} checks");
    }
}

/// Whether two lead at the same time: the first one is checked again after the second.
fn two_lead(all: &[Seen]) -> bool {
    let both = |a: &Seen, b: &Seen| a.leads() && b.leads() && a.leads();
    all.iter().enumerate().any(|(index, a)| all[index + 1..].iter().any(|b| both(a, b)))
}

pub(crate) async fn lease(client: &Client, name: &str) -> LeaseSpec {
    leases(client).get(name).await.unwrap().spec.unwrap()
}

pub(crate) fn leases(client: &Client) -> Api<Lease> {
    Api::namespaced(client.clone(), NAMESPACE)
}
