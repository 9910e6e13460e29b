//! Runs that are stopped or interrupted: what they report, and what a resumed run repeats.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use http::Method;
use restow_lab::{Action, Cluster};
use rustix::process::Signal;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, BufReader};

use crate::expected::{outdated, signal};
use crate::support::{CRDS, Lab, Restow, Widgets, send, wait};
use crate::traffic::{Held, Traffic, ended, number, status};

scenarios! {
    a_stop_during_the_last_write_reports_later_resources_as_stopped,
    writes_before_a_stop_are_counted_as_restows_own,
    a_saved_proof_does_not_count_after_the_crd_changed,
    a_deleted_resource_or_a_damaged_state_file_is_a_failure,
    a_run_continues_when_its_progress_output_is_closed,
    a_run_that_fails_before_its_first_resource_still_prints_its_report,
    rewrites_after_a_retried_object_are_reported_separately,
}

const OBJECTS: usize = 40;

/// Name and verdict of each resource of a report.
fn verdicts(report: &Value) -> Vec<(String, bool)> {
    let resources = report["resources"].as_array().unwrap().iter();
    resources
        .map(|resource| {
            (resource["resource"].as_str().unwrap().to_owned(), resource["verified"].as_bool().unwrap())
        })
        .collect()
}

async fn stored_as_v2(cluster: &Cluster, widgets: &Widgets) -> usize {
    widgets.stored_as(cluster).await.get(&format!("{}/v2", widgets.group())).copied().unwrap_or_default()
}

/// Holds the first write of the object at the end of this path.
fn first_write(write: &Held, path: String) -> impl Fn(&restow_lab::Seen, usize) -> Action + use<> {
    let write = write.clone();
    move |seen, before| {
        let is_it = seen.method == Method::PATCH && before == 0 && seen.path.ends_with(&path);
        if is_it { write.hold() } else { Action::Forward }
    }
}

async fn a_stop_during_the_last_write_reports_later_resources_as_stopped(lab: Lab) {
    let cluster = lab.shared();
    let first = outdated(cluster, "stoppedfirst", OBJECTS).await;
    let second = outdated(cluster, "stoppedsecond", OBJECTS).await;
    let pruning = Held::default();
    let prune = format!("{CRDS}/{}/status", first.name());
    let rule = {
        let pruning = pruning.clone();
        move |seen: &restow_lab::Seen, _: usize| {
            let is_it = seen.method == Method::PATCH && seen.path == prune;
            if is_it { pruning.hold() } else { Action::Forward }
        }
    };
    let (recorder, traffic) = Traffic::record(cluster, rule).await;
    let restow = Restow::with_kubeconfig(recorder.kubeconfig().to_owned());
    let names = [first.name(), second.name()];
    let args = ["migrate", &names[0], &names[1], "--pace", "fast", "--prune-stored-versions", "-o", "json"];

    let mut child = restow.command(&args).spawn().unwrap();
    pruning.come().await;
    signal(&child, Signal::INT);
    let mut said = BufReader::new(child.stderr.take().unwrap()).lines();
    while !said.next_line().await.unwrap().expect("it says that it stops").starts_with("stopping") {}
    pruning.let_go();
    let ran = ended(child).await.expect(130);
    let report = ran.report();
    assert_eq!(report["succeeded"], json!(false), "{report}");
    assert_eq!(verdicts(&report), [(first.name(), true), (second.name(), false)], "{report}");
    assert_eq!(stored_as_v2(cluster, &second).await, 0);

    let before = traffic.patches();
    let ran = restow.run(&[&args[..], &["--resume"]].concat()).await.expect(0);
    assert_eq!(verdicts(&ran.report()), [(first.name(), true), (second.name(), true)]);
    assert_eq!(stored_as_v2(cluster, &second).await, OBJECTS);
    let again = traffic.requests().into_iter().filter(|request| request.method == Method::PATCH).skip(before);
    let of_first = again.filter(|request| request.path.contains(&format!("/{}/", first.plural))).count();
    assert_eq!(of_first, 0, "a finished resource was written again: {ran:#?}");
}

/// Counts of a report: rewritten, current, written by others.
fn counts(report: &Value) -> [u64; 3] {
    ["rewritten", "current", "conflicted"].map(|count| report[count].as_u64().unwrap())
}

