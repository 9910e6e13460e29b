//! storedVersions are pruned only after a verified run.

use restow_migrate::prune::prune_stored_versions;
use serde_json::json;

use crate::bench::{Bench, Kept, migrate, widgets};

#[tokio::test(flavor = "multi_thread")]
async fn stored_versions_are_pruned_only_after_a_verified_run() {
    let bench = Bench::outdated(5).await;
    let cluster = bench.honest();
    let mut kept = Kept::default();
    let progress = migrate(&cluster, &widgets(&cluster).await, None, &mut kept).await.unwrap();

    // The progress after the first page proves nothing.
    prune_stored_versions(cluster.server(), &kept.pages[0]).await.unwrap_err();
    assert_eq!(bench.definition().await["status"]["storedVersions"], json!(["v1", "v2"]));

    let pruned = prune_stored_versions(cluster.server(), &progress).await.unwrap().unwrap();
    assert_eq!(
        (pruned.before, pruned.after),
        (vec!["v1".to_owned(), "v2".to_owned()], vec!["v2".to_owned()])
    );
    assert_eq!(bench.definition().await["status"]["storedVersions"], json!(["v2"]));
    bench.server.stop().await;
}
