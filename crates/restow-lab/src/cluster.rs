//! A running cluster in one folder: etcd, API servers and perhaps a controller manager; or one embedded server.

mod aggregated;
mod clients;
mod control;
mod embedded;
mod encryption;
pub(crate) mod store;

use std::{
    collections::BTreeMap,
    fs, mem,
    net::SocketAddr,
    path::{Path, PathBuf},
    time::Instant,
};

use anyhow::{Context, Result};

use crate::{
    Assets, ClusterSpec, Etcd, Part, access::Access, assets, daemon::Daemon, launch, pki::Pki, ports::Port,
    reaper::Reaper,
};

/// A control plane, which ends when this value is dropped or this process ends.
#[derive(Debug)]
pub struct Cluster {
    dir: PathBuf,
    access: Access,
    /// None if the API server stores objects in a file.
    etcd_port: Option<Port>,
    /// When the stored bytes may be read next, if they are in a file.
    next_read: tokio::sync::Mutex<Option<Instant>>,
    server_ports: Vec<Port>,
    controller_manager_port: Option<Port>,
    aggregated_port: Option<Port>,
    daemons: BTreeMap<Part, Daemon>,
    reaper: Reaper,
    detached: bool,
}

impl Cluster {
    /// Starts the cluster in a temporary folder and waits until every part is ready.
    pub async fn start(assets: &Assets, spec: ClusterSpec) -> Result<Self> {
        let dir = tempfile::Builder::new().prefix("restow-lab-").tempdir().context("making a folder")?;
        // From here on the reaper removes it, even if this process is killed.
        Self::start_in(dir.keep(), assets, spec).await
    }

    /// Starts the cluster in a folder, which is removed when the cluster ends.
    pub(crate) async fn start_in(dir: PathBuf, assets: &Assets, spec: ClusterSpec) -> Result<Self> {
        let cluster = Self::prepare(dir, assets, &spec)?;
        cluster.spawn(Part::Etcd)?;
        cluster.wait_ready(Part::Etcd).await?;
        for index in 0..cluster.servers() {
            cluster.spawn(Part::ApiServer(index))?;
        }
        for index in 0..cluster.servers() {
            cluster.wait_ready(Part::ApiServer(index)).await?;
        }
        if cluster.controller_manager_port.is_some() {
            cluster.spawn(Part::ControllerManager)?;
            cluster.wait_ready(Part::ControllerManager).await?;
        }
        if let Some(port) = &cluster.aggregated_port {
            cluster.register_aggregated(port.number).await?;
            cluster.spawn(Part::Aggregated)?;
            cluster.wait_ready(Part::Aggregated).await?;
        }
        Ok(cluster)
    }

