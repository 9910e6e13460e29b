//! A server's life: what it says of its health, and how it leaves.

use std::time::Duration;

use restow_embedded::server::{Server, Settings};
use restow_store::Store as _;

use crate::basics::config_map;
use crate::memory::Memory;

const LEASE: &str = "/registry/leases/kube-system/apiserver-restow";

#[tokio::test]
async fn health_tells_the_truth_about_the_store() {
    let store = Memory::new();
    let server = Server::start(Settings::new(store.clone())).await.unwrap();
    let ask = async |path: &str| {
        let request = http::Request::get(path).body(Vec::new()).unwrap();
        server.client().request_text(request).await.map_err(|error| error.to_string())
    };
    for path in ["/livez", "/readyz", "/healthz", "/livez/ping", "/livez/store", "/readyz/storage-versions"] {
        assert_eq!(ask(path).await.as_deref(), Ok("ok"), "{path}");
    }
    let all = "[+]ping ok\n[+]store ok\n[+]storage-versions ok\nreadyz check passed\n";
    assert_eq!(ask("/readyz?verbose").await.as_deref(), Ok(all));
    store.set_broken(true);
    for path in ["/livez", "/readyz", "/healthz", "/livez/store"] {
        let error = ask(path).await.unwrap_err();
        assert!(error.contains("[-]store failed") && !error.contains("secret"), "{path}: {error}");
    }
    assert_eq!(ask("/livez/ping").await.as_deref(), Ok("ok"));
    store.set_broken(false);
    assert_eq!(ask("/livez").await.as_deref(), Ok("ok"));
    server.stop().await;
}

/// Whoever finds the Lease gone relies on it that the server writes no more.
#[tokio::test]
async fn a_server_that_stops_keeps_its_lease_until_what_it_writes_is_stored() {
    let store = Memory::new();
    let server = Server::start(Settings::new(store.clone())).await.unwrap();
    store.hold(Some("/registry/configmaps/"));
    let maps = kube::Api::namespaced(server.client(), "default");
    let (post, late) = (kube::api::PostParams::default(), config_map("late", "k", "v"));
    tokio::select! {
        answered = maps.create(&post, &late) => panic!("{answered:?}"),
        () = store.holds() => {}
    }
    let mut stopping = tokio::spawn(server.stop());
    let early = tokio::time::timeout(Duration::from_millis(300), &mut stopping).await;
    assert!(early.is_err(), "the server has left while it writes");
    assert!(store.get(LEASE).await.unwrap().entry.is_some(), "the Lease is gone while the server writes");
    store.hold(None);
    stopping.await.unwrap();
    assert!(store.get("/registry/configmaps/default/late").await.unwrap().entry.is_some());
    assert!(store.get(LEASE).await.unwrap().entry.is_none());
}
