//! The layer between restow and the simulated API servers, which injects the faults of the plan.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::header::DATE;
use http::{HeaderValue, Request, Response};
use http_body_util::BodyExt as _;
use jiff::fmt::rfc2822::DateTimePrinter;
use kube::client::Body;
use restow_store::memory::MemoryStore;
use tower::BoxError;

use crate::faults::{Faults, RequestLog, TIMEOUT, emptied, fake_response, missing_precondition, op};
use crate::ledger::Ledger;
use crate::plan::{Effect, Op, Plan, Scene};
use crate::trace::Trace;

/// How long a stream is silent before it counts as paused.
const PAUSE: Duration = Duration::from_millis(200);

/// Injects faults into requests. Clones share the state.
#[derive(Clone)]
pub struct Layer(Arc<Inner>);

struct Inner {
    trace: Trace,
    store: MemoryStore,
    scene: Scene,
    /// Whether StorageVersions are served.
    storage_versions: bool,
    ledger: Option<Ledger>,
    servers: Vec<Mutex<Option<kube::Client>>>,
    faults: Mutex<Faults>,
    request_log: Mutex<RequestLog>,
}

impl Layer {
    /// A layer without servers yet.
    pub fn new(plan: &Plan, trace: &Trace, store: &MemoryStore, ledger: Option<Ledger>) -> Self {
        Self(Arc::new(Inner {
            trace: trace.clone(),
            store: store.clone(),
            scene: plan.scene,
            storage_versions: plan.setup.map_or(plan.scene != Scene::Lagging, |setup| setup.storage_versions),
            ledger,
            servers: (0..plan.servers()).map(|_| Mutex::default()).collect(),
            faults: Mutex::new(Faults::new(plan)),
            request_log: Mutex::default(),
        }))
    }

    /// Adds or removes a server.
    pub fn set(&self, server: usize, client: Option<kube::Client>) {
        *lock(&self.0.servers[server]) = client;
    }

    /// A client without faults, for users.
    pub fn direct(&self, server: usize) -> Option<kube::Client> {
        lock(&self.0.servers[server]).clone()
    }

