//! The command line: parses flags, makes settings, and runs the server.

use std::io::IsTerminal as _;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use aggregated_apiserver::certificate::Certificate;
use aggregated_apiserver::manifests::{NAMES, manifests};
use aggregated_apiserver::server::{COMPONENT, ServerSettings, serve};
use aggregated_apiserver::ship::Version;
use anyhow::{Context as _, Result};
use clap::Parser;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use restow_storageversion::Identity;
use restow_store::Store;
use restow_store::etcd::{EtcdSettings, EtcdStore};
use restow_store::file::{FileSettings, FileStore};
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;
use tracing_subscriber::EnvFilter;

/// An aggregated API server that serves ships (fleet.example.com, v1 and v2).
#[derive(Parser)]
struct Args {
    /// The version to store ships in.
    #[arg(long, value_enum, default_value_t = Version::V1)]
    storage_version: Version,
    /// The id of this server among its replicas. It must be stable across restarts and unique.
    #[arg(long, default_value = "fleet-apiserver-0")]
    server_id: String,
    /// The address to listen on.
    #[arg(long, default_value = "127.0.0.1:7443")]
    listen: SocketAddr,
    /// The etcd endpoints, separated by commas. All replicas share this etcd.
    #[arg(long, value_delimiter = ',')]
    etcd: Vec<String>,
    /// The data directory, for a single server without etcd.
    #[arg(long, default_value = "fleet")]
    data_dir: PathBuf,
    /// The directory of tls.crt and tls.key, which are created if there are none.
    #[arg(long, default_value = "fleet")]
    cert_dir: PathBuf,
    /// The kubeconfig of the cluster [default: $KUBECONFIG, or the pod's ServiceAccount].
    #[arg(long)]
    kubeconfig: Option<PathBuf>,
    /// Print the manifests for a cluster on this machine, and exit.
    #[arg(long)]
    print_manifests: bool,
}

#[tokio::main]
async fn main() -> ExitCode {
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("info"));
    let colour = std::io::stderr().is_terminal();
    tracing_subscriber::fmt().with_env_filter(filter).with_ansi(colour).with_writer(std::io::stderr).init();
    match run(Args::parse()).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

async fn run(args: Args) -> Result<()> {
    let certificate = Certificate::load_or_create(&args.cert_dir, &NAMES)?;
    if args.print_manifests {
        println!("{:#}", manifests(args.listen.port(), certificate.pem()));
        return Ok(());
    }
    let stop = CancellationToken::new();
    tokio::spawn(stopped_by_signal(stop.clone())?);
    let client = Client::try_from(config(args.kubeconfig.as_deref()).await?).context("creating a client")?;
    let store = store(&args)?;
    let mut identity = Identity::new(client, COMPONENT, &args.server_id);
    // The former process that had this file open is gone, so its Lease can be taken over at once.
    identity.instance = store.instance();
    let settings = ServerSettings { identity, store, storage: args.storage_version, certificate };
    let listener =
        TcpListener::bind(args.listen).await.with_context(|| format!("listening on {}", args.listen))?;
    tracing::info!(address = %listener.local_addr()?, storage = args.storage_version.name(), "serving");
    Ok(serve(settings, listener, stop).await?)
}

async fn config(kubeconfig: Option<&Path>) -> Result<Config> {
    let Some(path) = kubeconfig else { return Config::infer().await.context("finding a cluster") };
    let file = Kubeconfig::read_from(path).with_context(|| format!("reading {}", path.display()))?;
    Config::from_custom_kubeconfig(file, &KubeConfigOptions::default())
        .await
        .context("reading the kubeconfig")
}

fn store(args: &Args) -> Result<Arc<dyn Store>> {
    if args.etcd.is_empty() {
        let file = FileStore::open(&args.data_dir, FileSettings::default()).context("opening the store")?;
        return Ok(Arc::new(file));
    }
    Ok(Arc::new(EtcdStore::new(&EtcdSettings::new(args.etcd.iter().cloned()))?))
}

/// Stops the server at the first SIGTERM or ctrl-C.
fn stopped_by_signal(stop: CancellationToken) -> Result<impl Future<Output = ()>> {
    let mut terminate = signal(SignalKind::terminate())?;
    Ok(async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = tokio::signal::ctrl_c() => {}
        }
        tracing::info!("stopping");
        stop.cancel();
    })
}
