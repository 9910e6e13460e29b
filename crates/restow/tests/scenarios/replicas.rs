//! Controllers that are killed, paused and replaced do everything once.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use restow_core::resource::hash::storage_version_hash;
use restow_core::resource::name::GroupVersion;
use restow_lab::{Action, Cluster, ClusterSpec, Recorder};
use rustix::process::Signal;
use serde_json::Value;

use crate::controller::{Controller, MIGRATIONS, STATES, is, migrations, prepared};
use crate::support::{Lab, Restow, Widgets, send, try_send, wait};
use crate::traffic::Traffic;

scenarios! {
    ten_migrations_complete_under_twenty_kills_and_a_paused_leader,
}

const PLURALS: [&str; 10] = ["ra", "rb", "rc", "rd", "re", "rf", "rg", "rh", "ri", "rj"];
const MANY: usize = 40;
const PAGE: usize = 10;
const KILLS: usize = 20;
const LEASE: &str = "/apis/coordination.k8s.io/v1/namespaces/default/leases/restow";

/// Two replicas, each behind a recorder of its own.
struct Replicas<'a> {
    restows: Vec<(Restow, Recorder, Arc<Traffic>)>,
    names: &'a str,
}

impl Replicas<'_> {
    async fn start(&self, index: usize) -> Controller {
        let page = PAGE.to_string();
        let args = [
            "--leader-elect=true",
            "--leader-election-namespace",
            "default",
            "--lease-duration",
            "2s",
            "--resources",
            self.names,
            "--page-size",
            &page,
            "--max-in-flight",
            "1",
            "--pace",
            "fast",
        ];
        Controller::start(&self.restows[index].0, &args).await
    }

    /// Writes to objects, not to what restow keeps its progress in.
    fn writes(&self) -> Vec<Vec<String>> {
        let of = |traffic: &Traffic| {
            let sent = traffic.requests().into_iter().filter(|request| request.method == "PATCH");
            sent.map(|request| request.path).filter(|path| path.contains("/namespaces/default/r")).collect()
        };
        self.restows.iter().map(|(_, _, traffic)| of(traffic)).collect()
    }
}

async fn replicas<'a>(cluster: &Cluster, names: &'a str) -> Replicas<'a> {
    let mut restows = Vec::new();
    for _ in 0..2 {
        let (recorder, traffic) = Traffic::record(cluster, |_, _| Action::Forward).await;
        restows.push((Restow::with_kubeconfig(recorder.kubeconfig().to_owned()), recorder, traffic));
    }
    Replicas { restows, names }
}

async fn holder(client: &kube::Client) -> String {
    let lease = try_send(client, "GET", LEASE, None).await.unwrap_or_default();
    lease["spec"]["holderIdentity"].as_str().unwrap_or_default().to_owned()
}

/// Watches all along: no state may be refined before its migration has succeeded, and each succeeds once.
struct Watch {
    succeeded: Mutex<BTreeMap<String, (String, String)>>,
    wrong: Mutex<Vec<String>>,
}

impl Watch {
    async fn look(&self, client: &kube::Client) {
        // States first: what a state says must have been true before.
        let states = send(client, "GET", STATES, None).await;
        let all = send(client, "GET", MIGRATIONS, None).await;
        let mut wrong = self.wrong.lock().unwrap();
        for migration in all["items"].as_array().unwrap().iter().filter(|one| is(one, "Succeeded")) {
            let group = migration["spec"]["resource"]["group"].as_str().unwrap().to_owned();
            let conditions = migration["status"]["conditions"].as_array().unwrap();
            let when = conditions.iter().find(|one| one["type"] == "Succeeded").unwrap()["lastUpdateTime"]
                .to_string();
            let now = (migration["metadata"]["uid"].to_string(), when);
            let before = self.succeeded.lock().unwrap().insert(group.clone(), now.clone());
            if before.as_ref().is_some_and(|before| *before != now) {
                wrong.push(format!("{group} ended twice: {before:?}, {now:?}"));
            }
        }
        for state in states["items"].as_array().unwrap() {
            let group = state["spec"]["resource"]["group"].as_str().unwrap_or_default();
            let persisted = &state["status"]["persistedStorageVersionHashes"];
            let refined =
                *persisted == Value::Array(vec![state["status"]["currentStorageVersionHash"].clone()]);
            if refined && !self.succeeded.lock().unwrap().contains_key(group) {
                wrong.push(format!("{group} was refined early"));
            }
        }
    }
}

