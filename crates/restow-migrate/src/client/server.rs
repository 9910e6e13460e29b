//! One API server behind one address, and plain requests to it.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::header::{ACCEPT, CONTENT_TYPE, DATE, LOCATION, RETRY_AFTER};
use http::{HeaderMap, Method, Request, Response};
use http_body_util::BodyExt as _;
use jiff::Timestamp;
use kube::client::{Body, ClientBuilder};
use restow_clock::Instant;
use restow_core::agreement::transient::PriorAnswers;
use restow_core::rewrite::outcome::{Answer, Returned, backoff};
use serde::de::DeserializeOwned;

use super::answer_history::AnswerHistory;
use super::error::{NoAnswer, RequestError};
use super::wire::Status;

/// How long one request may take. API servers end requests after a minute.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(70);
/// The size of the largest answer that is read, unless the request has its own bound.
const MAX_ANSWER_BYTES: usize = 64 << 20;
/// How long a server counts as ready after it said so. No server restarts in less.
const READY_FOR: Duration = Duration::from_secs(1);
/// How many times, and how far apart, a server is asked whether it is ready.
const READY_TRIES: u32 = 10;
const READY_EVERY: Duration = Duration::from_millis(500);
/// How long a server that did not say so is not asked again.
const UNTOLD_FOR: Duration = Duration::from_secs(60);

/// How many times a read is repeated after a 401. With growing pauses that takes about 6 seconds; callers that wait longer
/// tell the user.
const RENEWAL_TRIES: u32 = 6;

/// The media type of lists: metadata only.
pub(crate) const METADATA_LIST: &str = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1";
/// The media type of single objects and watches: metadata only.
pub(crate) const METADATA: &str = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1";
const JSON: &str = "application/json";

/// An API server, or the load balancer in front of several.
#[derive(Clone)]
pub struct Server {
    name: String,
    client: kube::Client,
    /// Until when a 403 of this server is believed.
    trusted: Arc<Mutex<Option<Instant>>>,
    /// The requests that it has answered before.
    history: Arc<AnswerHistory>,
}

/// The answer to a request.
pub(crate) struct Reply {
    pub(crate) code: u16,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
    /// Whether the body was longer than allowed and was not read to its end.
    pub(crate) too_long: bool,
}

impl Reply {
    pub(crate) fn status(&self) -> Status {
        Status::read(&self.body)
    }

    /// How long the server asks to wait, in a header or in the body.
    pub(crate) fn retry_after(&self, status: &Status) -> Option<Duration> {
        let header = self.headers.get(RETRY_AFTER).and_then(|value| value.to_str().ok()?.parse().ok());
        header.or(status.details.as_ref().and_then(|d| d.retry_after_seconds)).map(Duration::from_secs)
    }

    /// This answer to a write, for `restow-core` to classify.
    pub(crate) fn answer(&self, sent: &str, returned: Option<Returned>) -> Answer {
        let status = if self.code < 300 { Status::default() } else { self.status() };
        let retry_after = self.retry_after(&status);
        let location = self.headers.get(LOCATION).filter(|_| (300..400).contains(&self.code));
        Answer::Http {
            code: self.code,
            status: status.kind == "Status",
            reason: status.reason,
            message: status.message,
            location: location.map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned()),
            retry_after,
            sent: sent.to_owned(),
            returned,
        }
    }
}

impl Server {
    /// Connects with a kubeconfig. The client's own retries are off, because this crate retries.
    pub fn connect(mut config: kube::Config) -> Result<Self, kube::Error> {
        let name = config.cluster_url.to_string().trim_end_matches('/').to_owned();
        config.default_retry = false;
        config.connect_timeout = Some(Duration::from_secs(10));
        config.read_timeout = config.read_timeout.or(Some(REQUEST_TIMEOUT));
        config.headers.push((
            http::header::USER_AGENT,
            http::HeaderValue::from_static(concat!("restow/", env!("CARGO_PKG_VERSION"))),
        ));
        let client = ClientBuilder::try_from(config)?.build();
        Ok(Self { name, client, trusted: Arc::default(), history: Arc::default() })
    }

    /// A server behind an existing client.
    pub fn over(name: &str, client: kube::Client) -> Self {
        Self { name: name.to_owned(), client, trusted: Arc::default(), history: Arc::default() }
    }

    /// The server's address.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The client, for typed requests.
    pub fn client(&self) -> &kube::Client {
        &self.client
    }

