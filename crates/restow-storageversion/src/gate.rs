//! A layer around a server's handlers that refuses writes until their resources are registered.
//!
//! Whether a request is the server's own is a property of the layer, not of the request, so no request can claim it.

use std::fmt;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use futures::future::{Either, Ready, ready};
use http::{HeaderValue, Request, Response, StatusCode, header};
use restow_core::protocol::request::ResourcePath;
use restow_core::protocol::write_gate::{RequestSource, exception};
use restow_core::resource::inventory::Origin;
use restow_core::resource::name::GroupResource;
use tokio::sync::{OwnedRwLockReadGuard, RwLock, watch};
use tower::{Layer, Service};

use crate::registration::{Registered, Resource};
use restow_lease::identity::Tenure;

/// The Retry-After of a refused request, in seconds.
const RETRY_AFTER: u16 = 1;

/// The gate. Clones share the state.
#[derive(Clone)]
pub struct Gate(Arc<Inner>);

struct Inner {
    // Each write in flight holds a read lock.
    writes: Arc<RwLock<()>>,
    resources: Vec<Resource>,
    origin: Box<dyn Fn(&ResourcePath) -> Origin + Send + Sync>,
    registered: watch::Sender<Option<Registered>>,
}

/// How a request has passed the gate. It is decided once and added to the request as an extension: a handler that decided
/// again could find the gate closed, and mistake an ordinary write for an exempt one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Passage {
    /// The gate was open. A write needs [`Gate::write`].
    Open,
    /// It may pass a closed gate too. A write needs [`Gate::write_exempt`].
    Exempt,
}

/// What the path of a request names: an extension that an outer layer may insert, so that the path is parsed once. The
/// gate parses the path itself where the extension is missing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParsedPath(pub Option<Arc<ResourcePath>>);

impl ParsedPath {
    /// Parses the path of a request, without its query.
    pub fn parse(path: &str) -> Self {
        Self(ResourcePath::parse(path).map(Arc::new))
    }
}

/// A write in flight. A server that stops waits for it.
#[derive(Debug)]
pub struct Writing {
    _writes: OwnedRwLockReadGuard<()>,
}

/// A resource behind the gate is not registered.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0} is not registered with the versions in which it is stored")]
pub struct Uncovered(pub GroupResource);

impl Gate {
    /// A closed gate in front of these resources. `origin` says which server handles a request.
    pub fn closed(
        resources: Vec<Resource>,
        origin: impl Fn(&ResourcePath) -> Origin + Send + Sync + 'static,
    ) -> Self {
        Self(Arc::new(Inner {
            writes: Arc::default(),
            resources,
            origin: Box::new(origin),
            registered: watch::Sender::new(None),
        }))
    }

    /// The resources that have to be registered before it opens.
    pub fn resources(&self) -> &[Resource] {
        &self.0.resources
    }

    /// Opens the gate while the registration is valid.
    pub fn open(&self, registered: Registered) -> Result<(), Uncovered> {
        match self.0.resources.iter().find(|resource| !registered.covers(resource)) {
            Some(resource) => Err(Uncovered(resource.name.clone())),
            None => {
                self.0.registered.send_replace(Some(registered));
                Ok(())
            }
        }
    }

    /// Closes the gate.
    pub fn close(&self) {
        self.0.registered.send_replace(None);
    }

    /// A permit to store something. Take it right before the write, and hold it until the write is stored. `None` if the gate
    /// has closed since the request passed: answer with [`unavailable`].
    pub fn write(&self) -> Option<Writing> {
        let writes = Arc::clone(&self.0.writes).try_read_owned().ok()?;
        // Checked after the lock is taken, because `drained` waits for the lock.
        self.is_open().then_some(Writing { _writes: writes })
    }

    /// A permit to store something that may pass a closed gate too. Hold it until it is stored.
    pub async fn write_exempt(&self) -> Writing {
        Writing { _writes: Arc::clone(&self.0.writes).read_owned().await }
    }

