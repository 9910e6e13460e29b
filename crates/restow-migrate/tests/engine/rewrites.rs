//! Objects are stored in the storage version, and a second pass proves it.

use std::collections::BTreeMap;

use restow_core::rewrite::progress::Phase;

use crate::bench::{Bench, Kept, migrate, widgets};

#[tokio::test(flavor = "multi_thread")]
async fn objects_are_stored_in_the_storage_version_and_verified() {
    let bench = Bench::outdated(10).await;
    assert_eq!(bench.counts().await, BTreeMap::from([("v1".to_owned(), 10)]));
    let cluster = bench.honest();
    let mut kept = Kept::default();
    let progress = migrate(&cluster, &widgets(&cluster).await, None, &mut kept).await.unwrap();
    assert_eq!((progress.phase, progress.verified, progress.counts.rewritten), (Phase::Done, true, 10));
    assert_eq!(bench.counts().await, BTreeMap::from([("v2".to_owned(), 10)]));
    bench.server.stop().await;
}
