//! Chunked lists and streams find the same objects, and a broken stream continues.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use restow_lab::{ClusterSpec, Observer, Proxy, Recorder, Seen, ServerSpec};
use serde_json::{Value, json};

use crate::support::{Lab, Ran, Restow, Widgets, wait};

scenarios! {
    long_lists_are_streamed_and_short_ones_are_paged,
    a_stream_lists_the_same_objects_as_pages,
    a_broken_stream_continues_after_the_last_object,
    ; real:
    // It switches a feature of kube-apiserver off.
    a_server_without_streaming_is_listed_in_pages,
}

/// Counts lists and streams.
#[derive(Default)]
struct Lists {
    /// All pages, and those that begin a list. A stream that breaks is continued in pages.
    pages: AtomicUsize,
    first_pages: AtomicUsize,
    streams: AtomicUsize,
    /// Has the server announce 20,000 objects more when it is asked how many there are.
    many: AtomicBool,
}

impl Observer for Lists {
    fn request(&self, request: &Seen) -> restow_lab::Action {
        if request.query.contains("sendInitialEvents") {
            self.streams.fetch_add(1, Ordering::SeqCst);
        } else if request.query.contains("limit=100") {
            self.pages.fetch_add(1, Ordering::SeqCst);
            self.first_pages.fetch_add(usize::from(!request.query.contains("continue=")), Ordering::SeqCst);
        } else if request.query == "limit=1" && self.many.load(Ordering::SeqCst) {
            return restow_lab::Action::Change(Box::new(|body| {
                let mut list: Value = serde_json::from_slice(&body).unwrap();
                list["metadata"]["remainingItemCount"] = json!(20_000);
                list.to_string().into_bytes().into()
            }));
        }
        restow_lab::Action::Forward
    }
}

async fn long_lists_are_streamed_and_short_ones_are_paged(lab: Lab) {
    let cluster = lab.shared();
    let client = cluster.client(0).unwrap();
    let widgets = Widgets { plural: "choices" };
    widgets.define(&client).await;
    widgets.create(&client, 150).await;
    widgets.store_as(&client, "v2").await;
    let lists = Arc::new(Lists::default());
    let recorder = Recorder::start(cluster, 0, "admin", Arc::clone(&lists)).await.unwrap();
    let restow = Restow::with_kubeconfig(recorder.kubeconfig().to_owned());
    for (many, streams) in [(false, false), (true, true)] {
        lists.many.store(many, Ordering::SeqCst);
        let before = (lists.streams.load(Ordering::SeqCst), lists.first_pages.load(Ordering::SeqCst));
        let ran = restow.migrate(&widgets.name(), &["--page-size", "100", "--pace", "fast"]).await.expect(0);
        assert_eq!(ran.resource()["listed"], 150, "{ran:#?}");
        let after = (lists.streams.load(Ordering::SeqCst), lists.first_pages.load(Ordering::SeqCst));
        assert_eq!((after.0 > before.0, after.1 > before.1), (streams, !streams), "{before:?} {after:?}");
    }
}

async fn a_stream_lists_the_same_objects_as_pages(lab: Lab) {
    let cluster = lab.shared();
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
    // One for each pass, or more while the server's cache was filling; no list begins with a page.
    let asked = (lists.streams.load(Ordering::SeqCst), lists.first_pages.load(Ordering::SeqCst));
    assert!(asked.0 >= 2 && asked.1 == 0, "{asked:?} {ran:#?}");
}

async fn a_broken_stream_continues_after_the_last_object(lab: Lab) {
    let cluster = lab.shared();
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

async fn a_server_without_streaming_is_listed_in_pages(lab: Lab) {
    let spec = ClusterSpec::new().server(0, ServerSpec::new().feature_gate("WatchList", false));
    let cluster = lab.cluster(spec).await;
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
