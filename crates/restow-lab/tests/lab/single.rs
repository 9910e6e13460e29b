//! One server: what it stores, and what becomes of it under kill and pause.

use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use kube::{Api, Client};
use restow_lab::{Cluster, ClusterSpec, Part, assets};
use serde_json::json;

/// Makes a ConfigMap of this name in the default namespace.
async fn make_config_map(client: &Client, name: &str) -> kube::Result<ConfigMap> {
    let object = serde_json::from_value(json!({ "metadata": { "name": name }, "data": { "a": "b" } }));
    Api::default_namespaced(client.clone()).create(&Default::default(), &object.unwrap()).await
}

#[tokio::test(flavor = "multi_thread")]
async fn one_server_stores_and_survives() {
    let Some(assets) = assets::or_skip("one_server_stores_and_survives") else { return };
    let cluster = Cluster::start(&assets, ClusterSpec::new()).await.unwrap();
    let client = cluster.client(0).unwrap();

    make_config_map(&client, "one").await.unwrap();
    let stored = cluster.etcd().get("/registry/configmaps/default/one").await.unwrap().unwrap();
    assert!(stored.starts_with(b"k8s\0"), "{stored:?}");

    for part in [Part::ApiServer(0), Part::Etcd] {
        let pid = cluster.pid(part).unwrap();
        cluster.kill(part).unwrap();
        let answer = tokio::time::timeout(Duration::from_secs(1), make_config_map(&client, "never")).await;
        assert!(!matches!(answer, Ok(Ok(_))), "{part} is dead");
        cluster.restart(part).await.unwrap();
        assert_ne!(cluster.pid(part).unwrap(), pid);
    }
    // A server may be told of its store's return a little late.
    cluster.wait_ready(Part::ApiServer(0)).await.unwrap();
    make_config_map(&client, "two").await.unwrap();

    cluster.pause(Part::ApiServer(0)).unwrap();
    let stuck = tokio::time::timeout(Duration::from_secs(1), make_config_map(&client, "three")).await;
    assert!(stuck.is_err(), "a paused server does not answer");
    cluster.unpause(Part::ApiServer(0)).unwrap();
    make_config_map(&client, "four").await.unwrap();

    let mut names = Vec::new();
    let prefix = "/registry/configmaps/default/";
    cluster.etcd().for_each(prefix, |key, _| names.push(key.replace(prefix, ""))).await.unwrap();
    for name in ["one", "two", "four"] {
        assert!(names.iter().any(|found| found == name), "{name} in {names:?}");
    }

    let memory = cluster.memory(Part::ApiServer(0)).unwrap();
    assert!(memory.current > 50 << 20 && memory.peak >= memory.current, "{memory:?}");

    let dir = cluster.dir().to_owned();
    let pids: Vec<_> = cluster.parts().map(|part| cluster.pid(part).unwrap()).collect();
    cluster.stop();
    assert!(!dir.exists());
    assert!(pids.iter().all(|pid| !std::path::Path::new(&format!("/proc/{pid}")).exists()));
}
