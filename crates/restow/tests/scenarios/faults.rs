//! Whatever dies on the way, the migration comes to its end, having lost and doubled nothing.

use std::collections::{BTreeMap, HashSet};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use http::Method;
use http::header::RETRY_AFTER;
use restow_core::rewrite::token::{NEWEST, Token};
use restow_lab::{Action, Cluster, ClusterSpec, Part, Proxy, Seen, Store};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use tokio::process::Child;

use crate::support::{Lab, Ran, Restow, Widgets, name, send, wait};
use crate::traffic::{Request, Traffic, ended, number, said, status, status_body};

scenarios! {
    killed_twenty_times,
    connections_are_cut_and_refused,
    writes_that_are_put_off_or_lost,
    writes_that_never_succeed,
    credentials_run_out,
    writes_that_all_fail_for_a_while,
    the_last_write_never_succeeds,
    pages_that_expire,
    stopped_by_signals,
    stopped_by_a_second_signal,
    stopped_while_nothing_answers,
    ; real:
    // It kills and pauses etcd.
    servers_die_and_come_back,
    // It counts the requests to a server that registers no storage versions.
    every_request_may_fail_for_a_while,
}

/// Objects stored as v1, of a definition that stores as v2 now.
pub(crate) async fn outdated(cluster: &Cluster, plural: &'static str, objects: usize) -> Widgets {
    let client = cluster.client(0).unwrap();
    let widgets = Widgets { plural };
    widgets.define(&client).await;
    widgets.create(&client, objects).await;
    widgets.store_as(&client, "v2").await;
    widgets
}

/// All objects are stored as v2, and each was written once to become so.
pub(crate) async fn rewritten_once(cluster: &Cluster, widgets: &Widgets, objects: usize) {
    let stored = widgets.stored_as(cluster).await;
    assert_eq!(stored, BTreeMap::from([(format!("{}/v2", widgets.group()), objects)]));
    // The file of the embedded server has no count of writes.
    let Store::Etcd(etcd) = cluster.store() else { return };
    let writes = etcd.writes(&widgets.prefix()).await.unwrap();
    let doubled: Vec<_> = writes.iter().filter(|(_, writes)| **writes != 2).collect();
    assert!(doubled.is_empty() && writes.len() == objects, "not made once and rewritten once: {doubled:?}");
}

/// The report of a run that ended well.
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

