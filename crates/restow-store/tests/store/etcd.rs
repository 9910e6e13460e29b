//! The store in etcd.

use std::{sync::Arc, time::Duration};

use futures::StreamExt;
use restow_lab::{Cluster, ClusterSpec, Part, assets};
use restow_store::{
    Range, Store, StoreError,
    etcd::{EtcdSettings, EtcdStore},
};

use crate::{
    semantics,
    support::{all, done, pairs, within},
};

/// Starts only an etcd; `None` without the lab's programs.
pub(crate) async fn start(test: &str) -> Option<Cluster> {
    let assets = assets::or_skip(test)?;
    Some(Cluster::start(&assets, ClusterSpec::new().store_only()).await.unwrap())
}

fn store(cluster: &Cluster) -> EtcdStore {
    EtcdStore::new(&EtcdSettings::new([cluster.etcd().url()])).unwrap()
}

macro_rules! check_semantics {
    ($store:expr, $($rule:ident),* $(,)?) => {$(
        // Each rule has its own prefix, because they share one etcd.
        semantics::$rule(Arc::new($store), concat!("/", stringify!($rule), "/")).await;
    )*};
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn it_has_the_semantics_of_every_store() {
    let Some(cluster) = start("it_has_the_semantics_of_every_store").await else { return };
    check_semantics! {
        store(&cluster),
        a_write_needs_the_current_mod_revision,
        a_write_can_depend_on_another_key,
        similar_keys_are_distinct,
        a_list_shows_one_revision,
        pages_belong_to_one_revision,
        a_watch_delivers_history_and_new_changes,
        a_slow_watch_misses_nothing,
        a_watch_delivers_every_change_once,
        a_compacted_revision_cannot_be_read,
        a_future_revision_is_an_error,
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_of_several_servers_compacts_etcd() {
    let Some(cluster) = start("one_of_several_servers_compacts_etcd").await else { return };
    let every = |every| {
        let compact_every = Some(Duration::from_millis(every));
        EtcdStore::new(&EtcdSettings { compact_every, ..EtcdSettings::new([cluster.etcd().url()]) }).unwrap()
    };
    let stores = [every(200), every(300)];
    let first = done(&stores[0], "/a", 0, Some("a")).await;
    let compacted = async {
        loop {
            // The history is compacted while writes continue, and current values stay.
            let now = stores[1].get("/a").await.unwrap().entry.unwrap();
            done(&stores[1], "/a", now.mod_revision, Some("b")).await;
            let range = Range { revision: Some(first), ..all("/a") };
            match stores[0].list(range).await {
                Err(StoreError::Compacted { oldest, .. }) => return oldest,
                Err(error) => panic!("{error}"),
                Ok(_) => tokio::time::sleep(Duration::from_millis(20)).await,
            }
        }
    };
    assert!(within("a compaction", compacted).await > first);
    assert_eq!(pairs(&stores[0], all("/a")).await, [("/a".to_owned(), "b".to_owned())]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_unreachable_member_is_skipped() {
    let Some(cluster) = start("an_unreachable_member_is_skipped").await else { return };
    // Nothing listens on port 1.
    let members = ["http://127.0.0.1:1", cluster.etcd().url()].map(str::to_owned);
    let store = EtcdStore::new(&EtcdSettings::new(members)).unwrap();
    let revision = done(&store, "/a", 0, Some("a")).await;
    assert_eq!(store.revision().await.unwrap(), revision);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_etcd_that_does_not_answer_is_unavailable_until_it_does() {
    let test = "an_etcd_that_does_not_answer_is_unavailable_until_it_does";
    let Some(cluster) = start(test).await else { return };
    let timeout = Duration::from_secs(2);
    let store =
        EtcdStore::new(&EtcdSettings { timeout, ..EtcdSettings::new([cluster.etcd().url()]) }).unwrap();
    let revision = done(&store, "/a", 0, Some("a")).await;
    let mut watch = store.watch("/", revision).await.unwrap();

    cluster.pause(Part::Etcd).unwrap();
    let unavailable = |error: &StoreError| matches!(error, StoreError::Unavailable(_));
    // Some of its threads may still answer until the signal has reached them.
    let error = refused_with(&store, "within").await;
    assert!(unavailable(&error), "{error}");
    let end = within("the end of the watch", watch.next()).await.unwrap().unwrap_err();
    assert!(unavailable(&end), "{end}");
    cluster.unpause(Part::Etcd).unwrap();

    cluster.kill(Part::Etcd).unwrap();
    let error = refused_with(&store, "refused").await;
    assert!(unavailable(&error), "{error}");
    cluster.restart(Part::Etcd).await.unwrap();
    assert_eq!(store.get("/a").await.unwrap().entry.unwrap().mod_revision, revision);
}

/// Repeats a request until it fails with this reason.
async fn refused_with(store: &EtcdStore, reason: &str) -> StoreError {
    let asking = async {
        loop {
            match store.get("/a").await {
                Err(error) if error.to_string().contains(reason) => return error,
                _ => tokio::time::sleep(Duration::from_millis(10)).await,
            }
        }
    };
    within(reason, asking).await
}
