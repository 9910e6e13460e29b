//! One API server behind one address, and plain requests to it.

use std::time::Duration;

use bytes::Bytes;
use http::header::{ACCEPT, CONTENT_TYPE, DATE, RETRY_AFTER};
use http::{HeaderMap, Method, Request, Response};
use http_body_util::BodyExt as _;
use jiff::Timestamp;
use kube::client::{Body, ClientBuilder};
use restow_core::outcome::Answer;
use serde::de::DeserializeOwned;

use crate::wire::Status;

/// How long one request may take; API servers end theirs after a minute.
const PATIENCE: Duration = Duration::from_secs(70);

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
}

/// A request that got no answer.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct Broken(String);

/// A request that was answered with an error, or not at all.
#[derive(Debug, thiserror::Error)]
pub enum RequestError {
    /// No answer.
    #[error(transparent)]
    Broken(#[from] Broken),
    /// An error.
    #[error("{message} ({code})")]
    Refused {
        /// The HTTP status code.
        code: u16,
        /// The server's words.
        message: String,
    },
    /// Something else than was asked for.
    #[error("{path} is not what it should be")]
    Unreadable {
        /// What was asked for.
        path: String,
        /// What is wrong with it.
        source: serde_json::Error,
    },
}

impl RequestError {
    /// The HTTP status code, when there was an answer.
    pub fn code(&self) -> Option<u16> {
        match self {
            Self::Refused { code, .. } => Some(*code),
            _ => None,
        }
    }
}

/// The answer to a request.
pub(crate) struct Reply {
    pub(crate) code: u16,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
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
    pub(crate) fn answer(&self, sent: &str, returned: Option<String>) -> Answer {
        let status = if self.code < 300 { Status::default() } else { self.status() };
        let retry_after = self.retry_after(&status);
        Answer::Http {
            code: self.code,
            reason: status.reason,
            message: status.message,
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
        config.read_timeout = Some(PATIENCE);
        config.headers.push((
            http::header::USER_AGENT,
            http::HeaderValue::from_static(concat!("restow/", env!("CARGO_PKG_VERSION"))),
        ));
        let client = ClientBuilder::try_from(config)?.build();
        Ok(Self { name, client })
    }

    /// Its address.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Reads one JSON document.
    pub async fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, RequestError> {
        self.get_dated(path).await.map(|(document, _)| document)
    }

    /// Reads the metadata of one object.
    pub(crate) async fn get_metadata<T: DeserializeOwned>(&self, path: &str) -> Result<T, RequestError> {
        read(path, &self.send(Method::GET, path, METADATA, None).await?)
    }

    /// Reads one JSON document, and the server's own time.
    pub(crate) async fn get_dated<T: DeserializeOwned>(
        &self,
        path: &str,
    ) -> Result<(T, Option<Timestamp>), RequestError> {
        let reply = self.send(Method::GET, path, JSON, None).await?;
        let date = reply.headers.get(DATE).and_then(|value| {
            jiff::fmt::rfc2822::parse(value.to_str().ok()?).ok().map(|zoned| zoned.timestamp())
        });
        Ok((read(path, &reply)?, date))
    }

    /// Sends one JSON document and reads the answer.
    pub async fn write<T: DeserializeOwned>(
        &self,
        method: Method,
        path: &str,
        content_type: &'static str,
        body: Vec<u8>,
    ) -> Result<T, RequestError> {
        let reply = self.send(method, path, JSON, Some((content_type, body))).await?;
        read(path, &reply)
    }

    /// Sends one request and takes the whole answer.
    pub(crate) async fn send(
        &self,
        method: Method,
        path: &str,
        accept: &'static str,
        body: Option<(&'static str, Vec<u8>)>,
    ) -> Result<Reply, Broken> {
        let exchange = async {
            let response = self.open(method, path, accept, body).await?;
            let (parts, body) = response.into_parts();
            let body = body.collect().await.map_err(|error| Broken(chain(&error)))?.to_bytes();
            Ok(Reply { code: parts.status.as_u16(), headers: parts.headers, body })
        };
        tokio::time::timeout(PATIENCE, exchange)
            .await
            .unwrap_or_else(|_| Err(Broken(format!("no answer within {} s", PATIENCE.as_secs()))))
    }

    /// Sends one request and leaves the body to be read.
    pub(crate) async fn open(
        &self,
        method: Method,
        path: &str,
        accept: &'static str,
        body: Option<(&'static str, Vec<u8>)>,
    ) -> Result<Response<Body>, Broken> {
        let mut request = Request::builder().method(method).uri(path).header(ACCEPT, accept);
        let body = match body {
            Some((content_type, body)) => {
                request = request.header(CONTENT_TYPE, content_type);
                Body::from(body)
            }
            None => Body::empty(),
        };
        let request = request.body(body).map_err(|error| Broken(error.to_string()))?;
        self.client.send(request).await.map_err(|error| Broken(chain(&error)))
    }
}

fn read<T: DeserializeOwned>(path: &str, reply: &Reply) -> Result<T, RequestError> {
    if reply.code >= 300 {
        return Err(RequestError::Refused { code: reply.code, message: reply.status().message });
    }
    serde_json::from_slice(&reply.body)
        .map_err(|source| RequestError::Unreadable { path: path.to_owned(), source })
}

/// An error and its causes in one line, each said once.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let more = error.to_string();
        if !text.contains(&more) {
            text = format!("{text}: {more}");
        }
        cause = error.source();
    }
    text
}