    /// Waits until all writes that started before the gate was closed are stored.
    pub async fn drained(&self) {
        drop(self.0.writes.write().await);
    }

    /// Whether it is open.
    pub fn is_open(&self) -> bool {
        stands(self.0.registered.borrow().as_ref())
    }

    /// The tenure in which it was opened, while that lasts.
    pub fn tenure(&self) -> Option<Tenure> {
        let registered = self.0.registered.borrow();
        registered
            .as_ref()
            .filter(|registered| registered.stands())
            .map(|registered| registered.tenure().clone())
    }

    /// Waits until it is open.
    pub(crate) async fn opened(&self) {
        // The sender lives as long as the gate.
        let _ = self.0.registered.subscribe().wait_for(|registered| stands(registered.as_ref())).await;
    }

    /// Whether it was opened and is closed only because the registration is no longer valid.
    pub(crate) fn has_lapsed(&self) -> bool {
        self.0.registered.borrow().as_ref().is_some_and(|registered| !registered.stands())
    }

    /// The layer for requests from the network.
    pub fn layer(&self) -> GateLayer {
        GateLayer { gate: self.clone(), source: RequestSource::Network }
    }

    /// The layer for requests of the server's own client, which must not be reachable from elsewhere.
    pub fn loopback_layer(&self) -> GateLayer {
        GateLayer { gate: self.clone(), source: RequestSource::Loopback }
    }

    /// How a request passes; `None` if it is refused.
    fn passage<B>(&self, source: RequestSource, request: &Request<B>) -> Option<Passage> {
        let parsed = match request.extensions().get::<ParsedPath>() {
            Some(parsed) => parsed.clone(),
            None => ParsedPath::parse(request.uri().path()),
        };
        // Checked first: a request is exempt whether the gate is open or not.
        match exception(source, request.method().as_str(), parsed.0.as_deref(), &self.0.origin) {
            Some(_) => Some(Passage::Exempt),
            None => self.is_open().then_some(Passage::Open),
        }
    }
}

fn stands(registered: Option<&Registered>) -> bool {
    registered.is_some_and(Registered::stands)
}

impl fmt::Debug for Gate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Gate").field("open", &self.is_open()).finish_non_exhaustive()
    }
}

/// Wraps services with the gate.
#[derive(Clone, Debug)]
pub struct GateLayer {
    gate: Gate,
    source: RequestSource,
}

impl<S> Layer<S> for GateLayer {
    type Service = Gated<S>;

    fn layer(&self, inner: S) -> Gated<S> {
        Gated { layer: self.clone(), inner }
    }
}

/// A service that is wrapped with the gate.
#[derive(Clone, Debug)]
pub struct Gated<S> {
    layer: GateLayer,
    inner: S,
}

impl<S, B, R> Service<Request<B>> for Gated<S>
where
    S: Service<Request<B>, Response = Response<R>>,
    R: From<Bytes>,
{
    type Response = Response<R>;
    type Error = S::Error;
    type Future = Either<Ready<Result<Response<R>, S::Error>>, S::Future>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, mut request: Request<B>) -> Self::Future {
        match self.layer.gate.passage(self.layer.source, &request) {
            Some(passage) => {
                request.extensions_mut().insert(passage);
                Either::Right(self.inner.call(request))
            }
            None => Either::Left(ready(Ok(unavailable("the storage version is not registered yet")))),
        }
    }
}

/// A 503 with a Kubernetes Status.
pub fn unavailable<R: From<Bytes>>(why: &str) -> Response<R> {
    let status = serde_json::json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "message": format!("writes are not possible now: {why}"),
        "reason": "ServiceUnavailable", "details": { "retryAfterSeconds": RETRY_AFTER }, "code": 503,
    });
    let mut response = Response::new(R::from(Bytes::from(status.to_string())));
    *response.status_mut() = StatusCode::SERVICE_UNAVAILABLE;
    response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(RETRY_AFTER));
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}
