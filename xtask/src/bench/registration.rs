//! `cargo xtask bench-registration`: what registering storage versions costs an API server at its start.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail};
use clap::Args;
use futures::{StreamExt as _, TryStreamExt as _, stream};
use http::Method;
use kube::{
    Client, Config,
    config::{KubeConfigOptions, Kubeconfig},
};
use restow_apiserver::{Server, ServerSettings};
use restow_core::protocol::storage_version::Versions;
use restow_core::resource::name::{GroupResource, GroupVersion};
use restow_lab::{Action, Assets, Cluster, ClusterSpec, Observer, Part, Recorder, Seen};
use restow_lease::Stop;
use restow_storageversion::{
    Identity,
    registration::{Resource, register},
};
use restow_store::file::{self, FileStore};
use serde_json::json;
use tokio_util::sync::CancellationToken;

use super::{
    link::{Call, Endpoint},
    machine,
    report::{cells, table},
};

const CRDS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
/// CRDs that are created concurrently.
const AT_ONCE: usize = 16;

/// How many resources to register.
#[derive(Args)]
pub(crate) struct BenchRegistration {
    /// Numbers of CustomResourceDefinitions to start with, one after the other.
    #[arg(long, value_name = "N", value_delimiter = ',', default_value = "1,100,500")]
    definitions: Vec<usize>,
}

/// Counts what goes by.
#[derive(Default)]
struct Counter(AtomicUsize);

