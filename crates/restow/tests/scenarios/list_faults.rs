//! Lists that fail, are wrong or are large: a temporary fault is waited out, and a lasting one is never reported as verified.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant};

use http::Method;
use restow_core::rewrite::token::{NEWEST, Token};
use restow_lab::{Action, Cluster, ClusterSpec, Observer, Recorder, Seen};
use serde_json::{Value, json};

use crate::expected::{is_page, outdated, rewritten_once, verified};
use crate::footprint::peak;
use crate::support::{Lab, Restow, Widgets, create_all, name};
use crate::traffic::{Traffic, ended, status, status_body};

scenarios! {
    a_page_that_is_not_a_list_is_requested_again,
    a_page_that_never_is_a_list_does_not_end_the_list,
    a_repeated_continue_token_is_not_followed,
    a_run_waits_while_all_lists_fail,
    an_object_that_is_unreadable_for_a_while_is_migrated,
    a_temporary_redirect_401_or_404_is_waited_out,
    a_list_that_always_expires_fails,
    a_run_continues_after_pages_expire,
    lists_count_towards_the_bandwidth,
    ; real:
    // It needs 75 MiB of objects, which take an unoptimized embedded server minutes.
    pages_of_large_objects_stay_small,
}

const OBJECTS: usize = 60;
const PAGE: usize = 20;
const FLAGS: [&str; 4] = ["--pace", "fast", "--page-size", "20"];
const PRUNE: [&str; 5] = ["--pace", "fast", "--page-size", "20", "--prune-stored-versions"];

/// Whether a request is for a page after the first.
fn is_further_page(seen: &Seen, plural: &'static str) -> bool {
    is_page(&seen.path, &seen.query, &Widgets { plural }, PAGE) && seen.query.contains("continue=")
}

/// The continue token of a request.
fn token(seen: &Seen) -> Option<Token> {
    Token::decode(seen.query.split("continue=").nth(1)?.split('&').next()?)
}

/// A 200 whose body is not the requested page.
fn no_page(kind: &str, seen: &Seen) -> Action {
    let version = token(seen).map_or(0, |token| token.resource_version).to_string();
    let list = json!({"kind": "PartialObjectMetadataList", "apiVersion": "meta.k8s.io/v1", "items": []});
    let with = |metadata: Value| {
        let mut list = list.clone();
        list["metadata"] = metadata;
        list
    };
    let body = match kind {
        "an empty object" => "{}".to_owned(),
        "a Status" => status_body(504, "Timeout", "the gateway timed out").to_string(),
        "another error" => r#"{"error":"gateway timeout"}"#.to_owned(),
        "HTML" => "<html><body>Please log in</body></html>".to_owned(),
        "a body cut short" => list.to_string()[..30].to_owned(),
        "no metadata" => list.to_string(),
        "no items" => {
            let mut list = with(json!({"resourceVersion": version}));
            list.as_object_mut().unwrap().remove("items");
            list.to_string()
        }
        "another revision" => with(json!({"resourceVersion": "1"})).to_string(),
        "fewer objects than announced" => with(json!({"resourceVersion": version})).to_string(),
        other => panic!("{other}"),
    };
    Action::reply(200, &body)
}

async fn a_page_that_is_not_a_list_is_requested_again(lab: Lab) {
    let cluster = lab.shared();
    for (plural, kinds) in [
        ("nolists", ["an empty object", "a Status", "another error", "HTML", "a body cut short"].as_slice()),
        (
            "nopages",
            ["no metadata", "no items", "another revision", "fewer objects than announced"].as_slice(),
        ),
    ] {
        let widgets = outdated(cluster, plural, OBJECTS).await;
        let rule = move |seen: &Seen, before: usize| match kinds.get(before) {
            Some(kind) if is_further_page(seen, plural) => no_page(kind, seen),
            _ => Action::Forward,
        };
        let (recorder, _traffic) = Traffic::record(cluster, rule).await;
        let restow = Restow::with_kubeconfig(recorder.kubeconfig().to_owned());
        let report = verified(restow.migrate(&widgets.name(), &FLAGS).await, OBJECTS);
        assert_eq!(report["listed"], OBJECTS, "{report}");
        rewritten_once(cluster, &widgets, OBJECTS).await;
    }
}

