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

use super::error::{Broken, RequestError};
use super::heard::Heard;
use super::wire::Status;

/// How long one request may take; API servers end theirs after a minute.
const PATIENCE: Duration = Duration::from_secs(70);
/// The longest answer that is read, where no other bound is given.
const LONGEST: usize = 64 << 20;
/// How long a server that was ready is taken to be so still: none ends and starts in less.
const READY_FOR: Duration = Duration::from_secs(1);
/// How often, and how far apart, a server that will not say whether it is ready is asked.
const READY_TRIES: u32 = 10;
const READY_EVERY: Duration = Duration::from_millis(500);
/// How long a server is left alone that did not say it even then.
const UNTOLD_FOR: Duration = Duration::from_secs(60);

/// How often a document is asked for at once after a 401; with growing pauses, that is about 6 seconds. Who waits longer
/// for it tells its user so.
const RENEWAL_TRIES: u32 = 6;

/// What restow asks lists for: metadata only.
pub(crate) const METADATA_LIST: &str = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1";
/// What restow asks single objects and watches for: metadata only.
pub(crate) const METADATA: &str = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1";
const JSON: &str = "application/json";

/// An API server, or the load balancer in front of several.
#[derive(Clone)]
pub struct Server {
    name: String,
    client: kube::Client,
    /// Until when its word is taken that something is forbidden.
    trusted: Arc<Mutex<Option<Instant>>>,
    /// What it has answered before.
    heard: Arc<Heard>,
}

/// The answer to a request.
pub(crate) struct Reply {
    pub(crate) code: u16,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
    /// Whether the body is longer than was wanted, and was left unread.
    pub(crate) too_long: bool,
}

impl Reply {
    pub(crate) fn status(&self) -> Status {
        Status::read(&self.body)
    }

    /// How long the server asks to wait, by header or body.
    pub(crate) fn retry_after(&self, status: &Status) -> Option<Duration> {
        let header = self.headers.get(RETRY_AFTER).and_then(|value| value.to_str().ok()?.parse().ok());
        header.or(status.details.as_ref().and_then(|d| d.retry_after_seconds)).map(Duration::from_secs)
    }

    /// What this answer to a write says, for `core` to classify.
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
    /// Connects as a kubeconfig says. Retrying is this crate's business, so the client's own is off.
    pub fn connect(mut config: kube::Config) -> Result<Self, kube::Error> {
        let name = config.cluster_url.to_string().trim_end_matches('/').to_owned();
        config.default_retry = false;
        config.connect_timeout = Some(Duration::from_secs(10));
        config.read_timeout = config.read_timeout.or(Some(PATIENCE));
        config.headers.push((
            http::header::USER_AGENT,
            http::HeaderValue::from_static(concat!("restow/", env!("CARGO_PKG_VERSION"))),
        ));
        let client = ClientBuilder::try_from(config)?.build();
        Ok(Self { name, client, trusted: Arc::default(), heard: Arc::default() })
    }

    /// A server behind a client that is already there.
    pub fn over(name: &str, client: kube::Client) -> Self {
        Self { name: name.to_owned(), client, trusted: Arc::default(), heard: Arc::default() }
    }

    /// Its address.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The client beneath, for typed requests.
    pub fn client(&self) -> &kube::Client {
        &self.client
    }

    /// Reads a text line by line, without keeping it.
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
                let frame = frame.map_err(|error| Broken::of(&error))?;
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
            self.heard.well(path);
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

    /// Reads one document. A server that has accepted the credentials before is asked again after a 401, because tokens
    /// are renewed.
    async fn read_document(&self, path: &str, accept: &'static str) -> Result<Reply, Broken> {
        let mut tries = 0;
        loop {
            let reply = self.send(Method::GET, path, accept, None).await?;
            if !self.may_be_renewed(path, reply.code, &mut tries).await {
                return Ok(reply);
            }
        }
    }

    /// Whether to ask again after an answer of this code, once a pause has passed.
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

    /// What it has answered well before, of which a path may be a part.
    pub(crate) fn before(&self, path: &str) -> PriorAnswers {
        self.heard.before(path)
    }

    /// Takes in that a list was answered with a page.
    pub(crate) fn answered(&self, path: &str) {
        self.heard.well(path);
    }

