//! A client for etcd: one connection to each member, and a timeout for every request.

use std::{
    error::Error,
    sync::atomic::{AtomicUsize, Ordering},
    time::Duration,
};

use futures::stream::Stream;
use prost::Message;
use tokio::time;
use tonic::{
    Code, ConnectError, IntoRequest, Status, Streaming,
    client::Grpc,
    codegen::http::uri::PathAndQuery,
    transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Identity},
};
use tonic_prost::ProstCodec;

use super::{
    messages::{WatchRequest, WatchResponse},
    settings::{EtcdError, EtcdSettings},
};
use crate::StoreError;

pub(super) const RANGE: &str = "/etcdserverpb.KV/Range";
pub(super) const TXN: &str = "/etcdserverpb.KV/Txn";
pub(super) const COMPACT: &str = "/etcdserverpb.KV/Compact";

/// How long to wait for a connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);

/// How often an idle connection is checked. etcd closes connections that ping more often than every 5 seconds.
const KEEP_ALIVE: Duration = Duration::from_secs(30);

/// How long to wait for the answer to a ping.
const KEEP_ALIVE_TIMEOUT: Duration = Duration::from_secs(10);

/// The maximum size of an answer, as in Kubernetes' own client: etcd limits its answers itself.
const MAX_ANSWER_BYTES: usize = i32::MAX as usize;

/// A client of all members.
#[derive(Debug)]
pub(super) struct Client {
    members: Vec<Channel>,
    current: AtomicUsize,
    timeout: Duration,
}

/// Why a request failed.
#[derive(Debug)]
pub(super) enum Refused {
    /// The requested revision is compacted or in the future.
    OutOfRange,
    /// There was no answer. The request may or may not be carried out.
    Unavailable(String),
}

impl From<Refused> for StoreError {
    fn from(refused: Refused) -> Self {
        match refused {
            Refused::OutOfRange => StoreError::Unavailable("etcd does not have this revision".to_owned()),
            Refused::Unavailable(reason) => StoreError::Unavailable(reason),
        }
    }
}

impl Client {
    /// Creates a client, which connects at the first request.
    pub(super) fn new(settings: &EtcdSettings) -> Result<Self, EtcdError> {
        if settings.endpoints.is_empty() {
            return Err(EtcdError::NoEndpoints);
        }
        let members = settings.endpoints.iter().map(|url| member(url, settings)).collect::<Result<_, _>>()?;
        Ok(Self { members, current: AtomicUsize::new(0), timeout: settings.timeout })
    }

    /// Sends one request. If a member cannot be reached, the request goes to the next one.
    pub(super) async fn ask<A, B>(&self, path: &'static str, ask: A) -> Result<B, Refused>
    where
        A: Message + Clone + Default + 'static,
        B: Message + Default + 'static,
    {
        let work = async {
            let mut refused = Refused::Unavailable("no etcd member can be reached".to_owned());
            for _ in &self.members {
                let (at, mut grpc) = self.member();
                let asked = async {
                    grpc.ready().await.map_err(|error| Status::from_error(Box::new(error)))?;
                    let path = PathAndQuery::from_static(path);
                    grpc.unary(ask.clone().into_request(), path, ProstCodec::<A, B>::default()).await
                };
                match asked.await {
                    Ok(answer) => return Ok(answer.into_inner()),
                    Err(status) => {
                        self.turn_away(at, &status);
                        let again = was_not_sent(&status);
                        refused = Refused::from(&status);
                        if !again {
                            break;
                        }
                    }
                }
            }
            Err(refused)
        };
        let late = |_| Refused::Unavailable(format!("no answer from etcd within {:?}", self.timeout));
        time::timeout(self.timeout, work).await.map_err(late)?
    }

    /// Opens a stream for watches.
    pub(super) async fn watch(
        &self,
        asks: impl Stream<Item = WatchRequest> + Send + 'static,
    ) -> Result<Streaming<WatchResponse>, Refused> {
        let (at, mut grpc) = self.member();
        let work = async {
            grpc.ready().await.map_err(|error| Status::from_error(Box::new(error)))?;
            let path = PathAndQuery::from_static("/etcdserverpb.Watch/Watch");
            let codec = ProstCodec::<WatchRequest, WatchResponse>::default();
            grpc.streaming(tonic::Request::new(asks), path, codec).await
        };
        let late = |_| Refused::Unavailable(format!("no answer from etcd within {:?}", self.timeout));
        match time::timeout(self.timeout, work).await.map_err(late)? {
            Ok(answers) => Ok(answers.into_inner()),
            Err(status) => {
                self.turn_away(at, &status);
                Err(Refused::from(&status))
            }
        }
    }

    /// How long to wait for an answer.
    pub(super) fn timeout(&self) -> Duration {
        self.timeout
    }

    fn member(&self) -> (usize, Grpc<Channel>) {
        let at = self.current.load(Ordering::Relaxed) % self.members.len();
        (at, Grpc::new(self.members[at].clone()).max_decoding_message_size(MAX_ANSWER_BYTES))
    }

    /// Sends the next request to another member if this one does not answer.
    fn turn_away(&self, from: usize, status: &Status) {
        if status.code() != Code::OutOfRange {
            let next = (from + 1) % self.members.len();
            self.current.compare_exchange(from, next, Ordering::Relaxed, Ordering::Relaxed).ok();
        }
    }
}

impl From<&Status> for Refused {
    fn from(status: &Status) -> Self {
        match status.code() {
            Code::OutOfRange => Self::OutOfRange,
            _ => Self::Unavailable(described(status)),
        }
    }
}

/// The error with its causes, because gRPC's own message is often only "transport error".
pub(super) fn described(status: &Status) -> String {
    let mut text = status.message().to_owned();
    let mut source = status.source();
    while let Some(cause) = source {
        let cause_text = cause.to_string();
        if !text.contains(&cause_text) {
            text = format!("{text}: {cause_text}");
        }
        source = cause.source();
    }
    text
}

fn was_not_sent(status: &Status) -> bool {
    let mut source = status.source();
    while let Some(cause) = source {
        if cause.is::<ConnectError>() {
            return true;
        }
        source = cause.source();
    }
    false
}

fn member(url: &str, settings: &EtcdSettings) -> Result<Channel, EtcdError> {
    let invalid = |source| EtcdError::Endpoint { url: url.to_owned(), source };
    let (plain, secure) = (url.starts_with("http://"), url.starts_with("https://"));
    if !plain && !secure {
        return Err(EtcdError::Scheme { url: url.to_owned() });
    }
    let endpoint = Endpoint::from_shared(url.to_owned()).map_err(invalid)?;
    let endpoint = endpoint
        .connect_timeout(CONNECT_TIMEOUT)
        .tcp_nodelay(true)
        .http2_keep_alive_interval(KEEP_ALIVE)
        .keep_alive_timeout(KEEP_ALIVE_TIMEOUT)
        .keep_alive_while_idle(true);
    if plain {
        return Ok(endpoint.connect_lazy());
    }
    let ca = settings.ca.as_ref().ok_or_else(|| EtcdError::NoAuthority { url: url.to_owned() })?;
    let mut tls = ClientTlsConfig::new().ca_certificate(Certificate::from_pem(ca));
    if let Some(identity) = &settings.identity {
        tls = tls.identity(Identity::from_pem(&identity.certificate, &identity.key));
    }
    Ok(endpoint.tls_config(tls).map_err(invalid)?.connect_lazy())
}
