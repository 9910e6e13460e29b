//! `restow webhook`: serves conversion between the versions of CRDs, by rules.

mod file_rules;
mod managed;
mod unregister;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use clap::{Args, Subcommand};
use restow_lease::election;
use restow_webhook::rules::RulesFollower;
use restow_webhook::{CertificateFiles, LiveConverters, Server, Settings};
use tokio::net::TcpListener;
use tokio_rustls::rustls::server::ResolvesServerCert;
use tokio_util::sync::CancellationToken;

use crate::args::{Connection, duration, period};
use crate::connect::connect;
use crate::error::{CliError, chain};
use crate::logging::LogFormat;
use crate::signals::stop_on_signals;
use file_rules::FileRules;
use managed::{Keeping, Managed};
use unregister::Unregister;

/// How often files are read again.
const RELOAD_EVERY: Duration = Duration::from_secs(5);

/// Serve conversion between the versions of CRDs, by rules
#[derive(Args)]
#[command(
    args_conflicts_with_subcommands = true,
    subcommand_negates_reqs = true,
    after_help = "It answers the ConversionReviews of API servers, at /convert/GROUP/KIND or for all kinds at /convert.
Rules that change are used without a restart. Rules that do not fit their CRD keep the last good
ones in use; the status of the ConversionRules object, or the log, says why.

Without --rules, it follows the ConversionRules objects of the cluster and the CRDs they are for.
With --service or --url, it also makes its own certificates, in a Secret that all replicas share,
and registers itself in these CRDs: when every replica serves the rules, the webhook answers, and
all live objects survive the conversion. It renews certificates without a failed request; the
annotation restow.dev/rotate on the Secret asks for a new certificate authority. To install all that
needs, see restow install --webhook.

/healthz, /readyz and /metrics are on the same port. On SIGTERM, /readyz fails first, and requests
in flight are answered.

Examples:
  restow webhook --service restow-webhook --namespace restow-system
  restow webhook --service restow-webhook --crds widgets.example.com    reads no other CRDs
  restow webhook --url https://webhook.example.com:8443
  restow webhook unregister widgets.example.com     let a CRD do without it, if that is safe
  restow webhook --rules rules.yaml --crd crd.yaml --tls-cert-file tls.crt --tls-private-key-file tls.key
  restow webhook --tls-cert-file tls.crt --tls-private-key-file tls.key     rules from the cluster
  restow webhook --listen 127.0.0.1:0 --rules r.yaml --crd c.yaml --tls-cert-file c --tls-private-key-file k"
)]
pub(crate) struct Webhook {
    #[command(subcommand)]
    command: Option<WebhookCommand>,
    /// The address to listen on; port 0 takes any free port
    #[arg(long, value_name = "ADDRESS", default_value = "0.0.0.0:8443")]
    listen: SocketAddr,
    /// A file with ConversionRules, instead of those of the cluster (may be repeated)
    #[arg(long, value_name = "FILE", requires = "crd")]
    rules: Vec<PathBuf>,
    /// A file with the CustomResourceDefinitions that the rules are for (may be repeated)
    #[arg(long, value_name = "FILE", requires = "rules")]
    crd: Vec<PathBuf>,
    /// Serve only these CRDs, with permissions on no others [default: all that there are rules for]
    #[arg(long, value_name = "NAMES", value_delimiter = ',', conflicts_with = "rules")]
    crds: Vec<String>,
    /// The certificate to serve with, and its chain, as PEM; read again when it changes
    #[arg(long, value_name = "FILE", requires = "tls_private_key_file",
          required_unless_present_any = ["service", "url"])]
    tls_cert_file: Option<PathBuf>,
    /// The private key of that certificate, as PEM
    #[arg(long, value_name = "FILE", requires = "tls_cert_file")]
    tls_private_key_file: Option<PathBuf>,
    #[command(flatten)]
    managed: Managed,
    /// How long a review may take; API servers wait for 30s
    #[arg(long, value_name = "DURATION", value_parser = period, default_value = "25s")]
    timeout: Duration,
    /// The largest review, in bytes
    #[arg(long, value_name = "BYTES", default_value_t = 50 << 20)]
    max_review_bytes: usize,
    /// How long requests are still accepted after SIGTERM, until the address has left the Service
    #[arg(long, value_name = "DURATION", value_parser = duration, default_value = "5s")]
    drain_delay: Duration,
    /// The log format
    #[arg(long, value_enum, default_value_t = LogFormat::Text, value_name = "FORMAT")]
    log_format: LogFormat,
}

#[derive(Subcommand)]
enum WebhookCommand {
    Unregister(Unregister),
}

impl Webhook {
    /// Whether it serves, and does not only change something.
    pub(crate) fn is_server(&self) -> bool {
        self.command.is_none()
    }

    pub(crate) fn log_format(&self) -> LogFormat {
        self.log_format
    }

    /// The certificate from files, if they are given.
    fn certificate(&self) -> Result<Option<Arc<CertificateFiles>>, CliError> {
        let (Some(certificate), Some(key)) = (&self.tls_cert_file, &self.tls_private_key_file) else {
            return Ok(None);
        };
        let files = CertificateFiles::open(certificate, key);
        files.map(|files| Some(Arc::new(files))).map_err(|error| CliError::failed(chain(&error)))
    }

