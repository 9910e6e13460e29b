//! A run resumes from the saved progress.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use http::Method;
use restow_migrate::migration::MigrationError;

use crate::bench::{Bench, Kept, migrate, widgets};

#[tokio::test(flavor = "multi_thread")]
async fn a_run_that_cannot_save_its_progress_ends_and_the_next_one_resumes_after_the_last_saved_page() {
    let bench = Bench::outdated(10).await;
    let writes = Arc::new(AtomicUsize::new(0));
    let counted = writes.clone();
    let cluster = bench.cluster(move |request| {
        counted.fetch_add(usize::from(request.method() == Method::PATCH), Ordering::SeqCst);
        None
    });
    let resource = widgets(&cluster).await;
    let mut kept = Kept { fails_after: Some(1), ..Kept::default() };
    let failure = migrate(&cluster, &resource, None, &mut kept).await.unwrap_err();
    assert!(matches!(failure, MigrationError::Journal(_)), "{failure:?}");
    let resumed = kept.pages.last().unwrap().clone();
    assert_eq!(resumed.counts.rewritten, 4);

    // The second page was written but not saved: it is written again and found to be current.
    kept.fails_after = None;
    let progress = migrate(&cluster, &resource, Some(resumed), &mut kept).await.unwrap();
    assert_eq!((progress.counts.rewritten, progress.counts.current, progress.verified), (6, 4, true));
    assert_eq!(bench.counts().await, BTreeMap::from([("v2".to_owned(), 10)]));
    // Two pages, then the second one again and the third, then all of them to verify.
    assert_eq!(writes.load(Ordering::SeqCst), 8 + 6 + 10);
    bench.server.stop().await;
}