    /// Reads a text line by line, without keeping it in memory.
    pub(crate) async fn lines(&self, path: &str, mut each: impl FnMut(&str)) -> Result<(), RequestError> {
        let read = async {
            let open = || self.open(Method::GET, path, "*/*", None);
            let code = |response: &Response<Body>| response.status().as_u16();
            let mut response = self.unless_starting(open, code).await?;
            let mut tries = 0;
            while self.may_be_renewed(path, response.status().as_u16(), &mut tries).await {
                response = open().await?;
            }
            let code = response.status().as_u16();
            let mut body = response.into_body();
            let mut rest: Vec<u8> = Vec::new();
            while let Some(frame) = body.frame().await {
                let frame = frame.map_err(|error| NoAnswer::of(&error))?;
                rest.extend_from_slice(frame.data_ref().map_or(&[], |data| data.as_ref()));
                if code < 300 {
                    let end = rest.iter().rposition(|byte| *byte == b'\n').map_or(0, |last| last + 1);
                    String::from_utf8_lossy(&rest[..end]).lines().for_each(&mut each);
                    rest.drain(..end);
                }
            }
            if code >= 300 {
                let message = Status::read(&rest).message;
                return Err(RequestError::Refused { code, message });
            }
            self.history.well(path);
            each(&String::from_utf8_lossy(&rest));
            Ok(())
        };
        within(read).await?
    }

    /// Reads one JSON document.
    pub async fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, RequestError> {
        self.get_dated(path).await.map(|(document, _)| document)
    }

    /// Reads the metadata of one object.
    pub(crate) async fn get_metadata<T: DeserializeOwned>(&self, path: &str) -> Result<T, RequestError> {
        self.document(path, &self.read_document(path, METADATA).await?)
    }

    /// Reads one JSON document, and the server's own time.
    pub(crate) async fn get_dated<T: DeserializeOwned>(
        &self,
        path: &str,
    ) -> Result<(T, Option<Timestamp>), RequestError> {
        let reply = self.read_document(path, JSON).await?;
        let date = reply.headers.get(DATE).and_then(|value| {
            jiff::fmt::rfc2822::parse(value.to_str().ok()?).ok().map(|zoned| zoned.timestamp())
        });
        Ok((self.document(path, &reply)?, date))
    }

    /// Reads one document. If the server has accepted the credentials before, a 401 is retried, because tokens are renewed.
    async fn read_document(&self, path: &str, accept: &'static str) -> Result<Reply, NoAnswer> {
        let mut tries = 0;
        loop {
            let reply = self.send(Method::GET, path, accept, None).await?;
            if !self.may_be_renewed(path, reply.code, &mut tries).await {
                return Ok(reply);
            }
        }
    }

    /// Whether to repeat a request that was answered with this code; waits before it says so.
    async fn may_be_renewed(&self, path: &str, code: u16, tries: &mut u32) -> bool {
        *tries += 1;
        if code != 401 || *tries > RENEWAL_TRIES || !self.before(path).anything {
            return false;
        }
        tokio::time::sleep(backoff(*tries, None)).await;
        true
    }

    /// Sends one JSON document and reads the answer.
    pub async fn write<T: DeserializeOwned>(
        &self,
        method: Method,
        path: &str,
        content_type: &'static str,
        body: Vec<u8>,
    ) -> Result<T, RequestError> {
        let reply = self.send(method, path, JSON, Some((content_type, body.into()))).await?;
        read(path, &reply)
    }

    /// Which requests succeeded before a request for this path.
    pub(crate) fn before(&self, path: &str) -> PriorAnswers {
        self.history.before(path)
    }

    /// Records that a list was answered with a page.
    pub(crate) fn answered(&self, path: &str) {
        self.history.well(path);
    }

    /// Reads the document in an answer.
    fn document<T: DeserializeOwned>(&self, path: &str, reply: &Reply) -> Result<T, RequestError> {
        let document = read(path, reply)?;
        self.history.well(path);
        Ok(document)
    }