impl Observer for Counter {
    fn request(&self, request: &Seen) -> Action {
        // Renewing the identity's Lease goes on whether it registers or not.
        if request.method == Method::GET || !request.path.contains("/leases") {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
        Action::Forward
    }
}

/// Measures and prints the tables.
pub(crate) async fn run(bench: BenchRegistration) -> Result<()> {
    let assets = Assets::find()?;
    let machine = machine::describe(&assets).await?;
    eprintln!("{machine}");
    let mut starts = vec![cells(["definitions", "server", "registers", "ready after", "requests for it"])];
    let mut library =
        vec![cells(["resources", "first registration", "requests", "the same again", "requests"])];
    for &count in &bench.definitions {
        for registers in [false, true] {
            let spec = if registers { ClusterSpec::new().storage_version_api() } else { ClusterSpec::new() };
            let cluster = Cluster::start(&assets, spec).await?;
            define(&cluster.client(0)?, count).await?;
            let began = Instant::now();
            cluster.restart(Part::ApiServer(0)).await?;
            let took = began.elapsed();
            let requests = if registers { requests(&cluster).await? } else { 0 };
            starts.push(start(count, "kube-apiserver", registers, took, Some(requests)));
            if registers {
                library.push(registration(&cluster, count).await?);
            }
        }
        starts.push(start(count, "restow apiserver", true, embedded(count).await?, None));
        eprintln!("{}\n{}", table(&starts), table(&library));
    }
    println!("{machine}\n\n{}\n{}", table(&starts), table(&library));
    Ok(())
}

fn start(
    count: usize,
    server: &str,
    registers: bool,
    took: Duration,
    requests: Option<usize>,
) -> Vec<String> {
    let requests = requests.map_or_else(|| "-".to_owned(), |requests| requests.to_string());
    let registers = if registers { "yes" } else { "no" };
    vec![count.to_string(), server.to_owned(), registers.to_owned(), seconds(took), requests]
}

fn seconds(duration: Duration) -> String {
    format!("{:.2} s", duration.as_secs_f64())
}

fn resource(index: usize) -> (String, String) {
    (format!("things{index}"), format!("g{index}.example.com"))
}

/// Creates this many CRDs.
async fn define(client: &Client, count: usize) -> Result<()> {
    let schema = json!({"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}});
    let one = |index: usize| {
        let (plural, group) = resource(index);
        let version = json!({"name": "v1", "served": true, "storage": true, "schema": schema});
        let crd = json!({
            "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {"name": format!("{plural}.{group}")},
            "spec": {
                "group": group, "scope": "Namespaced", "versions": [version],
                "names": {"plural": plural, "singular": format!("thing{index}"), "kind": format!("Thing{index}")},
            },
        });
        async move {
            let request = http::Request::builder().method(Method::POST).uri(CRDS);
            let request =
                request.header("Content-Type", "application/json").body(crd.to_string().into_bytes())?;
            client.request::<serde_json::Value>(request).await.context("making a definition")
        }
    };
    stream::iter(0..count).map(one).buffer_unordered(AT_ONCE).try_for_each(|_| async { Ok(()) }).await
}

/// How many requests for StorageVersions an API server has answered since its start.
async fn requests(cluster: &Cluster) -> Result<usize> {
    let call = Call::get("/metrics".to_owned(), "text/plain");
    let metrics = Endpoint::of(cluster).await?.link().await?.expect(call).await?;
    Ok(answered(&String::from_utf8_lossy(&metrics)))
}

fn answered(metrics: &str) -> usize {
    let of = metrics.lines().filter(|line| {
        line.starts_with("apiserver_request_total{") && line.contains("resource=\"storageversions\"")
    });
    let values = of.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok());
    values.sum::<f64>() as usize
}

/// Registers this many resources with the library, as an aggregated API server does, twice.
async fn registration(cluster: &Cluster, count: usize) -> Result<Vec<String>> {
    let counter = Arc::new(Counter::default());
    let recorder = Recorder::start(cluster, 0, "admin", Arc::clone(&counter)).await?;
    let kubeconfig = Kubeconfig::read_from(recorder.kubeconfig())?;
    let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?;
    let client = Client::try_from(config)?;
    let stop = Stop::from(CancellationToken::new());
    let identity = Identity::new(client.clone(), "bench-apiserver", "bench-apiserver-0");
    let tenure = identity.establish(&stop).await.context("the identity could not be established")?;
    let resources: Vec<Resource> = (0..count)
        .map(|index| {
            let (plural, group) = resource(index);
            let version = GroupVersion::new(format!("aggregated.{group}"), "v1");
            let versions =
                Versions::new(&version, std::slice::from_ref(&version), std::slice::from_ref(&version))?;
            Ok(Resource { name: GroupResource::new(format!("aggregated.{group}"), plural), versions })
        })
        .collect::<Result<_>>()?;
    let mut row = vec![count.to_string()];
    for _ in 0..2 {
        let (began, before) = (Instant::now(), counter.0.load(Ordering::SeqCst));
        tokio::select! {
            biased;
            done = register(&client, &tenure, &resources, &stop) => drop(done?),
            () = identity.keep(&tenure, &stop) => bail!("the identity was lost"),
        }
        row.push(seconds(began.elapsed()));
        row.push((counter.0.load(Ordering::SeqCst) - before).to_string());
    }
    Ok(row)
}

/// How long the embedded server takes to become ready on a store with this many CRDs.
async fn embedded(count: usize) -> Result<Duration> {
    let dir = tempfile::tempdir()?;
    let store = Arc::new(FileStore::open(dir.path(), file::FileSettings::default())?);
    let server = Server::start(ServerSettings::new(store.clone())).await?;
    define(&server.client(), count).await?;
    server.stop().await;
    let began = Instant::now();
    let server = Server::start(ServerSettings::new(store)).await?;
    let took = began.elapsed();
    server.stop().await;
    Ok(took)
}

#[cfg(test)]
mod tests {
    use super::answered;

    #[test]
    fn requests_for_storage_versions_are_counted() {
        let metrics = "apiserver_request_total{code=\"200\",resource=\"storageversions\",verb=\"GET\"} 3\n\
                       apiserver_request_total{code=\"201\",resource=\"storageversions\",verb=\"POST\"} 2\n\
                       apiserver_request_total{code=\"200\",resource=\"leases\",verb=\"GET\"} 9\n";
        assert_eq!(answered(metrics), 5);
    }
}
