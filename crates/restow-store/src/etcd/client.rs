//! Asking etcd: one connection for each of its members, and a deadline for every request.

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
    EtcdError, Settings,
    messages::{WatchRequest, WatchResponse},
};
use crate::StoreError;

/// How long to wait for a connection.
const CONNECT: Duration = Duration::from_secs(3);

/// How often to make sure of an idle connection; etcd takes it ill when asked more often than every 5 s.
const KEEP_ALIVE: Duration = Duration::from_secs(30);

/// How long to wait for the answer to that.
const KEEP_ALIVE_TIMEOUT: Duration = Duration::from_secs(10);

/// The largest answer to take, as Kubernetes' own client has it: etcd decides how much it sends.
const LARGEST: usize = i32::MAX as usize;

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
    /// The revision asked for is compacted or in the future.
    OutOfRange,
    /// There is no answer: whether it was done is not known.
    Unavailable(String),
}

impl From<Refused> for StoreError {
    fn from(refused: Refused) -> Self {
        match refused {
            Refused::OutOfRange => StoreError::Unavailable("etcd knows no such revision".to_owned()),
            Refused::Unavailable(reason) => StoreError::Unavailable(reason),
        }
    }
}

impl Client {
    /// Connects when it is first asked.
    pub(super) fn new(settings: &Settings) -> Result<Self, EtcdError> {
        if settings.endpoints.is_empty() {
            return Err(EtcdError::NoEndpoints);
        }
        let members = settings.endpoints.iter().map(|url| member(url, settings)).collect::<Result<_, _>>()?;
        Ok(Self { members, current: AtomicUsize::new(0), timeout: settings.timeout })
    }

    /// One request and its answer. A member that cannot be reached was not asked, so the next one is.
    pub(super) async fn ask<A, B>(&self, path: &'static str, ask: A) -> Result<B, Refused>
    where
        A: Message + Clone + Default + 'static,
        B: Message + Default + 'static,
    {
        let work = async {
            let mut refused = Refused::Unavailable("no member can be reached".to_owned());
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
        let late = |_| Refused::Unavailable(format!("etcd has not answered within {:?}", self.timeout));
        time::timeout(self.timeout, work).await.map_err(late)?
    }

    /// Opens a stream of watches.
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
        let late = |_| Refused::Unavailable(format!("etcd has not answered within {:?}", self.timeout));
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
        (at, Grpc::new(self.members[at].clone()).max_decoding_message_size(LARGEST))
    }

    /// The next request goes to another member when this one does not answer.
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

/// What happened, with its causes: gRPC's own message often is just "transport error".
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

fn member(url: &str, settings: &Settings) -> Result<Channel, EtcdError> {
    let invalid = |source| EtcdError::Endpoint { url: url.to_owned(), source };
    let (plain, secure) = (url.starts_with("http://"), url.starts_with("https://"));
    if !plain && !secure {
        return Err(EtcdError::Scheme { url: url.to_owned() });
    }
    let endpoint = Endpoint::from_shared(url.to_owned()).map_err(invalid)?;
    let endpoint = endpoint
        .connect_timeout(CONNECT)
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
