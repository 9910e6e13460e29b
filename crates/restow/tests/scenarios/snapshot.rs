//! Lists the names of all objects in a cluster, to compare before and after.

use std::collections::BTreeSet;
use std::time::Duration;

use serde_json::json;
use tokio::time::Instant;

use crate::support::{send, try_send, wait};

/// What a server makes by itself, perhaps only after it is ready.
const LATE: [&str; 10] = [
    "configmaps kube-system kube-apiserver-legacy-service-account-token-tracking",
    "endpoints default kubernetes",
    "endpointslices.discovery.k8s.io default kubernetes",
    "ipaddresses.networking.k8s.io - 10.0.0.1",
    "namespaces - default",
    "namespaces - kube-node-lease",
    "namespaces - kube-public",
    "namespaces - kube-system",
    "servicecidrs.networking.k8s.io - kubernetes",
    "services default kubernetes",
];

/// Every kind of object that a server lists: its name, and the path of all of them.
async fn listed(client: &kube::Client) -> Vec<(String, String)> {
    let mut bases = vec![(String::new(), "/api/v1".to_owned())];
    for group in send(client, "GET", "/apis", None).await["groups"].as_array().unwrap() {
        let version = group["preferredVersion"]["groupVersion"].as_str().unwrap();
        bases.push((format!(".{}", group["name"].as_str().unwrap()), format!("/apis/{version}")));
    }
    let mut all = Vec::new();
    for (group, base) in bases {
        // A group that goes with its last definition is still named for a moment.
        let Ok(document) = try_send(client, "GET", &base, None).await else { continue };
        for resource in document["resources"].as_array().unwrap() {
            let name = resource["name"].as_str().unwrap();
            let lists = resource["verbs"].as_array().unwrap().contains(&json!("list"));
            if lists && !["events", "componentstatuses"].contains(&name) {
                all.push((format!("{name}{group}"), format!("{base}/{name}")));
            }
        }
    }
    all
}

/// The name of everything there is.
pub(crate) async fn snapshot(client: &kube::Client) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    for (resource, path) in listed(client).await {
        let Ok(list) = try_send(client, "GET", &path, None).await else { continue };
        for object in list["items"].as_array().unwrap() {
            let meta = &object["metadata"];
            let namespace = meta["namespace"].as_str().unwrap_or("-");
            names.insert(format!("{resource} {namespace} {}", meta["name"].as_str().unwrap()));
        }
    }
    assert!(names.len() > 50, "{names:?}");
    names
}

/// The name of everything, once all that makes things by itself has made these too.
pub(crate) async fn first_snapshot(client: &kube::Client, more: &[&str]) -> BTreeSet<String> {
    let complete = |names: BTreeSet<String>| LATE.iter().chain(more).all(|name| names.contains(*name));
    wait("the cluster to be complete", || async { complete(snapshot(client).await) }).await;
    snapshot(client).await
}

/// Fails unless both have the same names.
#[track_caller]
pub(crate) fn assert_same(now: &BTreeSet<String>, before: &BTreeSet<String>, what: &str) {
    let more: Vec<&String> = now.difference(before).collect();
    let less: Vec<&String> = before.difference(now).collect();
    assert!(more.is_empty() && less.is_empty(), "{what}; more: {more:#?}, less: {less:#?}");
}

/// Waits until everything has the names it had before: what goes with other things goes after them.
pub(crate) async fn settle(client: &kube::Client, before: &BTreeSet<String>) {
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        let now = snapshot(client).await;
        if now == *before {
            return;
        }
        if Instant::now() > deadline {
            assert_same(&now, before, "not as before");
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}
