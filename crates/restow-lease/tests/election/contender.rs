//! Candidates in this process, and somebody who never looks away from them.

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

/// The namespace of the Leases.
pub(crate) const NAMESPACE: &str = "default";

/// A candidate that runs.
pub(crate) struct Contender {
    pub(crate) identity: String,
    pub(crate) seen: Seen,
    stop: CancellationToken,
    task: JoinHandle<()>,
}

/// What can be seen of a candidate from outside.
#[derive(Clone)]
pub(crate) struct Seen {
    term: Arc<Term>,
    leading: watch::Receiver<bool>,
}

impl Seen {
    /// Whether it has the right to act, or says so.
    pub(crate) fn leads(&self) -> bool {
        !self.term.left().is_zero() || *self.leading.borrow()
    }

    /// Waits until it begins or ceases to lead, and says when that was.
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

    /// Starts one in a hurry.
    pub(crate) fn hurried(client: Client, name: &str) -> Self {
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

    /// Tells it to stop, and waits until it has.
    pub(crate) async fn stop(self) {
        self.stop.cancel();
        tokio::time::timeout(Duration::from_secs(30), self.task).await.expect("an end").unwrap();
        assert!(!self.seen.leads(), "who has stopped does not lead");
    }
}

/// A thread that looks at all candidates, all the time.
pub(crate) struct Watcher {
    done: Arc<AtomicBool>,
    thread: std::thread::JoinHandle<(u64, u64)>,
}

impl Watcher {
    pub(crate) fn of(contenders: &[&Contender]) -> Self {
        let all: Vec<Seen> = contenders.iter().map(|contender| contender.seen.clone()).collect();
        let done = Arc::<AtomicBool>::default();
        let told = Arc::clone(&done);
        let thread = std::thread::spawn(move || {
            let (mut looks, mut doubles) = (0, 0);
            while !told.load(Ordering::SeqCst) {
                looks += 1;
                doubles += u64::from(two_lead(&all));
                std::thread::sleep(Duration::from_micros(200));
            }
            (looks, doubles)
        });
        Self { done, thread }
    }

    /// Fails if there ever were two leaders.
    pub(crate) fn finish(self) {
        self.done.store(true, Ordering::SeqCst);
        let (looks, doubles) = self.thread.join().unwrap();
        assert!(looks > 500, "only {looks} looks");
        assert_eq!(doubles, 0, "two led at once, in so many of {looks} looks");
    }
}

/// Whether two lead at one instant: the first one is looked at again after the second.
fn two_lead(all: &[Seen]) -> bool {
    let both = |a: &Seen, b: &Seen| a.leads() && b.leads() && a.leads();
    all.iter().enumerate().any(|(index, a)| all[index + 1..].iter().any(|b| both(a, b)))
}

/// The Lease as it is.
pub(crate) async fn lease(client: &Client, name: &str) -> LeaseSpec {
    leases(client).get(name).await.unwrap().spec.unwrap()
}

pub(crate) fn leases(client: &Client) -> Api<Lease> {
    Api::namespaced(client.clone(), NAMESPACE)
}