    /// Reads a document of an answer.
    fn document<T: DeserializeOwned>(&self, path: &str, reply: &Reply) -> Result<T, RequestError> {
        let document = read(path, reply)?;
        self.heard.well(path);
        Ok(document)
    }

    /// Sends one request and takes the whole answer.
    ///
    /// A server that starts forbids everything until it has read what is allowed. That says nothing about the
    /// request, so it counts as no answer.
    pub(crate) async fn send(
        &self,
        method: Method,
        path: &str,
        accept: &'static str,
        body: Option<(&'static str, Bytes)>,
    ) -> Result<Reply, Broken> {
        let reply = self.send_within(method, path, accept, body, LONGEST).await?;
        if reply.too_long {
            return Err(Broken::new(format!("the answer is longer than {} MiB", LONGEST >> 20)));
        }
        Ok(reply)
    }

    /// The same, and leaves an answer unread that is longer than `longest`, whether it was compressed or not.
    pub(crate) async fn send_within(
        &self,
        method: Method,
        path: &str,
        accept: &'static str,
        body: Option<(&'static str, Bytes)>,
        longest: usize,
    ) -> Result<Reply, Broken> {
        let exchange = || self.exchange(method.clone(), path, accept, body.clone(), longest);
        self.unless_starting(exchange, |reply| reply.code).await
    }

    /// Asks once more after a 403 of a server that may have become ready only after it had answered.
    async fn unless_starting<T, F: Future<Output = Result<T, Broken>>>(
        &self,
        ask: impl Fn() -> F,
        code: impl Fn(&T) -> u16,
    ) -> Result<T, Broken> {
        let answer = ask().await?;
        if code(&answer) != 403 || self.trusted().is_some_and(|until| Instant::now() < until) {
            return Ok(answer);
        }
        self.ready().await?;
        ask().await
    }

    /// Fails while the server is starting.
    async fn ready(&self) -> Result<(), Broken> {
        for _ in 0..READY_TRIES {
            match self.exchange(Method::GET, "/readyz", JSON, None, LONGEST).await?.code {
                200 => {
                    *self.trusted() = Some(Instant::now() + READY_FOR);
                    return Ok(());
                }
                500.. => return Err(Broken::new("the API server is not ready".to_owned())),
                // Even this is forbidden at first; some clusters never allow it.
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
    ) -> Result<Reply, Broken> {
        let exchange = async {
            let response = self.open(method, path, accept, body).await?;
            let (parts, mut rest) = response.into_parts();
            let (code, headers) = (parts.status.as_u16(), parts.headers);
            let mut body = BytesMut::new();
            while let Some(frame) = rest.frame().await {
                let frame = frame.map_err(|error| Broken::of(&error))?;
                body.extend_from_slice(frame.data_ref().map_or(&[], |data| data.as_ref()));
                if body.len() > longest {
                    return Ok(Reply { code, headers, body: body.freeze(), too_long: true });
                }
            }
            Ok(Reply { code, headers, body: body.freeze(), too_long: false })
        };
        within(exchange).await?
    }

    /// Sends one request and leaves the body to be read.
    pub(crate) async fn open(
        &self,
        method: Method,
        path: &str,
        accept: &'static str,
        body: Option<(&'static str, Bytes)>,
    ) -> Result<Response<Body>, Broken> {
        let mut request = Request::builder().method(method).uri(path).header(ACCEPT, accept);
        let body = match body {
            Some((content_type, body)) => {
                request = request.header(CONTENT_TYPE, content_type);
                Body::from(body)
            }
            None => Body::empty(),
        };
        let request = request.body(body).map_err(|error| Broken::new(error.to_string()))?;
        let answer = within(self.client.send(request)).await?;
        answer.map_err(|error| Broken::of(&error))
    }
}

fn read<T: DeserializeOwned>(path: &str, reply: &Reply) -> Result<T, RequestError> {
    if reply.code >= 300 {
        return Err(RequestError::Refused { code: reply.code, message: reply.status().message });
    }
    serde_json::from_slice(&reply.body)
        .map_err(|source| RequestError::Unreadable { path: path.to_owned(), source })
}

/// Waits no longer than a request may take.
pub(crate) async fn within<T>(work: impl Future<Output = T>) -> Result<T, Broken> {
    let timeout = |_| Broken::new(format!("no answer within {} s", PATIENCE.as_secs()));
    tokio::time::timeout(PATIENCE, work).await.map_err(timeout)
}