async fn a_page_that_never_is_a_list_does_not_end_the_list(lab: Lab) {
    let cluster = lab.shared();
    let client = cluster.client(0).unwrap();
    let widgets = outdated(cluster, "neverlists", OBJECTS).await;
    // Each is waited out for a minute, so they are tried side by side.
    let tried = [
        ("an empty object", "not a list"),
        ("a Status", "the gateway timed out"),
        ("another error", "gateway timeout"),
        ("HTML", "Please log in"),
        ("fewer objects than announced", "40"),
    ]
    .map(async |(kind, words)| {
        let rule = move |seen: &Seen, _: usize| {
            if is_further_page(seen, "neverlists") { no_page(kind, seen) } else { Action::Forward }
        };
        let (recorder, _traffic) = Traffic::record(cluster, rule).await;
        let restow = Restow::with_kubeconfig(recorder.kubeconfig().to_owned());
        let ran = restow.migrate(&widgets.name(), &PRUNE).await.expect(1);
        assert!(format!("{}{}", ran.stdout, ran.stderr).contains(words), "{kind}: {ran:#?}");
        assert_ne!(ran.resource()["verified"], true, "{kind}: {ran:#?}");
        // What was announced is kept with the progress, so that a resumed run holds the server to it.
        let resume = [&PRUNE[..], &["--resume"]].concat();
        let again = restow.migrate(&widgets.name(), &resume).await.expect(1);
        assert_ne!(again.resource()["verified"], true, "{kind}: {again:#?}");
    });
    futures::future::join_all(tried).await;
    let stored = widgets.stored_as(cluster).await;
    assert_eq!(stored[&format!("{}/v1", widgets.group())], OBJECTS - PAGE);
    assert_eq!(widgets.stored_versions(&client).await, json!(["v1", "v2"]));
}

/// The first page as the server gives it, with metadata only.
async fn real_page(cluster: &Cluster, widgets: &Widgets) -> String {
    let accept = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1";
    let path = format!("/apis/{}/v2/{}?limit={PAGE}", widgets.group(), widgets.plural);
    let request = http::Request::builder().uri(path).header("Accept", accept).body(Vec::new()).unwrap();
    cluster.client(0).unwrap().request_text(request).await.unwrap()
}

async fn a_repeated_continue_token_is_not_followed(lab: Lab) {
    let cluster = lab.shared();
    let widgets = outdated(cluster, "repeats", OBJECTS).await;
    let page = real_page(cluster, &widgets).await;
    let rule = move |seen: &Seen, _: usize| {
        let repeated = is_page(&seen.path, &seen.query, &Widgets { plural: "repeats" }, PAGE);
        if repeated { Action::reply(200, &page) } else { Action::Forward }
    };
    let (recorder, traffic) = Traffic::record(cluster, rule).await;
    let restow = Restow::with_kubeconfig(recorder.kubeconfig().to_owned());
    let resource = widgets.name();
    let ran = tokio::time::timeout(Duration::from_secs(180), restow.migrate(&resource, &FLAGS)).await;
    let ran = ran.expect("it should not go on for ever").expect(1);
    assert!(format!("{}{}", ran.stdout, ran.stderr).contains("repeats"), "{ran:#?}");
    assert_eq!(traffic.patches(), PAGE, "the first page was sent more than once");
}

