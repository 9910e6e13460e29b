//! Refused objects are quarantined; all others are rewritten.

use std::collections::BTreeMap;

use http::Method;

use crate::bench::{Bench, Kept, migrate, name, refusal, widgets};

#[tokio::test(flavor = "multi_thread")]
async fn an_object_whose_write_is_rejected_is_quarantined_and_the_rest_is_rewritten() {
    let bench = Bench::outdated(10).await;
    let rejected = format!("/{}", name(5));
    let cluster = bench.cluster(move |request| {
        let is_it = request.method() == Method::PATCH && request.uri().path().ends_with(&rejected);
        is_it.then(|| refusal(422, "Invalid", "spec.size: Required value"))
    });
    let mut kept = Kept::default();
    let progress = migrate(&cluster, &widgets(&cluster).await, None, &mut kept).await.unwrap();
    assert_eq!((progress.counts.rewritten, progress.counts.quarantined, progress.verified), (9, 1, false));
    let left: Vec<_> = kept.left.iter().map(|one| (one.name.as_str(), one.reason.as_str())).collect();
    assert_eq!(left, [(name(5).as_str(), "Invalid")]);
    assert_eq!(bench.counts().await, BTreeMap::from([("v1".to_owned(), 1), ("v2".to_owned(), 9)]));
    assert_eq!(bench.stored().await[&name(5)], "v1");
    bench.server.stop().await;
}