async fn ten_migrations_complete_under_twenty_kills_and_a_paused_leader(lab: Lab) {
    let cluster = lab.cluster(ClusterSpec::new()).await;
    let (client, _) = prepared(&cluster).await;
    let resources: Vec<Widgets> = PLURALS.iter().map(|plural| Widgets { plural }).collect();
    for widgets in &resources {
        widgets.define(&client).await;
        widgets.create(&client, MANY).await;
        widgets.store_as(&client, "v2").await;
    }
    let names = resources.iter().map(Widgets::name).collect::<Vec<_>>().join(",");
    let replicas = replicas(&cluster, &names).await;
    let watch = Arc::new(Watch { succeeded: Mutex::default(), wrong: Mutex::default() });
    let (watching, looking) = (Arc::clone(&watch), client.clone());
    let watcher = tokio::spawn(async move {
        loop {
            watching.look(&looking).await;
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    });

    let mut running = vec![replicas.start(0).await, replicas.start(1).await];
    wait("a leader", || async { !holder(&client).await.is_empty() }).await;
    let seed = fastrand::u64(..);
    eprintln!("seed {seed}");
    let mut random = fastrand::Rng::with_seed(seed);
    for _ in 0..KILLS {
        tokio::time::sleep(Duration::from_millis(random.u64(50..1500))).await;
        let which = random.usize(..2);
        running.remove(which).kill().await;
        running.insert(which, replicas.start(which).await);
    }

    // The leader is paused past its Lease; the other one takes over.
    wait("a leader after the kills", || async { !holder(&client).await.is_empty() }).await;
    let leads = holder(&client).await;
    running.iter().for_each(|one| one.signal(Signal::STOP));
    let paused = holder(&client).await;
    assert_eq!(paused, leads);
    // Whichever of the two is let go on, it is alone with the Lease of the one before.
    // Renewals from before do not count: the process that sent them may have been killed.
    let resumed = Instant::now();
    running[0].signal(Signal::CONT);
    wait("the one that runs to lead", || async {
        let now = holder(&client).await;
        !now.is_empty() && (now != paused || running_leads(&replicas, 0, resumed))
    })
    .await;
    let sent = replicas.writes()[1].len();
    running[1].signal(Signal::CONT);
    wait("all to be settled", || async { settled(&client, &resources).await }).await;
    let late = replicas.writes()[1].len() - sent;
    assert!(late <= 1, "a leader that was paused past its Lease sent {late} writes");

    watcher.abort();
    assert_eq!(*watch.wrong.lock().unwrap(), Vec::<String>::new());
    for widgets in &resources {
        let done = migrations(&client, &widgets.name()).await;
        assert_eq!(done.len(), 1, "{done:#?}");
        assert!(is(&done[0], "Succeeded"));
        assert_eq!(widgets.stored_as(&cluster).await[&format!("{}/v2", widgets.group())], MANY);
    }
    // Two passes, and at most a page sent again for each interruption.
    let writes: usize = replicas.writes().iter().map(Vec::len).sum();
    let most = PLURALS.len() * MANY * 2 + (KILLS + 1) * PAGE;
    assert!(writes <= most, "{writes} writes, at most {most} are needed");
    for one in running {
        assert!(one.stop().await);
    }
    assert_eq!(holder(&client).await, "", "the lead was not given back");
}

/// Whether a replica has renewed the Lease since.
fn running_leads(replicas: &Replicas<'_>, index: usize, since: Instant) -> bool {
    let (_, _, traffic) = &replicas.restows[index];
    let last = traffic.requests().into_iter().rev().find(|request| request.path.ends_with("/leases/restow"));
    last.is_some_and(|request| request.method == "PUT" && request.at > since)
}

async fn settled(client: &kube::Client, resources: &[Widgets]) -> bool {
    for widgets in resources {
        let hash = storage_version_hash(&GroupVersion::new(widgets.group(), "v2"), "Widget");
        let state = try_send(client, "GET", &format!("{STATES}/{}", widgets.name()), None).await;
        let settled = state
            .is_ok_and(|state| state["status"]["persistedStorageVersionHashes"] == serde_json::json!([hash]));
        if !settled {
            return false;
        }
    }
    true
}
