//! TLS with a certificate that can be replaced while it is used.

use std::sync::Arc;

pub use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::server::ResolvesServerCert;
use tokio_rustls::rustls::{Error, ServerConfig};

/// A TLS acceptor for HTTP/2 and HTTP/1.1. Each connection gets the certificate that `certificate` has at that moment.
///
/// # Errors
/// When TLS cannot be set up.
pub fn acceptor(certificate: Arc<dyn ResolvesServerCert>) -> Result<TlsAcceptor, Error> {
    let mut config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_cert_resolver(certificate);
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(TlsAcceptor::from(Arc::new(config)))
}
