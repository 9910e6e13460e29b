//! A client that shows what the server does with its connection.

use std::net::SocketAddr;
use std::sync::Arc;

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Full};
use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo};
use serde_json::Value;
use tokio::net::TcpStream;
use tokio::task::JoinHandle;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

/// One connection.
pub(crate) struct Client {
    sender: Sender,
    /// Ends when the connection does.
    pub(crate) connection: JoinHandle<()>,
}

enum Sender {
    Http1(http1::SendRequest<Full<Bytes>>),
    Http2(http2::SendRequest<Full<Bytes>>),
}

/// A TLS connection that speaks this protocol.
pub(crate) async fn connect(address: SocketAddr, ca: &[u8], protocol: &[u8]) -> TlsStream<TcpStream> {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from(ca.to_vec())).unwrap();
    let provider = Arc::new(tokio_rustls::rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    let mut config = config.with_root_certificates(roots).with_no_client_auth();
    config.alpn_protocols = vec![protocol.to_vec()];
    let stream = TcpStream::connect(address).await.unwrap();
    let connector = tokio_rustls::TlsConnector::from(Arc::new(config));
    connector.connect(ServerName::IpAddress(address.ip().into()), stream).await.unwrap()
}

impl Client {
    pub(crate) async fn http1(address: SocketAddr, ca: &[u8]) -> Self {
        let stream = connect(address, ca, b"http/1.1").await;
        let (sender, connection) = http1::handshake(TokioIo::new(stream)).await.unwrap();
        let connection = tokio::spawn(async move { drop(connection.await) });
        Self { sender: Sender::Http1(sender), connection }
    }

    pub(crate) async fn http2(address: SocketAddr, ca: &[u8]) -> Self {
        let stream = connect(address, ca, b"h2").await;
        let executor = TokioExecutor::new();
        let (sender, connection) = http2::handshake(executor, TokioIo::new(stream)).await.unwrap();
        let connection = tokio::spawn(async move { drop(connection.await) });
        Self { sender: Sender::Http2(sender), connection }
    }

    pub(crate) async fn send(
        &mut self,
        method: Method,
        path: &str,
        body: impl Into<Bytes>,
    ) -> (StatusCode, String) {
        let request = Request::builder().method(method).uri(format!("https://localhost{path}"));
        let request = request.header("host", "localhost").body(Full::new(body.into())).unwrap();
        let response: Response<_> = match &mut self.sender {
            Sender::Http1(sender) => sender.send_request(request).await.unwrap(),
            Sender::Http2(sender) => sender.send_request(request).await.unwrap(),
        };
        let status = response.status();
        let body = response.into_body().collect().await.unwrap().to_bytes();
        (status, String::from_utf8(body.to_vec()).unwrap())
    }

    pub(crate) async fn get(&mut self, path: &str) -> (StatusCode, String) {
        self.send(Method::GET, path, Bytes::new()).await
    }

    /// The response to a review.
    pub(crate) async fn review(&mut self, path: &str, review: &Value) -> Value {
        let (status, body) = self.send(Method::POST, path, review.to_string()).await;
        assert_eq!(status, StatusCode::OK, "{body}");
        let mut answer: Value = serde_json::from_str(&body).unwrap();
        assert_eq!(answer["response"]["uid"], review["request"]["uid"]);
        answer["response"].take()
    }
}