/// Waits until restow has kept so many objects as done in a pass; fails when it ends before.
async fn kept(restow: &Restow, widgets: &Widgets, pass: &str, objects: u64, child: &mut Child) {
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

async fn killed_twenty_times(lab: Lab) {
    const OBJECTS: usize = 1200;
    const PAGE: usize = 50;
    const KILLS: usize = 20;
    let cluster = lab.shared();
    let widgets = outdated(cluster, "killings", OBJECTS).await;
    let (recorder, traffic) = Traffic::record(cluster, |_, _| Action::Forward).await;
    let restow = Restow::with_kubeconfig(recorder.kubeconfig().to_owned());
    let flags = ["--pace", "fast", "--page-size", "50", "-o", "json"];
    let resume = [&flags[..], &["--resume"]].concat();
    let mut rng = fastrand::Rng::with_seed(20);
    let mut phases = BTreeMap::new();
    for kill in 0..KILLS {
        let mut child = restow.start(&widgets.name(), if kill == 0 { &flags } else { &resume });
        let moment = traffic.patches() + rng.usize(1..=230);
        traffic.reach(moment, &mut child).await;
        child.kill().await.unwrap();
        // Where nothing was kept yet there is no file.
        let phase = restow.progress(&widgets.name()).map(|progress| progress["phase"].clone());
        *phases.entry(phase.map_or_else(String::new, |phase| phase.to_string())).or_insert(0) += 1;
    }
    assert!(phases["\"rewriting\""] >= 5 && phases["\"verifying\""] >= 2, "killed at {phases:?}");
    let report = verified(ended(restow.start(&widgets.name(), &resume)).await, OBJECTS);
    assert_eq!(report["listed"], OBJECTS, "a page was counted twice");
    rewritten_once(cluster, &widgets, OBJECTS).await;

    // The pass that verifies begins with the first page that is asked for when all objects were written.
    let mut written = HashSet::new();
    let mut passes = [0, 0];
    let mut verifying = 0;
    for request in traffic.requests() {
        if request.method == Method::PATCH {
            passes[verifying] += 1;
            written.insert(request.path);
        } else if written.len() == OBJECTS && is_page(&request.path, &request.query, &widgets, PAGE) {
            verifying = usize::from(verifying == 1 || !request.query.contains("continue="));
        }
    }
    assert!((OBJECTS..=OBJECTS + KILLS * PAGE).contains(&passes[0]), "{passes:?}");
    assert!(passes[1] >= OBJECTS, "{passes:?}");
    assert!(passes[0] + passes[1] <= 2 * OBJECTS + KILLS * PAGE, "{passes:?}");
}

async fn servers_die_and_come_back(lab: Lab) {
    const OBJECTS: usize = 600;
    // Not system:masters: a server that starts may serve before it knows what others are allowed.
    let cluster = lab.cluster(ClusterSpec::new().user("bob", &[])).await;
    let binding = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
        "metadata": {"name": "bob"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "bob"}],
    });
    let bindings = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings";
    send(&cluster.client(0).unwrap(), "POST", bindings, Some(&binding)).await;
    let mut all = Vec::new();
    for plural in ["apiserverkills", "etcdpauses", "etcdkills"] {
        all.push(outdated(&cluster, plural, OBJECTS).await);
    }
    let flags = ["--pace", "fast", "--page-size", "50", "-o", "json"];
    for (index, widgets) in all.iter().enumerate() {
        let restow = Restow::with_kubeconfig(cluster.kubeconfig(0, "bob"));
        let mut child = restow.start(&widgets.name(), &flags);
        // In both passes; in the first, not at a page's end, because the next pages are under way.
        for pass in ["counts", "verify"] {
            kept(&restow, widgets, pass, 100, &mut child).await;
            match index {
                0 => cluster.restart(Part::ApiServer(0)).await.unwrap(),
                1 => {
                    cluster.pause(Part::Etcd).unwrap();
                    // This is the fault itself: so long nothing is stored.
                    tokio::time::sleep(Duration::from_secs(4)).await;
                    cluster.unpause(Part::Etcd).unwrap();
                }
                _ => cluster.restart(Part::Etcd).await.unwrap(),
            }
        }
        let report = verified(ended(child).await, OBJECTS);
        assert_eq!(report["listed"], OBJECTS, "{report}");
        rewritten_once(&cluster, widgets, OBJECTS).await;
    }
}

async fn connections_are_cut_and_refused(lab: Lab) {
    const OBJECTS: usize = 600;
    let cluster = lab.shared();
    let widgets = outdated(cluster, "cuts", OBJECTS).await;
    let proxy = Proxy::start(cluster.addr(0)).await.unwrap();
    let restow = Restow::with_kubeconfig(cluster.kubeconfig_at(&proxy.url(), "admin").unwrap());
    let flags = ["--pace", "fast", "--page-size", "50", "-o", "json"];
    let mut child = restow.start(&widgets.name(), &flags);
    for (pass, pages) in [("counts", 2), ("counts", 4), ("counts", 6), ("verify", 2), ("verify", 4)] {
        kept(&restow, &widgets, pass, pages * 50, &mut child).await;
        let before = proxy.connections();
        proxy.refuse(pages == 4);
        proxy.cut_connections();
        wait("restow to come back", || async { proxy.connections() > before }).await;
        if pages == 4 {
            let tries = proxy.connections();
            wait("restow to try again and again", || async { proxy.connections() >= tries + 5 }).await;
            proxy.refuse(false);
        }
    }
    verified(ended(child).await, OBJECTS);
    rewritten_once(cluster, &widgets, OBJECTS).await;
}

/// An answer of this code that says when to come back.
fn busy(code: u16, header: Option<&'static str>, seconds: Option<u64>) -> Action {
    let mut body = status_body(code, "TooManyRequests", "not now");
    if let Some(seconds) = seconds {
        body["details"] = json!({"retryAfterSeconds": seconds});
    }
    let mut action = Action::reply(code, &body.to_string());
    if let (Action::Reply(response), Some(header)) = (&mut action, header) {
        response.headers_mut().insert(RETRY_AFTER, http::HeaderValue::from_static(header));
    }
    action
}

