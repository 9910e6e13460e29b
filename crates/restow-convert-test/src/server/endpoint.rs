//! The conversion webhook of a test, on loopback.

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use restow_convert::{Converter, Converters};
use restow_webhook::{LiveConverters, Server};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::PrivateKeyDer;
use tokio_rustls::rustls::sign::{CertifiedKey, SingleCertAndKey};
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::versions::StepsError;

/// A webhook that ends when this is dropped.
pub(super) struct Endpoint {
    url: String,
    certificate: String,
    _stop: DropGuard,
}

impl Endpoint {
    /// Serves a converter on a free port, with a certificate of its own.
    pub(super) async fn start(converter: Converter) -> Result<Self, StepsError> {
        let made = rcgen::generate_simple_self_signed(["localhost".to_owned(), "127.0.0.1".to_owned()])?;
        let key = PrivateKeyDer::try_from(made.signing_key.serialize_der())?;
        let chain = vec![made.cert.der().clone()];
        let certified = CertifiedKey::from_der(chain, key, &ring::default_provider())?;
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let url = format!("https://127.0.0.1:{}/convert", listener.local_addr()?.port());
        let converters = Arc::new(LiveConverters::new(Converters::new([converter])?));
        let stop = CancellationToken::new();
        let server = Server::new(converters);
        tokio::spawn(server.serve(listener, Arc::new(SingleCertAndKey::from(certified)), stop.clone()));
        Ok(Self { url, certificate: made.cert.pem(), _stop: stop.drop_guard() })
    }

    /// What the CRD says about its conversion.
    pub(super) fn stanza(&self) -> Value {
        let client = json!({"url": self.url, "caBundle": STANDARD.encode(&self.certificate)});
        json!({"strategy": "Webhook", "webhook": {"clientConfig": client, "conversionReviewVersions": ["v1"]}})
    }
}