/// A KMS plugin that restarts, say: nothing can be listed, and no object is to blame for that.
async fn a_run_waits_while_all_lists_fail(lab: Lab) {
    let cluster = lab.shared();
    for (plural, first, length) in [("stumbles", 0, 1), ("trips", 2, 1), ("falls", 2, 6)] {
        let widgets = outdated(cluster, plural, OBJECTS).await;
        let (lists, until) = (AtomicUsize::new(0), OnceLock::new());
        let rule = move |seen: &Seen, _: usize| {
            if seen.method != Method::GET || !seen.path.ends_with(&format!("/{plural}")) {
                return Action::Forward;
            }
            if lists.fetch_add(1, Ordering::SeqCst) < first {
                return Action::Forward;
            }
            let until = until.get_or_init(|| Instant::now() + Duration::from_secs(length));
            if Instant::now() >= *until {
                return Action::Forward;
            }
            status(500, "InternalError", "the key management service does not answer")
        };
        let (recorder, _traffic) = Traffic::record(cluster, rule).await;
        let restow = Restow::with_kubeconfig(recorder.kubeconfig().to_owned());
        let report = verified(restow.migrate(&widgets.name(), &FLAGS).await, OBJECTS);
        assert_eq!(report["rewritten"], OBJECTS, "{report}");
        rewritten_once(cluster, &widgets, OBJECTS).await;
    }
}

/// Some objects can be read during an outage and others cannot; none of them is broken.
async fn an_object_that_is_unreadable_for_a_while_is_migrated(lab: Lab) {
    let cluster = lab.shared();
    let widgets = outdated(cluster, "glimpses", OBJECTS).await;
    let until = OnceLock::new();
    let rule = move |seen: &Seen, _: usize| {
        if seen.method != Method::GET || !seen.path.ends_with("/glimpses") {
            return Action::Forward;
        }
        let limit: usize = seen.query.split(['=', '&']).nth(1).and_then(|limit| limit.parse().ok()).unwrap();
        let start = token(seen).map_or(String::new(), |token| token.start);
        let first = (0..OBJECTS).find(|index| format!("default/{}", name(*index)) >= start);
        if !first.is_some_and(|first| (first..first + limit).contains(&33)) {
            return Action::Forward;
        }
        let until = until.get_or_init(|| Instant::now() + Duration::from_secs(8));
        if Instant::now() >= *until {
            return Action::Forward;
        }
        status(500, "InternalError", "the key management service does not answer")
    };
    let (recorder, _traffic) = Traffic::record(cluster, rule).await;
    let restow = Restow::with_kubeconfig(recorder.kubeconfig().to_owned());
    let report = verified(restow.migrate(&widgets.name(), &FLAGS).await, OBJECTS);
    assert_eq!(report["rewritten"], OBJECTS, "{report}");
    rewritten_once(cluster, &widgets, OBJECTS).await;
}

async fn a_temporary_redirect_401_or_404_is_waited_out(lab: Lab) {
    let cluster = lab.shared();
    let client = cluster.client(0).unwrap();
    let widgets = outdated(cluster, "detours", OBJECTS).await;
    let lasting = [(302, "302"), (401, "401")].map(async |(code, words)| {
        let rule = move |seen: &Seen, _: usize| {
            if is_further_page(seen, "detours") { Action::reply(code, "") } else { Action::Forward }
        };
        let (recorder, _traffic) = Traffic::record(cluster, rule).await;
        let restow = Restow::with_kubeconfig(recorder.kubeconfig().to_owned());
        let ran = restow.migrate(&widgets.name(), &PRUNE).await.expect(1);
        assert!(format!("{}{}", ran.stdout, ran.stderr).contains(words), "{ran:#?}");
    });
    futures::future::join_all(lasting).await;
    assert_eq!(widgets.stored_versions(&client).await, json!(["v1", "v2"]));
    for code in [302, 401, 404] {
        let rule = move |seen: &Seen, before: usize| {
            let fails = before == 0 && is_further_page(seen, "detours");
            if fails { Action::reply(code, "") } else { Action::Forward }
        };
        let (recorder, _traffic) = Traffic::record(cluster, rule).await;
        let restow = Restow::with_kubeconfig(recorder.kubeconfig().to_owned());
        let report = verified(restow.migrate(&widgets.name(), &FLAGS).await, OBJECTS);
        assert_eq!(report["listed"], OBJECTS, "{code}: {report}");
        rewritten_once(cluster, &widgets, OBJECTS).await;
    }
}

