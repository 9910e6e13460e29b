//! Registers the aggregated API server with the cluster.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use http::Request;
use serde_json::{Value, json};

use super::Cluster;

const GROUP: &str = "wardle.example.com";
/// The served versions, the preferred one first.
const VERSIONS: [&str; 2] = ["v1beta1", "v1alpha1"];
/// Where an API server publishes the certificate of its front proxy, which the aggregated server needs to start.
const FRONT_PROXY: &str = "/api/v1/namespaces/kube-system/configmaps/extension-apiserver-authentication";
const FRONT_PROXY_TIMEOUT: Duration = Duration::from_secs(60);

impl Cluster {
    /// Registers the server's API at its port, before it is started.
    pub(crate) async fn register_aggregated(&self, port: u16) -> Result<()> {
        let url = self.url(0);
        let deadline = Instant::now() + FRONT_PROXY_TIMEOUT;
        while let Err(cause) = self.ask(&url, FRONT_PROXY).await {
            ensure!(Instant::now() < deadline, "the API server does not publish its front proxy: {cause}");
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        // With this name, the aggregation layer expects a certificate for `wardle.default.svc`.
        let service = json!({
            "apiVersion": "v1", "kind": "Service", "metadata": { "name": "wardle" },
            "spec": { "type": "ExternalName", "externalName": "localhost" },
        });
        self.make("/api/v1/namespaces/default/services", &service).await?;
        for (order, version) in VERSIONS.iter().rev().enumerate() {
            let api = json!({
                "apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService",
                "metadata": { "name": format!("{version}.{GROUP}") },
                "spec": {
                    "group": GROUP, "version": version,
                    "groupPriorityMinimum": 1000, "versionPriority": 15 + order,
                    "service": { "namespace": "default", "name": "wardle", "port": port },
                    "caBundle": self.access().ca_bundle(),
                },
            });
            self.make("/apis/apiregistration.k8s.io/v1/apiservices", &api).await?;
        }
        Ok(())
    }

    async fn make(&self, path: &str, object: &Value) -> Result<()> {
        let request = Request::post(path)
            .header("content-type", "application/json")
            .body(object.to_string().into_bytes())?;
        self.client(0)?.request_text(request).await.with_context(|| format!("making {path}"))?;
        Ok(())
    }

    /// Fails unless every API server forwards requests to it.
    pub(crate) async fn probe_aggregated(&self) -> Result<()> {
        for url in self.server_urls() {
            for version in VERSIONS {
                self.ask(&url, &format!("/apis/{GROUP}/{version}")).await?;
            }
        }
        Ok(())
    }
}
