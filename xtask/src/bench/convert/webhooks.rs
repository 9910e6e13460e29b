//! The webhooks that are compared, each a process of its own that serves over TLS.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use http::StatusCode;
use restow_webhook::{CertificateFiles, LiveConverters, Server};
use serde_json::json;
use tempfile::TempDir;
use tokio::process::{Child, Command};
use tokio_rustls::rustls::pki_types::CertificateDer;
use tokio_util::sync::CancellationToken;

use super::backups;
use crate::bench::link::{Call, Endpoint, Protocol};

/// How long a webhook may take to be ready.
const READY_TIMEOUT: Duration = Duration::from_secs(30);

/// Who converts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum By {
    /// `restow webhook`, with a file of rules.
    Rules,
    /// An operator in Rust with restow's library.
    RustCode,
    /// An operator in Go with controller-runtime.
    Go,
}

impl By {
    pub(super) const ALL: [Self; 3] = [Self::Go, Self::Rules, Self::RustCode];

    pub(super) fn title(self) -> &'static str {
        match self {
            Self::Rules => "restow webhook, rules",
            Self::RustCode => "restow-webhook, Rust code",
            Self::Go => "controller-runtime, Go",
        }
    }
}

/// The programs and files that webhooks are started from.
pub(super) struct Stage {
    restow: PathBuf,
    go: PathBuf,
    dir: TempDir,
    certificate: CertificateDer<'static>,
}

/// A webhook that serves.
pub(super) struct Webhook {
    child: Child,
    pub(super) endpoint: Endpoint,
}

impl Stage {
    /// Writes a certificate, the rules and the CRD.
    pub(super) fn new(restow: PathBuf, go: PathBuf) -> Result<Self> {
        let dir = tempfile::tempdir()?;
        let made = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()])?;
        let rules = json!({
            "apiVersion": "restow.dev/v1alpha1", "kind": "ConversionRules", "metadata": {"name": "backups.example.com"},
            "spec": backups::rules(),
        });
        let files = [
            ("tls.crt", made.cert.pem()),
            ("tls.key", made.signing_key.serialize_pem()),
            ("rules.yaml", rules.to_string()),
            ("crd.yaml", serde_json::to_string(&backups::definition())?),
        ];
        for (name, content) in files {
            fs::write(dir.path().join(name), content)?;
        }
        Ok(Self { restow, go, certificate: made.cert.der().clone(), dir })
    }

    /// Starts a webhook and waits until it is ready.
    pub(super) async fn start(&self, by: By) -> Result<Webhook> {
        let port = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.port();
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        let mut command = self.command(by, address)?;
        command.env_remove("RESTOW_LOG").stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let child = command.kill_on_drop(true).spawn().with_context(|| format!("starting {}", by.title()))?;
        let endpoint = Endpoint::with_certificate(address, self.certificate.clone())?;
        let mut webhook = Webhook { child, endpoint };
        webhook.ready(by).await?;
        Ok(webhook)
    }

    fn command(&self, by: By, address: SocketAddr) -> Result<Command> {
        let file = |name: &str| self.dir.path().join(name);
        let mut command = match by {
            By::Rules => {
                let mut command = Command::new(&self.restow);
                command.args(["webhook", "--listen", &address.to_string()]);
                command.arg("--rules").arg(file("rules.yaml")).arg("--crd").arg(file("crd.yaml"));
                command.arg("--tls-cert-file").arg(file("tls.crt"));
                command.arg("--tls-private-key-file").arg(file("tls.key"));
                return Ok(command);
            }
            By::RustCode => Command::new(std::env::current_exe()?),
            By::Go => Command::new(&self.go),
        };
        if by == By::RustCode {
            command
                .args(["bench-convert", "--serve", &address.to_string(), "--certificate"])
                .arg(self.dir.path());
        } else {
            command.args(["-port", &address.port().to_string(), "-cert-dir"]).arg(self.dir.path());
        }
        Ok(command)
    }
}

impl Webhook {
    async fn ready(&mut self, by: By) -> Result<()> {
        let deadline = Instant::now() + READY_TIMEOUT;
        loop {
            if let Some(status) = self.child.try_wait()? {
                bail!("{} ended: {status}", by.title());
            }
            let health = async {
                let mut links = self.endpoint.links(Protocol::Http1, 1).await?;
                let link = links.first_mut().context("there is a connection")?;
                link.send(Call::get("/healthz".to_owned(), "*/*")).await
            };
            if health.await.is_ok_and(|(status, _)| status == StatusCode::OK) {
                return Ok(());
            }
            if Instant::now() > deadline {
                bail!("{} is not ready after {READY_TIMEOUT:?}", by.title());
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    pub(super) fn pid(&self) -> Result<u32> {
        self.child.id().context("the webhook has ended")
    }

    /// Ends it.
    pub(super) async fn stop(mut self) -> Result<()> {
        self.child.kill().await.context("ending a webhook")
    }
}

/// Serves the conversion by Rust code in this process, as an operator would.
pub(super) async fn serve(address: SocketAddr, certificate: &Path) -> Result<()> {
    let files = CertificateFiles::open(certificate.join("tls.crt"), certificate.join("tls.key"))?;
    let live = Arc::new(LiveConverters::new(backups::by_code()));
    let listener = tokio::net::TcpListener::bind(address).await?;
    Server::new(live).serve(listener, Arc::new(files), CancellationToken::new()).await?;
    Ok(())
}