async fn writes_that_are_put_off_or_lost(lab: Lab) {
    const OBJECTS: usize = 100;
    let cluster = lab.shared();
    let widgets = outdated(cluster, "delays", OBJECTS).await;
    let rule = |seen: &Seen, before: usize| match (number(seen), before) {
        (Some(number), 0) if number % 10 == 1 => busy(429, Some("1"), None),
        (Some(12), 0) => busy(429, None, Some(2)),
        (Some(13), 0..2) => busy(503, Some("1"), None),
        (Some(number), 0..3) if number % 10 == 4 => status(503, "ServiceUnavailable", "shutting down"),
        (Some(number), 0..3) if number % 10 == 5 => status(504, "Timeout", "took too long"),
        (Some(26 | 36), 0) => Action::DropBefore,
        (Some(47 | 57 | 67), 0) => Action::DropAfter,
        _ => Action::Forward,
    };
    let (recorder, traffic) = Traffic::record(cluster, rule).await;
    let restow = Restow::with_kubeconfig(recorder.kubeconfig().to_owned());
    let report = verified(restow.migrate(&widgets.name(), &["--pace", "fast"]).await, OBJECTS);
    // Written, but the answer was lost: the second try finds a newer object, and must not pass for a rewrite.
    assert_eq!((&report["conflicted"], &report["rewritten"]), (&json!(3), &json!(OBJECTS - 3)), "{report}");
    rewritten_once(cluster, &widgets, OBJECTS).await;
    for number in [47, 57, 67] {
        assert_eq!(traffic.answers_to(&name(number)), [200, 409, 200]);
    }
    let asked = (0..10).map(|ten| (ten * 10 + 1, 1)).chain([(12, 2), (13, 1)]);
    for (number, seconds) in asked {
        let sent = traffic.patches_of(&name(number));
        let waits: Vec<_> = sent.windows(2).map(|pair| pair[1].at - pair[0].at).collect();
        assert!(waits[0] >= Duration::from_secs(seconds), "w-{number} came back after {waits:?}");
    }
    // Three refused tries, the write, and the pass that verifies.
    assert_eq!(traffic.patches_of(&name(4)).len(), 5);
    assert_eq!(traffic.patches_of(&name(5)).len(), 5);
}

/// Fails each kind of request twice in the middle of a run, one kind after the other.
struct Hiccups {
    code: u16,
    patches: usize,
    failed: BTreeMap<String, usize>,
    /// The kind that is failing now: two at once could hide that one of them is not waited out.
    failing: Option<String>,
}

impl Hiccups {
    fn act(&mut self, seen: &Seen) -> Action {
        // A run does without events, and may end before it watches again.
        if seen.query.contains("watch=true") {
            return Action::Forward;
        }
        let write = number(seen).is_some();
        self.patches += usize::from(write);
        let kind = if write { "a write".to_owned() } else { format!("{} {}", seen.method, seen.path) };
        let times = self.failed.entry(kind.clone()).or_default();
        let others = self.failing.as_ref().is_some_and(|failing| *failing != kind);
        if self.patches < 60 || *times == 2 || others {
            return Action::Forward;
        }
        *times += 1;
        self.failing = (*times < 2).then_some(kind);
        match self.code {
            0 => Action::DropBefore,
            code => status(code, "", "a moment, please"),
        }
    }
}

async fn every_request_may_fail_for_a_while(lab: Lab) {
    const OBJECTS: usize = 200;
    let cluster = lab.shared();
    let widgets = outdated(cluster, "hiccups", OBJECTS).await;
    for code in [429, 503, 0] {
        let hiccups = Hiccups { code, patches: 0, failed: BTreeMap::new(), failing: None };
        let hiccups = Arc::new(Mutex::new(hiccups));
        let told = Arc::clone(&hiccups);
        let rule = move |seen: &Seen, _: usize| told.lock().unwrap().act(seen);
        let (recorder, _traffic) = Traffic::record(cluster, rule).await;
        let restow = Restow::with_kubeconfig(recorder.kubeconfig().to_owned());
        let flags = ["--pace", "fast", "--page-size", "20"];
        verified(restow.migrate(&widgets.name(), &flags).await, OBJECTS);
        let failed = &hiccups.lock().unwrap().failed;
        let kinds: Vec<_> = failed.iter().filter(|(_, times)| **times == 2).map(|(kind, _)| kind).collect();
        // Writes, pages, the definition, its discovery, its StorageVersion and the servers' identities.
        assert_eq!(kinds.len(), 6, "{code}: {kinds:?}");
    }
    rewritten_once(cluster, &widgets, OBJECTS).await;
}

