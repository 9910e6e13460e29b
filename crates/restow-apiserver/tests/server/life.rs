//! Health, shutdown, and the gate of writes.

use std::future::poll_fn;
use std::task::Poll;
use std::time::Duration;

use restow_apiserver::{DataDir, Server, ServerSettings};
use restow_store::{Store as _, Write};
use serde_json::{Value, json};

use crate::basics::config_map;
use crate::definitions::{send, send_by};
use crate::memory::Memory;

const LEASE: &str = "/registry/leases/kube-system/apiserver-restow";

#[tokio::test(start_paused = true)]
async fn health_reports_a_failing_store() {
    let store = Memory::new();
    let server = Server::start(ServerSettings::new(store.clone())).await.unwrap();
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
    tokio::time::advance(Duration::from_secs(1)).await;
    for path in ["/livez", "/readyz", "/healthz", "/livez/store"] {
        let error = ask(path).await.unwrap_err();
        assert!(error.contains("[-]store failed") && !error.contains("secret"), "{path}: {error}");
    }
    assert_eq!(ask("/livez/ping").await.as_deref(), Ok("ok"));
    store.set_broken(false);
    tokio::time::advance(Duration::from_secs(1)).await;
    assert_eq!(ask("/livez").await.as_deref(), Ok("ok"));
    server.stop().await;
}

/// Unauthenticated users may ask for health as often as they like.
#[tokio::test(start_paused = true)]
async fn health_checks_of_the_store_are_shared() {
    let store = Memory::new();
    let server = Server::start(ServerSettings::new(store.clone())).await.unwrap();
    for round in 1..=2 {
        let asked = (0..50).map(|_| {
            let request = http::Request::get("/livez").body(Vec::new()).unwrap();
            let client = server.client();
            async move { client.request_text(request).await.unwrap() }
        });
        futures::future::join_all(asked).await;
        assert_eq!(store.checks(), round);
        tokio::time::advance(Duration::from_secs(1)).await;
    }
    server.stop().await;
}

/// Other servers rely on it: once the Lease is deleted, the server writes no more.
#[tokio::test]
async fn a_server_that_stops_keeps_its_lease_until_what_it_writes_is_stored() {
    let store = Memory::new();
    let server = Server::start(ServerSettings::new(store.clone())).await.unwrap();
    store.hold(&["/registry/configmaps/"]);
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
    store.hold(&[]);
    stopping.await.unwrap();
    assert!(store.get("/registry/configmaps/default/late").await.unwrap().entry.is_some());
    assert!(store.get(LEASE).await.unwrap().entry.is_none());
}

/// Lets the identity Lease expire: it is not renewed while time passes.
async fn lapse() {
    tokio::time::advance(Duration::from_secs(31)).await;
}

/// Runs each ready task once.
async fn turn() {
    let mut is_over = false;
    poll_fn(|context| {
        context.waker().wake_by_ref();
        if std::mem::replace(&mut is_over, true) { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
}

/// Closes the gate so many turns after a create began. Returns whether the create was stored by then.
async fn closed_after(turns: usize) -> bool {
    const KEY: &str = "/registry/configmaps/default/a";
    let store = Memory::new();
    let server = Server::start(ServerSettings::new(store.clone())).await.unwrap();
    store.hold(&["/registry/leases/"]);
    let client = server.client();
    let create = tokio::spawn(async move {
        let maps = kube::Api::namespaced(client, "default");
        maps.create(&kube::api::PostParams::default(), &config_map("a", "k", "v")).await
    });
    for _ in 0..turns {
        turn().await;
    }
    let is_stored = store.get(KEY).await.unwrap().entry.is_some();
    lapse().await;
    let answer = create.await.unwrap();
    assert_eq!(store.get(KEY).await.unwrap().entry.is_some(), is_stored, "{turns}: {answer:?}");
    assert_eq!(answer.is_ok(), is_stored, "{turns}: {answer:?}");
    is_stored
}

/// Whenever the gate closes, a write is either stored by then or refused.
#[tokio::test(start_paused = true)]
async fn a_write_in_flight_is_not_stored_after_the_gate_closed() {
    let mut stored = 0;
    for turns in 0..16 {
        stored += usize::from(tokio::spawn(closed_after(turns)).await.unwrap());
    }
    assert!((1..16).contains(&stored), "{stored}");
}

/// A create that is retried because its namespace has changed asks the gate again.
#[tokio::test(start_paused = true)]
async fn a_retried_create_is_not_stored_after_the_gate_closed() {
    let store = Memory::new();
    let server = Server::start(ServerSettings::new(store.clone())).await.unwrap();
    let namespace = json!({"metadata": {"name": "x"}});
    send(&server, "POST", "/api/v1/namespaces", &namespace).await.unwrap();
    store.hold(&["/registry/leases/", "/registry/configmaps/x/"]);
    let (client, body) = (server.client(), json!({"metadata": {"name": "late"}}));
    let late =
        tokio::spawn(async move { send_by(&client, "POST", "/api/v1/namespaces/x/configmaps", &body).await });
    store.holds().await;
    let key = "/registry/namespaces/x";
    let entry = store.get(key).await.unwrap().entry.unwrap();
    let changed = Write { key: key.to_owned(), expected: entry.mod_revision, value: Some(entry.value) };
    store.write(changed).await.unwrap();
    lapse().await;
    store.hold(&["/registry/leases/"]);
    let answer = late.await.unwrap();
    assert!(matches!(&answer, Err(kube::Error::Api(status)) if status.code == 503), "{answer:?}");
    assert_eq!(store.get("/registry/configmaps/x/late").await.unwrap().entry, None);
}

/// Two servers with one id would write as one. Only a server with the lock on the directory of the former run takes over
/// its identity at once.
#[tokio::test(start_paused = true)]
async fn a_copy_of_a_data_directory_does_not_take_over_the_identity_of_a_live_server() {
    let (store, parent) = (Memory::new(), tempfile::tempdir().unwrap());
    let start = async |dir: &DataDir| {
        let settings = ServerSettings { instance: dir.instance(), ..ServerSettings::new(store.clone()) };
        tokio::time::timeout(Duration::from_secs(30), Server::start(settings)).await
    };
    let holder = async || {
        let lease = store.get(LEASE).await.unwrap().entry.unwrap().value;
        serde_json::from_slice::<Value>(&lease).unwrap()["spec"]["holderIdentity"].to_string()
    };
    let (original, copy) = (parent.path().join("original"), parent.path().join("copy"));
    let dir = DataDir::open(&original).unwrap();
    let first = start(&dir).await.unwrap().unwrap();
    let held_by = holder().await;
    let copied = DataDir::open(&copy).unwrap();
    for file in std::fs::read_dir(&original).unwrap().map(Result::unwrap) {
        std::fs::copy(file.path(), copy.join(file.file_name())).unwrap();
    }
    assert!(start(&copied).await.is_err(), "a second server is ready under the id of a live one");
    assert_eq!(holder().await, held_by);

    // It crashes and restarts in the same directory.
    store.hold(&["/registry/leases/"]);
    drop((first, dir));
    tokio::time::sleep(Duration::from_secs(1)).await;
    store.hold(&[]);
    let dir = DataDir::open(&original).unwrap();
    assert_eq!(holder().await, held_by);
    let begun = tokio::time::Instant::now();
    let again = start(&dir).await.unwrap().unwrap();
    assert!(begun.elapsed() < Duration::from_secs(1), "{:?}", begun.elapsed());
    again.stop().await;
}
