//! What one API server reports about itself: its metrics, and the address that it advertises.

use restow_core::agreement::encryption::Config;
use restow_core::agreement::identity::Identity;
use serde::Deserialize;

use super::discovery;
use crate::client::{RequestError, Server};

/// Identifies a server by the address that it advertises to clients.
pub(super) async fn identity(server: &Server) -> Result<Identity, RequestError> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Versions {
        kind: String,
        #[serde(rename = "serverAddressByClientCIDRs", default)]
        addresses: Vec<ServerAddress>,
    }
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct ServerAddress {
        #[serde(rename = "clientCIDR")]
        clients: String,
        server_address: String,
    }
    let versions: Versions = server.get("/api").await?;
    discovery::is_kind("/api", &versions.kind, "APIVersions")?;
    let everybody = versions.addresses.into_iter().find(|one| one.clients == "0.0.0.0/0");
    let address = everybody.map(|one| one.server_address).unwrap_or_default();
    Ok(Identity { address, process: String::new() })
}

/// Reads the encryption configuration from a server's metrics, line by line because they are large.
pub(super) async fn metrics(server: &Server) -> Result<Config, RequestError> {
    const PATH: &str = "/metrics";
    let mut config = Config::default();
    server.lines(PATH, |line| config.read(line)).await?;
    if config.complete {
        // The same connection leads to the same server behind a load balancer.
        config.address = identity(server).await.unwrap_or_default().address;
        return Ok(config);
    }
    let source = serde::de::Error::custom("these are not the metrics of an API server");
    Err(RequestError::Unreadable { path: PATH.to_owned(), source })
}
