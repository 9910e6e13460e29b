//! Plain connections to the API server, over HTTP/1.1 or HTTP/2, with nothing in between that costs time.

use std::{net::SocketAddr, path::Path, sync::Arc};

use anyhow::{Context, Result, bail, ensure};
use bytes::Bytes;
use clap::ValueEnum;
use http::{
    HeaderValue, Method, Request, StatusCode,
    header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HOST},
};
use http_body_util::{BodyExt, Full};
use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo};
use kube::{
    Config,
    client::ConfigExt,
    config::{KubeConfigOptions, Kubeconfig},
};
use restow_lab::Cluster;
use secrecy::ExposeSecret;
use serde_json::Value;
use tokio::net::TcpStream;
use tokio_rustls::{TlsConnector, rustls};

const JSON: &str = "application/json";
/// The write of restow and of the bare loader.
pub(crate) const MERGE_PATCH: &str = "application/merge-patch+json";

/// How requests share connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Protocol {
    /// A connection for each request in flight.
    Http1,
    /// One connection for all.
    Http2,
}

/// The API server, and the credentials for it.
#[derive(Clone)]
pub(crate) struct Endpoint {
    address: SocketAddr,
    token: HeaderValue,
    tls: rustls::ClientConfig,
}

/// One request.
pub(crate) struct Call {
    pub(crate) method: Method,
    pub(crate) path: String,
    pub(crate) accept: &'static str,
    pub(crate) content_type: &'static str,
    pub(crate) body: Bytes,
}

/// A connection, or a share in one.
pub(crate) struct Link {
    sender: Sender,
    address: SocketAddr,
    token: HeaderValue,
}

enum Sender {
    Http1(http1::SendRequest<Full<Bytes>>),
    Http2(http2::SendRequest<Full<Bytes>>),
}

impl Endpoint {
    /// The first API server of a cluster, as admin.
    pub(crate) async fn of(cluster: &Cluster) -> Result<Self> {
        Self::read(&cluster.kubeconfig(0, "admin")).await
    }

    /// The API server of a kubeconfig that has a token.
    pub(crate) async fn read(kubeconfig: &Path) -> Result<Self> {
        let kubeconfig = Kubeconfig::read_from(kubeconfig)?;
        let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?;
        let token = config.auth_info.token.as_ref().context("the kubeconfig has no token")?;
        let mut token = HeaderValue::try_from(format!("Bearer {}", token.expose_secret()))?;
        token.set_sensitive(true);
        let address = config.cluster_url.authority().context("the kubeconfig has no address")?;
        let address = address.as_str().parse().context("the kubeconfig has a name for an address")?;
        Ok(Self { address, token, tls: config.rustls_client_config()? })
    }

    /// A server that has this certificate.
    pub(crate) fn with_certificate(
        address: SocketAddr,
        certificate: rustls::pki_types::CertificateDer<'static>,
    ) -> Result<Self> {
        let mut roots = rustls::RootCertStore::empty();
        roots.add(certificate)?;
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let tls =
            rustls::ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
        let tls = tls.with_root_certificates(roots).with_no_client_auth();
        Ok(Self { address, token: HeaderValue::from_static("none"), tls })
    }

    /// A connection of its own, over HTTP/2.
    pub(crate) async fn link(&self) -> Result<Link> {
        self.connect(Protocol::Http2).await
    }

    /// Connections for this number of requests in flight.
    pub(crate) async fn links(&self, protocol: Protocol, count: usize) -> Result<Vec<Link>> {
        let mut links = Vec::with_capacity(count);
        while links.len() < count {
            let shared = links.first().and_then(Link::share);
            links.push(match shared {
                Some(link) => link,
                None => self.connect(protocol).await?,
            });
        }
        Ok(links)
    }