async fn writes_that_never_succeed(lab: Lab) {
    const OBJECTS: usize = 200;
    let cluster = lab.shared();
    let widgets = outdated(cluster, "refusals", OBJECTS).await;
    let mended = Arc::new(AtomicBool::new(false));
    let now = Arc::clone(&mended);
    let rule = move |seen: &Seen, _: usize| match number(seen) {
        _ if now.load(Ordering::SeqCst) => Action::Forward,
        Some(10) => status(500, "InternalError", "the webhook of team blue has panicked"),
        Some(60) => Action::reply(413, "the body is too large"),
        Some(110) => status(415, "UnsupportedMediaType", "no merge patch here"),
        Some(160) => status(422, "Invalid", "spec.size: must be even"),
        _ => Action::Forward,
    };
    let (recorder, traffic) = Traffic::record(cluster, rule).await;
    let restow = Restow::with_kubeconfig(recorder.kubeconfig().to_owned());
    let flags = ["--pace", "fast", "--page-size", "50"];
    let report = restow.migrate(&widgets.name(), &flags).await.expect(3).resource();
    assert_eq!((&report["rewritten"], &report["verified"]), (&json!(OBJECTS - 4), &json!(false)), "{report}");
    let mut left: Vec<_> = report["quarantined"]
        .as_array()
        .unwrap()
        .iter()
        .map(|object| ["name", "reason", "message"].map(|key| object[key].as_str().unwrap()))
        .collect();
    left.sort_unstable();
    let names = [10, 60, 110, 160].map(name);
    let expected = [
        [&names[0], "InternalError", "the webhook of team blue has panicked"],
        [&names[1], "RequestEntityTooLarge", "the body is too large"],
        [&names[2], "UnsupportedMediaType", "no merge patch here"],
        [&names[3], "Invalid", "spec.size: must be even"],
    ];
    assert_eq!(left, expected);
    let tries = [10, 60, 110, 160].map(|number| traffic.patches_of(&name(number)).len());
    // Each is tried once more when its refusal has had time to pass.
    assert!((4..=20).contains(&tries[0]) && tries[1..] == [2, 2, 2], "{tries:?}");
    assert_eq!(widgets.stored_as(cluster).await[&format!("{}/v1", widgets.group())], 4);

    mended.store(true, Ordering::SeqCst);
    let report = restow.migrate(&widgets.name(), &["--retry-quarantined"]).await.expect(0).resource();
    assert_eq!((&report["rewritten"], &report["verified"]), (&json!(OBJECTS), &json!(true)), "{report}");
    rewritten_once(cluster, &widgets, OBJECTS).await;
}

/// Credentials that end in the middle, and are not renewed, end the run: for writes alone, and for everything.
async fn credentials_run_out(lab: Lab) {
    const OBJECTS: usize = 300;
    let cluster = lab.shared();
    let widgets = outdated(cluster, "logouts", OBJECTS).await;
    let restow = Restow::new(cluster);
    for (run, only_writes) in [(0, true), (1, false)] {
        let patches = AtomicUsize::new(0);
        let rule = move |seen: &Seen, _: usize| {
            let write = number(seen).is_some();
            let sent = patches.fetch_add(usize::from(write), Ordering::SeqCst);
            if sent < 70 || (only_writes && !write) {
                return Action::Forward;
            }
            status(401, "Unauthorized", "Unauthorized")
        };
        let (recorder, traffic) = Traffic::record(cluster, rule).await;
        let through = recorder.kubeconfig().to_str().unwrap();
        let (resource, began) = (widgets.name(), Instant::now());
        let flags = ["--kubeconfig", through, "--page-size", "50", "--max-in-flight", "4", "--resume"];
        let ran = restow.run(&[&["migrate", &resource], &flags[..]].concat()).await.expect(1);
        assert!(began.elapsed() < Duration::from_secs(150));
        assert!(ran.stdout.contains("credentials") || ran.stdout.contains("Unauthorized"), "{ran:#?}");
        assert!(ran.stdout.contains("--resume"), "{ran:#?}");
        let requests = traffic.requests();
        let sent = traffic.patches();
        // The 4 under way are tried until renewed credentials would have come, with growing pauses, and no others.
        let last = traffic.patches_of("")[70].at;
        let after = requests.iter().filter(|request| request.at > last).count();
        assert!(after <= 250, "{after} more requests after the first 401, {sent} writes");
        let tried: HashSet<String> =
            traffic.patches_of("").split_off(70).into_iter().map(|request| request.path).collect();
        assert!(tried.len() <= 5, "4 at once, and one that was written before: {tried:?}");
        // What was written of the page is kept.
        assert_eq!(restow.listed(&resource, "counts"), 70 * (run + 1), "{ran:#?}");
    }
    verified(restow.migrate(&widgets.name(), &["--resume", "--pace", "fast"]).await, OBJECTS);
    rewritten_once(cluster, &widgets, OBJECTS).await;
}

