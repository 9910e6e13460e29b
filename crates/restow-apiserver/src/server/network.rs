//! How a server is reached from outside its process: an address, what clients trust it by, and who they are.

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
use crate::filters::chain::Entrance;
use crate::http::body::Body;
use crate::http::limits::AtOnce;
use crate::http::listen;
use crate::http::tls::{Serving, TlsError};
use crate::server::data_dir::Credentials;
use crate::server::kubeconfig::Kubeconfig;

/// Why a server cannot be reached.
#[derive(Debug, thiserror::Error)]
pub enum NetworkError {
    /// It cannot listen.
    #[error("the server cannot listen")]
    Listen(#[from] io::Error),
    /// There is no certificate for it.
    #[error("the server has no certificate")]
    Tls(#[from] TlsError),
    /// Nobody knows who may do what.
    #[error("roles and bindings cannot be read")]
    Policy(#[from] StoreError),
}

/// How a server is to be reached.
pub struct Network {
    /// Where it listens.
    pub listener: TcpListener,
    /// What clients trust it by, and the admin's token.
    pub credentials: Credentials,
    /// The tokens of others.
    pub tokens: Tokens,
    /// More names for its certificate.
    pub names: Vec<String>,
    /// How many requests there may be at once.
    pub at_once: AtOnce,
    /// Where a line for each write goes.
    pub audit: Audit,
}

impl Network {
    /// As it is without more being said: no other users, no audit lines.
    pub fn new(listener: TcpListener, credentials: Credentials) -> Self {
        Self {
            listener,
            credentials,
            tokens: Tokens::default(),
            names: Vec::new(),
            at_once: AtOnce::default(),
            audit: Audit::off(),
        }
    }

    /// Any free port on loopback, with credentials that are gone when the process is.
    pub async fn ephemeral() -> Result<Self, NetworkError> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        Ok(Self::new(listener, Credentials::ephemeral(restow_clock::now())?))
    }

    /// What a client needs to reach it.
    pub fn reach(&self) -> io::Result<Reach> {
        Ok(Reach {
            address: reachable(self.listener.local_addr()?),
            authority_pem: self.credentials.authority.pem(),
            authority_der: self.credentials.authority.der(),
            admin_token: self.credentials.admin_token.clone(),
        })
    }

    /// Who there is, and who may do what by the store's roles and bindings, until told to stop.
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

    /// Serves until told to stop, in a task of its own, which ends when what was under way has been answered.
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
        let serving = Arc::new(Serving::new(self.credentials.authority, names, restow_clock::now())?);
        let audit = self.audit.clone();
        let service = Entrance::new(access, self.at_once, self.audit).layer(inner);
        Ok(tokio::spawn(async move {
            if let Err(error) = listen::serve(self.listener, serving, service, stop).await {
                tracing::error!(%error, "no longer serving");
            }
            // It blocks for a moment, at the end of everything.
            let _ = tokio::task::spawn_blocking(move || audit.flush()).await;
        }))
    }
}

/// What a client needs to reach a server, as its admin.
#[derive(Clone)]
pub struct Reach {
    address: SocketAddr,
    authority_pem: String,
    authority_der: Vec<u8>,
    admin_token: String,
}

impl fmt::Debug for Reach {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reach").field("address", &self.address).finish_non_exhaustive()
    }
}

impl Reach {
    /// The address, such as `https://127.0.0.1:6443`.
    pub fn url(&self) -> String {
        format!("https://{}", self.address)
    }

    /// Where it is.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The text of the admin's kubeconfig.
    pub fn kubeconfig(&self) -> String {
        self.kubeconfig_of("restow:admin", &self.admin_token)
    }

    /// The text of a kubeconfig of somebody with a token.
    pub fn kubeconfig_of(&self, user: &str, token: &str) -> String {
        Kubeconfig { server: &self.url(), authority_pem: &self.authority_pem, user, token }.text()
    }

    /// The admin's configuration of a client, with nothing of the environment.
    pub fn config(&self) -> Result<kube::Config, http::uri::InvalidUri> {
        let mut config = kube::Config::new(self.url().parse()?);
        config.root_cert = Some(vec![self.authority_der.clone()]);
        config.auth_info.token = Some(self.admin_token.clone().into());
        Ok(config)
    }
}

/// An address that a client on this machine can go to.
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
    fn addresses_can_be_gone_to() {
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
    async fn nothing_secret_is_shown() {
        let reach = Network::ephemeral().await.unwrap().reach().unwrap();
        assert!(!format!("{reach:?}").contains(&reach.admin_token));
        assert!(reach.kubeconfig().contains(&reach.admin_token));
        assert!(reach.url().starts_with("https://127.0.0.1:"));
    }
}
