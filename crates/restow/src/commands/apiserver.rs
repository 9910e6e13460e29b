//! `restow apiserver`: a small Kubernetes API server, which stores in a file or in etcd.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use restow_apiserver::{
    Audit, Credentials, DataDir, DataDirError, InFlightLimits, Network, Server, ServerSettings, Tokens,
    data_dir, private_file, random_hex,
};
use restow_store::Store;
use restow_store::encryption::{self, Follower};
use restow_store::etcd::{self, EtcdStore};
use restow_store::file::{self, FileStore};
use tokio::net::TcpListener;

use crate::error::{CliError, chain};
use crate::logging::LogFormat;
use crate::output;
use crate::signals::{STOPPED, stop_on_signals};
use crate::state_dir::default_dir;

/// How often the encryption configuration is read again.
const RELOAD_EVERY: Duration = Duration::from_secs(5);

/// Run a small Kubernetes API server, for tests and demonstrations
#[derive(Args)]
#[command(
    after_help = "It serves custom resources with versions, conversion and status, and the built-in resources that
controllers need. There is no scheduler, and pods never run.

Everything is stored in the data directory, which only you can read: objects, the certificate
authority, the admin's token, and one line for each write (audit.log). Clients must send a token,
and RBAC decides what they may do.

Examples:
  restow apiserver                                        then, in another terminal:
      export KUBECONFIG=~/.local/state/restow/apiserver/kubeconfig
      kubectl get namespaces
  restow apiserver --data-dir ./d --listen 127.0.0.1:0 --write-kubeconfig ./kubeconfig
  restow apiserver --token-auth-file tokens.csv           more users: token,user,uid,\"group1,group2\"
  restow apiserver --encryption-provider-config enc.yaml  encrypt Secrets at rest

Two servers on one etcd, with the same credentials:
  restow apiserver --etcd http://127.0.0.1:2379 --data-dir a --credentials-dir c --listen 127.0.0.1:6443
  restow apiserver --etcd http://127.0.0.1:2379 --data-dir b --credentials-dir c --listen 127.0.0.1:6444"
)]
pub(crate) struct Apiserver {
    /// Where to store everything [default: $XDG_STATE_HOME/restow/apiserver]
    #[arg(long, value_name = "DIR")]
    data_dir: Option<PathBuf>,
    /// The address to listen on; port 0 takes any free port
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:6443")]
    listen: SocketAddr,
    /// Where to write the admin's kubeconfig [default: kubeconfig in the data directory]
    #[arg(long, value_name = "FILE")]
    write_kubeconfig: Option<PathBuf>,
    /// Store objects in this etcd (one or more addresses of it) instead of in a file
    #[arg(long, value_name = "URL", value_delimiter = ',')]
    etcd: Vec<http::Uri>,
    /// The CA certificate that verifies etcd's certificate
    #[arg(long, value_name = "FILE", requires = "etcd")]
    etcd_cafile: Option<PathBuf>,
    /// The client certificate for etcd
    #[arg(long, value_name = "FILE", requires_all = ["etcd", "etcd_keyfile"])]
    etcd_certfile: Option<PathBuf>,
    /// The private key of that certificate
    #[arg(long, value_name = "FILE", requires_all = ["etcd", "etcd_certfile"])]
    etcd_keyfile: Option<PathBuf>,
    /// The ID of this server among those on one etcd [default: generated, and kept in the data directory]
    #[arg(long, value_name = "ID")]
    server_id: Option<String>,
    /// Encrypt stored objects with an EncryptionConfiguration, as in kube-apiserver; changes are loaded while the
    /// server runs
    #[arg(long, value_name = "FILE")]
    encryption_provider_config: Option<PathBuf>,
    /// A file of more users, in kube-apiserver's format: token,user,uid,"group1,group2"
    #[arg(long, value_name = "FILE")]
    token_auth_file: Option<PathBuf>,
    /// Where to keep the certificate authority and the admin's token; servers can share it [default: the data
    /// directory]
    #[arg(long, value_name = "DIR")]
    credentials_dir: Option<PathBuf>,
    /// More names for the server's certificate, such as the host name (may be repeated)
    #[arg(long, value_name = "NAME")]
    tls_san: Vec<String>,
    /// Where to log each write: a file, "-" for stderr, or "none" [default: audit.log in the data directory]
    #[arg(long, value_name = "FILE")]
    audit_log: Option<PathBuf>,
    /// The most mutating requests in flight
    #[arg(long, value_name = "N", default_value_t = 200)]
    max_mutating_requests_inflight: u32,
    /// The most read-only requests in flight
    #[arg(long, value_name = "N", default_value_t = 400)]
    max_requests_inflight: u32,
    /// The log format
    #[arg(long, value_enum, default_value_t = LogFormat::Text, value_name = "FORMAT")]
    log_format: LogFormat,
}

