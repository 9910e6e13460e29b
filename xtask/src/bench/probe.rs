//! A simulated user, who reads and updates one ConfigMap and should not notice a migration.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use http::Method;
use serde_json::json;
use tokio::{
    sync::oneshot,
    task::{JoinHandle, JoinSet},
    time::MissedTickBehavior,
};

use super::link::{Call, Endpoint, Link, apart};

const CONFIG_MAPS: &str = "/api/v1/namespaces/default/configmaps";
const NAME: &str = "bench";
const JSON: &str = "application/json";
/// Twenty requests a second.
const EVERY: Duration = Duration::from_millis(50);
/// Requests that are not counted, while the connection is new.
const WARM_UP: usize = 10;

/// A running probe.
pub(crate) struct Probe {
    stop: oneshot::Sender<()>,
    latencies: JoinHandle<Result<Vec<Duration>>>,
}

impl Probe {
    /// Starts to send, on its own thread and connection.
    pub(crate) fn start(endpoint: &Endpoint) -> Self {
        let endpoint = endpoint.clone();
        let (stop, stopped) = oneshot::channel();
        let latencies = tokio::spawn(apart(move || async move { send(&endpoint, stopped).await }));
        Self { stop, latencies }
    }

    /// Stops it and returns the latencies of its requests.
    pub(crate) async fn stop(self) -> Result<Vec<Duration>> {
        self.stop.send(()).ok();
        self.latencies.await?
    }
}

/// Creates the ConfigMap.
pub(crate) async fn prepare(endpoint: &Endpoint) -> Result<()> {
    let object = config_map(0);
    endpoint.link().await?.json(Method::POST, CONFIG_MAPS, Some(&object)).await?;
    Ok(())
}

/// Sends at a fixed rate, whether earlier requests were answered or not.
async fn send(endpoint: &Endpoint, mut stopped: oneshot::Receiver<()>) -> Result<Vec<Duration>> {
    let link = endpoint.link().await?;
    let mut clock = tokio::time::interval(EVERY);
    clock.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut under_way = JoinSet::new();
    let mut number = 0;
    loop {
        tokio::select! {
            _ = clock.tick() => {}
            _ = &mut stopped => break,
        }
        let Some(link) = link.share() else { break };
        under_way.spawn(one(link, number));
        number += 1;
    }
    let mut latencies = Vec::with_capacity(number);
    while let Some(done) = under_way.join_next().await {
        let (number, took) = done??;
        if number >= WARM_UP {
            latencies.push(took);
        }
    }
    Ok(latencies)
}

/// One request: a read or an update, in turn.
async fn one(mut link: Link, number: usize) -> Result<(usize, Duration)> {
    let path = format!("{CONFIG_MAPS}/{NAME}");
    let call = if number.is_multiple_of(2) {
        Call::get(path, JSON)
    } else {
        Call::write(Method::PUT, path, JSON, config_map(number).to_string().into())
    };
    let sent = Instant::now();
    let (status, _) = link.send(call).await?;
    let took = sent.elapsed();
    // Two updates that overtake each other conflict, which is fine.
    ensure!(status.is_success() || status.as_u16() == 409, "the probe is answered with {status}");
    Ok((number, took))
}

fn config_map(number: usize) -> serde_json::Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": NAME}, "data": {"number": number.to_string()}})
}
