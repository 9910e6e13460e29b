//! The store in etcd: what holds for any store, and what is its own.

use std::{sync::Arc, time::Duration};

use futures::StreamExt;
use restow_lab::{Cluster, ClusterSpec, Part, assets};
use restow_store::{
    Range, Store, StoreError,
    etcd::{EtcdStore, Settings},
};

use crate::{
    semantics,
    support::{all, done, pairs, within},
};

/// Just an etcd; none where there is no lab.
pub(crate) async fn start(test: &str) -> Option<Cluster> {
    let assets = assets::or_skip(test)?;
    Some(Cluster::start(&assets, ClusterSpec::new().store_only()).await.unwrap())
}

fn store(cluster: &Cluster) -> EtcdStore {
    EtcdStore::new(&Settings::new([cluster.etcd().url()])).unwrap()
}

macro_rules! hold {
    ($store:expr, $($rule:ident),* $(,)?) => {$(
        // Each has keys of its own, since they share one etcd.
        semantics::$rule(Arc::new($store), concat!("/", stringify!($rule), "/")).await;
    )*};
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn it_does_what_any_store_does() {
    let Some(cluster) = start("it_does_what_any_store_does").await else { return };
    hold! {
        store(&cluster),
        a_write_needs_the_revision_its_writer_saw,
        a_write_can_need_another_key_as_its_writer_saw_it,
        keys_are_told_apart,
        a_list_shows_one_revision,
        pages_are_of_one_list,
        a_watch_tells_history_and_what_comes,
        a_watch_that_is_slow_misses_nothing,
        no_change_is_missed_or_told_twice,
        what_is_compacted_is_gone,
        the_future_is_not_known,
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_old_is_forgotten_by_one_of_those_that_share_it() {
    let Some(cluster) = start("what_is_old_is_forgotten_by_one_of_those_that_share_it").await else { return };
    let every = |every| {
        let compact_every = Some(Duration::from_millis(every));
        EtcdStore::new(&Settings { compact_every, ..Settings::new([cluster.etcd().url()]) }).unwrap()
    };
    let stores = [every(200), every(300)];
    let first = done(&stores[0], "/a", 0, Some("a")).await;
    let compacted = async {
        loop {
            // Whoever goes on writing finds its history forgotten, and what is there stays.
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
async fn a_member_that_is_gone_is_passed_over() {
    let Some(cluster) = start("a_member_that_is_gone_is_passed_over").await else { return };
    // Nobody listens on port 1.
    let members = ["http://127.0.0.1:1", cluster.etcd().url()].map(str::to_owned);
    let store = EtcdStore::new(&Settings::new(members)).unwrap();
    let revision = done(&store, "/a", 0, Some("a")).await;
    assert_eq!(store.revision().await.unwrap(), revision);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_etcd_that_does_not_answer_is_unavailable_and_comes_back() {
    let test = "an_etcd_that_does_not_answer_is_unavailable_and_comes_back";
    let Some(cluster) = start(test).await else { return };
    let timeout = Duration::from_secs(2);
    let store = EtcdStore::new(&Settings { timeout, ..Settings::new([cluster.etcd().url()]) }).unwrap();
    let revision = done(&store, "/a", 0, Some("a")).await;
    let mut watch = store.watch("/", revision).await.unwrap();

    cluster.pause(Part::Etcd).unwrap();
    let unavailable = |error: &StoreError| matches!(error, StoreError::Unavailable(_));
    // Some threads of it may answer once more, until the signal has reached them.
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

/// Asks until the answer is an error that says so.
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