impl Apiserver {
    pub(crate) fn log_format(&self) -> LogFormat {
        self.log_format
    }
}

pub(crate) async fn run(flags: &Apiserver) -> Result<u8, CliError> {
    let dir = flags.data_dir.clone().unwrap_or_else(|| default_dir().join("apiserver"));
    let dir = DataDir::open(&dir).map_err(unusable)?;
    let network = network(flags, &dir).await?;
    let connection = network.connection_info().map_err(CliError::failed)?;
    let store = store(flags, &dir)?;
    let kubeconfig = flags.write_kubeconfig.clone().unwrap_or_else(|| dir.file("kubeconfig"));
    let stop = stop_on_signals(None).map_err(CliError::failed)?;
    let encryption = encryption(flags).await?;
    let settings = ServerSettings {
        server_id: server_id(flags, &dir)?,
        instance: dir.instance(),
        encryption: encryption.as_ref().map(Follower::current),
        network: Some(network),
        ..ServerSettings::new(store)
    };
    let started = tokio::select! {
        started = Server::start(settings) => started.map_err(|error| CliError::failed(chain(&error)))?,
        () = stop.cancelled() => return Ok(STOPPED),
    };
    private_file::replace(&kubeconfig, connection.kubeconfig().as_bytes())
        .map_err(|error| CliError::failed(format!("cannot write {}: {error}", kubeconfig.display())))?;
    let shown = std::path::absolute(&kubeconfig).unwrap_or(kubeconfig);
    output::print(&welcome(&connection.url(), &shown));
    stop.run_until_cancelled(follow_encryption(&started, encryption)).await;
    started.stop().await;
    Ok(0)
}

/// The encryption configuration, and its changes.
async fn encryption(flags: &Apiserver) -> Result<Option<Follower>, CliError> {
    let Some(path) = &flags.encryption_provider_config else { return Ok(None) };
    let followed = encryption::follow(path, RELOAD_EVERY).await;
    followed.map(Some).map_err(|error| CliError::usage(chain(&error)))
}

/// Loads the encryption configuration whenever it changes.
async fn follow_encryption(server: &Server, encryption: Option<Follower>) {
    let Some(mut encryption) = encryption else { return std::future::pending().await };
    loop {
        encryption.changed().await;
        server.set_encryption(encryption.current());
    }
}

/// What to do next, for a user at a terminal.
fn welcome(url: &str, kubeconfig: &Path) -> String {
    let shown = kubeconfig.display().to_string();
    let plain = shown.chars().all(|letter| letter.is_ascii_alphanumeric() || "/._-+:@%=".contains(letter));
    let shown = if plain { shown } else { format!("'{}'", shown.replace('\'', "'\\''")) };
    format!(
        "serving on {url}; in another terminal:\n\n  export KUBECONFIG={shown}\n  kubectl get namespaces\n\n"
    )
}

async fn network(flags: &Apiserver, dir: &DataDir) -> Result<Network, CliError> {
    let listener = TcpListener::bind(flags.listen).await.map_err(|error| {
        CliError::failed(format!("cannot listen on {}: {error}", flags.listen))
            .hint("use --listen 127.0.0.1:0 to take any free port")
    })?;
    if !flags.listen.ip().is_loopback() {
        tracing::warn!(address = %flags.listen, "listening on an address that other machines can reach");
    }
    let credentials = flags.credentials_dir.as_deref().unwrap_or(dir.path());
    let credentials = Credentials::open(credentials, restow_clock::now())
        .map_err(|error| CliError::failed(format!("{}: {}", credentials.display(), chain(&error))))?;
    let in_flight_limits = InFlightLimits {
        mutating: flags.max_mutating_requests_inflight as usize,
        read_only: flags.max_requests_inflight as usize,
        ..InFlightLimits::default()
    };
    Ok(Network {
        tokens: tokens(flags)?,
        names: flags.tls_san.clone(),
        in_flight_limits,
        audit: audit(flags, dir)?,
        ..Network::new(listener, credentials)
    })
}

