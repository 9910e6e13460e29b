//! Leader election on a real API server: one leader at a time, whatever happens to connections and the Lease.

use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use futures::future::BoxFuture;
use http::{HeaderMap, Method, StatusCode};
use k8s_openapi::api::coordination::v1::Lease;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use restow_lab::{Action, Cluster, ClusterSpec, Observer, Part, Proxy, Recorder, Seen, assets};
use serde_json::{Value, json};

use crate::contender::{Contender, NAMESPACE, Watcher, lease, leases};
use crate::support::{shared, wait};

/// A client from a file, without retries of its own.
async fn client_from(path: &Path) -> Client {
    let file = Kubeconfig::read_from(path).unwrap();
    let mut config = Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await.unwrap();
    config.default_retry = false;
    Client::try_from(config).unwrap()
}

#[test]
fn identities_are_unique() {
    let (one, two) = (restow_lease::election::identity(), restow_lease::election::identity());
    assert_ne!(one, two);
    let suffix = one.rsplit_once('_').map(|(_, suffix)| suffix.len());
    assert_eq!(suffix, Some(16), "{one}");
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_is_not_the_lease_makes_no_leader() {
    for answer in
        ["{}", r#"{"kind":"Status","apiVersion":"v1","status":"Success"}"#, r#"{"error":"gateway timeout"}"#]
    {
        let service = tower::service_fn(move |_: http::Request<kube::client::Body>| {
            std::future::ready(Ok::<_, std::io::Error>(http::Response::new(kube::client::Body::from(
                answer.as_bytes().to_vec(),
            ))))
        });
        let contender = Contender::start(Client::new(service, "default"), "foreign");
        for _ in 0..600 {
            tokio::time::sleep(Duration::from_millis(100)).await;
            assert!(!contender.leads(), "{answer} was taken for the Lease");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_leader_that_stops_hands_over_at_once() {
    let Some(cluster) = shared() else { return };
    let (client, name) = (cluster.client(0).unwrap(), "hands-over");
    let mut first = Contender::start(client.clone(), name);
    first.seen.until(true).await;
    let held = lease(&client, name).await;
    assert_eq!(held.holder_identity.as_ref(), Some(&first.identity));
    assert_eq!((held.lease_duration_seconds, held.lease_transitions), (Some(15), Some(0)));
    assert!(held.acquire_time.is_some() && held.acquire_time == held.renew_time, "{held:?}");

    let mut second = Contender::start(cluster.client(0).unwrap(), name);
    let watcher = Watcher::of(&[&first, &second]);
    // The leader renews it, and the second candidate waits.
    wait("a renewal", || async { lease(&client, name).await.renew_time > held.renew_time }).await;
    let renewed = lease(&client, name).await;
    assert_eq!((&renewed.acquire_time, renewed.lease_transitions), (&held.acquire_time, Some(0)));
    assert!(first.leads() && !second.leads());

    first.stop().await;
    let stopped = Instant::now();
    let took = second.seen.until(true).await.saturating_duration_since(stopped);
    assert!(took < Duration::from_secs(5), "handed over after {took:?}: the Lease expired");
    let held = lease(&client, name).await;
    assert_eq!(held.holder_identity.as_ref(), Some(&second.identity));
    assert_eq!((held.lease_duration_seconds, held.lease_transitions), (Some(15), Some(1)));
    assert!(held.acquire_time > renewed.acquire_time);

    second.stop().await;
    watcher.finish();
    let free = lease(&client, name).await;
    assert_eq!((free.holder_identity.as_deref(), free.lease_duration_seconds), (Some(""), Some(1)));
}

#[tokio::test(flavor = "multi_thread")]
async fn there_is_never_more_than_one_leader() {
    let Some(cluster) = shared() else { return };
    let name = "many-changes";
    let start = || Contender::with_short_times(cluster.client(0).unwrap(), name);
    let mut all = vec![start(), start(), start()];
    let everybody: Vec<&Contender> = all.iter().collect();
    let watcher = Watcher::of(&everybody);
    while !all.is_empty() {
        wait("a leader", || async { all.iter().any(Contender::leads) }).await;
        let leader = all.iter().position(Contender::leads);
        all.remove(leader.unwrap_or(0)).stop().await;
    }
    watcher.finish();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_leader_that_reaches_no_server_stops_before_another_leads() {
    let Some(cluster) = shared() else { return };
    let name = "without-a-server";
    let proxy = Proxy::start(cluster.addr(0)).await.unwrap();
    let cut_off = client_from(&cluster.kubeconfig_at(&proxy.url(), "admin").unwrap()).await;
    let mut first = Contender::with_short_times(cut_off, name);
    first.seen.until(true).await;
    let mut second = Contender::with_short_times(cluster.client(0).unwrap(), name);
    let watcher = Watcher::of(&[&first, &second]);

    proxy.refuse(true);
    proxy.cut_connections();
    let (ceased, began) = tokio::join!(first.seen.until(false), second.seen.until(true));
    assert!(ceased < began, "{:?} too late", ceased - began);

    // When it reaches the server again, it finds another leader, and leads again when that one stops.
    proxy.refuse(false);
    second.stop().await;
    first.seen.until(true).await;
    watcher.finish();
    first.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_leader_whose_server_hangs_stops_before_another_leads() {
    let Some(assets) = assets::or_skip("a leader whose server hangs") else { return };
    let cluster = Cluster::start(&assets, ClusterSpec::new().servers(2)).await.unwrap();
    let name = "hanging-server";
    let mut first = Contender::with_short_times(cluster.client(0).unwrap(), name);
    first.seen.until(true).await;
    let mut second = Contender::with_short_times(cluster.client(1).unwrap(), name);
    let watcher = Watcher::of(&[&first, &second]);

    // Connections stay open and nothing answers.
    cluster.pause(Part::ApiServer(0)).unwrap();
    let (ceased, began) = tokio::join!(first.seen.until(false), second.seen.until(true));
    assert!(ceased < began, "{:?} too late", ceased - began);
    // Stopping does not wait for the server either.
    let stopping = Instant::now();
    first.stop().await;
    assert!(stopping.elapsed() < Duration::from_secs(10), "{:?}", stopping.elapsed());
    second.seen.until(true).await;
    cluster.unpause(Part::ApiServer(0)).unwrap();
    second.stop().await;
    watcher.finish();
}

/// Changes the Lease just before the candidate's first write arrives.
struct Interloper {
    change: Mutex<Option<BoxFuture<'static, ()>>>,
    /// The status of every write.
    answers: Mutex<Vec<(Method, StatusCode)>>,
    reads: AtomicUsize,
}

impl Interloper {
    fn new(change: impl Future<Output = ()> + Send + 'static) -> Arc<Self> {
        Arc::new(Self {
            change: Mutex::new(Some(Box::pin(change))),
            answers: Mutex::default(),
            reads: AtomicUsize::default(),
        })
    }

    fn reads(&self) -> usize {
        self.reads.load(Ordering::SeqCst)
    }
}

impl Observer for Interloper {
    fn request(&self, request: &Seen) -> Action {
        if request.method != Method::PUT {
            return Action::Forward;
        }
        self.change.lock().unwrap().take().map_or(Action::Forward, Action::Wait)
    }

    fn response(&self, request: &Seen, status: StatusCode, _: &HeaderMap) {
        match request.method {
            Method::GET => _ = self.reads.fetch_add(1, Ordering::SeqCst),
            _ => self.answers.lock().unwrap().push((request.method.clone(), status)),
        }
    }
}

/// Creates a Lease without a holder.
async fn free_lease(client: &Client, name: &str) {
    let lease: Lease = serde_json::from_value(json!({
        "metadata": {"name": name, "namespace": NAMESPACE, "labels": {"kept": "yes"}},
        "spec": {"holderIdentity": "", "leaseDurationSeconds": 1, "leaseTransitions": 7},
    }))
    .unwrap();
    leases(client).create(&PostParams::default(), &lease).await.unwrap();
}

async fn patch_lease(client: Client, name: &'static str, patch: Value) {
    leases(&client).patch(name, &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lease_that_another_process_took_first_is_not_overwritten() {
    let Some(cluster) = shared() else { return };
    let (client, name) = (cluster.client(0).unwrap(), "taken-first");
    free_lease(&client, name).await;
    let taken = json!({"spec": {"holderIdentity": "foreign", "leaseDurationSeconds": 3600}});
    let interloper = Interloper::new(patch_lease(client.clone(), name, taken));
    let recorder = Recorder::start(cluster, 0, "admin", Arc::clone(&interloper)).await.unwrap();
    let candidate = Contender::with_short_times(client_from(recorder.kubeconfig()).await, name);

    wait("reads after the conflict", || async { interloper.reads() >= 5 }).await;
    assert!(!candidate.leads());
    assert_eq!(*interloper.answers.lock().unwrap(), [(Method::PUT, StatusCode::CONFLICT)]);
    candidate.stop().await;
    let held = lease(&client, name).await;
    assert_eq!((held.holder_identity.as_deref(), held.lease_transitions), (Some("foreign"), Some(7)));
}

#[tokio::test(flavor = "multi_thread")]
async fn fields_that_others_write_into_the_lease_are_kept() {
    let Some(cluster) = shared() else { return };
    let (client, name) = (cluster.client(0).unwrap(), "written-into");
    free_lease(&client, name).await;
    let interloper = Interloper::new(patch_lease(
        client.clone(),
        name,
        json!({"metadata": {"annotations": {"foreign": "yes"}}}),
    ));
    let recorder = Recorder::start(cluster, 0, "admin", Arc::clone(&interloper)).await.unwrap();
    let mut candidate = Contender::with_short_times(client_from(recorder.kubeconfig()).await, name);

    candidate.seen.until(true).await;
    let answers = interloper.answers.lock().unwrap().clone();
    assert_eq!(answers[..2], [(Method::PUT, StatusCode::CONFLICT), (Method::PUT, StatusCode::OK)]);
    candidate.stop().await;
    let lease = leases(&client).get(name).await.unwrap();
    assert_eq!(lease.metadata.annotations.unwrap()["foreign"], "yes");
    assert_eq!(lease.metadata.labels.unwrap()["kept"], "yes");
    assert_eq!(lease.spec.unwrap().lease_transitions, Some(8));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_leader_whose_lease_was_taken_stops_at_once() {
    let Some(cluster) = shared() else { return };
    let (client, name) = (cluster.client(0).unwrap(), "taken-away");
    let reader = Interloper::new(async {});
    let recorder = Recorder::start(cluster, 0, "admin", Arc::clone(&reader)).await.unwrap();
    let mut leader = Contender::start(client_from(recorder.kubeconfig()).await, name);
    leader.seen.until(true).await;
    let taken = json!({"spec": {"holderIdentity": "foreign", "leaseDurationSeconds": 3600}});
    patch_lease(client.clone(), name, taken).await;
    wait("the leader to read the Lease", || async { reader.reads() > 1 }).await;
    let read = Instant::now();
    let took = leader.seen.until(false).await.saturating_duration_since(read);
    assert!(took < Duration::from_secs(3), "stopped after {took:?}: the term expired");
    assert!(!leader.leads());
    leader.stop().await;
    assert_eq!(lease(&client, name).await.holder_identity.as_deref(), Some("foreign"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_leader_creates_its_deleted_lease_again() {
    let Some(cluster) = shared() else { return };
    let (client, name) = (cluster.client(0).unwrap(), "deleted");
    let mut leader = Contender::start(client.clone(), name);
    leader.seen.until(true).await;
    let reader = Interloper::new(async {});
    let recorder = Recorder::start(cluster, 0, "admin", Arc::clone(&reader)).await.unwrap();
    let second = Contender::start(client_from(recorder.kubeconfig()).await, name);
    wait("the second to have read the Lease", || async { reader.reads() > 0 }).await;
    let watcher = Watcher::of(&[&leader, &second]);
    let before = leases(&client).get(name).await.unwrap().metadata.uid;

    leases(&client).delete(name, &DeleteParams::default()).await.unwrap();
    wait("another Lease", || async { leases(&client).get_opt(name).await.unwrap().is_some() }).await;
    let lease = leases(&client).get(name).await.unwrap();
    assert_ne!(lease.metadata.uid, before);
    assert_eq!(lease.spec.unwrap().holder_identity.as_ref(), Some(&leader.identity));
    assert!(leader.leads() && !second.leads());
    second.stop().await;
    leader.stop().await;
    watcher.finish();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_write_does_not_restore_a_lease_that_was_deleted_after_the_read() {
    let Some(cluster) = shared() else { return };
    let (client, name) = (cluster.client(0).unwrap(), "deleted-between");
    free_lease(&client, name).await;
    let delete = {
        let client = client.clone();
        async move {
            leases(&client).delete(name, &DeleteParams::default()).await.unwrap();
        }
    };
    let interloper = Interloper::new(delete);
    let recorder = Recorder::start(cluster, 0, "admin", Arc::clone(&interloper)).await.unwrap();
    let mut candidate = Contender::with_short_times(client_from(recorder.kubeconfig()).await, name);
    candidate.seen.until(true).await;
    let answers = interloper.answers.lock().unwrap().clone();
    assert_eq!(answers[..2], [(Method::PUT, StatusCode::CONFLICT), (Method::POST, StatusCode::CREATED)]);
    candidate.stop().await;
    assert_eq!(leases(&client).get(name).await.unwrap().metadata.labels, None);
}
