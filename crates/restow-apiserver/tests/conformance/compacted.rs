//! Compaction: 410 on lists and watches, and how to continue. It needs its own servers, because it affects all clients.

use std::sync::Arc;

use restow_lab::{Cluster, ClusterSpec, Part, assets};
use restow_store::Store as _;
use restow_store::file::FileStore;
use serde_json::Value;

use crate::definition::{define, wait};
use crate::subject::{ApiRequest, Place, Subject};

const FRESH: &str = "The provided continue parameter is too old to display a consistent list result. You can start a \
    new list without the continue parameter, or use the continue token in this response to retrieve the remainder of \
    the results. Continuing with the provided token results in an inconsistent list - objects that were created, \
    modified, or deleted between the time the first chunk was returned and now may show up in the list.";

/// A store that can be compacted.
enum Past<'a> {
    /// The store of a real server, which also caches some of it in memory.
    Real(&'a Cluster),
    /// The store of an embedded server.
    Embedded(Arc<FileStore>),
}

impl Past<'_> {
    async fn forget(&self, place: &Place<'_>) {
        match self {
            Self::Real(cluster) => {
                cluster.etcd().compact().await.unwrap();
                cluster.restart(Part::ApiServer(0)).await.unwrap();
                let answers = async |path: &str| place.get(path).await.code() == 200;
                wait("its memory to be filled", async || {
                    answers("widgets?resourceVersion=0").await
                        && answers("/api/v1/configmaps?resourceVersion=0").await
                })
                .await;
            }
            Self::Embedded(store) => {
                let revision = store.revision().await.unwrap();
                store.compact(revision).await.unwrap();
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn real() {
    let Some(assets) = assets::or_skip("what kube-apiserver forgets") else { return };
    let cluster = Cluster::start(&assets, ClusterSpec::new()).await.unwrap();
    let before = Subject::of(&cluster).await;
    forgotten(&before, Past::Real(&cluster)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn embedded() {
    let (subject, _server, store) = Subject::own_embedded().await;
    forgotten(&subject, Past::Embedded(store)).await;
}

async fn forgotten(subject: &Subject, past: Past<'_>) {
    let place = subject.namespace("forgotten").await;
    let then = place.make(&["a", "b", "d"]).await;
    let page = place.get("configmaps?limit=1").await.ok();
    let token = page["metadata"]["continue"].as_str().unwrap().to_owned();
    place.make(&["c"]).await;
    place.delete("configmaps/b").await.ok();
    let widgets = define(subject, "forgotten.example", |_| ()).await;
    past.forget(&widgets).await;

    let exact = place.get(&format!("configmaps?resourceVersion={then}&resourceVersionMatch=Exact")).await;
    assert_eq!(exact.line(), "410 Expired: The resourceVersion for the provided list is too old.");
    let late = place.get(&format!("configmaps?limit=1&continue={token}")).await;
    assert_eq!(late.line(), format!("410 Expired: {FRESH}"));
    // The response has a token that continues the list at the newest state.
    let fresh = late["metadata"]["continue"].as_str().unwrap();
    let rest = place.get(&format!("configmaps?limit=1&continue={fresh}")).await.ok();
    assert_eq!(rest.names(), "c");
    let next = rest["metadata"]["continue"].as_str().unwrap();
    let last = place.get(&format!("configmaps?continue={next}")).await.ok();
    assert_eq!((last.names().as_str(), &last["metadata"]["continue"]), ("d", &Value::Null));

    for resource in ["widgets", "widgets?allowWatchBookmarks=true"] {
        let and = if resource.contains('?') { '&' } else { '?' };
        let call =
            ApiRequest::get(&format!("{resource}{and}watch=true&timeoutSeconds=60&resourceVersion={then}"));
        let mut watching = widgets.watch_with(call).await;
        let event = watching.event().await.unwrap();
        let summary = crate::watching::summary(&event);
        assert!(
            summary.starts_with(&format!("ERROR 410 Expired: too old resource version: {then} (")),
            "{summary}"
        );
        assert_eq!(watching.event().await, None);
    }
    // A newer state is good enough if no exact match is requested.
    assert_eq!(place.get(&format!("configmaps?resourceVersion={then}")).await.ok().names(), "a c d");
}
