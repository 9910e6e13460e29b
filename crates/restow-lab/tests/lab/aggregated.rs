//! The aggregated API server behind two API servers: reached through both, stopped and started.

use std::time::Duration;

use http::Request;
use kube::Client;
use restow_lab::{Cluster, ClusterSpec, Part, assets};

async fn discover(client: &Client) -> Result<String, kube::Error> {
    client.request_text(Request::get("/apis/wardle.example.com/v1alpha1").body(Vec::new()).unwrap()).await
}

#[tokio::test(flavor = "multi_thread")]
async fn an_aggregated_server_is_reached_through_every_api_server() {
    let Some(assets) = assets::aggregated_or_skip("an aggregated API server") else { return };
    let cluster = Cluster::start(&assets, ClusterSpec::new().servers(2).aggregated()).await.unwrap();
    let clients = [cluster.client(0).unwrap(), cluster.client(1).unwrap()];
    for client in &clients {
        assert!(discover(client).await.unwrap().contains("\"flunders\""));
    }
    // Who asks is passed on with the question.
    let list = Request::get("/apis/wardle.example.com/v1alpha1/flunders").body(Vec::new()).unwrap();
    let refused = cluster.client_as(0, "alice").unwrap().request_text(list).await.unwrap_err();
    assert!(refused.to_string().contains("alice"), "{refused}");

    cluster.pause(Part::Aggregated).unwrap();
    let stuck = tokio::time::timeout(Duration::from_secs(1), discover(&clients[0])).await;
    assert!(stuck.is_err(), "a paused server does not answer");
    cluster.unpause(Part::Aggregated).unwrap();
    cluster.wait_ready(Part::Aggregated).await.unwrap();

    cluster.kill(Part::Aggregated).unwrap();
    for client in &clients {
        assert!(discover(client).await.is_err());
    }
    cluster.restart(Part::Aggregated).await.unwrap();
    for client in &clients {
        discover(client).await.unwrap();
    }
}
