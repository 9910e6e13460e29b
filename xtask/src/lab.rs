//! `cargo xtask lab`: builds, starts, ends and lists clusters that outlive the command.

use anyhow::{Result, bail};
use clap::{Args, Subcommand};
use restow_lab::{
    Assets, ClusterSpec, Encryption, ServerSpec,
    detached::{self, Detached},
};

/// What to do with the lab.
#[derive(Subcommand)]
pub(crate) enum Command {
    /// Build the programs of the control plane, minutes the first time, and print their folder.
    Build,
    /// Start a cluster and print how to point KUBECONFIG at it.
    Up(Up),
    /// End a cluster that `up` started.
    Down(Down),
    /// List the clusters that `up` started.
    List,
}

/// The cluster to start.
#[derive(Args)]
pub(crate) struct Up {
    /// The name to end it by.
    #[arg(long, default_value = "default")]
    name: String,
    /// How many API servers share the one etcd.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..=9))]
    servers: u8,
    /// Have the second server behave as this older version, e.g. 1.34 (makes two servers at least).
    #[arg(long, value_name = "VERSION")]
    emulated_version_second: Option<String>,
    /// Serve the StorageVersion API.
    #[arg(long)]
    storage_version_api: bool,
    /// Serve the StorageVersionMigration API of the built-in migrator.
    #[arg(long)]
    storagemigration_api: bool,
    /// Encrypt secrets under a key named key1.
    #[arg(long)]
    encryption: bool,
    /// Run a controller manager with the built-in migrator (and its API).
    #[arg(long)]
    controller_manager: bool,
    /// Let aggregated API servers, such as the one in `examples`, recognise the API servers.
    #[arg(long)]
    front_proxy: bool,
    /// Run an aggregated API server beside them, which serves wardle.example.com.
    #[arg(long)]
    aggregated: bool,
}

/// The cluster to end.
#[derive(Args)]
pub(crate) struct Down {
    #[arg(default_value = "default", conflicts_with = "all")]
    name: String,
    /// End every cluster.
    #[arg(long)]
    all: bool,
}

/// Carries out one `lab` command.
pub(crate) async fn run(command: Command) -> Result<()> {
    match command {
        Command::Build => {
            println!("{}", Assets::find()?.dir.display());
            Ok(())
        }
        Command::Up(up) => start(up).await,
        Command::Down(Down { all: true, .. }) => {
            detached::list()?.iter().try_for_each(|cluster| ended(&cluster.name))
        }
        Command::Down(Down { name, .. }) => ended(&name),
        Command::List => list(),
    }
}

async fn start(up: Up) -> Result<()> {
    if detached::list()?.iter().any(|cluster| cluster.name == up.name) {
        bail!("there is a cluster {0} already: `cargo xtask lab down {0}` ends it", up.name);
    }
    let cluster = detached::up(&Assets::find()?, &up.name, spec(&up)).await?;
    for (index, server) in cluster.servers.iter().enumerate() {
        eprintln!("server {index}: {}", server.url);
    }
    eprintln!("etcd:     {}", cluster.etcd);
    eprintln!("folder:   {}", cluster.dir.display());
    eprintln!("end it:   cargo xtask lab down {}", cluster.name);
    for (index, server) in cluster.servers.iter().enumerate() {
        // `eval` of the output is to leave the first server in KUBECONFIG.
        let variable = if index == 0 { "KUBECONFIG".to_owned() } else { format!("KUBECONFIG_{index}") };
        println!("export {variable}={}", server.kubeconfig.display());
    }
    Ok(())
}

fn spec(up: &Up) -> ClusterSpec {
    let mut spec = ClusterSpec::new().servers(usize::from(up.servers));
    if let Some(version) = &up.emulated_version_second {
        spec = spec.server(1, ServerSpec::new().emulated_version(version));
    }
    if up.storage_version_api {
        spec = spec.storage_version_api();
    }
    if up.storagemigration_api {
        spec = spec.storage_migration_api();
    }
    if up.encryption {
        spec = spec.encryption(Encryption::aescbc(&["key1"]));
    }
    if up.controller_manager {
        spec = spec.built_in_migrator();
    }
    if up.front_proxy {
        spec = spec.front_proxy();
    }
    if up.aggregated {
        spec = spec.aggregated();
    }
    spec
}

fn ended(name: &str) -> Result<()> {
    detached::down(name)?;
    eprintln!("ended {name}");
    Ok(())
}

fn list() -> Result<()> {
    for cluster in detached::list()? {
        println!("{}\t{}\t{}", cluster.name, state(&cluster), cluster.dir.display());
    }
    Ok(())
}

fn state(cluster: &Detached) -> String {
    let (running, all) = (cluster.running().count(), cluster.processes.len());
    if running == all { "running".to_owned() } else { format!("{running} of {all} processes running") }
}