/// Errors that may be an object's own are no object's own when nothing else can be written either.
async fn writes_that_all_fail_for_a_while(lab: Lab) {
    const OBJECTS: usize = 60;
    const PAGE: usize = 20;
    let cluster = lab.shared();
    let widgets = outdated(cluster, "outcries", OBJECTS).await;
    let out = Arc::new(AtomicBool::new(true));
    let still = Arc::clone(&out);
    let rule = move |seen: &Seen, _: usize| match number(seen) {
        Some(_) if still.load(Ordering::SeqCst) => {
            status(500, "InternalError", "the webhook of team red is down")
        }
        _ => Action::Forward,
    };
    let (recorder, traffic) = Traffic::record(cluster, rule).await;
    let restow = Restow::with_kubeconfig(recorder.kubeconfig().to_owned());
    let flags = ["--pace", "fast", "--page-size", "20", "-o", "json"];
    let mut child = restow.start(&widgets.name(), &flags);
    // Seven tries of each object of the first page: more than any object of its own fault has.
    traffic.reach(7 * PAGE, &mut child).await;
    assert_eq!(restow.listed(&widgets.name(), "counts"), 0);
    out.store(false, Ordering::SeqCst);
    let report = verified(ended(child).await, OBJECTS);
    assert_eq!(report["rewritten"], OBJECTS, "{report}");
    rewritten_once(cluster, &widgets, OBJECTS).await;
}

/// Where no other object is left to show that the server is well, one that was written is asked for.
async fn the_last_write_never_succeeds(lab: Lab) {
    const OBJECTS: usize = 40;
    let cluster = lab.shared();
    let widgets = outdated(cluster, "lasts", OBJECTS).await;
    let rule = |seen: &Seen, _: usize| match number(seen) {
        Some(39) => status(500, "InternalError", "the webhook of team blue has panicked"),
        _ => Action::Forward,
    };
    let (recorder, traffic) = Traffic::record(cluster, rule).await;
    let restow = Restow::with_kubeconfig(recorder.kubeconfig().to_owned());
    let began = Instant::now();
    let flags = ["--max-in-flight", "1", "--page-size", "20"];
    let report = restow.migrate(&widgets.name(), &flags).await.expect(3).resource();
    assert!(began.elapsed() < Duration::from_secs(60), "{:?}", began.elapsed());
    assert_eq!(
        (&report["rewritten"], &report["quarantined"][0]["name"]),
        (&json!(39), &json!(name(39))),
        "{report}"
    );
    let is_dry = |request: &Request| request.query == "dryRun=All";
    let (dry, sent): (Vec<_>, Vec<_>) = traffic.patches_of(&name(39)).into_iter().partition(is_dry);
    assert_eq!(sent.len(), 10, "five times, and five times more 15 seconds later");
    let asked = traffic.requests().iter().filter(|request| is_dry(request)).count();
    assert_eq!((dry.len(), asked - dry.len()), (8, 8), "this one and another one, before each further try");
}

