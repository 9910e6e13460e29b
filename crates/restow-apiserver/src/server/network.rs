//! The network of a server: its listener, certificates, users and limits.

use std::convert::Infallible;
use std::fmt;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;

use arc_swap::ArcSwapOption;
use bytes::Bytes;
use http::{Request, Response};
use restow_store::encryption::Transformers;
use restow_store::{Store, StoreError};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tower::{Layer as _, Service};

use crate::auth::access::Access;
use crate::auth::authentication::Tokens;
use crate::auth::rbac::LivePolicy;
use crate::auth::user::User;
use crate::filters::audit::Audit;
use crate::filters::chain::FilterChain;
use crate::http::body::Body;
use crate::http::limits::InFlightLimits;
use crate::http::listen;
use crate::http::tls::{ServingCertificate, TlsError};
use crate::server::data_dir::Credentials;
use crate::server::kubeconfig::Kubeconfig;

/// Why the network could not be set up.
#[derive(Debug, thiserror::Error)]
pub enum NetworkError {
    /// The listener failed.
    #[error("could not listen")]
    Listen(#[from] io::Error),
    /// The serving certificate could not be created.
    #[error("could not create the serving certificate")]
    Tls(#[from] TlsError),
    /// Roles and bindings could not be read.
    #[error("could not read roles and bindings")]
    Policy(#[from] StoreError),
}

/// The network settings of a server.
pub struct Network {
    /// Where connections are accepted; it is bound already.
    pub listener: TcpListener,
    /// The certificate authority and the admin token.
    pub credentials: Credentials,
    /// The tokens of other users.
    pub tokens: Tokens,
    /// More names for the serving certificate.
    pub names: Vec<String>,
    /// How many requests may be in flight.
    pub in_flight_limits: InFlightLimits,
    /// The audit log.
    pub audit: Audit,
}

impl Network {
    /// The default: no other users, no audit log.
    pub fn new(listener: TcpListener, credentials: Credentials) -> Self {
        Self {
            listener,
            credentials,
            tokens: Tokens::default(),
            names: Vec::new(),
            in_flight_limits: InFlightLimits::default(),
            audit: Audit::off(),
        }
    }

    /// A free port on loopback, with credentials that exist only in memory.
    pub async fn ephemeral() -> Result<Self, NetworkError> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        Ok(Self::new(listener, Credentials::ephemeral(restow_clock::now())?))
    }

    /// What a client needs to connect as the admin.
    pub fn connection_info(&self) -> io::Result<ConnectionInfo> {
        Ok(ConnectionInfo {
            address: reachable(self.listener.local_addr()?),
            authority_pem: self.credentials.authority.pem(),
            authority_der: self.credentials.authority.der(),
            admin_token: self.credentials.admin_token.clone(),
        })
    }

    /// The users, and their permissions by the roles and bindings in the store.
    pub(crate) async fn access(
        &mut self,
        store: &Arc<dyn Store>,
        encryption: &Arc<ArcSwapOption<Transformers>>,
        stop: CancellationToken,
    ) -> Result<Access, NetworkError> {
        let mut tokens = std::mem::take(&mut self.tokens);
        tokens.insert(&self.credentials.admin_token, User::admin());
        Ok(Access { tokens, policy: LivePolicy::follow(store, encryption, stop).await? })
    }

    /// Serves in a task until `stop` is cancelled. The task ends when requests in flight are answered.
    pub(crate) fn serve<S>(
        self,
        access: Arc<Access>,
        inner: S,
        stop: CancellationToken,
    ) -> Result<JoinHandle<()>, NetworkError>
    where
        S: Service<Request<Bytes>, Response = Response<Body>, Error = Infallible>
            + Clone
            + Send
            + Sync
            + 'static,
        S::Future: Send,
    {
        let own = self.listener.local_addr()?.ip();
        let names = self.names.into_iter().chain((!own.is_unspecified()).then(|| own.to_string()));
        let serving =
            Arc::new(ServingCertificate::new(self.credentials.authority, names, restow_clock::now())?);
        let audit = self.audit.clone();
        let service = FilterChain::new(access, self.in_flight_limits, self.audit).layer(inner);
        Ok(tokio::spawn(async move {
            if let Err(error) = listen::serve(self.listener, serving, service, stop).await {
                tracing::error!(%error, "stopped serving");
            }
            // Flushing blocks.
            let _ = tokio::task::spawn_blocking(move || audit.flush()).await;
        }))
    }
}

/// What a client needs to connect as the admin.
#[derive(Clone)]
pub struct ConnectionInfo {
    address: SocketAddr,
    authority_pem: String,
    authority_der: Vec<u8>,
    admin_token: String,
}

impl fmt::Debug for ConnectionInfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reach").field("address", &self.address).finish_non_exhaustive()
    }
}

impl ConnectionInfo {
    /// The address, such as `https://127.0.0.1:6443`.
    pub fn url(&self) -> String {
        format!("https://{}", self.address)
    }

    /// The address of the listener, as clients on this machine reach it.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The kubeconfig of the admin.
    pub fn kubeconfig(&self) -> String {
        self.kubeconfig_of("restow:admin", &self.admin_token)
    }

    /// The kubeconfig of a user with a token.
    pub fn kubeconfig_of(&self, user: &str, token: &str) -> String {
        Kubeconfig { server: &self.url(), authority_pem: &self.authority_pem, user, token }.text()
    }

    /// The client configuration of the admin. It ignores the environment.
    pub fn config(&self) -> Result<kube::Config, http::uri::InvalidUri> {
        let mut config = kube::Config::new(self.url().parse()?);
        config.root_cert = Some(vec![self.authority_der.clone()]);
        config.auth_info.token = Some(self.admin_token.clone().into());
        Ok(config)
    }
}

/// An address that clients on this machine can connect to.
fn reachable(address: SocketAddr) -> SocketAddr {
    let ip = match address.ip() {
        IpAddr::V4(Ipv4Addr::UNSPECIFIED) => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(Ipv6Addr::UNSPECIFIED) => Ipv6Addr::LOCALHOST.into(),
        ip => ip,
    };
    SocketAddr::new(ip, address.port())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unspecified_address_is_replaced_by_loopback() {
        for (given, expected) in [
            ("127.0.0.1:6443", "127.0.0.1:6443"),
            ("0.0.0.0:6443", "127.0.0.1:6443"),
            ("[::]:1", "[::1]:1"),
            ("10.0.0.7:1", "10.0.0.7:1"),
        ] {
            assert_eq!(reachable(given.parse().unwrap()).to_string(), expected);
        }
    }

    #[tokio::test]
    async fn debug_output_shows_no_token() {
        let connection = Network::ephemeral().await.unwrap().connection_info().unwrap();
        assert!(!format!("{connection:?}").contains(&connection.admin_token));
        assert!(connection.kubeconfig().contains(&connection.admin_token));
        assert!(connection.url().starts_with("https://127.0.0.1:"));
    }
}
