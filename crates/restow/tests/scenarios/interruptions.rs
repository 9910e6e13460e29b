//! A run continues after kills, restarts and failing connections, and loses and repeats nothing.

use std::collections::{BTreeMap, HashSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use http::Method;
use restow_lab::{Action, ClusterSpec, Part, Proxy, Seen};
use serde_json::json;

use crate::expected::{is_page, kept, outdated, rewritten_once, verified};
use crate::support::{Lab, Restow, send, wait};
use crate::traffic::{Traffic, ended, number, status};

scenarios! {
    a_run_survives_twenty_kills,
    a_run_survives_cut_and_refused_connections,
    ; real:
    // It kills and pauses etcd.
    a_run_survives_restarts_of_the_servers,
    // It counts the requests to a server that registers no storage versions.
    a_run_survives_a_temporary_failure_of_any_request,
}

async fn a_run_survives_twenty_kills(lab: Lab) {
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

async fn a_run_survives_restarts_of_the_servers(lab: Lab) {
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

async fn a_run_survives_cut_and_refused_connections(lab: Lab) {
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

/// Fails each kind of request twice during a run, one kind after the other.
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

async fn a_run_survives_a_temporary_failure_of_any_request(lab: Lab) {
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
