//! Settings of a store in etcd, and their errors.

use std::{fmt, time::Duration};

/// Settings of a store in etcd.
#[derive(Clone, Debug)]
pub struct EtcdSettings {
    /// The endpoints, as `http://` or `https://` URLs.
    pub endpoints: Vec<String>,
    /// The CA of the serving certificates in PEM; required for `https://`.
    pub ca: Option<Vec<u8>>,
    /// The client certificate.
    pub identity: Option<Identity>,
    /// The timeout of a request.
    pub timeout: Duration,
    /// How often to compact etcd, unless another server does; `None` to keep all revisions.
    pub compact_every: Option<Duration>,
}

/// A client certificate and its key.
#[derive(Clone)]
pub struct Identity {
    /// The certificate, in PEM.
    pub certificate: Vec<u8>,
    /// The key, in PEM.
    pub key: Vec<u8>,
}

impl fmt::Debug for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Identity").finish_non_exhaustive()
    }
}

impl EtcdSettings {
    /// Default settings for these endpoints.
    pub fn new(endpoints: impl IntoIterator<Item = impl Into<String>>) -> Self {
        let endpoints = endpoints.into_iter().map(Into::into).collect();
        let (timeout, compact_every) = (Duration::from_secs(10), Some(Duration::from_secs(5 * 60)));
        Self { endpoints, ca: None, identity: None, timeout, compact_every }
    }
}

/// Why the settings are invalid.
#[derive(Debug, thiserror::Error)]
pub enum EtcdError {
    /// No endpoint is set.
    #[error("no etcd endpoint is set")]
    NoEndpoints,
    /// An endpoint is invalid.
    #[error("invalid etcd endpoint {url:?}")]
    Endpoint {
        /// The endpoint.
        url: String,
        /// The cause.
        #[source]
        source: tonic::transport::Error,
    },
    /// An endpoint has an unknown scheme.
    #[error("invalid etcd endpoint {url:?}: it must start with http:// or https://")]
    Scheme {
        /// The endpoint.
        url: String,
    },
    /// The CA for an `https://` endpoint is missing.
    #[error("etcd endpoint {url:?} needs a CA certificate")]
    NoAuthority {
        /// The endpoint.
        url: String,
    },
}
