//! The TLS entrance, which changes when kube-apiserver's front proxy does.

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

/// How often is looked whether the front proxy has changed.
const EVERY: Duration = Duration::from_secs(60);
/// How often it is tried to be read when it cannot be.
const AGAIN: Duration = Duration::from_secs(1);

/// The entrance as it is now.
pub struct Door {
    /// Takes connections. A certificate need not be shown, but one that is shown has to be the front proxy's.
    pub acceptor: TlsAcceptor,
    /// Who may speak for others.
    pub front_proxy: Option<FrontProxy>,
}

/// Why there is no entrance.
#[derive(Debug, thiserror::Error)]
pub enum DoorError {
    /// The front proxy cannot be read.
    #[error("the extension-apiserver-authentication ConfigMap cannot be read")]
    Unread(#[from] kube::Error),
    /// What is published is wrong.
    #[error(transparent)]
    Malformed(#[from] Malformed),
    /// The front proxy's authority is of no use.
    #[error("the front proxy's authority is of no use")]
    Authority(#[from] VerifierBuilderError),
    /// The certificates are of no use.
    #[error("the certificates are of no use")]
    Tls(#[from] rustls::Error),
}

/// Opens the door, however long it takes to hear of the front proxy.
pub async fn open(client: &Client, certificate: &Certificate) -> Result<watch::Sender<Arc<Door>>, DoorError> {
    loop {
        match read(client).await {
            Ok(front_proxy) => {
                return Ok(watch::Sender::new(Arc::new(Door::new(certificate, front_proxy)?)));
            }
            Err(error) => tracing::warn!("waiting for the front proxy: {error}"),
        }
        tokio::time::sleep(AGAIN).await;
    }
}

/// Follows changes of the front proxy, for ever.
pub async fn follow(client: &Client, certificate: &Certificate, door: &watch::Sender<Arc<Door>>) {
    loop {
        tokio::time::sleep(EVERY).await;
        let changed = match read(client).await {
            Ok(now) if now == door.borrow().front_proxy => continue,
            Ok(now) => Door::new(certificate, now),
            Err(error) => Err(error),
        };
        match changed {
            Ok(new) => drop(door.send_replace(Arc::new(new))),
            Err(error) => tracing::warn!("the front proxy stays as it was: {error}"),
        }
    }
}

async fn read(client: &Client) -> Result<Option<FrontProxy>, DoorError> {
    let maps = Api::<ConfigMap>::namespaced(client.clone(), "kube-system");
    let published = maps.get("extension-apiserver-authentication").await?;
    Ok(FrontProxy::read(&published.data.unwrap_or_default())?)
}

impl Door {
    fn new(certificate: &Certificate, front_proxy: Option<FrontProxy>) -> Result<Self, DoorError> {
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