    /// Sends one request and reads the whole answer.
    ///
    /// A server that is starting forbids everything until it has read the RBAC rules. Such a 403 counts as no answer.
    pub(crate) async fn send(
        &self,
        method: Method,
        path: &str,
        accept: &'static str,
        body: Option<(&'static str, Bytes)>,
    ) -> Result<Reply, NoAnswer> {
        let reply = self.send_within(method, path, accept, body, MAX_ANSWER_BYTES).await?;
        if reply.too_long {
            return Err(NoAnswer::new(format!("the answer is longer than {} MiB", MAX_ANSWER_BYTES >> 20)));
        }
        Ok(reply)
    }

    /// Sends one request and reads at most `longest` bytes of the answer, counted without compression.
    pub(crate) async fn send_within(
        &self,
        method: Method,
        path: &str,
        accept: &'static str,
        body: Option<(&'static str, Bytes)>,
        longest: usize,
    ) -> Result<Reply, NoAnswer> {
        let exchange = || self.exchange(method.clone(), path, accept, body.clone(), longest);
        self.unless_starting(exchange, |reply| reply.code).await
    }

    /// Repeats a request after a 403, because the server may have been starting.
    async fn unless_starting<T, F: Future<Output = Result<T, NoAnswer>>>(
        &self,
        ask: impl Fn() -> F,
        code: impl Fn(&T) -> u16,
    ) -> Result<T, NoAnswer> {
        let answer = ask().await?;
        if code(&answer) != 403 || self.trusted().is_some_and(|until| Instant::now() < until) {
            return Ok(answer);
        }
        self.ready().await?;
        ask().await
    }

    /// Returns an error while the server is starting.
    async fn ready(&self) -> Result<(), NoAnswer> {
        for _ in 0..READY_TRIES {
            match self.exchange(Method::GET, "/readyz", JSON, None, MAX_ANSWER_BYTES).await?.code {
                200 => {
                    *self.trusted() = Some(Instant::now() + READY_FOR);
                    return Ok(());
                }
                500.. => return Err(NoAnswer::new("the API server is not ready".to_owned())),
                // At first even this path is forbidden; some clusters never allow it.
                _ => tokio::time::sleep(READY_EVERY).await,
            }
        }
        *self.trusted() = Some(Instant::now() + UNTOLD_FOR);
        Ok(())
    }

    fn trusted(&self) -> MutexGuard<'_, Option<Instant>> {
        self.trusted.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn exchange(
        &self,
        method: Method,
        path: &str,
        accept: &'static str,
        body: Option<(&'static str, Bytes)>,
        longest: usize,
    ) -> Result<Reply, NoAnswer> {
        let exchange = async {
            let response = self.open(method, path, accept, body).await?;
            let (parts, mut rest) = response.into_parts();
            let (code, headers) = (parts.status.as_u16(), parts.headers);
            let mut body = BytesMut::new();
            while let Some(frame) = rest.frame().await {
                let frame = frame.map_err(|error| NoAnswer::of(&error))?;
                body.extend_from_slice(frame.data_ref().map_or(&[], |data| data.as_ref()));
                if body.len() > longest {
                    return Ok(Reply { code, headers, body: body.freeze(), too_long: true });
                }
            }
            Ok(Reply { code, headers, body: body.freeze(), too_long: false })
        };
        within(exchange).await?
    }

    /// Sends one request and returns before the body is read.
    pub(crate) async fn open(
        &self,
        method: Method,
        path: &str,
        accept: &'static str,
        body: Option<(&'static str, Bytes)>,
    ) -> Result<Response<Body>, NoAnswer> {
        let mut request = Request::builder().method(method).uri(path).header(ACCEPT, accept);
        let body = match body {
            Some((content_type, body)) => {
                request = request.header(CONTENT_TYPE, content_type);
                Body::from(body)
            }
            None => Body::empty(),
        };
        let request = request.body(body).map_err(|error| NoAnswer::new(error.to_string()))?;
        let answer = within(self.client.send(request)).await?;
        answer.map_err(|error| NoAnswer::of(&error))
    }
}

fn read<T: DeserializeOwned>(path: &str, reply: &Reply) -> Result<T, RequestError> {
    if reply.code >= 300 {
        return Err(RequestError::Refused { code: reply.code, message: reply.status().message });
    }
    serde_json::from_slice(&reply.body)
        .map_err(|source| RequestError::Unreadable { path: path.to_owned(), source })
}

/// Waits for an answer until the request times out.
pub(crate) async fn within<T>(work: impl Future<Output = T>) -> Result<T, NoAnswer> {
    let timeout = |_| NoAnswer::new(format!("no answer within {} s", REQUEST_TIMEOUT.as_secs()));
    tokio::time::timeout(REQUEST_TIMEOUT, work).await.map_err(timeout)
}
