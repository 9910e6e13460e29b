//! A custom resource changes its version: no write uses the old version after the new one is registered.

use std::sync::Arc;
use std::time::Duration;

use http::Method;
use restow_lab::Action;
use restow_storageversion::{CustomResource, Unregistered};
use tokio_util::sync::CancellationToken;

use crate::meddler::through;
use crate::support::{Server, never, registered, shared, versions, wait, widgets};

#[tokio::test(flavor = "multi_thread")]
async fn a_new_version_is_registered_between_the_last_old_write_and_the_first_new_one() {
    let Some(cluster) = shared() else { return };
    let (client, group) = (cluster.client(0).unwrap(), "drained.example");
    // Delays the registration of the new version.
    let (reached, hold) = (Arc::new(tokio::sync::Notify::new()), Arc::new(tokio::sync::Semaphore::new(1)));
    let (signal, held) = (Arc::clone(&reached), Arc::clone(&hold));
    let (slow, _recorder) = through(cluster, move |request| {
        if request.method != Method::PUT || !request.path.contains("/storageversions/") {
            return Action::Forward;
        }
        let (signal, held) = (Arc::clone(&signal), Arc::clone(&held));
        Action::Wait(Box::pin(async move {
            signal.notify_one();
            held.acquire().await.unwrap().forget();
        }))
    })
    .await;
    let server = Arc::new(Server::start(slow, group, "a").await);
    let resource = CustomResource::disabled(widgets(group));
    assert!(resource.write().is_none(), "nothing is registered yet");
    let enable = |version| {
        let (server, resource) = (Arc::clone(&server), resource.clone());
        async move {
            let drained = resource.drain().await;
            drained
                .register(&server.client, &server.tenure, versions(group, version), async || true, &never())
                .await
                .unwrap();
        }
    };
    enable("v1").await;
    reached.notified().await;
    let under_way = [resource.write().unwrap(), resource.write().unwrap()];
    assert_eq!(under_way[0].encoding(), "drained.example/v1");

    let changing = tokio::spawn(enable("v2"));
    wait("the change to begin", || async { resource.write().is_none() }).await;
    assert_eq!(registered(&client, group).await, "a=v1: v1");
    let [one, other] = under_way;
    drop(one);
    assert!(resource.write().is_none());
    let early = tokio::time::timeout(Duration::from_millis(300), reached.notified()).await;
    assert!(early.is_err(), "registered under a write of the old version");
    drop(other);
    reached.notified().await;
    assert!(resource.write().is_none(), "enabled before it was registered");
    hold.add_permits(1);
    changing.await.unwrap();
    assert_eq!(registered(&client, group).await, "a=v2: v2");
    assert_eq!(resource.write().unwrap().encoding(), "drained.example/v2");

    // A server that may count as gone writes nothing.
    server.identity.leave(&server.tenure).await;
    assert!(resource.write().is_none());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_version_that_is_not_registered_is_not_enabled() {
    let Some(cluster) = shared() else { return };
    let (client, group) = (cluster.client(0).unwrap(), "undone.example");
    let server = Server::start(client.clone(), group, "a").await;
    let resource = CustomResource::disabled(widgets(group));
    let drained = resource.drain().await;
    drained.register(&client, &server.tenure, versions(group, "v1"), async || true, &never()).await.unwrap();
    // A drain that is cancelled while a write is in flight changes nothing.
    let write = resource.write().unwrap();
    assert!(tokio::time::timeout(Duration::from_millis(50), resource.drain()).await.is_err());
    drop(write);
    assert!(resource.write().is_some());
    let stopped = CancellationToken::new();
    stopped.cancel();
    let drained = resource.drain().await;
    let versions = versions(group, "v2");
    let outcome = drained.register(&client, &server.tenure, versions, async || true, &stopped.into()).await;
    assert_eq!(outcome, Err(Unregistered::Stopped));
    assert!(resource.write().is_none());
    assert_eq!(registered(&client, group).await, "a=v1: v1");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_version_is_not_enabled_if_the_crd_changed_during_its_registration() {
    let Some(cluster) = shared() else { return };
    let (client, group) = (cluster.client(0).unwrap(), "overtaken.example");
    let server = Server::start(client.clone(), group, "a").await;
    let resource = CustomResource::disabled(widgets(group));
    for (version, still_defined) in [("v2", false), ("v1", true)] {
        let drained = resource.drain().await;
        let asked = async || {
            assert_eq!(
                registered(&client, group).await,
                format!("a={version}: {version}"),
                "asked too early"
            );
            assert!(resource.write().is_none(), "enabled before it was asked");
            still_defined
        };
        let outcome =
            drained.register(&client, &server.tenure, versions(group, version), asked, &never()).await;
        assert_eq!(outcome.is_ok(), still_defined, "{outcome:?}");
        assert_eq!(resource.write().is_some(), still_defined);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_entry_of_a_deleted_crd_is_removed() {
    let Some(cluster) = shared() else { return };
    let (client, group) = (cluster.client(0).unwrap(), "undefined.example");
    let servers = [
        (Server::start(client.clone(), group, "a").await, "b=v1: v1"),
        (Server::start(client.clone(), group, "b").await, "-"),
    ];
    for (server, _) in &servers {
        server.register(group, "v1").await;
    }
    for (server, left) in &servers {
        let resource = CustomResource::disabled(widgets(group));
        let (tenure, never) = (&server.tenure, never());
        let enabled = resource.drain().await;
        enabled.register(&client, tenure, versions(group, "v1"), async || true, &never).await.unwrap();
        let drained = resource.drain().await;
        drained.unregister(&client, tenure, &never).await.unwrap();
        assert_eq!(registered(&client, group).await, *left);
        assert!(resource.write().is_none(), "a writer that nobody counts with");
        // Repeating it is not an error.
        resource.drain().await.unregister(&client, tenure, &never).await.unwrap();
    }
}
