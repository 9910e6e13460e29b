//! Nothing is written unless the API servers agree on the storage version of the run.

use std::collections::BTreeMap;

use restow_migrate::migration::MigrationError;

use crate::bench::{Bench, Kept, migrate, widgets};

#[tokio::test(flavor = "multi_thread")]
async fn a_storage_version_that_changed_since_the_resource_was_found_ends_the_run_before_a_write() {
    let bench = Bench::outdated(3).await;
    let cluster = bench.honest();
    let resource = widgets(&cluster).await;
    bench.store_as("v1").await;
    let failure = migrate(&cluster, &resource, None, &mut Kept::default()).await.unwrap_err();
    assert!(matches!(failure, MigrationError::Moved(_)), "{failure:?}");
    assert_eq!(bench.counts().await, BTreeMap::from([("v1".to_owned(), 3)]));
    bench.server.stop().await;
}
