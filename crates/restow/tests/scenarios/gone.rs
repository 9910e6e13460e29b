//! A resource that is served no more, and one whose server only cannot be asked.

use restow_lab::{ClusterSpec, Part};
use serde_json::{Value, json};

use crate::controller::{Controller, STATES, ask_for, migration, migrations, prepared, wait_for};
use crate::support::{CRDS, Widgets, cluster, create_all, lab, name, send, try_send, wait};

const FLUNDERS: &str = "flunders.wardle.example.com";

#[tokio::test]
async fn an_aggregated_server_that_is_down_is_not_gone() {
    let assets = lab!();
    let cluster = cluster(&assets, ClusterSpec::new().aggregated()).await;
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
