//! kube-rs against the server: typed access, a watcher, a reflector and a controller.

use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt as _;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::runtime::controller::{Action, Controller};
use kube::runtime::watcher::{self, Event, watcher};
use kube::runtime::{WatchStreamExt as _, reflector};
use kube::{Api, Client, ResourceExt as _};
use serde_json::json;

use crate::definition::wait;
use crate::subject::Subject;

scenarios![
    typed_access,
    a_watcher_restarts_and_continues,
    a_streaming_watcher_restarts_and_continues,
    a_reflector_holds_all_objects,
    a_controller_reconciles,
];

fn configmap(name: &str) -> ConfigMap {
    serde_json::from_value(json!({"metadata": {"name": name}, "data": {"k": "v"}})).unwrap()
}

async fn typed_access(subject: &Subject) {
    subject.namespace("client-typed").await;
    let api: Api<ConfigMap> = Api::namespaced(subject.client(), "client-typed");
    let made = api.create(&PostParams::default(), &configmap("a")).await.unwrap();
    let patch = Patch::Merge(json!({"data": {"k": "w"}}));
    let patched = api.patch("a", &PatchParams::default(), &patch).await.unwrap();
    assert_eq!((patched.uid(), patched.data.unwrap()["k"].as_str()), (made.uid(), "w"));
    let stale = api.replace("a", &PostParams::default(), &made).await.unwrap_err();
    assert!(matches!(stale, kube::Error::Api(status) if status.is_conflict()));
    assert_eq!(api.list_metadata(&ListParams::default()).await.unwrap().items.len(), 1);
    let apply = |value: &str| {
        Patch::Apply(
            json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": {"k": value}}),
        )
    };
    let conflict = api.patch("a", &PatchParams::apply("one"), &apply("x")).await.unwrap_err();
    assert!(matches!(conflict, kube::Error::Api(status) if status.is_conflict()));
    let applied = api.patch("a", &PatchParams::apply("one").force(), &apply("x")).await.unwrap();
    assert_eq!(applied.data.unwrap()["k"], "x");
    api.delete("a", &DeleteParams::default()).await.unwrap();
    assert!(api.get_opt("a").await.unwrap().is_none());
    let made = api.patch("a", &PatchParams::apply("one"), &apply("y")).await.unwrap();
    assert_eq!(made.data.unwrap()["k"], "y");
}

/// Checks what a watcher reports of a namespace in which objects are created and deleted.
async fn watched(subject: &Subject, namespace: &str, config: watcher::Config) {
    subject.namespace(namespace).await;
    let api: Api<ConfigMap> = Api::namespaced(subject.client(), namespace);
    api.create(&PostParams::default(), &configmap("before")).await.unwrap();
    let mut events = Box::pin(watcher(api.clone(), config));
    let mut next = async || {
        let event = tokio::time::timeout(Duration::from_secs(60), events.next()).await.expect("an event");
        match event.unwrap().unwrap() {
            Event::Init => "init".to_owned(),
            Event::InitApply(object) => format!("init {}", object.name_any()),
            Event::InitDone => "done".to_owned(),
            Event::Apply(object) => format!("apply {}", object.name_any()),
            Event::Delete(object) => format!("delete {}", object.name_any()),
        }
    };
    assert_eq!([next().await, next().await, next().await], ["init", "init before", "done"]);
    api.create(&PostParams::default(), &configmap("after")).await.unwrap();
    api.delete("before", &DeleteParams::default()).await.unwrap();
    assert_eq!([next().await, next().await], ["apply after", "delete before"]);
}

async fn a_watcher_restarts_and_continues(subject: &Subject) {
    watched(subject, "client-watcher", watcher::Config::default().page_size(1)).await;
}

async fn a_streaming_watcher_restarts_and_continues(subject: &Subject) {
    watched(subject, "client-streaming", watcher::Config::default().streaming_lists()).await;
}

async fn a_reflector_holds_all_objects(subject: &Subject) {
    subject.namespace("client-reflector").await;
    let api: Api<Secret> = Api::namespaced(subject.client(), "client-reflector");
    let (reader, writer) = reflector::store();
    let stream = watcher(api.clone(), watcher::Config::default()).default_backoff();
    let stream = reflector::reflector(writer, stream).touched_objects();
    let running = tokio::spawn(stream.for_each(async |_| ()));
    reader.wait_until_ready().await.unwrap();
    assert_eq!(reader.len(), 0);
    for name in ["a", "b"] {
        let secret: Secret = serde_json::from_value(json!({"metadata": {"name": name}})).unwrap();
        api.create(&PostParams::default(), &secret).await.unwrap();
    }
    wait("both to be held", || async { reader.len() == 2 }).await;
    api.delete("a", &DeleteParams::default()).await.unwrap();
    wait("one to go", || async { reader.len() == 1 }).await;
    running.abort();
}

/// Creates a Secret for each ConfigMap, owned by it.
async fn reconcile(object: Arc<ConfigMap>, client: Arc<Client>) -> Result<Action, kube::Error> {
    let namespace = object.namespace().unwrap_or_default();
    let api: Api<Secret> = Api::namespaced((*client).clone(), &namespace);
    let owner =
        json!({"apiVersion": "v1", "kind": "ConfigMap", "name": object.name_any(), "uid": object.uid()});
    let secret = json!({
        "metadata": {"name": object.name_any(), "ownerReferences": [owner]},
        "stringData": {"copied": object.data.clone().unwrap_or_default().get("k")},
    });
    if api.get_opt(&object.name_any()).await?.is_none() {
        let secret = serde_json::from_value(secret).map_err(kube::Error::SerdeError)?;
        api.create(&PostParams::default(), &secret).await?;
    } else {
        api.patch(&object.name_any(), &PatchParams::default(), &Patch::Merge(secret)).await?;
    }
    Ok(Action::await_change())
}

async fn a_controller_reconciles(subject: &Subject) {
    subject.namespace("client-controller").await;
    let client = subject.client();
    let wanted: Api<ConfigMap> = Api::namespaced(client.clone(), "client-controller");
    let owned: Api<Secret> = Api::namespaced(client.clone(), "client-controller");
    let retry =
        |_: Arc<ConfigMap>, _: &kube::Error, _: Arc<Client>| Action::requeue(Duration::from_millis(200));
    let controller = Controller::new(wanted.clone(), watcher::Config::default())
        .owns(owned.clone(), watcher::Config::default())
        .run(reconcile, retry, Arc::new(client));
    let running = tokio::spawn(controller.for_each(async |_| ()));
    let copied = async |name: &str| {
        let secret = owned.get_opt(name).await.unwrap()?;
        String::from_utf8(secret.data?.remove("copied")?.0).ok()
    };
    wanted.create(&PostParams::default(), &configmap("a")).await.unwrap();
    wait("the Secret", || async { copied("a").await.as_deref() == Some("v") }).await;
    let patch = Patch::Merge(json!({"data": {"k": "w"}}));
    wanted.patch("a", &PatchParams::default(), &patch).await.unwrap();
    wait("the change", || async { copied("a").await.as_deref() == Some("w") }).await;
    // A deleted Secret is created again.
    owned.delete("a", &DeleteParams::default()).await.unwrap();
    wait("the Secret again", || async { copied("a").await.as_deref() == Some("w") }).await;
    running.abort();
}
