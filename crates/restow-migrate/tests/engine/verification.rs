//! A run is verified only by a pass that has seen every object and rewritten none.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use http::{Request, Response};
use kube::client::Body;
use serde_json::json;

use crate::bench::{Bench, Kept, LIST, migrate, name, store_in_v1, widgets};

/// Counts the passes: each one lists its first page, with the page size of the run and without a token.
#[derive(Clone, Default)]
struct Passes(Arc<AtomicUsize>);

impl Passes {
    /// The pass that a request starts, if it starts one.
    fn started_by(&self, request: &Request<Body>) -> Option<usize> {
        let query = request.uri().query().unwrap_or_default();
        let starts = request.uri().path().ends_with("/widgets") && query == "limit=4";
        starts.then(|| self.0.fetch_add(1, Ordering::SeqCst) + 1)
    }

    fn count(&self) -> usize {
        self.0.load(Ordering::SeqCst)
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_last_page_that_lacks_announced_objects_proves_nothing() {
    let bench = Bench::outdated(10).await;
    let passes = Passes::default();
    let (shortened, counted) = (Arc::new(AtomicUsize::new(0)), passes.clone());
    let times = Arc::clone(&shortened);
    let cluster = bench.cluster(move |request| {
        counted.started_by(request);
        let query = request.uri().query().unwrap_or_default();
        let follows = request.uri().path().ends_with("/widgets") && query.contains("continue=");
        // The second page of the verifying pass, once: an empty last page.
        if !follows || counted.count() < 2 || times.fetch_add(1, Ordering::SeqCst) > 0 {
            return None;
        }
        let list = json!({
            "kind": "PartialObjectMetadataList", "apiVersion": "meta.k8s.io/v1",
            "metadata": {"resourceVersion": "1"}, "items": [],
        });
        Some(Response::new(Body::from(list.to_string().into_bytes())))
    });
    let progress = migrate(&cluster, &widgets(&cluster).await, None, &mut Kept::default()).await.unwrap();
    assert!(shortened.load(Ordering::SeqCst) > 1, "the page was not asked for again");
    assert_eq!((progress.verify.listed, progress.verified), (10, true), "{progress:?}");
    assert_eq!(bench.counts().await, BTreeMap::from([("v2".to_owned(), 10)]));
    bench.server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_object_that_is_stored_in_the_old_version_between_two_passes_needs_a_third_pass() {
    let bench = Bench::outdated(10).await;
    let passes = Passes::default();
    let (counted, store) = (passes.clone(), Arc::clone(&bench.store));
    let cluster = bench.cluster_after(
        move |request| {
            let (pass, store) = (counted.started_by(request), Arc::clone(&store));
            async move {
                if pass == Some(2) {
                    store_in_v1(&store, &name(5)).await;
                }
            }
        },
        |_| None,
    );
    let progress = migrate(&cluster, &widgets(&cluster).await, None, &mut Kept::default()).await.unwrap();
    assert_eq!((passes.count(), progress.verified, progress.verify.rewritten), (3, true, 0), "{progress:?}");
    assert_eq!(bench.counts().await, BTreeMap::from([("v2".to_owned(), 10)]));
    bench.server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_object_that_a_user_changes_before_its_write_keeps_the_change_and_is_verified() {
    let bench = Bench::outdated(10).await;
    let (user, writes) = (bench.server.client(), Arc::new(AtomicUsize::new(0)));
    let cluster = bench.cluster_after(
        move |request| {
            let is_it = request.method() == "PATCH" && request.uri().path().ends_with(&name(5));
            let first = is_it && writes.fetch_add(1, Ordering::SeqCst) == 0;
            let user = user.clone();
            async move {
                if first {
                    let change = json!({"spec": {"size": 7}}).to_string().into_bytes();
                    let change = Request::patch(format!("{LIST}/{}", name(5)))
                        .header("content-type", "application/merge-patch+json")
                        .body(change);
                    user.request::<serde_json::Value>(change.unwrap()).await.unwrap();
                }
            }
        },
        |_| None,
    );
    let progress = migrate(&cluster, &widgets(&cluster).await, None, &mut Kept::default()).await.unwrap();
    let counts = progress.counts;
    assert_eq!((counts.rewritten, counts.conflicted, progress.verified), (9, 1, true), "{progress:?}");
    assert_eq!(bench.counts().await, BTreeMap::from([("v2".to_owned(), 10)]));
    let changed = bench.get(&format!("{LIST}/{}", name(5))).await.unwrap();
    assert_eq!(changed["spec"]["size"], 7);
    bench.server.stop().await;
}
