//! A real control plane for tests, benchmarks and users: etcd, kube-apiserver and kube-controller-manager as processes on
//! loopback, with ways to break them.
//!
//! ```no_run
//! # async fn example() -> anyhow::Result<()> {
//! use restow_lab::{Assets, Cluster, ClusterSpec, Part};
//!
//! let assets = Assets::find()?;
//! let cluster = Cluster::start(&assets, ClusterSpec::new().servers(2).storage_version_api()).await?;
//! let client = cluster.client(0)?;
//! cluster.kill(Part::ApiServer(1))?;
//! # drop(client); Ok(())
//! # }
//! ```
//!
//! [`Cluster::start_embedded`] starts `restow apiserver` instead, which needs no Go.
//!
//! A cluster ends with the process that started it, even if that process is killed.
#![allow(clippy::disallowed_methods)] // real processes run in real time

mod access;
pub mod assets;
mod cluster;
mod daemon;
pub mod detached;
mod encryption;
mod etcd;
mod flags;
mod kms;
mod launch;
mod parts;
mod pki;
mod ports;
mod proxy;
mod reaper;
mod recorder;
mod spec;
pub mod suite;
mod webhook;

pub use assets::{Assets, AssetsError};
pub use cluster::Cluster;
pub use cluster::store::Store;
pub use daemon::Memory;
pub use encryption::Encryption;
pub use etcd::Etcd;
pub use flags::Flags;
pub use kms::KmsPlugin;
pub use parts::Part;
pub use proxy::Proxy;
pub use recorder::{Action, Observer, Recorder, Seen};
pub use spec::{ClusterSpec, ServerSpec};
pub use webhook::{AdmissionWebhook, ConversionWebhook};
