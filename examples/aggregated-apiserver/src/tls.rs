//! The TLS configuration, which changes when kube-apiserver's front proxy does.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use kube::{Api, Client};
use tokio::sync::watch;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::server::{VerifierBuilderError, WebPkiClientVerifier};
use tokio_rustls::rustls::{self, RootCertStore, ServerConfig};

use crate::certificate::Certificate;
use crate::front_proxy::{FrontProxy, Malformed};

/// How often the ConfigMap about the front proxy is read.
const REFRESH: Duration = Duration::from_secs(60);
/// The pause after a failed read.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// The current TLS configuration.
pub struct Tls {
    /// Accepts connections. A client certificate is optional, but must be signed by the front proxy's authority.
    pub acceptor: TlsAcceptor,
    /// The front proxy, which names the users of its requests.
    pub front_proxy: Option<FrontProxy>,
}

/// Why there is no TLS configuration.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// The ConfigMap cannot be read.
    #[error("cannot read the ConfigMap extension-apiserver-authentication")]
    Unread(#[from] kube::Error),
    /// The ConfigMap is malformed.
    #[error(transparent)]
    Malformed(#[from] Malformed),
    /// The front proxy's CA is invalid.
    #[error("the front proxy's CA is invalid")]
    Authority(#[from] VerifierBuilderError),
    /// The serving certificate is invalid.
    #[error("the serving certificate is invalid")]
    Tls(#[from] rustls::Error),
}

/// Loads the configuration; retries until the front proxy is known.
pub async fn load(client: &Client, certificate: &Certificate) -> Result<watch::Sender<Arc<Tls>>, TlsError> {
    loop {
        match read(client).await {
            Ok(front_proxy) => {
                return Ok(watch::Sender::new(Arc::new(Tls::new(certificate, front_proxy)?)));
            }
            Err(error) => tracing::warn!("cannot read the front proxy's configuration: {error}; retrying"),
        }
        tokio::time::sleep(RETRY_AFTER).await;
    }
}

/// Follows changes of the front proxy; never returns.
pub async fn follow(client: &Client, certificate: &Certificate, tls: &watch::Sender<Arc<Tls>>) {
    loop {
        tokio::time::sleep(REFRESH).await;
        let changed = match read(client).await {
            Ok(now) if now == tls.borrow().front_proxy => continue,
            Ok(now) => Tls::new(certificate, now),
            Err(error) => Err(error),
        };
        match changed {
            Ok(new) => drop(tls.send_replace(Arc::new(new))),
            Err(error) => tracing::warn!(
                "cannot reload the front proxy's configuration; keeping the current one: {error}"
            ),
        }
    }
}

async fn read(client: &Client) -> Result<Option<FrontProxy>, TlsError> {
    let maps = Api::<ConfigMap>::namespaced(client.clone(), "kube-system");
    let published = maps.get("extension-apiserver-authentication").await?;
    Ok(FrontProxy::read(&published.data.unwrap_or_default())?)
}

impl Tls {
    fn new(certificate: &Certificate, front_proxy: Option<FrontProxy>) -> Result<Self, TlsError> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()?;
        let builder = match &front_proxy {
            None => builder.with_no_client_auth(),
            Some(front_proxy) => {
                let mut roots = RootCertStore::empty();
                roots.add_parsable_certificates(front_proxy.authorities.iter().cloned());
                let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
                builder.with_client_cert_verifier(verifier.allow_unauthenticated().build()?)
            }
        };
        let (chain, key) = certificate.chain_and_key();
        let mut config = builder.with_single_cert(chain, key)?;
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        Ok(Self { acceptor: TlsAcceptor::from(Arc::new(config)), front_proxy })
    }
}
