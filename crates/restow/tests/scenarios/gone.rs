//! A resource that is no longer served, and one whose server only does not answer.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use restow_lab::{Action, ClusterSpec, Part};
use serde_json::{Value, json};

use crate::controller::{Controller, STATES, ask_for, is, migration, migrations, prepared, wait_for};
use crate::support::{CRDS, Lab, Restow, Widgets, create_all, name, send, try_send, wait};
use crate::traffic::{Traffic, status};

scenarios! {
    a_resource_missing_on_a_starting_server_does_not_count_as_gone,
    ; real:
    // It needs an aggregated API server.
    an_unavailable_aggregated_server_does_not_count_as_gone,
}

const FLUNDERS: &str = "flunders.wardle.example.com";

async fn an_unavailable_aggregated_server_does_not_count_as_gone(lab: Lab) {
    let cluster = lab.cluster(ClusterSpec::new().aggregated()).await;
    let (client, restow) = prepared(&cluster).await;
    let flunder = |index| json!({"apiVersion": "wardle.example.com/v1alpha1", "kind": "Flunder", "metadata": {"name": name(index)}, "spec": {}});
    create_all(&client, "/apis/wardle.example.com/v1alpha1/namespaces/default/flunders", 0..20, flunder)
        .await;
    let widgets = Widgets { plural: "passings" };
    widgets.define(&client).await;
    let resources = format!("{FLUNDERS},{}", widgets.name());
    let args = ["--resources", &resources, "--poll-interval", "1s", "--assume-single-server"];
    let _controller = Controller::start(&restow, &args).await;
    let state = async |name: &str| try_send(&client, "GET", &format!("{STATES}/{name}"), None).await.ok();
    let settled = |state: Option<Value>| {
        state.is_some_and(|state| {
            let status = &state["status"];
            !status["currentStorageVersionHash"].is_null()
                && status["persistedStorageVersionHashes"] == json!([status["currentStorageVersionHash"]])
        })
    };
    for name in [FLUNDERS, &widgets.name()] {
        wait(&format!("{name} to be settled"), || async { settled(state(name).await) }).await;
    }
    assert_eq!(migrations(&client, FLUNDERS).await[0]["status"]["progress"]["current"], 20);
    let before = state(FLUNDERS).await.unwrap();

    // Down: its state stays as it was, for as long as another resource's goes on being looked at.
    cluster.kill(Part::Aggregated).unwrap();
    ask_for(&client, "patient", FLUNDERS).await;
    wait("the migration to say what it waits for", || async {
        let waits = migration(&client, "patient").await["status"]["conditions"][0].clone();
        waits["reason"] == "WaitingForServer"
    })
    .await;
    let heartbeat = async || state(&widgets.name()).await.unwrap()["status"]["lastHeartbeatTime"].clone();
    let (first, mut beats) = (heartbeat().await, 0);
    let mut last = first;
    while beats < 3 {
        wait("another look", || async { heartbeat().await != last }).await;
        last = heartbeat().await;
        beats += 1;
    }
    let during = state(FLUNDERS).await.expect("the state of a server that is down");
    assert_eq!(during["metadata"]["uid"], before["metadata"]["uid"]);
    assert_eq!(during["status"], before["status"]);

    // Up again: what waited goes on.
    cluster.restart(Part::Aggregated).await.unwrap();
    wait_for(&client, "patient", "Succeeded").await;

    // A definition that is deleted is really gone, and what was kept of it with it.
    send(&client, "DELETE", &format!("{CRDS}/{}", widgets.name()), None).await;
    wait("its state to go", || async { state(&widgets.name()).await.is_none() }).await;
    assert!(state(FLUNDERS).await.is_some());
}

async fn a_resource_missing_on_a_starting_server_does_not_count_as_gone(lab: Lab) {
    const DEPLOYMENTS: &str = "deployments.apps";
    let cluster = lab.cluster(ClusterSpec::new()).await;
    let (client, _) = prepared(&cluster).await;
    let widgets = Widgets { plural: "lingerings" };
    widgets.define(&client).await;
    // A server that starts lists the groups it has registered by then, and is not ready.
    let mut groups = send(&client, "GET", "/apis", None).await;
    groups["groups"].as_array_mut().unwrap().retain(|group| group["name"] != "apps");
    let starts = Arc::new(AtomicBool::new(false));
    let starting = Arc::clone(&starts);
    let rule = move |seen: &restow_lab::Seen, _| match seen.path.as_str() {
        _ if !starting.load(Ordering::SeqCst) => Action::Forward,
        "/apis" => Action::reply(200, &groups.to_string()),
        "/readyz" => {
            status(500, "InternalError", "[-]poststarthook/apiservice-registration-controller failed")
        }
        _ => Action::Forward,
    };
    let (recorder, _traffic) = Traffic::record(&cluster, rule).await;
    let restow = Restow::with_kubeconfig(recorder.kubeconfig().to_owned());
    let resources = format!("{DEPLOYMENTS},{}", widgets.name());
    let _controller = Controller::start(&restow, &["--resources", &resources, "--poll-interval", "1s"]).await;
    let state = async |name: &str| try_send(&client, "GET", &format!("{STATES}/{name}"), None).await.ok();
    let heartbeat =
        async |name: &str| state(name).await.map(|state| state["status"]["lastHeartbeatTime"].clone());
    wait("both to be looked after", || async {
        heartbeat(DEPLOYMENTS).await.is_some() && heartbeat(&widgets.name()).await.is_some()
    })
    .await;
    let before = state(DEPLOYMENTS).await.unwrap()["metadata"]["uid"].clone();
    starts.store(true, Ordering::SeqCst);
    // Somebody asks for a migration of what cannot be found for the moment.
    ask_for(&client, "early", DEPLOYMENTS).await;
    wait("the migration to say that it waits", || async {
        let early = migration(&client, "early").await;
        assert!(!is(&early, "Failed"), "{early:#}");
        early["status"]["conditions"][0]["reason"] == "WaitingForServer"
    })
    .await;
    let mut last = heartbeat(&widgets.name()).await;
    for _ in 0..5 {
        wait("another look", || async { heartbeat(&widgets.name()).await != last }).await;
        last = heartbeat(&widgets.name()).await;
    }
    let during = state(DEPLOYMENTS).await.expect("the state of a built-in resource");
    assert_eq!(during["metadata"]["uid"], before);
    // Ready, it serves it as before.
    starts.store(false, Ordering::SeqCst);
    let last = heartbeat(DEPLOYMENTS).await;
    wait("it to be looked at again", || async { heartbeat(DEPLOYMENTS).await != last }).await;
    assert_eq!(state(DEPLOYMENTS).await.unwrap()["metadata"]["uid"], before);
    wait_for(&client, "early", "Succeeded").await;
}