/// A list that expires again and again ends in an error, and not in writes without end.
async fn a_list_that_always_expires_fails(lab: Lab) {
    let cluster = lab.shared();
    let widgets = outdated(cluster, "vapours", OBJECTS).await;
    let rule = move |seen: &Seen, _: usize| {
        if is_further_page(seen, "vapours") { status(410, "Expired", "too old") } else { Action::Forward }
    };
    let (recorder, traffic) = Traffic::record(cluster, rule).await;
    let restow = Restow::with_kubeconfig(recorder.kubeconfig().to_owned());
    let resource = widgets.name();
    let ran = tokio::time::timeout(Duration::from_secs(60), restow.migrate(&resource, &FLAGS)).await;
    ran.expect("it should not go on for ever").expect(1);
    assert!(traffic.patches() <= 10 * PAGE, "{}", traffic.patches());
}

/// Objects stored as v1 with so many bytes of annotations each, of a definition that stores as v2 now.
async fn heavy(cluster: &Cluster, plural: &'static str, objects: usize, bytes: usize) -> Widgets {
    let client = cluster.client(0).unwrap();
    let widgets = Widgets { plural };
    widgets.define(&client).await;
    let group = widgets.group();
    let object = |index: usize| {
        json!({
            "apiVersion": format!("{group}/v1"), "kind": "Widget",
            "metadata": {"name": name(index), "annotations": {"note": "x".repeat(bytes)}},
        })
    };
    create_all(&client, &widgets.path("v1", ""), 0..objects, object).await;
    widgets.store_as(&client, "v2").await;
    widgets
}

