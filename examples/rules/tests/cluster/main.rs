//! The rules on a real kube-apiserver and on the embedded one: pages go through all versions and back, under reads and writes in
//! every version. The test judges by the stored bytes.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs, clippy::disallowed_methods)]

// Links to the pages and servers of `examples/operator`, whose versions are the same.
mod pages;
mod servers;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube_core::CustomResourceExt as _;
use restow_convert::rules::ConversionRules;
use restow_core::rewrite::pace::Preset;
use restow_lease::Stop;
use restow_migrate::cluster::{Cluster, Trust};
use restow_operator::{Crds, definitions_from_yaml};
use restow_webhook::certificates::rotation::{Lifetimes, Wanted};
use restow_webhook::certificates::{CertificateKeeper, CertificateSettings, SharedTrust};
use restow_webhook::registration::{Endpoint, Registrar, RegistrationSettings, RulesGates};
use restow_webhook::rules::RulesFollower;
use restow_webhook::{LiveConverters, Server};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use pages::{check, create, expected, get, load, name, path, send, write_once};
use servers::{Bench, wait};

const CRDS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const PAGES: usize = 6;

/// Does what `restow webhook --url` does, until it is stopped.
async fn webhook(client: kube::Client, stop: CancellationToken) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("https://127.0.0.1:{}/convert", listener.local_addr().unwrap().port());
    let endpoint = Endpoint::url(&url).unwrap();
    let live = Arc::new(LiveConverters::default());
    let follower = Arc::new(RulesFollower::new(client.clone(), Arc::clone(&live), "replica", Vec::new()));
    let check_every = Duration::from_millis(500);
    let certificates = CertificateSettings {
        namespace: "default".to_owned(),
        secret: "pages".to_owned(),
        foreign: false,
        wanted: Wanted { names: endpoint.names(), lifetimes: Lifetimes::default() },
        check_every,
    };
    let trust = Arc::<SharedTrust>::default();
    let keeper = CertificateKeeper::new(client.clone(), certificates.clone(), Arc::clone(&trust));
    let settings = RegistrationSettings {
        endpoint,
        certificates,
        crds: None,
        check_every,
        instance: "replica".to_owned(),
    };
    let registrar = Registrar::new(client, settings, RulesGates::new(Arc::clone(&follower)), trust);
    let until = Stop::from(stop.clone());
    let serve = Server::new(live).serve(listener, keeper.serving(), stop.clone());
    let (served, ..) = tokio::join!(serve, follower.run(&stop), keeper.run(&until), registrar.run(&until));
    served.unwrap();
}

/// The CRD of the example, with another storage version.
fn definition(storage: &str) -> CustomResourceDefinition {
    let mut definition = definitions_from_yaml(rules::CRD).unwrap().remove(0);
    for version in &mut definition.spec.versions {
        version.storage = version.name == storage;
    }
    definition
}

/// Sets the storage version, rewrites everything, verifies it and prunes. The conversion stays as the webhook registered it.
async fn store_as(client: &kube::Client, stop: &Stop, storage: &str) {
    let own = client.clone();
    let cluster = Cluster::over("https://one", Trust::Single, move |_| own.clone());
    Crds::in_cluster(cluster, [definition(storage)]).pace(Preset::Fast).run(stop).await;
    let crd = get(client, &format!("{CRDS}/pages.example.com")).await;
    assert_eq!(crd["status"]["storedVersions"], json!([storage]), "{crd:#}");
    assert_eq!(crd["spec"]["conversion"]["strategy"], "Webhook");
}

/// Defines pages and rules, starts the webhook, and makes pages when API servers call it.
async fn prepare(client: &kube::Client, stop: &CancellationToken) -> JoinHandle<()> {
    for crd in [json!(ConversionRules::crd()), json!(definition("v1alpha1"))] {
        send(client, "POST", CRDS, Some(&crd)).await.unwrap();
    }
    let all_rules = "/apis/restow.dev/v1alpha1/conversionrules";
    wait("the CRDs to be served", || async {
        let pages = path("v1alpha1", "");
        send(client, "GET", all_rules, None).await.is_ok() && send(client, "GET", &pages, None).await.is_ok()
    })
    .await;
    create(client, 0..1).await;
    let serving = tokio::spawn(webhook(client.clone(), stop.clone()));
    let rules: Value = serde_saphyr::from_str(rules::RULES).unwrap();
    send(client, "POST", all_rules, Some(&rules)).await.unwrap();
    // When the webhook is registered, API servers hear of it a moment later.
    wait("API servers to convert", || async {
        get(client, &path("v1", &name(0))).await["spec"] == expected(0, "v1", 0)
    })
    .await;
    create(client, 1..PAGES).await;
    serving
}

// Only on a real kube-apiserver: in this process, the migration and the embedded server would share one stack, which is too
// small for both in a debug build. examples/operator goes the same way on both, in processes of its own.
#[tokio::test(flavor = "multi_thread")]
async fn pages_go_through_all_versions_and_back() {
    let Some(bench) = Bench::real("rules::pages_go_through_all_versions_and_back").await else { return };
    let (client, stop) = (bench.client(), CancellationToken::new());
    let serving = prepare(&client, &stop).await;
    check(&client, &bench.stored().await, "v1alpha1", &[0; PAGES]).await;
    let (stopping, mut rounds) = (Stop::from(stop.clone()), vec![0; PAGES]);
    for version in ["v1beta1", "v1", "v1beta1", "v1alpha1"] {
        let done = AtomicBool::new(false);
        let before = rounds.clone();
        let change = async {
            store_as(&client, &stopping, version).await;
            done.store(true, Ordering::SeqCst);
        };
        futures::join!(load(&client, &mut rounds, &done), change);
        assert!(rounds.iter().zip(&before).all(|(now, before)| now > before), "{rounds:?}");
        check(&client, &bench.stored().await, version, &rounds).await;
    }
    stop.cancel();
    serving.await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn the_embedded_server_takes_writes_in_every_version() {
    const ROUNDS: usize = 6;
    let bench = Bench::embedded().await;
    let (client, stop) = (bench.client(), CancellationToken::new());
    let serving = prepare(&client, &stop).await;
    for round in 1..=ROUNDS {
        futures::future::join_all((0..PAGES).map(|index| write_once(&client, index, round))).await;
    }
    check(&client, &bench.stored().await, "v1alpha1", &[ROUNDS; PAGES]).await;
    stop.cancel();
    serving.await.unwrap();
}
