//! Entries of servers that are gone are removed, and nothing else is.

use std::collections::BTreeSet;
use std::time::Duration;

use http::Method;
use k8s_openapi::api::apiserverinternal::v1alpha1::{ServerStorageVersion, StorageVersion};
use kube::api::PostParams;
use kube::{Api, Client};
use restow_core::protocol::storage_version::{self, StatusContext};
use restow_lab::{Action, Cluster, ClusterSpec, assets};
use restow_lease::Election;
use restow_lease::ObjectError;
use restow_lease::election::identity;
use restow_storageversion::collector::Collected;
use restow_storageversion::{Collector, Identity, Scope};
use tokio_util::sync::CancellationToken;

use crate::meddler::{before_first, reads_leases, through};
use crate::support::{Server, delete_lease, leases, never, registered, shared, wait};

const NOTHING: Collected = Collected { updated: 0, deleted: 0, leases: 0, left: 0 };
const LEFT: Collected = Collected { left: 1, ..NOTHING };

/// The collector that runs in a server, for its own group.
fn collector(client: Client, server: &Server, group: &str) -> Collector {
    Collector {
        client,
        id: server.identity.id.clone(),
        scope: Scope::Groups(BTreeSet::from([group.to_owned()])),
        // No server is of this kind, so tests do not delete each other's Leases.
        component: group.to_owned(),
        every: Duration::from_millis(100),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_entries_of_a_server_that_left_are_removed() {
    let Some(cluster) = shared() else { return };
    let (client, group) = (cluster.client(0).unwrap(), "leaves.example");
    let looker = Server::start(client.clone(), group, "looker").await;
    let a = Server::start(client.clone(), group, "a").await;
    let b = Server::start(client.clone(), group, "b").await;
    a.register(group, "v1").await;
    b.register(group, "v2").await;
    let collector = collector(client.clone(), &looker, group);
    assert_eq!(collector.collect_once(&never()).await.unwrap(), NOTHING);
    a.leave().await;
    assert_eq!(collector.collect_once(&never()).await.unwrap(), Collected { updated: 1, ..NOTHING });
    assert_eq!(registered(&client, group).await, "b=v2: v2");
    delete_lease(&client, &b.identity.id).await;
    assert_eq!(collector.collect_once(&never()).await.unwrap(), Collected { deleted: 1, ..NOTHING });
    assert_eq!(registered(&client, group).await, "-");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_whose_lease_expired_is_gone_and_one_that_renews_is_not() {
    let Some(cluster) = shared() else { return };
    let (client, group) = (cluster.client(0).unwrap(), "runs-out.example");
    let short = Duration::from_secs(6);
    let kept = Server::lasting(client.clone(), group, "kept", short).await;
    let silent = Server::lasting(client.clone(), group, "silent", short).await;
    let collector = collector(client.clone(), &kept, group);
    let (registration, client) = (silent.register(group, "v2").await, &client);
    kept.register(group, "v1").await;
    let looking = wait("the silent one's entry to go", || async {
        let stood = registration.stands();
        collector.collect_once(&CancellationToken::new().into()).await.unwrap();
        let there = registered(client, group).await.contains("silent");
        assert!(there || !stood, "dropped while it could still write");
        !there
    });
    let never = never();
    tokio::select! {
        () = kept.identity.keep(&kept.tenure, &never) => panic!("lost its own Lease"),
        () = looking => {}
    }
    assert_eq!(registered(client, group).await, "kept=v1: v1");
    assert!(kept.tenure.is_valid());
}

#[tokio::test(flavor = "multi_thread")]
async fn no_server_is_gone_because_leases_cannot_be_read() {
    let Some(cluster) = shared() else { return };
    let (client, group) = (cluster.client(0).unwrap(), "blind.example");
    let looker = Server::start(client.clone(), group, "looker").await;
    let gone = Server::start(client.clone(), group, "gone").await;
    gone.register(group, "v1").await;
    gone.leave().await;
    for (status, body) in
        [(500, "{}"), (403, "{}"), (404, "404 page not found"), (503, "{}"), (200, "not JSON")]
    {
        let (blind, _recorder) = through(cluster, move |request| {
            if reads_leases(request) { Action::reply(status, body) } else { Action::Forward }
        })
        .await;
        let looked = collector(blind, &looker, group).collect_once(&never()).await;
        assert!(looked.is_err(), "{status}: {looked:?}");
    }
    // A list without this server, or an empty one, is not used.
    let empty = r#"{"kind":"LeaseList","apiVersion":"coordination.k8s.io/v1","metadata":{},"items":[]}"#;
    let (misled, _recorder) =
        through(
            cluster,
            move |request| {
                if reads_leases(request) { Action::reply(200, empty) } else { Action::Forward }
            },
        )
        .await;
    assert_eq!(collector(misled, &looker, group).collect_once(&never()).await.unwrap(), NOTHING);
    assert_eq!(registered(&client, group).await, "gone=v1: v1");
    let seeing = collector(client.clone(), &looker, group);
    assert_eq!(seeing.collect_once(&never()).await.unwrap(), Collected { deleted: 1, ..NOTHING });
}

#[tokio::test(flavor = "multi_thread")]
async fn a_registration_before_the_collectors_write_arrives_is_kept() {
    let Some(cluster) = shared() else { return };
    let client = cluster.client(0).unwrap();
    // With another entry the write is an update, otherwise a delete.
    for (method, group) in [(Method::PUT, "late-put.example"), (Method::DELETE, "late-delete.example")] {
        let looker = Server::start(client.clone(), group, "looker").await;
        let gone = Server::start(client.clone(), group, "gone").await;
        gone.register(group, "v1").await;
        if method == Method::PUT {
            looker.register(group, "v1").await;
        }
        gone.leave().await;
        let again = client.clone();
        // The server that was gone registers the same versions again.
        let back = async move {
            Server::start(again, group, "gone").await.register(group, "v1").await;
        };
        let (slow, _recorder) = through(cluster, before_first(method.clone(), back)).await;
        let collector = collector(slow, &looker, group);
        assert_eq!(collector.collect_once(&never()).await.unwrap(), LEFT, "{method}");
        assert_eq!(collector.collect_once(&never()).await.unwrap(), NOTHING, "{method}");
        assert!(registered(&client, group).await.contains("gone=v1"), "{method}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_recreated_object_is_not_deleted() {
    let Some(cluster) = shared() else { return };
    let (client, group) = (cluster.client(0).unwrap(), "anew.example");
    let looker = Server::start(client.clone(), group, "looker").await;
    let gone = Server::start(client.clone(), group, "gone").await;
    gone.register(group, "v1").await;
    gone.leave().await;
    let (again, other) = (client.clone(), collector(client.clone(), &looker, group));
    let anew = async move {
        assert_eq!(other.collect_once(&never()).await.unwrap(), Collected { deleted: 1, ..NOTHING });
        Server::start(again, group, "new").await.register(group, "v2").await;
    };
    let (slow, _recorder) = through(cluster, before_first(Method::DELETE, anew)).await;
    assert_eq!(collector(slow, &looker, group).collect_once(&never()).await.unwrap(), LEFT);
    assert_eq!(registered(&client, group).await, "new=v2: v2");
}

#[tokio::test(flavor = "multi_thread")]
async fn only_one_collector_works_at_a_time() {
    let Some(cluster) = shared() else { return };
    let (client, group) = (cluster.client(0).unwrap(), "elected.example");
    let looker = Server::start(client.clone(), group, "looker").await;
    let stop = CancellationToken::new();
    let candidates: Vec<_> = (0..2)
        .map(|_| {
            let (collector, stop) = (collector(client.clone(), &looker, group), stop.clone());
            let election = Election {
                client: client.clone(),
                namespace: "default".to_owned(),
                name: "storage-version-collector".to_owned(),
                identity: identity(),
                duration: Duration::from_secs(3),
                renew_every: Duration::from_secs(1),
            };
            tokio::spawn(async move { collector.run(&election, &stop).await })
        })
        .collect();
    let gone = Server::start(client.clone(), group, "gone").await;
    gone.register(group, "v1").await;
    gone.leave().await;
    wait("the object to go", || async { registered(&client, group).await == "-" }).await;
    stop.cancel();
    for candidate in candidates {
        tokio::time::timeout(Duration::from_secs(30), candidate).await.expect("an end").unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deleted_lease_triggers_a_collection() {
    let Some(cluster) = shared() else { return };
    let (client, group) = (cluster.client(0).unwrap(), "watched.example");
    let looker = Server::start(client.clone(), group, "looker").await;
    let mut collector = collector(client.clone(), &looker, group);
    collector.every = Duration::from_secs(3600);
    let stop = CancellationToken::new();
    let election = Election {
        client: client.clone(),
        namespace: "default".to_owned(),
        name: "watching-collector".to_owned(),
        identity: identity(),
        duration: Duration::from_secs(15),
        renew_every: Duration::from_secs(2),
    };
    let before = Server::start(client.clone(), group, "before").await;
    before.register(group, "v1").await;
    before.leave().await;
    let running = tokio::spawn({
        let stop = stop.clone();
        async move { collector.run(&election, &stop).await }
    });
    wait("the first look", || async { registered(&client, group).await == "-" }).await;
    for name in ["one", "another"] {
        let server = Server::start(client.clone(), group, name).await;
        server.register(group, "v1").await;
        server.leave().await;
        wait("a look of itself", || async { registered(&client, group).await == "-" }).await;
    }
    stop.cancel();
    tokio::time::timeout(Duration::from_secs(30), running).await.expect("an end").unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn expired_leases_of_the_same_kind_are_deleted() {
    let Some(cluster) = shared() else { return };
    let (client, group) = (cluster.client(0).unwrap(), "crashed.example");
    let looker = Server::start(client.clone(), group, "looker").await;
    let crash = async |name: &str, component: &str, duration: Duration| {
        let mut identity = Identity::new(client.clone(), component, &format!("apiserver-{name}.{group}"));
        identity.duration = duration;
        identity.establish(&never()).await.unwrap();
        identity.id
    };
    let second = Duration::from_secs(1);
    let foreign = crash("foreign", "other-kind", second).await;
    let own = crash("own", "crashed-kind", second).await;
    let lasting = crash("lasting", "crashed-kind", second * 3600).await;
    let mut collector = collector(client.clone(), &looker, group);
    collector.component = "crashed-kind".to_owned();
    let there = async |id: &str| leases(&client).get_opt(id).await.unwrap().is_some();
    wait("the Lease to go", || async {
        collector.collect_once(&never()).await.unwrap();
        !there(&own).await
    })
    .await;
    assert_eq!(collector.collect_once(&never()).await.unwrap(), NOTHING);
    assert!(there(&foreign).await && there(&lasting).await);
}

/// Adds an entry of a server that never existed to an object of a kube-apiserver.
async fn haunt(api: &Api<StorageVersion>, name: &str) {
    let mut object = api.get(name).await.unwrap();
    let status = object.status.get_or_insert_default();
    let ghost = ServerStorageVersion {
        api_server_id: "apiserver-ghost".to_owned(),
        encoding_version: "apps/v1beta1".to_owned(),
        decodable_versions: vec!["apps/v1beta1".to_owned()],
        served_versions: None,
    };
    status.storage_versions.get_or_insert_default().push(ghost);
    let entries = storage_version::entries(object.status.as_ref());
    let context = StatusContext { generation: None, registrant: None, now: jiff::Timestamp::now() };
    object.status = Some(storage_version::status(object.status.as_ref(), &entries, context));
    api.replace_status(name, &PostParams::default(), &object).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn storage_versions_of_kube_apiservers_are_collected_only_with_scope_all() {
    const NAME: &str = "apps.deployments";
    let Some(assets) = assets::or_skip("collecting what kube-apiservers have registered") else { return };
    let cluster = Cluster::start(&assets, ClusterSpec::new().storage_version_api()).await.unwrap();
    let (client, group) = (cluster.client(0).unwrap(), "scope.example");
    let api = Api::<StorageVersion>::all(client.clone());
    // kube-apiserver registers them in the order of their names.
    wait("the last of a kube-apiserver's own", || async {
        let found = api.get_opt("storage.k8s.io.volumeattributesclasses").await.unwrap();
        found.and_then(|object| object.status?.common_encoding_version).is_some()
    })
    .await;
    let before = api.get(NAME).await.unwrap().status;
    haunt(&api, NAME).await;
    let looker = Server::start(client.clone(), group, "looker").await;
    let mut collector = collector(client.clone(), &looker, group);
    assert_eq!(collector.collect_once(&never()).await.unwrap(), NOTHING);
    let haunted = api.get(NAME).await.unwrap().status.unwrap();
    assert_eq!((haunted.common_encoding_version, haunted.storage_versions.unwrap().len()), (None, 2));

    let all = async || api.list(&Default::default()).await.unwrap().items.len();
    let count = all().await;
    collector.scope = Scope::All;
    assert_eq!(collector.collect_once(&never()).await.unwrap(), Collected { updated: 1, ..NOTHING });
    assert_eq!(all().await, count, "nothing else of it was touched");
    let after = api.get(NAME).await.unwrap().status.unwrap();
    let before = before.unwrap();
    assert_eq!(after.storage_versions, before.storage_versions);
    assert_eq!(after.common_encoding_version, before.common_encoding_version);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_collector_that_was_stopped_writes_nothing() {
    let Some(cluster) = shared() else { return };
    let (client, group) = (cluster.client(0).unwrap(), "stopped.example");
    let looker = Server::start(client.clone(), group, "looker").await;
    let gone = Server::start(client.clone(), group, "gone").await;
    gone.register(group, "v1").await;
    gone.leave().await;
    let stopped = CancellationToken::new();
    stopped.cancel();
    let looked: Result<Collected, ObjectError> =
        collector(client.clone(), &looker, group).collect_once(&stopped.into()).await;
    assert_eq!(looked.unwrap(), NOTHING);
    assert_eq!(registered(&client, group).await, "gone=v1: v1");
}
