//! Changes the encryption configuration of a running server.

use std::{
    fs,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail};

use super::Cluster;
use crate::{Encryption, Part, launch};

/// How long a server may take to load a changed configuration; it reads the file once a minute.
const RELOAD_TIMEOUT: Duration = Duration::from_secs(100);

impl Cluster {
    /// Changes the configuration of one server on disk; the server loads it within a minute.
    pub fn set_encryption(&self, server: usize, encryption: &Encryption) -> Result<()> {
        let path = launch::encryption_file(self.dir(), server);
        if !path.exists() {
            bail!("server {server} was started without an encryption configuration");
        }
        let new = path.with_extension("new");
        fs::write(&new, encryption.yaml()).context("writing the encryption configuration")?;
        // Renamed, so that the server never reads a partial file.
        fs::rename(&new, &path).context("changing the encryption configuration")
    }

    /// Changes the configuration of every server on disk.
    pub fn set_encryption_all(&self, encryption: &Encryption) -> Result<()> {
        (0..self.servers()).try_for_each(|server| self.set_encryption(server, encryption))
    }

    /// Waits until the metrics of a server show that it has loaded this configuration.
    pub async fn wait_for_encryption(&self, server: usize, encryption: &Encryption) -> Result<()> {
        let deadline = Instant::now() + RELOAD_TIMEOUT;
        let client = self.client(server)?;
        let wanted = format!("hash=\"{}\"", encryption.hash());
        loop {
            let request = http::Request::get("/metrics").body(Vec::new())?;
            let metrics = client.request_text(request).await.context("reading the server's metrics")?;
            let taken = metrics
                .lines()
                .filter(|line| line.starts_with("apiserver_encryption_config_controller_last_config_info{"))
                .any(|line| line.contains(&wanted));
            if taken {
                return Ok(());
            }
            if Instant::now() > deadline {
                bail!(
                    "server {server} has not taken up its encryption configuration in {RELOAD_TIMEOUT:?}\n{}",
                    self.log_tail(Part::ApiServer(server))
                );
            }
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
    }
}