    /// Writes the files that the parts need, and decides how each is started.
    fn prepare(dir: PathBuf, assets: &Assets, spec: &ClusterSpec) -> Result<Self> {
        let reaper = Reaper::start(&dir)?;
        let claims = assets::cache_dir()?.join("ports");
        let port = || Port::claim(&claims);
        let pki = Pki::new(&dir)?;
        // A webhook may be started later, when the key of the CA is gone.
        pki.issue(&dir, launch::WEBHOOK)?;
        if spec.front_proxy {
            pki.issue(&dir, launch::FRONT_PROXY)?;
        }
        let access = Access::new(&dir, &spec.users, pki.ca())?;

        let etcd_port = port()?;
        let mut daemons = BTreeMap::new();
        daemons.insert(Part::Etcd, Daemon::new(launch::etcd(assets, &dir, etcd_port.number, spec.durable)));

        let mut server_ports = Vec::new();
        for index in 0..spec.servers.len() {
            let port = port()?;
            pki.issue(&dir, &format!("apiserver-{index}"))?;
            if let Some(encryption) = &spec.encryption {
                fs::write(launch::encryption_file(&dir, index), encryption.yaml())
                    .context("writing the encryption configuration")?;
            }
            let server = launch::api_server(assets, &dir, spec, index, etcd_port.number, port.number);
            daemons.insert(Part::ApiServer(index), Daemon::new(server));
            server_ports.push(port);
        }

        let etcd = etcd_port.number;
        let mut cluster = Self {
            dir,
            access,
            etcd_port: Some(etcd_port),
            next_read: Default::default(),
            server_ports,
            controller_manager_port: None,
            aggregated_port: None,
            daemons,
            reaper,
            detached: false,
        };
        cluster.write_kubeconfigs()?;
        if !spec.controllers.is_empty() {
            let port = port()?;
            pki.issue(&cluster.dir, "controller-manager")?;
            let kubeconfig = cluster.kubeconfig(0, "admin");
            let manager = launch::controller_manager(
                assets,
                &cluster.dir,
                &spec.controllers,
                &kubeconfig,
                port.number,
            )?;
            cluster.daemons.insert(Part::ControllerManager, Daemon::new(manager));
            cluster.controller_manager_port = Some(port);
        }
        if spec.aggregated {
            let port = port()?;
            pki.issue(&cluster.dir, "aggregated")?;
            let kubeconfig = cluster.kubeconfig(0, "admin");
            let server = launch::aggregated(assets, &cluster.dir, &kubeconfig, etcd, port.number)?;
            cluster.daemons.insert(Part::Aggregated, Daemon::new(server));
            cluster.aggregated_port = Some(port);
        }
        Ok(cluster)
    }

    /// Writes a kubeconfig for each server and user.
    fn write_kubeconfigs(&self) -> Result<()> {
        for (index, url) in self.server_urls().iter().enumerate() {
            for user in self.access.names() {
                fs::write(self.kubeconfig(index, user), self.access.kubeconfig(url, user)?)
                    .context("writing a kubeconfig")?;
            }
        }
        Ok(())
    }

    /// How many API servers there are.
    pub fn servers(&self) -> usize {
        self.server_ports.len()
    }

    /// The parts of the cluster.
    pub fn parts(&self) -> impl Iterator<Item = Part> + '_ {
        self.daemons.keys().copied()
    }

    /// The folder of the cluster's files, which is removed when the cluster ends.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// A new client for etcd itself.
    ///
    /// # Panics
    /// On an embedded server, which has no etcd.
    #[allow(clippy::expect_used)]
    pub fn etcd(&self) -> Etcd {
        Etcd::new(self.etcd_port.as_ref().expect("the embedded server has no etcd").number)
    }

    /// The loopback address of a server, for a proxy.
    pub fn addr(&self, server: usize) -> SocketAddr {
        SocketAddr::from(([127, 0, 0, 1], self.server_ports[server].number))
    }

    /// Ends every part and removes the folder, as dropping the cluster does.
    pub fn stop(self) {}

    /// Lets the cluster outlive this process; it is ended later by its process ids.
    pub(crate) fn detach(mut self) -> Result<()> {
        self.reaper.dismiss()?;
        self.detached = true;
        Ok(())
    }

    pub(crate) fn server_urls(&self) -> Vec<String> {
        self.server_ports.iter().map(|port| format!("https://127.0.0.1:{}", port.number)).collect()
    }

    pub(crate) fn controller_manager_url(&self) -> Option<String> {
        Some(format!("https://127.0.0.1:{}", self.controller_manager_port.as_ref()?.number))
    }

    pub(crate) fn access(&self) -> &Access {
        &self.access
    }

    pub(crate) fn daemons(&self) -> &BTreeMap<Part, Daemon> {
        &self.daemons
    }

    pub(crate) fn reaper(&self) -> &Reaper {
        &self.reaper
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        if self.detached {
            // Their processes continue to run.
            mem::take(&mut self.daemons);
            return;
        }
        // The servers end before their store, so that they do not log its loss. The reaper, dropped last, removes the folder.
        for daemon in self.daemons.values().rev() {
            daemon.kill(&self.reaper).ok();
        }
    }
}