    fn settings(&self) -> Settings {
        let mut settings =
            Settings { timeout: self.timeout, drain_delay: self.drain_delay, ..Settings::default() };
        settings.limits.bytes = self.max_review_bytes;
        settings.limits.answer_bytes = self.max_review_bytes.saturating_mul(2);
        settings.listen.grace = self.timeout + Duration::from_secs(5);
        settings
    }
}

/// What runs beside the server.
#[derive(Default)]
struct Beside {
    follower: Option<Arc<RulesFollower>>,
    keeping: Option<Keeping>,
    certificate: Option<Arc<CertificateFiles>>,
    rules: Option<FileRules>,
}

/// Runs the command, and returns its exit code.
pub(crate) async fn run(connection: &Connection, flags: &Webhook) -> Result<u8, CliError> {
    match &flags.command {
        Some(WebhookCommand::Unregister(flags)) => unregister::run(connection, flags).await,
        None => serve(connection, flags).await,
    }
}

async fn serve(connection: &Connection, flags: &Webhook) -> Result<u8, CliError> {
    let live = Arc::new(LiveConverters::default());
    let mut beside = Beside { certificate: flags.certificate()?, ..Beside::default() };
    if !flags.rules.is_empty() {
        beside.rules = Some(FileRules::load(&flags.rules, &flags.crd, Arc::clone(&live))?);
    }
    let listener = TcpListener::bind(flags.listen).await.map_err(|error| {
        CliError::failed(format!("cannot listen on {}: {error}", flags.listen))
            .hint("use --listen 127.0.0.1:0 to take any free port")
    })?;
    let address = listener.local_addr().map_err(CliError::failed)?;
    let mut server = Server::new(Arc::clone(&live)).settings(flags.settings());
    let stop = stop_on_signals(None).map_err(CliError::failed)?;
    if flags.rules.is_empty() {
        let client = connect(connection).await?.server().client().clone();
        // A pod that is started again is the same replica.
        let replica = format!("{}:{}", election::host_name(), address.port());
        let follower = RulesFollower::new(client.clone(), live, &*replica, Vec::new());
        let follower = Arc::new(match flags.crds.is_empty() {
            true => follower,
            false => follower.only(flags.crds.clone()),
        });
        let checked = Arc::clone(&follower);
        server = server.ready_when(move || checked.check(restow_clock::now()));
        beside.keeping = flags.managed.keeping(&client, &follower, &flags.crds, &replica);
        beside.follower = Some(follower);
    }
    let certificate: Arc<dyn ResolvesServerCert> = match (&beside.keeping, &beside.certificate) {
        (Some(keeping), _) => {
            let serving = keeping.serving();
            let checked = Arc::clone(&serving);
            server = server
                .ready_when(move || checked.check(restow_clock::now()).map_err(|error| error.to_string()));
            serving
        }
        (None, Some(files)) => Arc::clone(files) as Arc<dyn ResolvesServerCert>,
        (None, None) => return Err(CliError::usage("give --tls-cert-file, --service or --url")),
    };
    tracing::info!(%address, "serving conversions");
    let ended = CancellationToken::new();
    let serve = async {
        let served = server.serve(listener, certificate, stop.clone()).await;
        // It may also have ended by itself.
        stop.cancel();
        ended.cancel();
        served
    };
    let (served, ()) = tokio::join!(serve, beside.run(&stop, &ended));
    served.map(|()| 0).map_err(|error| CliError::failed(chain(&error)))
}

impl Beside {
    /// Follows rules, keeps certificates and reads files again, until the server has ended.
    async fn run(self, stop: &CancellationToken, ended: &CancellationToken) {
        let Self { follower, keeping, certificate, rules } = self;
        let follow = async {
            if let Some(follower) = &follower {
                follower.run(ended).await;
                leave(follower).await;
            }
        };
        let keep = async {
            if let Some(keeping) = &keeping {
                keeping.run(stop, ended).await;
            }
        };
        tokio::join!(follow, keep, reload(certificate, rules, ended));
    }
}

async fn leave(follower: &RulesFollower) {
    if let Err(error) = follower.leave().await {
        tracing::warn!(
            "could not remove this replica from the status of rules; it is forgotten in five minutes: {error}"
        );
    }
}

/// Reads files again until the server has ended.
async fn reload(
    certificate: Option<Arc<CertificateFiles>>,
    mut rules: Option<FileRules>,
    ended: &CancellationToken,
) {
    let mut ticks = tokio::time::interval(RELOAD_EVERY);
    while ended.run_until_cancelled(ticks.tick()).await.is_some() {
        match certificate.as_ref().map_or(Ok(false), |files| files.reload()) {
            Ok(true) => tracing::info!("serving another certificate"),
            Ok(false) => {}
            Err(error) => tracing::warn!(
                "could not read the serving certificate again; keeping the current one: {}",
                chain(&error)
            ),
        }
        if let Some(rules) = &mut rules {
            rules.reload();
        }
    }
}
