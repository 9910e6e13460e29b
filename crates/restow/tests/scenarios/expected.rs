//! Outdated objects to migrate, and what is expected of a run that migrates them.

use std::collections::BTreeMap;

use restow_lab::{Cluster, Store};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use tokio::process::Child;

use crate::support::{Ran, Restow, Widgets, wait};
use crate::traffic::said;

/// Creates objects that are stored as v1, of a CRD whose storage version is v2 now.
pub(crate) async fn outdated(cluster: &Cluster, plural: &'static str, objects: usize) -> Widgets {
    let client = cluster.client(0).unwrap();
    let widgets = Widgets { plural };
    widgets.define(&client).await;
    widgets.create(&client, objects).await;
    widgets.store_as(&client, "v2").await;
    widgets
}

/// Checks that all objects are stored as v2 and that each was rewritten once.
pub(crate) async fn rewritten_once(cluster: &Cluster, widgets: &Widgets, objects: usize) {
    let stored = widgets.stored_as(cluster).await;
    assert_eq!(stored, BTreeMap::from([(format!("{}/v2", widgets.group()), objects)]));
    // The file of the embedded server has no count of writes.
    let Store::Etcd(etcd) = cluster.store() else { return };
    let writes = etcd.writes(&widgets.prefix()).await.unwrap();
    let doubled: Vec<_> = writes.iter().filter(|(_, writes)| **writes != 2).collect();
    assert!(doubled.is_empty() && writes.len() == objects, "not made once and rewritten once: {doubled:?}");
}

/// The report of a run that must have succeeded.
#[track_caller]
pub(crate) fn verified(ran: Ran, objects: usize) -> Value {
    let report = ran.expect(0).resource();
    assert_eq!((&report["verified"], &report["quarantined"]), (&json!(true), &json!([])), "{report}");
    let decided = ["rewritten", "current", "conflicted", "gone"].map(|key| report[key].as_u64().unwrap());
    assert_eq!(decided.iter().sum::<u64>(), report["listed"].as_u64().unwrap(), "{report}");
    assert!(report["listed"].as_u64().unwrap() >= objects as u64, "{report}");
    report
}

pub(crate) fn signal(child: &Child, signal: Signal) {
    let pid = i32::try_from(child.id().expect("it runs")).unwrap();
    kill_process(Pid::from_raw(pid).unwrap(), signal).unwrap();
}

/// Waits until restow has saved this many objects as done in a pass; fails if it ends before.
pub(crate) async fn kept(restow: &Restow, widgets: &Widgets, pass: &str, objects: u64, child: &mut Child) {
    let enough = wait("pages to be done", || async { restow.listed(&widgets.name(), pass) >= objects });
    tokio::select! {
        () = enough => {}
        _ = child.wait() => panic!("it ended before it could be disturbed: {}", said(child)),
    }
}

/// Whether a request is for a page of the list.
pub(crate) fn is_page(path: &str, query: &str, widgets: &Widgets, page: usize) -> bool {
    path.ends_with(&format!("/{}", widgets.plural)) && query.starts_with(&format!("limit={page}"))
}