async fn writes_before_a_stop_are_counted_as_restows_own(lab: Lab) {
    let cluster = lab.shared();
    for (plural, killed) in [("halved", false), ("halvedkilled", true)] {
        let widgets = outdated(cluster, plural, OBJECTS).await;
        let write = Held::default();
        let (recorder, _) = Traffic::record(cluster, first_write(&write, "/w-00020".to_owned())).await;
        let restow = Restow::with_kubeconfig(recorder.kubeconfig().to_owned());
        let name = widgets.name();
        // In two pages, so that the second one continues a list that was begun before.
        let args = ["migrate", &name, "--max-in-flight", "1", "--page-size", "15", "-o", "json"];
        let mut child = restow.command(&args).spawn().unwrap();
        write.come().await;
        let done = if killed {
            // The write that is held is never let go: it does not arrive.
            signal(&child, Signal::KILL);
            ended(child).await;
            15
        } else {
            signal(&child, Signal::INT);
            let mut said = BufReader::new(child.stderr.take().unwrap()).lines();
            while !said.next_line().await.unwrap().expect("it says that it stops").starts_with("stopping") {}
            write.let_go();
            let report = ended(child).await.expect(130).resource();
            assert_eq!(
                (stored_as_v2(cluster, &widgets).await, counts(&report)),
                (21, [21, 0, 0]),
                "{report}"
            );
            21
        };
        let stored = stored_as_v2(cluster, &widgets).await as u64;
        let report = restow.run(&[&args[..], &["--resume"]].concat()).await.expect(0).resource();
        let expected = [OBJECTS as u64 - (stored - done), stored - done, 0];
        assert_eq!((counts(&report), &report["verified"]), (expected, &json!(true)), "{report}");
        assert_eq!(stored_as_v2(cluster, &widgets).await, OBJECTS);
    }
}

async fn rewrites_after_a_retried_object_are_reported_separately(lab: Lab) {
    let cluster = lab.shared();
    let widgets = outdated(cluster, "beyonds", OBJECTS).await;
    let refused = Arc::new(AtomicBool::new(true));
    let rule = {
        let refused = Arc::clone(&refused);
        move |seen: &restow_lab::Seen, _: usize| match number(seen) {
            Some(0) if seen.method == Method::PATCH && refused.load(Ordering::Relaxed) => {
                status(503, "ServiceUnavailable", "not this one")
            }
            _ => Action::Forward,
        }
    };
    let (recorder, _) = Traffic::record(cluster, rule).await;
    let restow = Restow::with_kubeconfig(recorder.kubeconfig().to_owned());
    let child =
        restow.command(&["migrate", &widgets.name(), "--pace", "fast", "-o", "json"]).spawn().unwrap();
    wait("all objects but the first to be rewritten", || async {
        stored_as_v2(cluster, &widgets).await == OBJECTS - 1
    })
    .await;
    signal(&child, Signal::INT);
    let ran = ended(child).await.expect(130);
    let more =
        format!("{} more objects were rewritten and are checked again when the run is resumed", OBJECTS - 1);
    assert!(ran.stderr.contains(&more), "{ran:#?}");
    assert_eq!(counts(&ran.resource()), [0, 0, 0]);
    // The first object is not passed over.
    refused.store(false, Ordering::Relaxed);
    let report =
        restow.run(&["migrate", &widgets.name(), "--resume", "-o", "json"]).await.expect(0).resource();
    assert_eq!(counts(&report), [1, OBJECTS as u64 - 1, 0], "{report}");
    assert_eq!(stored_as_v2(cluster, &widgets).await, OBJECTS);
}

async fn a_saved_proof_does_not_count_after_the_crd_changed(lab: Lab) {
    let cluster = lab.shared();
    let client = cluster.client(0).unwrap();
    let first = outdated(cluster, "movedfirst", OBJECTS).await;
    let second = outdated(cluster, "movedsecond", OBJECTS).await;
    let write = Held::default();
    let rule = first_write(&write, format!("/{}/w-00000", second.plural));
    let (recorder, _) = Traffic::record(cluster, rule).await;
    let restow = Restow::with_kubeconfig(recorder.kubeconfig().to_owned());
    let args = ["migrate", &first.name(), &second.name(), "--pace", "fast", "-o", "json"];
    let child = restow.command(&args).spawn().unwrap();
    write.come().await;
    signal(&child, Signal::INT);
    write.let_go();
    ended(child).await.expect(130);
    assert_eq!(stored_as_v2(cluster, &first).await, OBJECTS);

    first.store_as(&client, "v1").await;
    crate::support::wait("an object to be stored as v1 again", || async {
        let label =
            json!({"metadata": {"labels": {"touched": stored_as_v2(cluster, &first).await.to_string()}}});
        crate::support::patch(&client, &first.path("v1", "w-00000"), &label).await;
        stored_as_v2(cluster, &first).await < OBJECTS
    })
    .await;
    first.store_as(&client, "v2").await;
    let ran = restow.run(&[&args[..], &["--resume"]].concat()).await.expect(0);
    assert_eq!(verdicts(&ran.report()), [(first.name(), true), (second.name(), true)]);
    assert_eq!(stored_as_v2(cluster, &first).await, OBJECTS, "{ran:#?}");
}