    async fn connect(&self, protocol: Protocol) -> Result<Link> {
        let tcp = TcpStream::connect(self.address).await.context("connecting to the API server")?;
        tcp.set_nodelay(true)?;
        let mut tls = self.tls.clone();
        tls.alpn_protocols = vec![match protocol {
            Protocol::Http1 => b"http/1.1".to_vec(),
            Protocol::Http2 => b"h2".to_vec(),
        }];
        let name = rustls::pki_types::ServerName::from(self.address.ip());
        let io = TokioIo::new(TlsConnector::from(Arc::new(tls)).connect(name, tcp).await?);
        let sender = match protocol {
            Protocol::Http1 => {
                let (sender, connection) = http1::handshake(io).await?;
                tokio::spawn(connection);
                Sender::Http1(sender)
            }
            Protocol::Http2 => {
                let (sender, connection) = http2::handshake(TokioExecutor::new(), io).await?;
                tokio::spawn(connection);
                Sender::Http2(sender)
            }
        };
        Ok(Link { sender, address: self.address, token: self.token.clone() })
    }
}

impl Link {
    /// Shares the connection, if its protocol allows that.
    pub(crate) fn share(&self) -> Option<Self> {
        let Sender::Http2(sender) = &self.sender else { return None };
        let sender = Sender::Http2(sender.clone());
        Some(Self { sender, address: self.address, token: self.token.clone() })
    }

    /// Sends one request and reads the whole answer, whatever its status.
    pub(crate) async fn send(&mut self, call: Call) -> Result<(StatusCode, Bytes)> {
        let mut request = Request::builder()
            .method(call.method)
            .header(AUTHORIZATION, self.token.clone())
            .header(ACCEPT, call.accept);
        if !call.body.is_empty() {
            request = request.header(CONTENT_TYPE, call.content_type);
        }
        let body = Full::new(call.body);
        let response = match &mut self.sender {
            Sender::Http1(sender) => {
                sender.ready().await?;
                let request = request.header(HOST, self.address.to_string()).uri(call.path);
                sender.send_request(request.body(body)?).await?
            }
            Sender::Http2(sender) => {
                sender.ready().await?;
                let request = request.uri(format!("https://{}{}", self.address, call.path));
                sender.send_request(request.body(body)?).await?
            }
        };
        let (parts, body) = response.into_parts();
        Ok((parts.status, body.collect().await?.to_bytes()))
    }

    /// Sends one request that must succeed.
    pub(crate) async fn expect(&mut self, call: Call) -> Result<Bytes> {
        let what = format!("{} {}", call.method, call.path);
        let (status, body) = self.send(call).await.with_context(|| what.clone())?;
        ensure!(status.is_success(), "{what} is answered with {status}: {}", String::from_utf8_lossy(&body));
        Ok(body)
    }

    /// Sends and reads JSON; the write of an existing object is a merge patch.
    pub(crate) async fn json(&mut self, method: Method, path: &str, body: Option<&Value>) -> Result<Value> {
        let content_type = if method == Method::PATCH { MERGE_PATCH } else { JSON };
        let body = body.map(|body| body.to_string().into()).unwrap_or_default();
        let call = Call { method, path: path.to_owned(), accept: JSON, content_type, body };
        Ok(serde_json::from_slice(&self.expect(call).await?)?)
    }

    /// Requests JSON until it is as expected.
    pub(crate) async fn wait(&mut self, path: &str, is_so: impl Fn(&Value) -> bool) -> Result<Value> {
        let deadline = tokio::time::Instant::now() + std::time::Duration::from_secs(60);
        loop {
            // It may not be served yet.
            if let Ok(found) = self.json(Method::GET, path, None).await
                && is_so(&found)
            {
                return Ok(found);
            }
            if tokio::time::Instant::now() > deadline {
                bail!("timed out waiting for {path}");
            }
            tokio::time::sleep(std::time::Duration::from_millis(100)).await;
        }
    }
}

impl Call {
    /// Reads something.
    pub(crate) fn get(path: String, accept: &'static str) -> Self {
        Self { method: Method::GET, path, accept, content_type: JSON, body: Bytes::new() }
    }

    /// Sends a write and ignores the answer.
    pub(crate) fn write(method: Method, path: String, content_type: &'static str, body: Bytes) -> Self {
        Self { method, path, accept: JSON, content_type, body }
    }
}

/// Runs work on its own thread, on a single-threaded runtime, so that the rest of the benchmark does not disturb the
/// measurement.
pub(crate) async fn apart<T, F>(work: impl FnOnce() -> F + Send + 'static) -> Result<T>
where
    T: Send + 'static,
    F: Future<Output = Result<T>>,
{
    let run = move || tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(work());
    tokio::task::spawn_blocking(run).await?
}
