//! Lists in chunks and as a stream find the same objects, and a stream that breaks goes on.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use restow_lab::{ClusterSpec, Observer, Proxy, Recorder, Seen, ServerSpec};
use serde_json::json;

use crate::support::{Ran, Restow, Widgets, cluster, lab, shared, wait};

/// Counts lists and streams.
#[derive(Default)]
struct Lists {
    pages: AtomicUsize,
    streams: AtomicUsize,
}

impl Observer for Lists {
    fn request(&self, request: &Seen) -> restow_lab::Action {
        if request.query.contains("sendInitialEvents") {
            self.streams.fetch_add(1, Ordering::SeqCst);
        } else if request.query.contains("limit=100") {
            self.pages.fetch_add(1, Ordering::SeqCst);
        }
        restow_lab::Action::Forward
    }
}

#[tokio::test]
async fn a_stream_instead_of_pages() {
    let Some(cluster) = shared() else { return };
    let client = cluster.client(0).unwrap();
    let widgets = Widgets { plural: "streams" };
    widgets.define(&client).await;
    widgets.create(&client, 1000).await;
    widgets.store_as(&client, "v2").await;
    let lists = Arc::new(Lists::default());
    let recorder = Recorder::start(cluster, 0, "admin", Arc::clone(&lists)).await.unwrap();
    let restow = Restow::with_kubeconfig(recorder.kubeconfig().to_owned());
    let more = ["--list", "streaming", "--page-size", "100", "--pace", "fast", "-v"];
    let ran = restow.migrate(&widgets.name(), &more).await.expect(0);
    let report = ran.resource();
    assert_eq!((&report["rewritten"], &report["verified"]), (&json!(1000), &json!(true)));
    // One for each pass, or more while the server's cache was filling; but no page.
    let asked = (lists.streams.load(Ordering::SeqCst), lists.pages.load(Ordering::SeqCst));
    assert!(asked.0 >= 2 && asked.1 == 0, "{asked:?} {ran:#?}");
}

#[tokio::test]
async fn a_stream_that_is_cut_goes_on_behind_the_last_object() {
    let Some(cluster) = shared() else { return };
    let client = cluster.client(0).unwrap();
    let widgets = Widgets { plural: "snips" };
    widgets.define(&client).await;
    widgets.create(&client, 1000).await;
    widgets.store_as(&client, "v2").await;
    let proxy = Proxy::start(cluster.addr(0)).await.unwrap();
    let restow = Restow::with_kubeconfig(cluster.kubeconfig_at(&proxy.url(), "admin").unwrap());
    let name = widgets.name();
    let more = ["migrate", &name, "-o", "json", "--list", "streaming", "--page-size", "50"];
    let running = restow.command(&more).spawn().unwrap();
    for rewritten in [100, 400, 700] {
        wait("some to be rewritten", || async {
            let stored = widgets.stored_as(cluster).await;
            stored.get(&format!("{}/v2", widgets.group())).is_some_and(|count| *count >= rewritten)
        })
        .await;
        proxy.cut_connections();
    }
    let report = Ran::from(running.wait_with_output().await.unwrap()).expect(0).resource();
    assert_eq!((&report["listed"], &report["verified"]), (&json!(1000), &json!(true)));
    assert_eq!(widgets.stored_as(cluster).await[&format!("{}/v2", widgets.group())], 1000);
}

#[tokio::test]
async fn a_server_that_cannot_stream_is_asked_for_pages() {
    let assets = lab!();
    let spec = ClusterSpec::new().server(0, ServerSpec::new().feature_gate("WatchList", false));
    let cluster = cluster(&assets, spec).await;
    let client = cluster.client(0).unwrap();
    let widgets = Widgets { plural: "pages" };
    widgets.define(&client).await;
    widgets.create(&client, 250).await;
    widgets.store_as(&client, "v2").await;
    let lists = Arc::new(Lists::default());
    let recorder = Recorder::start(&cluster, 0, "admin", Arc::clone(&lists)).await.unwrap();
    let restow = Restow::with_kubeconfig(recorder.kubeconfig().to_owned());
    let more = ["--list", "streaming", "--page-size", "100"];
    let report = restow.migrate(&widgets.name(), &more).await.expect(0).resource();
    assert_eq!((&report["rewritten"], &report["verified"]), (&json!(250), &json!(true)));
    assert_eq!(lists.pages.load(Ordering::SeqCst), 6, "three pages in each of two passes");
}
