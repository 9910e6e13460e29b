//! A plain HTTP proxy on loopback that shows every request and response to a test, and can answer instead of the server.

use std::{
    fmt, io,
    net::SocketAddr,
    path::{Path, PathBuf},
    pin::Pin,
    sync::Arc,
};

use anyhow::{Context, Result};
use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Response, StatusCode, header};
use http_body_util::{BodyExt, Full, combinators::UnsyncBoxBody};
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::TokioIo;
use kube::{Client, client::Body};
use tokio::{
    net::TcpListener,
    task::{AbortHandle, JoinSet},
};

use crate::Cluster;

/// Headers that belong to one connection, or that would change the user of a request.
const NOT_FORWARDED: [HeaderName; 6] = [
    header::ACCEPT_ENCODING,
    header::AUTHORIZATION,
    header::CONNECTION,
    header::CONTENT_LENGTH,
    header::HOST,
    header::TRANSFER_ENCODING,
];

/// A request before it is forwarded.
#[derive(Clone, Debug)]
pub struct Seen {
    /// The HTTP method.
    pub method: Method,
    /// The path without the query.
    pub path: String,
    /// The query; empty if there is none.
    pub query: String,
    /// The request headers, as the client sent them.
    pub headers: HeaderMap,
    /// The whole body.
    pub body: Bytes,
}

/// What to do with a request.
pub enum Action {
    /// Forward it.
    Forward,
    /// Forward it when this future completes.
    Wait(Pin<Box<dyn Future<Output = ()> + Send>>),
    /// Forward it, and change the whole answer with this function.
    Change(Box<dyn FnOnce(Bytes) -> Bytes + Send>),
    /// Answer it without the server.
    Reply(Response<Bytes>),
    /// Close the connection without forwarding the request.
    DropBefore,
    /// Forward the request, and close the connection instead of answering.
    DropAfter,
}

impl Action {
    /// An answer with this status and a JSON body.
    pub fn reply(status: u16, json: &str) -> Self {
        let mut response = Response::new(Bytes::copy_from_slice(json.as_bytes()));
        *response.status_mut() = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        Self::Reply(response)
    }
}

impl fmt::Debug for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Forward => "Forward",
            Self::Wait(_) => "Wait",
            Self::Change(_) => "Change",
            Self::Reply(_) => "Reply",
            Self::DropBefore => "DropBefore",
            Self::DropAfter => "DropAfter",
        })
    }
}

/// Observes the traffic; the methods are called concurrently.
pub trait Observer: Send + Sync + 'static {
    /// Decides what to do with a request.
    fn request(&self, _request: &Seen) -> Action {
        Action::Forward
    }

    /// Called with the status and headers of a response.
    fn response(&self, _request: &Seen, _status: StatusCode, _headers: &HeaderMap) {}

    /// Called with a part of a response body, uncompressed, before it is forwarded.
    fn chunk(&self, _request: &Seen, _chunk: &[u8]) {}
}

type Reply = Response<UnsyncBoxBody<Bytes, kube::Error>>;

/// A recording proxy in front of one API server; dropping it closes its connections.
#[derive(Debug)]
pub struct Recorder {
    addr: SocketAddr,
    kubeconfig: PathBuf,
    listener: AbortHandle,
}

impl Recorder {
    /// Listens on a free loopback port and forwards to a server of the cluster as one of its users.
    pub async fn start(
        cluster: &Cluster,
        server: usize,
        user: &str,
        observer: Arc<impl Observer>,
    ) -> Result<Self> {
        let mut config = cluster.access().config(&cluster.url(server), user)?;
        // The observer is to see what was said, not how it was packed.
        config.disable_compression = true;
        let client = Client::try_from(config).context("making a client")?;
        let listener = TcpListener::bind("127.0.0.1:0").await.context("listening")?;
        let addr = listener.local_addr()?;
        let kubeconfig = cluster.kubeconfig_at(&format!("http://{addr}"), user)?;
        let task = tokio::spawn(accept(listener, client, observer));
        Ok(Self { addr, kubeconfig, listener: task.abort_handle() })
    }

    /// Where the proxy listens, without TLS and without asking for a token.
    pub fn url(&self) -> String {
        format!("http://{}", self.addr)
    }

    /// A file to reach the server with through the proxy.
    pub fn kubeconfig(&self) -> &Path {
        &self.kubeconfig
    }
}

impl Drop for Recorder {
    fn drop(&mut self) {
        self.listener.abort();
    }
}

/// Takes connections until it is aborted, which aborts them too.
async fn accept(listener: TcpListener, client: Client, observer: Arc<impl Observer>) {
    let mut connections = JoinSet::new();
    while let Ok((stream, _)) = listener.accept().await {
        let (client, observer) = (client.clone(), Arc::clone(&observer));
        let service = service_fn(move |request| serve(request, client.clone(), Arc::clone(&observer)));
        connections.spawn(http1::Builder::new().serve_connection(TokioIo::new(stream), service));
        while connections.try_join_next().is_some() {}
    }
}

/// Answers one request; an error closes the connection without an answer.
async fn serve(
    request: Request<Incoming>,
    client: Client,
    observer: Arc<impl Observer>,
) -> io::Result<Reply> {
    let (parts, body) = request.into_parts();
    let seen = Arc::new(Seen {
        method: parts.method.clone(),
        path: parts.uri.path().to_owned(),
        query: parts.uri.query().unwrap_or_default().to_owned(),
        headers: parts.headers.clone(),
        body: body.collect().await.map_err(io::Error::other)?.to_bytes(),
    });
    let (mut lost, mut change) = (false, None);
    match observer.request(&seen) {
        Action::Forward => (),
        Action::Wait(until) => until.await,
        Action::Change(by) => change = Some(by),
        Action::Reply(response) => return Ok(response.map(whole)),
        Action::DropBefore => return Err(io::ErrorKind::ConnectionAborted.into()),
        Action::DropAfter => lost = true,
    }
    let mut forwarded = Request::from_parts(parts, Body::from(seen.body.clone()));
    for name in NOT_FORWARDED {
        forwarded.headers_mut().remove(name);
    }
    let response = client.send(forwarded).await.map_err(io::Error::other)?;
    observer.response(&seen, response.status(), response.headers());
    if lost {
        return Err(io::ErrorKind::ConnectionAborted.into());
    }
    if let Some(change) = change {
        let (mut head, body) = response.into_parts();
        head.headers.remove(header::CONTENT_LENGTH);
        let body = body.collect().await.map_err(io::Error::other)?.to_bytes();
        return Ok(Response::from_parts(head, whole(change(body))));
    }
    Ok(response.map(|body| {
        let watched = body.map_frame(move |frame| {
            if let Some(chunk) = frame.data_ref() {
                observer.chunk(&seen, chunk);
            }
            frame
        });
        watched.boxed_unsync()
    }))
}

fn whole(body: Bytes) -> UnsyncBoxBody<Bytes, kube::Error> {
    Full::new(body).map_err(|never| match never {}).boxed_unsync()
}
