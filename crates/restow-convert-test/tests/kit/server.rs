//! The version harness on API servers: each step is judged by the stored bytes.

use std::convert::Infallible;
use std::sync::Arc;

use restow_convert::Converter;
use restow_convert_test::{Converted, Failures, OnServer, StepsError, VersionTest};
use restow_lab::{Cluster, ClusterSpec, assets};
use serde_json::{Value, json};

use crate::backup::{FORGETFUL, backup, chain, definition};

fn seed() -> Value {
    backup("v1beta1", json!({"schedule": "0 3 * * *", "timezone": "UTC"}))
}

/// The stored object is of the version of the step, and has its fields.
async fn is_stored(step: &Converted) -> Result<(), StepsError> {
    let stored = step.stored.as_ref().ok_or("nothing was read from the store")?;
    let field = if step.version == "v1" { "cron" } else { "schedule" };
    let is_of_version = stored["apiVersion"] == format!("example.com/{}", step.version);
    if is_of_version && stored["spec"][field] == "0 3 * * *" {
        Ok(())
    } else {
        Err(format!("stored: {stored}").into())
    }
}

async fn run(mut steps: OnServer) -> Result<(), Failures> {
    let ran = VersionTest::new(&definition(), seed()).run(&mut steps, is_stored).await;
    steps.end().await.unwrap();
    ran
}

#[tokio::test]
async fn an_embedded_server_stores_every_version() {
    run(OnServer::embedded(&definition(), chain()).await.unwrap()).await.unwrap();
}

#[tokio::test]
async fn a_real_server_stores_every_version() {
    let Some(assets) = assets::or_skip("kit::a_real_server_stores_every_version") else { return };
    let cluster = Arc::new(Cluster::start(&assets, ClusterSpec::new()).await.unwrap());
    let steps = OnServer::on(cluster.client(0).unwrap(), &definition(), chain()).await.unwrap();
    let steps = steps.stored(move |key| {
        let cluster = Arc::clone(&cluster);
        async move { Ok(cluster.store().get(&key).await?) }
    });
    run(steps).await.unwrap();
}

#[tokio::test]
async fn a_converter_that_forgets_fails_at_the_end() {
    let forgetful = Converter::new("example.com", "Backup", ["v1beta1", "v1"], FORGETFUL);
    let mut steps = OnServer::embedded(&definition(), forgetful).await.unwrap();
    let nothing = async |_: &Converted| Ok::<_, Infallible>(());
    let failures = VersionTest::new(&definition(), seed()).run(&mut steps, nothing).await.unwrap_err();
    assert!(failures.to_string().contains("-   timezone: UTC"), "{failures}");
}