    /// What was observed.
    pub fn request_log(&self) -> MutexGuard<'_, RequestLog> {
        lock(&self.0.request_log)
    }

    /// The client of restow for a server.
    pub fn client(&self, server: usize) -> kube::Client {
        let layer = self.clone();
        let service = tower::service_fn(move |request| {
            let layer = layer.clone();
            async move { layer.pass(server, request).await }
        });
        kube::Client::new(service, "default")
    }

    /// The client of a replica of the controllers for a server.
    ///
    /// A request is carried out even if the replica is killed.
    pub fn replica(&self, replica: String, server: usize) -> kube::Client {
        let layer = self.clone();
        let service = tower::service_fn(move |request: Request<Body>| {
            let (layer, replica) = (layer.clone(), replica.clone());
            async move {
                let (op, name) = op(layer.0.scene.plural(), request.method(), request.uri().path());
                if let Some(ledger) = &layer.0.ledger {
                    ledger.sent(&replica, server, request.method(), op, name.as_deref(), request.uri());
                }
                tokio::spawn(async move { layer.pass(server, request).await }).await?
            }
        });
        kube::Client::new(service, "default")
    }

    async fn pass(&self, server: usize, request: Request<Body>) -> Result<Response<Body>, BoxError> {
        let (head, body) = request.into_parts();
        let body = body.collect_bytes().await?;
        let line = format!("{} {} {}", ["a", "b"][server.min(1)], head.method, head.uri);
        let (op, name) = op(self.0.scene.plural(), &head.method, head.uri.path());
        // Faults of metrics are per server.
        let name = name.or_else(|| (op == Op::Metrics).then(|| crate::plan::name(server)));
        self.request_log().request(op, head.uri.path(), self.0.store.newest());
        if op == Op::Write
            && let Some((invariant, field)) = missing_precondition(&body)
        {
            self.0.trace.violate(invariant, format!("{line} was sent without a {field}"));
        }
        if op == Op::Write && self.0.scene == Scene::Pair && self.request_log().unlisted {
            let what = format!("{line} was sent although the API servers could not be listed");
            self.0.trace.violate("S6", what);
        }
        tokio::time::sleep(Duration::from_millis(fastrand::u64(1..15))).await;
        let query = head.uri.query().unwrap_or_default().to_owned();
        let effect = lock(&self.0.faults).hit(op, name.as_deref(), &query);
        if let Some(effect) = effect {
            self.request_log().effect(op, name.as_deref(), effect);
        }
        let answer = match effect {
            Some(Effect::Cut) => Err("connection refused".into()),
            Some(Effect::Lost) => {
                let _ = self.forward(server, op, head, body).await;
                Err("connection reset by peer".into())
            }
            Some(Effect::Late(millis)) => {
                tokio::time::sleep(Duration::from_millis(millis)).await;
                self.forward(server, op, head, body).await
            }
            Some(effect @ (Effect::Half | Effect::Short)) => match self.forward(server, op, head, body).await
            {
                Ok(response) => {
                    let (head, body) = response.into_parts();
                    let bytes = match effect {
                        Effect::Half => half(body).await,
                        _ => emptied(body.collect().await?.to_bytes()),
                    };
                    Ok(Response::from_parts(head, Body::from(bytes)))
                }
                error => error,
            },
            Some(Effect::Repeat) => {
                let page = self.request_log().page.clone();
                match page {
                    Some(page) => Ok(Response::new(Body::from(page))),
                    None => self.forward(server, op, head, body).await,
                }
            }
            Some(effect) => Ok(fake_response(effect).map(Body::from)),
            None => self.forward(server, op, head, body).await,
        };
        if matches!(effect, None | Some(Effect::Late(_))) {
            let code = answer.as_ref().ok().map(|response| response.status().as_u16());
            self.request_log().wrote(op, name.as_deref(), &query, code);
        }
        tokio::time::sleep(Duration::from_millis(fastrand::u64(1..15))).await;
        let status = answer.as_ref().map_or(0, |response| response.status().as_u16());
        // A repeated page is well formed, so restow may follow it.
        let genuine = matches!(effect, None | Some(Effect::Late(_) | Effect::Repeat));
        if self.request_log().answer(op, &query, status == 200 && genuine) {
            self.0.trace.violate("L1", format!("the list goes in circles: {line}"));
        }
        let told = match &answer {
            Ok(response) => response.status().as_u16().to_string(),
            Err(error) => error.to_string(),
        };
        let marked = effect.map(|effect| format!(" [{effect:?}]")).unwrap_or_default();
        self.0.trace.step(&format!("{line} -> {told}{marked}"));
        answer
    }

    async fn forward(
        &self,
        server: usize,
        op: Op,
        head: http::request::Parts,
        body: Bytes,
    ) -> Result<Response<Body>, BoxError> {
        let lagging = self.0.scene == Scene::Lagging;
        // A server whose handlers lag is simulated by two: one for discovery, and one for objects.
        if !self.0.storage_versions && head.uri.path().contains("/storageversions") {
            return Ok(fake_response(Effect::Status(404)).map(Body::from));
        }
        let handled = lagging && matches!(op, Op::List | Op::Write | Op::Read);
        let server = if handled { 1 } else { server };
        let Some(client) = self.direct(server) else { return Err("connection refused".into()) };
        let is_page = op == Op::List && !head.uri.query().is_some_and(|query| query.contains("watch="));
        let sent = client.send(Request::from_parts(head, Body::from(body)));
        // The read timeout of restow's connections.
        let mut response = tokio::time::timeout(TIMEOUT, sent).await??;
        // Listeners set the date, and servers in one process have none.
        if let Some(now) = http_date() {
            response.headers_mut().insert(DATE, now);
        }
        if !is_page {
            return Ok(response);
        }
        let (head, body) = response.into_parts();
        let bytes = tokio::time::timeout(TIMEOUT, body.collect()).await??.to_bytes();
        self.request_log().page = Some(bytes.clone());
        Ok(Response::from_parts(head, Body::from(bytes)))
    }
}

/// The first half of a body; for a stream, of what arrives until it pauses.
async fn half(mut body: Body) -> Bytes {
    let mut bytes = BytesMut::new();
    while let Ok(Some(Ok(frame))) = tokio::time::timeout(PAUSE, body.frame()).await {
        bytes.extend_from_slice(frame.data_ref().map_or(&[], |data| data.as_ref()));
    }
    bytes.truncate(bytes.len() / 2);
    bytes.freeze()
}

/// The servers' time.
fn http_date() -> Option<HeaderValue> {
    let now = DateTimePrinter::new().timestamp_to_rfc9110_string(&restow_clock::now()).ok()?;
    HeaderValue::from_str(&now).ok()
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