async fn pages_of_large_objects_stay_small(lab: Lab) {
    const OBJECTS: usize = 300;
    let cluster = lab.cluster(ClusterSpec::new()).await;
    let widgets = heavy(&cluster, "heavies", OBJECTS, 250 * 1024).await;
    for list in ["chunked", "streaming"] {
        let restow = Restow::new(&cluster);
        let flags = ["--max-in-flight", "4", "--page-size", "500", "--list", list, "-o", "json"];
        let mut child = restow.start(&widgets.name(), &flags);
        let pid = child.id().unwrap();
        let mut held = 0;
        while child.try_wait().unwrap().is_none() {
            // A process that has just ended shows no memory.
            let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
            if status.contains("VmHWM") {
                held = peak(pid).max(held);
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        let report = verified(ended(child).await, OBJECTS);
        assert_eq!(report["listed"], OBJECTS, "{list}: {report}");
        assert!((1..64 * 1024).contains(&held), "{list}: {held} KiB");
    }
    let stored = widgets.stored_as(&cluster).await;
    assert_eq!(stored, BTreeMap::from([(format!("{}/v2", widgets.group()), OBJECTS)]));
}

/// Counts the bytes of lists, and of everything of the resource.
#[derive(Default)]
struct Bytes {
    lists: AtomicUsize,
    all: AtomicUsize,
    /// When the first came, and the last.
    times: Mutex<Option<(Instant, Instant)>>,
}

impl Observer for Bytes {
    fn chunk(&self, seen: &Seen, chunk: &[u8]) {
        if !seen.path.contains("/breadths") {
            return;
        }
        self.all.fetch_add(chunk.len(), Ordering::SeqCst);
        let now = Instant::now();
        self.times.lock().unwrap().get_or_insert((now, now)).1 = now;
        if seen.path.ends_with("/breadths") {
            self.lists.fetch_add(chunk.len(), Ordering::SeqCst);
        }
    }
}

async fn lists_count_towards_the_bandwidth(lab: Lab) {
    const OBJECTS: usize = 60;
    const BANDWIDTH: usize = 1_000_000;
    let cluster = lab.shared();
    let widgets = heavy(cluster, "breadths", OBJECTS, 50 * 1024).await;
    for list in ["chunked", "streaming"] {
        let bytes = Arc::new(Bytes::default());
        let recorder = Recorder::start(cluster, 0, "admin", Arc::clone(&bytes)).await.unwrap();
        let restow = Restow::with_kubeconfig(recorder.kubeconfig().to_owned());
        let bandwidth = BANDWIDTH.to_string();
        let flags = ["--pace", "fast", "--page-size", "10", "--list", list, "--bandwidth", &bandwidth];
        verified(restow.migrate(&widgets.name(), &flags).await, OBJECTS);
        let (first, last) = bytes.times.lock().unwrap().unwrap();
        let seconds = (last - first).as_secs_f64();
        let (lists, all) = (bytes.lists.load(Ordering::SeqCst), bytes.all.load(Ordering::SeqCst));
        assert!(lists > OBJECTS * 50 * 1024 * 2, "{list}: {lists}");
        // A page, and the answers to ten writes, may be under way at once and are counted when they have come.
        let least = (all - 2 * 10 * 51 * 1024) as f64 / BANDWIDTH as f64;
        assert!(seconds >= least, "{list}: {all} bytes, {lists} of them in lists, in {seconds} s");
    }
}

async fn a_run_continues_after_pages_expire(lab: Lab) {
    const OBJECTS: usize = 400;
    const PAGE: usize = 50;
    let cluster = lab.shared();
    let widgets = outdated(cluster, "expiries", OBJECTS).await;
    let fresh = |seen: &Seen| {
        let token = seen.query.split("continue=").nth(1)?;
        let token = Token::decode(token).expect("a token of kube-apiserver");
        (token.resource_version != NEWEST).then(|| Token { resource_version: NEWEST, ..token }.encode())
    };
    let pages = AtomicUsize::new(0);
    let (list, plural) = (widgets.path("v2", "").replace("/namespaces/default", ""), widgets.plural);
    let rule = move |seen: &Seen, _: usize| {
        if seen.path != list || !is_page(&seen.path, &seen.query, &Widgets { plural }, PAGE) {
            return Action::Forward;
        }
        let mut body = status_body(410, "Expired", "the provided continue parameter is too old");
        match pages.fetch_add(1, Ordering::SeqCst) {
            2 => body["metadata"]["continue"] = fresh(seen).unwrap().into(),
            5 => {}
            _ => return Action::Forward,
        }
        Action::reply(410, &body.to_string())
    };
    let (recorder, traffic) = Traffic::record(cluster, rule).await;
    let restow = Restow::with_kubeconfig(recorder.kubeconfig().to_owned());
    let report =
        verified(restow.migrate(&widgets.name(), &["--pace", "fast", "--page-size", "50"]).await, OBJECTS);
    assert_eq!(report["rewritten"], OBJECTS, "{report}");
    rewritten_once(cluster, &widgets, OBJECTS).await;
    let queries: Vec<String> = traffic
        .requests()
        .into_iter()
        .filter(|request| is_page(&request.path, &request.query, &widgets, PAGE))
        .filter(|request| request.method == Method::GET)
        .map(|request| request.query)
        .collect();
    let token = |query: &str| Token::decode(query.split("continue=").nth(1)?);
    let [before, after] = [2, 3].map(|page| token(&queries[page]).unwrap());
    assert_eq!((before.start, after.resource_version), (after.start.clone(), NEWEST), "not the fresh token");
    assert!(token(&queries[5]).is_some() && token(&queries[6]).is_none(), "it did not start over");
}
