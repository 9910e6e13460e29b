//! Resources are found although a part of discovery fails.

use restow_core::resource::inventory::find;

use crate::bench::{Bench, WIDGETS, refusal};

#[tokio::test(flavor = "multi_thread")]
async fn a_group_whose_discovery_fails_is_reported_and_does_not_hide_others() {
    let bench = Bench::outdated(0).await;
    let cluster = bench.cluster(|request| {
        let is_it = request.uri().path() == "/apis/apps/v1";
        is_it.then(|| {
            refusal(503, "ServiceUnavailable", "the server is currently unable to handle the request")
        })
    });
    let inventory = cluster.inventory(false).await.unwrap();
    let unavailable: Vec<String> =
        inventory.unavailable.iter().map(|(version, _)| version.to_string()).collect();
    assert_eq!(unavailable, ["apps/v1"]);
    let widgets = find(&inventory.resources, WIDGETS).unwrap();
    assert_eq!(widgets.storage_version_name(), "v2");
    bench.server.stop().await;
}