async fn pages_that_expire(lab: Lab) {
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

async fn stopped_by_signals(lab: Lab) {
    const OBJECTS: usize = 400;
    const PAGE: usize = 50;
    let cluster = lab.shared();
    let widgets = outdated(cluster, "signals", OBJECTS).await;
    let (recorder, traffic) = Traffic::record(cluster, |_, _| Action::Forward).await;
    let restow = Restow::with_kubeconfig(recorder.kubeconfig().to_owned());
    let flags = ["--pace", "fast", "--page-size", "50"];
    let resume = [&flags[..], &["--resume"]].concat();
    for (stop, flags, patches, phase) in [
        (Signal::INT, &flags[..], 120, "rewriting"),
        (Signal::TERM, &resume[..], 240, "rewriting"),
        (Signal::INT, &resume[..], OBJECTS + 2 * PAGE + 120, "verifying"),
    ] {
        let mut child = restow.start(&widgets.name(), flags);
        traffic.reach(patches, &mut child).await;
        signal(&child, stop);
        let told = Instant::now();
        let ran = ended(child).await.expect(130);
        assert!(told.elapsed() < Duration::from_secs(10), "{:?}", told.elapsed());
        assert!(ran.stderr.contains("stopping"), "{ran:#?}");
        let command = format!("migrate {} --resume", widgets.name());
        assert!(ran.stdout.contains("stopped") && ran.stdout.contains(&command), "{ran:#?}");
        assert_eq!(restow.progress(&widgets.name()).unwrap()["phase"], phase);
    }
    let report = verified(restow.migrate(&widgets.name(), &resume).await, OBJECTS);
    assert_eq!(report["listed"], OBJECTS, "{report}");
    assert!(traffic.patches() <= 2 * OBJECTS + 3 * PAGE, "{}", traffic.patches());
    rewritten_once(cluster, &widgets, OBJECTS).await;
}

/// A write that gets no answer holds the first ctrl-C up, and the second does not wait for it.
async fn stopped_by_a_second_signal(lab: Lab) {
    const OBJECTS: usize = 60;
    let cluster = lab.shared();
    let widgets = outdated(cluster, "impatience", OBJECTS).await;
    let rule = |seen: &Seen, before: usize| match number(seen) {
        Some(30) if before == 0 => Action::Wait(Box::pin(std::future::pending())),
        _ => Action::Forward,
    };
    let (recorder, traffic) = Traffic::record(cluster, rule).await;
    let restow = Restow::with_kubeconfig(recorder.kubeconfig().to_owned());
    let said = restow.state.path().join("stderr");
    let mut child = restow
        .command(&["migrate", &widgets.name(), "--page-size", "20"])
        .stderr(std::fs::File::create(&said).unwrap())
        .spawn()
        .unwrap();
    wait("the write to be held", || async { !traffic.patches_of(&name(30)).is_empty() }).await;
    signal(&child, Signal::INT);
    wait("restow to say that it stops", || async {
        std::fs::read_to_string(&said).unwrap().contains("ctrl-C again")
    })
    .await;
    assert!(child.try_wait().unwrap().is_none(), "it did not wait for what is under way");
    signal(&child, Signal::INT);
    let told = Instant::now();
    ended(child).await.expect(130);
    assert!(told.elapsed() < Duration::from_secs(5), "{:?}", told.elapsed());
    verified(restow.migrate(&widgets.name(), &["--resume"]).await, OBJECTS);
    rewritten_once(cluster, &widgets, OBJECTS).await;
}

/// Reading holds nothing up: a server that hangs between two pages does not hold ctrl-C up.
async fn stopped_while_nothing_answers(lab: Lab) {
    const OBJECTS: usize = 60;
    let cluster = lab.shared();
    let widgets = outdated(cluster, "hangs", OBJECTS).await;
    let hung = Arc::new(AtomicBool::new(false));
    let (patches, hangs) = (AtomicUsize::new(0), Arc::clone(&hung));
    let rule = move |seen: &Seen, _: usize| {
        let sent = patches.fetch_add(usize::from(number(seen).is_some()), Ordering::SeqCst);
        if sent < 20 || number(seen).is_some() {
            return Action::Forward;
        }
        hangs.store(true, Ordering::SeqCst);
        Action::Wait(Box::pin(std::future::pending()))
    };
    let (recorder, _traffic) = Traffic::record(cluster, rule).await;
    let restow = Restow::new(cluster);
    let through = recorder.kubeconfig().to_str().unwrap();
    let mut child = restow.start(&widgets.name(), &["--kubeconfig", through, "--page-size", "20"]);
    kept(&restow, &widgets, "counts", 20, &mut child).await;
    wait("the server to hang", || async { hung.load(Ordering::SeqCst) }).await;
    signal(&child, Signal::INT);
    let told = Instant::now();
    let ran = ended(child).await.expect(130);
    assert!(told.elapsed() < Duration::from_secs(10), "{:?}", told.elapsed());
    assert!(ran.stdout.contains("--resume"), "{ran:#?}");
    verified(restow.migrate(&widgets.name(), &["--resume"]).await, OBJECTS);
    rewritten_once(cluster, &widgets, OBJECTS).await;
}
