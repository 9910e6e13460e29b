//! What one API server says of itself: its metrics, and the address it tells its clients.

use restow_core::agreement::encryption::Config;
use restow_core::agreement::identity::Identity;
use serde::Deserialize;

use super::discovery;
use crate::client::{RequestError, Server};

/// Which server answers, by the address it tells its clients.
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

/// What one server's metrics say of its encryption configuration; they are large, and read by line.
pub(super) async fn metrics(server: &Server) -> Result<Config, RequestError> {
    const PATH: &str = "/metrics";
    let mut config = Config::default();
    server.lines(PATH, |line| config.read(line)).await?;
    if config.complete {
        // Over the same connection, so that it is the same server behind a load balancer.
        config.address = identity(server).await.unwrap_or_default().address;
        return Ok(config);
    }
    let source = serde::de::Error::custom("these are not the metrics of an API server");
    Err(RequestError::Unreadable { path: PATH.to_owned(), source })
}
