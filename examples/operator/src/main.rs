//! The command line: parses flags, and runs the operator.

use std::io::IsTerminal as _;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, Result};
use clap::{Parser, ValueEnum};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use operator::{NAME, chain, controller, definition, setup};
use restow_core::rewrite::pace::Preset;
use restow_lease::{Election, election};
use restow_operator::{Crds, Webhook};
use restow_webhook::Settings;
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;
use tracing_subscriber::EnvFilter;

/// An operator for small web pages (pages.example.com: v1alpha1, v1beta1 and v1).
#[derive(Parser)]
struct Args {
    /// The version to store pages in. A release of a real operator has just one.
    #[arg(long, value_enum, default_value_t = Version::V1)]
    storage_version: Version,
    /// The address that the webhook listens on.
    #[arg(long, default_value = "127.0.0.1:9443")]
    listen: SocketAddr,
    /// Where API servers call the webhook, for an operator outside the cluster.
    #[arg(long, default_value = "https://127.0.0.1:9443")]
    url: String,
    /// The Service that API servers call instead of the URL.
    #[arg(long)]
    service: Option<String>,
    /// The namespace of the Service, the certificates and the Leases.
    #[arg(long, env = "POD_NAMESPACE", default_value = "default")]
    namespace: String,
    /// The kubeconfig of the cluster [default: $KUBECONFIG, or the pod's ServiceAccount].
    #[arg(long)]
    kubeconfig: Option<PathBuf>,
    /// How fast objects are rewritten.
    #[arg(long, value_enum, default_value_t = Pace::Steady)]
    pace: Pace,
    /// How many seconds other replicas wait for a leader that does not answer.
    #[arg(long, default_value_t = 15)]
    lease_seconds: u64,
    /// How many seconds requests are still accepted after SIGTERM.
    #[arg(long, default_value_t = 5)]
    drain_seconds: u64,
    /// Print the roles and bindings that the operator needs for this service account, and exit.
    #[arg(long, value_name = "SERVICE_ACCOUNT")]
    print_permissions: Option<String>,
}

#[derive(Clone, Copy, ValueEnum)]
enum Version {
    V1alpha1,
    V1beta1,
    V1,
}

#[derive(Clone, Copy, ValueEnum)]
enum Pace {
    Gentle,
    Steady,
    Fast,
}

impl Args {
    fn storage_version(&self) -> &'static str {
        match self.storage_version {
            Version::V1alpha1 => "v1alpha1",
            Version::V1beta1 => "v1beta1",
            Version::V1 => "v1",
        }
    }

    fn pace(&self) -> Preset {
        match self.pace {
            Pace::Gentle => Preset::Gentle,
            Pace::Steady => Preset::Steady,
            Pace::Fast => Preset::Fast,
        }
    }

    fn webhook(&self) -> Result<Webhook> {
        let webhook = match &self.service {
            Some(service) => Webhook::service(&self.namespace, service),
            None => Webhook::url(&self.url, &self.namespace, NAME)?,
        };
        let drain_delay = Duration::from_secs(self.drain_seconds);
        Ok(webhook.settings(Settings { drain_delay, ..Settings::default() }))
    }

    fn election(&self, client: Client) -> Election {
        let duration = Duration::from_secs(self.lease_seconds);
        Election {
            client,
            namespace: self.namespace.clone(),
            name: NAME.to_owned(),
            identity: election::identity(),
            duration,
            renew_every: duration / 3,
        }
    }
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
    let definition = definition(args.storage_version())?;
    let webhook = setup::webhook(args.webhook()?, chain(&definition)?);
    if let Some(account) = &args.print_permissions {
        let manifests = setup::permissions(&definition, &webhook).manifests(&args.namespace, account);
        let list = serde_json::json!({"apiVersion": "v1", "kind": "List", "items": manifests});
        println!("{list:#}");
        return Ok(());
    }
    let stop = CancellationToken::new();
    tokio::spawn(stopped_by_signal(stop.clone())?);
    let config = config(args.kubeconfig.as_deref()).await?;
    let client = Client::try_from(config.clone()).context("creating a client")?;
    let listener =
        TcpListener::bind(args.listen).await.with_context(|| format!("listening on {}", args.listen))?;
    tracing::info!(address = %listener.local_addr()?, storage = args.storage_version(), "starting");

    // All that it takes: the webhook runs in every replica, and the leader does the rest.
    let (crds, replica) = Crds::new(config, [definition])?.pace(args.pace()).webhook(webhook)?;
    let election = args.election(client.clone());
    let lead = election.lead(&stop, async |leading| {
        tracing::info!("leading");
        tokio::join!(crds.run(&leading), async {
            if leading.unless(crds.registered()).await.is_some() {
                controller::run(client.clone(), &leading).await;
            }
        });
    });
    let serve = async {
        let served = replica.run(listener, stop.clone()).await;
        stop.cancel();
        served
    };
    tokio::join!(serve, lead).0.context("serving the webhook")
}

async fn config(kubeconfig: Option<&Path>) -> Result<Config> {
    let Some(path) = kubeconfig else { return Config::infer().await.context("finding a cluster") };
    let file = Kubeconfig::read_from(path).with_context(|| format!("reading {}", path.display()))?;
    Config::from_custom_kubeconfig(file, &KubeConfigOptions::default())
        .await
        .context("reading the kubeconfig")
}

/// Stops the operator at the first SIGTERM or ctrl-C.
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
