//! Clients and kubeconfig files for the users of a cluster.

use std::{fs, path::PathBuf};

use anyhow::{Context, Result};
use kube::Client;

use super::Cluster;

impl Cluster {
    /// The address of a server.
    pub fn url(&self, server: usize) -> String {
        self.server_urls()[server].clone()
    }

    /// The kubeconfig for a server, as one of the cluster's users (`admin`, `alice` or one of the spec).
    pub fn kubeconfig(&self, server: usize, user: &str) -> PathBuf {
        self.dir().join(format!("kubeconfig-{server}-{user}"))
    }

    /// Writes a kubeconfig with another address, such as that of a proxy.
    pub fn kubeconfig_at(&self, url: &str, user: &str) -> Result<PathBuf> {
        let name: String = url.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).collect();
        let path = self.dir().join(format!("kubeconfig-{name}-{user}"));
        fs::write(&path, self.access().kubeconfig(url, user)?).context("writing a kubeconfig")?;
        Ok(path)
    }

    /// A new client for a server, as `admin`.
    pub fn client(&self, server: usize) -> Result<Client> {
        self.client_as(server, "admin")
    }

    /// A new client for a server, as one of the cluster's users.
    pub fn client_as(&self, server: usize, user: &str) -> Result<Client> {
        let config = self.access().config(&self.url(server), user)?;
        Client::try_from(config).context("making a client")
    }
}
