//! Servers register: concurrently, despite errors, and only while they are members.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures::future::join_all;
use http::Method;
use restow_core::protocol::storage_version::ALL_EQUAL;
use restow_lab::Action;
use restow_storageversion::{Identity, Resource, Unregistered, register};

use crate::meddler::{reads_leases, through};
use crate::support::{Server, delete_lease, leases, never, registered, shared, status, versions, widgets};

#[tokio::test(flavor = "multi_thread")]
async fn servers_have_a_common_version_only_while_they_agree() {
    let Some(cluster) = shared() else { return };
    let (client, group) = (cluster.client(0).unwrap(), "agree.example");
    let a = Server::start(client.clone(), group, "a").await;
    let b = Server::start(client.clone(), group, "b").await;
    let condition = async || {
        let condition = status(&client, group).await.unwrap().conditions.unwrap().remove(0);
        assert_eq!(condition.type_, ALL_EQUAL);
        condition.status
    };
    assert!(a.register(group, "v1").await.stands());
    assert_eq!((registered(&client, group).await.as_str(), condition().await.as_str()), ("a=v1: v1", "True"));
    b.register(group, "v2").await;
    assert_eq!(
        (registered(&client, group).await.as_str(), condition().await.as_str()),
        ("a=v1 b=v2: ", "False")
    );
    a.register(group, "v2").await;
    assert_eq!(
        (registered(&client, group).await.as_str(), condition().await.as_str()),
        ("a=v2 b=v2: v2", "True")
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn an_identity_lease_looks_like_that_of_a_kube_apiserver() {
    let Some(cluster) = shared() else { return };
    let (client, group) = (cluster.client(0).unwrap(), "identity.example");
    let server = Server::start(client.clone(), group, "a").await;
    let lease = leases(&client).get(&server.identity.id).await.unwrap();
    assert_eq!(lease.metadata.labels.unwrap()["apiserver.kubernetes.io/identity"], "restow-test");
    let spec = lease.spec.unwrap();
    assert_eq!(spec.lease_duration_seconds, Some(3600));
    assert_eq!(spec.holder_identity.as_deref(), Some(server.tenure.holder()));
    // The next process takes it over, and the former one notices it.
    let next = Server::start(client.clone(), group, "a").await;
    server.identity.keep(&server.tenure, &never()).await;
    assert!(!server.tenure.is_valid() && next.tenure.is_valid());
    // A process that has lost the Lease does not delete it.
    server.identity.leave(&server.tenure).await;
    let held = leases(&client).get(&next.identity.id).await.unwrap().spec.unwrap();
    assert_eq!(held.holder_identity.as_deref(), Some(next.tenure.holder()));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_identity_is_taken_over_only_when_its_holder_no_longer_writes() {
    let Some(cluster) = shared() else { return };
    let mut identity =
        Identity::new(cluster.client(0).unwrap(), "restow-test", "apiserver-a.taken-over.example");
    identity.silence = Duration::from_secs(3);
    identity.renew_every = Duration::from_millis(100);
    let first = identity.establish(&never()).await.unwrap();
    let (keeper, kept) = (identity.clone(), first.clone());
    let keeping = tokio::spawn(async move { keeper.keep(&kept, &never()).await });
    let other = identity.clone();
    let mut second = tokio::spawn(async move { other.establish(&never()).await.unwrap() });
    // Half as long again as the Lease of a server that is gone is left alone.
    let early = tokio::time::timeout(Duration::from_secs(6), &mut second).await;
    assert!(early.is_err() && first.is_valid(), "the identity of a live server was taken over");
    // It ends without deleting its Lease.
    keeping.abort();
    let second = tokio::time::timeout(Duration::from_secs(60), second).await.expect("an end").unwrap();
    assert!(!first.is_valid() && second.is_valid(), "two processes write as one server");
    identity.leave(&second).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn servers_that_register_concurrently_lose_no_entry() {
    let Some(cluster) = shared() else { return };
    let (client, group) = (cluster.client(0).unwrap(), "at-once.example");
    let start = |index| Server::start(client.clone(), group, ["a", "b", "c", "d", "e", "f"][index]);
    let servers = join_all((0..6).map(start)).await;
    join_all(servers.iter().map(|server| server.register(group, "v1"))).await;
    assert_eq!(registered(&client, group).await, "a=v1 b=v1 c=v1 d=v1 e=v1 f=v1: v1");
    join_all(servers.iter().map(|server| server.register(group, "v2"))).await;
    assert_eq!(registered(&client, group).await, "a=v2 b=v2 c=v2 d=v2 e=v2 f=v2: v2");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_registration_removes_entries_of_gone_servers_only_if_leases_can_be_read() {
    let Some(cluster) = shared() else { return };
    let (client, group) = (cluster.client(0).unwrap(), "drops.example");
    let gone = Server::start(client.clone(), group, "gone").await;
    gone.register(group, "v1").await;
    gone.leave().await;
    let forbidden = |request: &_| {
        if reads_leases(request) { Action::reply(403, "{}") } else { Action::Forward }
    };
    let (blind, _recorder) = through(cluster, forbidden).await;
    let a = Server::start(blind, group, "a").await;
    a.register(group, "v2").await;
    assert_eq!(registered(&client, group).await, "a=v2 gone=v1: ");
    let b = Server::start(client.clone(), group, "b").await;
    b.register(group, "v2").await;
    assert_eq!(registered(&client, group).await, "a=v2 b=v2: v2");
}

#[tokio::test(flavor = "multi_thread")]
async fn registration_is_retried_after_errors_and_lost_answers() {
    let Some(cluster) = shared() else { return };
    let (client, group) = (cluster.client(0).unwrap(), "errors.example");
    let writes = Arc::new(AtomicUsize::default());
    let counted = Arc::clone(&writes);
    let (flaky, _recorder) = through(cluster, move |request| {
        if request.method == Method::GET || !request.path.contains("/storageversions") {
            return Action::Forward;
        }
        match counted.fetch_add(1, Ordering::SeqCst) {
            0 => Action::reply(500, "{}"),
            1 => Action::DropBefore,
            // The object is created and its status written, but both answers are lost.
            2 | 3 => Action::DropAfter,
            4 => Action::reply(503, "{}"),
            _ => Action::Forward,
        }
    })
    .await;
    let server = Server::start(flaky, group, "a").await;
    server.register(group, "v1").await;
    assert_eq!(writes.load(Ordering::SeqCst), 6);
    assert_eq!(registered(&client, group).await, "a=v1: v1");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_is_not_a_member_does_not_register() {
    let Some(cluster) = shared() else { return };
    let (client, group) = (cluster.client(0).unwrap(), "no-member.example");
    let server = Server::start(client.clone(), group, "a").await;
    delete_lease(&client, &server.identity.id).await;
    let resource = Resource { name: widgets(group), versions: versions(group, "v1") };
    let (resources, never) = ([resource], never());
    let registering = register(&client, &server.tenure, &resources, &never);
    let (outcome, ()) = futures::join!(registering, server.identity.keep(&server.tenure, &never));
    assert_eq!(outcome.unwrap_err(), Unregistered::TenureEnded);
    let entries = status(&client, group).await.and_then(|status| status.storage_versions);
    assert_eq!(entries.unwrap_or_default(), []);
}

#[tokio::test(flavor = "multi_thread")]
async fn registration_fails_if_storage_versions_are_not_served() {
    let Some(cluster) = shared() else { return };
    let group = "not-served.example";
    let (without, _recorder) = through(cluster, |request| {
        if request.path.contains("/storageversions") {
            Action::reply(404, "404 page not found")
        } else {
            Action::Forward
        }
    })
    .await;
    let server = Server::start(without, group, "a").await;
    let resource = Resource { name: widgets(group), versions: versions(group, "v1") };
    let (resources, never) = ([resource], never());
    let registering = register(&server.client, &server.tenure, &resources, &never);
    let outcome = tokio::time::timeout(Duration::from_secs(60), registering).await.expect("an end");
    assert_eq!(outcome.unwrap_err(), Unregistered::NotServed);
}

#[tokio::test(flavor = "multi_thread")]
async fn registering_again_in_the_same_process_changes_nothing() {
    let Some(cluster) = shared() else { return };
    let (client, group) = (cluster.client(0).unwrap(), "again.example");
    let a = Server::start(client.clone(), group, "a").await;
    a.register(group, "v1").await;
    let first = status(&client, group).await;
    a.register(group, "v1").await;
    assert_eq!(status(&client, group).await, first);
    // Another process changes the object, so that a collector's delete which was decided before fails.
    let next = Server::start(client.clone(), group, "a").await;
    next.register(group, "v1").await;
    assert_ne!(status(&client, group).await, first);
}
