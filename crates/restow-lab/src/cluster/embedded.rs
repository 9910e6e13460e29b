//! A cluster with one embedded API server, `restow apiserver`, which needs no Go and starts in milliseconds.

use std::{
    collections::BTreeMap,
    fs,
    path::Path,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail, ensure};

use super::Cluster;
use crate::{
    ClusterSpec, Part, access::Access, assets, daemon::Daemon, launch, pki::Pki, ports::Port, reaper::Reaper,
};

/// How long the server may take to create its CA.
const AUTHORITY_TIMEOUT: Duration = Duration::from_secs(60);
const AUTHORITY_POLL: Duration = Duration::from_millis(5);

impl Cluster {
    /// Starts `restow apiserver` from its program in a temporary folder and waits until it is ready.
    pub async fn start_embedded(program: &Path, spec: ClusterSpec) -> Result<Self> {
        ensure!(spec.servers.len() == 1, "a cluster of embedded servers needs etcd");
        ensure!(
            spec.controllers.is_empty() && !spec.aggregated,
            "the embedded server has no controller manager and no aggregation layer"
        );
        let dir = tempfile::Builder::new().prefix("restow-lab-").tempdir().context("making a folder")?.keep();
        let reaper = Reaper::start(&dir)?;
        let pki = Pki::new(&dir)?;
        pki.issue(&dir, launch::WEBHOOK)?;
        let access = Access::new(&dir, &spec.users, pki.ca())?;
        if let Some(encryption) = &spec.encryption {
            fs::write(launch::encryption_file(&dir, 0), encryption.yaml())
                .context("writing the encryption configuration")?;
        }
        let port = Port::claim(&assets::cache_dir()?.join("ports"))?;
        let server = Daemon::new(launch::embedded(program, &dir, &spec, port.number));
        let mut cluster = Self {
            dir,
            access,
            etcd_port: None,
            next_read: Default::default(),
            server_ports: vec![port],
            controller_manager_port: None,
            aggregated_port: None,
            daemons: BTreeMap::from([(Part::ApiServer(0), server)]),
            reaper,
            detached: false,
        };
        cluster.spawn(Part::ApiServer(0))?;
        cluster.trust_embedded().await?;
        cluster.write_kubeconfigs()?;
        cluster.wait_ready(Part::ApiServer(0)).await?;
        Ok(cluster)
    }

    /// Uses the CA that the server creates when it starts.
    async fn trust_embedded(&mut self) -> Result<()> {
        let path = self.dir.join(launch::CREDENTIALS).join("ca.crt");
        let deadline = Instant::now() + AUTHORITY_TIMEOUT;
        loop {
            if let Ok(pem) = fs::read_to_string(&path) {
                return self.access.trust(&pem);
            }
            if Instant::now() > deadline || self.daemons[&Part::ApiServer(0)].exited().is_some() {
                bail!("the embedded API server did not start\n{}", self.log_tail(Part::ApiServer(0)));
            }
            tokio::time::sleep(AUTHORITY_POLL).await;
        }
    }
}