fn tokens(flags: &Apiserver) -> Result<Tokens, CliError> {
    let mut tokens = Tokens::default();
    if let Some(path) = &flags.token_auth_file {
        let text = String::from_utf8(read(path)?);
        let text = text.map_err(|_| CliError::usage(format!("{} is not a text file", path.display())))?;
        let inserted = tokens.insert_file(&text);
        inserted.map_err(|error| CliError::usage(format!("{}: {error}", path.display())))?;
    }
    Ok(tokens)
}

fn audit(flags: &Apiserver, dir: &DataDir) -> Result<Audit, CliError> {
    let path = flags.audit_log.clone().unwrap_or_else(|| dir.file("audit.log"));
    let audit = match path.to_str() {
        Some("none") => Ok(Audit::off()),
        Some("-") => Audit::to_stderr(),
        _ => Audit::to_file(&path),
    };
    audit.map_err(|error| CliError::failed(format!("cannot write {}: {error}", path.display())))
}

fn store(flags: &Apiserver, dir: &DataDir) -> Result<Arc<dyn Store>, CliError> {
    if flags.etcd.is_empty() {
        // In its own directory, which other users may not enter, whatever its parent allows.
        let own = dir.file("store");
        data_dir::create(&own).map_err(|error| CliError::failed(format!("{}: {error}", own.display())))?;
        let opened = FileStore::open(&own, file::FileSettings::default());
        return Ok(Arc::new(opened.map_err(|error| CliError::failed(chain(&error)))?));
    }
    let read_some = |path: &Option<PathBuf>| path.as_deref().map(read).transpose();
    let identity = match (read_some(&flags.etcd_certfile)?, read_some(&flags.etcd_keyfile)?) {
        (Some(certificate), Some(key)) => Some(etcd::Identity { certificate, key }),
        _ => None,
    };
    let endpoints = flags.etcd.iter().map(|url| url.to_string().trim_end_matches('/').to_owned());
    let settings = etcd::EtcdSettings {
        ca: read_some(&flags.etcd_cafile)?,
        identity,
        ..etcd::EtcdSettings::new(endpoints)
    };
    let store = EtcdStore::new(&settings).map_err(|error| {
        CliError::usage(chain(&error)).hint("an etcd at https:// needs its CA certificate: use --etcd-cafile")
    })?;
    Ok(Arc::new(store))
}

/// The id that this server had before, or a new one, which distinguishes servers on one etcd.
fn server_id(flags: &Apiserver, dir: &DataDir) -> Result<String, CliError> {
    match &flags.server_id {
        Some(id) => Ok(id.clone()),
        None => {
            let make = || random_hex(8).map(|random| format!("apiserver-{random}"));
            let id = private_file::read_or_make(&dir.file("server-id"), make);
            id.map(|id| id.trim().to_owned()).map_err(|error| CliError::failed(chain(&error)))
        }
    }
}

fn read(path: &Path) -> Result<Vec<u8>, CliError> {
    std::fs::read(path).map_err(|error| CliError::usage(format!("cannot read {}: {error}", path.display())))
}

fn unusable(error: DataDirError) -> CliError {
    let hint = match error {
        DataDirError::Locked(_) => "stop that server, or use another --data-dir for this one",
        DataDirError::Io { .. } => "use --data-dir to choose another directory",
    };
    CliError::failed(chain(&error)).hint(hint)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_printed_export_can_be_pasted() {
        let shown = |path: &str| welcome("https://127.0.0.1:1", Path::new(path));
        assert!(shown("/a/b-c").contains("  export KUBECONFIG=/a/b-c\n"));
        assert!(shown("/a b/it's").contains("  export KUBECONFIG='/a b/it'\\''s'\n"));
    }
}