async fn a_deleted_resource_or_a_damaged_state_file_is_a_failure(lab: Lab) {
    let cluster = lab.shared();
    let client = cluster.client(0).unwrap();
    let kept = outdated(cluster, "resumedkept", OBJECTS).await;
    let deleted = outdated(cluster, "resumeddeleted", OBJECTS).await;
    let restow = Restow::new(cluster);
    let args = ["migrate", &kept.name(), &deleted.name(), "--timeout", "0s", "-o", "json"];
    restow.run(&args).await.expect(130);

    send(&client, "DELETE", &format!("{CRDS}/{}", deleted.name()), None).await;
    crate::support::wait("the definition to be gone", || async {
        crate::support::try_send(&client, "GET", &deleted.path("v1", ""), None).await.is_err()
    })
    .await;
    let ran = restow.run(&["migrate", "--resume", "-o", "json"]).await.expect(1);
    let report = ran.report();
    assert_eq!(verdicts(&report), [(deleted.name(), false), (kept.name(), true)], "{report}");
    let error = report["resources"][0]["error"].as_str().unwrap();
    assert!(error.contains("cannot be resumed") && error.contains(&deleted.name()), "{error}");
    assert_eq!(stored_as_v2(cluster, &kept).await, OBJECTS);

    let dirs = std::fs::read_dir(restow.state.path().join("restow")).unwrap();
    let file = dirs.map(|dir| dir.unwrap().path().join(format!("{}.json", deleted.name()))).next().unwrap();
    std::fs::write(&file, "{").unwrap();
    let ran = restow.run(&["migrate", "--resume", "-o", "json"]).await.expect(1);
    assert!(ran.report()["error"].as_str().unwrap().contains("state file"), "{ran:#?}");
}

async fn a_run_continues_when_its_progress_output_is_closed(lab: Lab) {
    let cluster = lab.shared();
    let widgets = outdated(cluster, "unheard", OBJECTS).await;
    let write = Held::default();
    let rule = first_write(&write, "/w-00000".to_owned());
    let (recorder, _) = Traffic::record(cluster, rule).await;
    let restow = Restow::with_kubeconfig(recorder.kubeconfig().to_owned());
    let name = widgets.name();
    let args = ["migrate", &name, "--page-size", "10", "-o", "json"];
    let mut child = restow.command(&args).spawn().unwrap();
    drop(child.stderr.take());
    write.come().await;
    signal(&child, Signal::INT);
    write.let_go();
    let ran = ended(child).await.expect(130);
    assert_eq!(verdicts(&ran.report()), [(widgets.name(), false)]);

    let mut child = restow.command(&[&args[..], &["--resume"]].concat()).spawn().unwrap();
    drop(child.stderr.take());
    let ran = ended(child).await.expect(0);
    assert_eq!(verdicts(&ran.report()), [(widgets.name(), true)]);
    assert_eq!(stored_as_v2(cluster, &widgets).await, OBJECTS);
}

async fn a_run_that_fails_before_its_first_resource_still_prints_its_report(lab: Lab) {
    let cluster = lab.shared();
    let restow = Restow::new(cluster);
    let unreachable = ["--server", "https://127.0.0.1:1"];
    for (args, code, word) in [
        (&["nosuchthings"][..], 2, "nosuchthings"),
        (&[&["secrets"][..], &unreachable].concat(), 1, "127.0.0.1:1"),
    ] {
        let ran = restow.run(&[&["migrate", "-o", "json"], args].concat()).await.expect(code);
        let report = ran.report();
        assert_eq!((&report["succeeded"], &report["resources"]), (&json!(false), &json!([])), "{report}");
        assert!(report["error"].as_str().unwrap().contains(word), "{report}");
    }
}
