//! Where an audit reads: a running etcd, a file of one, or the file of the embedded API server.

use std::fs;
use std::path::{Path, PathBuf};

use clap::{ArgGroup, Args as ClapArgs};
use restow_audit::{DataDir, EtcdFile, LiveEtcd, Source};
use restow_store::etcd::{EtcdSettings, Identity};

use crate::error::{CliError, chain};

/// What to read.
#[derive(ClapArgs)]
#[command(next_help_heading = "Source", group = ArgGroup::new("source").required(true).args(["etcd", "snapshot", "data_dir"]))]
pub(crate) struct AuditSource {
    /// A running etcd: one or more addresses of it. It is read slowly, at one revision
    #[arg(long, value_name = "URL", value_delimiter = ',')]
    etcd: Vec<http::Uri>,
    /// The CA certificate that verifies etcd's certificate
    #[arg(long, visible_alias = "etcd-cacert", value_name = "FILE", requires = "etcd")]
    etcd_cafile: Option<PathBuf>,
    /// The client certificate for etcd
    #[arg(long, visible_alias = "etcd-cert", value_name = "FILE", requires_all = ["etcd", "etcd_keyfile"])]
    etcd_certfile: Option<PathBuf>,
    /// The private key of that certificate
    #[arg(long, visible_alias = "etcd-key", value_name = "FILE", requires_all = ["etcd", "etcd_certfile"])]
    etcd_keyfile: Option<PathBuf>,
    /// A snapshot of etcd, or the database or data directory of a stopped one
    #[arg(long, value_name = "FILE")]
    snapshot: Option<PathBuf>,
    /// The data directory of a stopped restow apiserver
    #[arg(long, value_name = "DIR")]
    data_dir: Option<PathBuf>,
}

/// The source that the flags name.
pub(super) fn source(flags: &AuditSource) -> Result<Box<dyn Source>, CliError> {
    if let Some(file) = &flags.snapshot {
        return Ok(Box::new(EtcdFile::new(file)));
    }
    if let Some(dir) = &flags.data_dir {
        return Ok(Box::new(DataDir::new(dir)));
    }
    let read_some = |path: &Option<PathBuf>| path.as_deref().map(read).transpose();
    let identity = match (read_some(&flags.etcd_certfile)?, read_some(&flags.etcd_keyfile)?) {
        (Some(certificate), Some(key)) => Some(Identity { certificate, key }),
        _ => None,
    };
    let endpoints = flags.etcd.iter().map(|url| url.to_string().trim_end_matches('/').to_owned());
    let settings =
        EtcdSettings { ca: read_some(&flags.etcd_cafile)?, identity, ..EtcdSettings::new(endpoints) };
    let live = LiveEtcd::new(settings).map_err(|error| {
        CliError::usage(chain(&error)).hint("an etcd at https:// needs its CA certificate: use --etcd-cafile")
    })?;
    Ok(Box::new(live))
}

/// The content of a file that a flag names.
pub(super) fn read(path: &Path) -> Result<Vec<u8>, CliError> {
    fs::read(path).map_err(|error| CliError::usage(format!("cannot read {}: {error}", path.display())))
}
