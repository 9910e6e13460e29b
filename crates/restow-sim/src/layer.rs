//! What stands between restow and its API servers, and does to requests what the plan says.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::header::DATE;
use http::{HeaderValue, Request, Response};
use http_body_util::BodyExt as _;
use jiff::fmt::rfc2822::DateTimePrinter;
use kube::client::Body;
use tower::BoxError;

use crate::faults::{Faults, Notes, TIMEOUT, canned, op, shortened, unbound};
use crate::ledger::Ledger;
use crate::plan::{Effect, Op, Plan, Scene};
use crate::store::Memory;
use crate::trace::Trace;

/// How long a stream says nothing before it counts as paused.
const PAUSE: Duration = Duration::from_millis(200);

/// The layer.
#[derive(Clone)]
pub struct Layer(Arc<Inner>);

struct Inner {
    trace: Trace,
    store: Arc<Memory>,
    scene: Scene,
    /// Whether StorageVersions are served.
    storage_versions: bool,
    ledger: Option<Ledger>,
    servers: Vec<Mutex<Option<kube::Client>>>,
    faults: Mutex<Faults>,
    notes: Mutex<Notes>,
}

impl Layer {
    /// A layer before servers that are not there yet.
    pub fn new(plan: &Plan, trace: &Trace, store: &Arc<Memory>, ledger: Option<Ledger>) -> Self {
        Self(Arc::new(Inner {
            trace: trace.clone(),
            store: Arc::clone(store),
            scene: plan.scene,
            storage_versions: plan.setup.map_or(plan.scene != Scene::Lagging, |setup| setup.storage_versions),
            ledger,
            servers: (0..plan.servers()).map(|_| Mutex::default()).collect(),
            faults: Mutex::new(Faults::new(plan)),
            notes: Mutex::default(),
        }))
    }

    /// Puts a server behind it, or takes it away.
    pub fn set(&self, server: usize, client: Option<kube::Client>) {
        *lock(&self.0.servers[server]) = client;
    }

    /// A server's client that nothing is done to, for users.
    pub fn direct(&self, server: usize) -> Option<kube::Client> {
        lock(&self.0.servers[server]).clone()
    }

    /// What it has seen.
    pub fn notes(&self) -> MutexGuard<'_, Notes> {
        lock(&self.0.notes)
    }

    /// restow's client for a server.
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
    /// What it has sent is on its way, whatever becomes of the replica.
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
        // Metrics are a server's own.
        let name = name.or_else(|| (op == Op::Metrics).then(|| crate::plan::name(server)));
        self.notes().request(op, head.uri.path(), self.0.store.newest());
        if op == Op::Write
            && let Some((invariant, field)) = unbound(&body)
        {
            self.0.trace.violate(invariant, format!("{line} was sent without a {field}"));
        }
        if op == Op::Write && self.0.scene == Scene::Pair && self.notes().unlisted {
            let what = format!("{line} was sent although nobody knows which API servers there are");
            self.0.trace.violate("S6", what);
        }
        tokio::time::sleep(Duration::from_millis(fastrand::u64(1..15))).await;
        let query = head.uri.query().unwrap_or_default().to_owned();
        let effect = lock(&self.0.faults).hit(op, name.as_deref(), &query);
        if let Some(effect) = effect {
            self.notes().effect(op, name.as_deref(), effect);
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
                        _ => shortened(body.collect().await?.to_bytes()),
                    };
                    Ok(Response::from_parts(head, Body::from(bytes)))
                }
                error => error,
            },
            Some(Effect::Repeat) => {
                let page = self.notes().page.clone();
                match page {
                    Some(page) => Ok(Response::new(Body::from(page))),
                    None => self.forward(server, op, head, body).await,
                }
            }
            Some(effect) => Ok(canned(effect).map(Body::from)),
            None => self.forward(server, op, head, body).await,
        };
        if matches!(effect, None | Some(Effect::Late(_))) {
            let code = answer.as_ref().ok().map(|response| response.status().as_u16());
            self.notes().wrote(op, name.as_deref(), &query, code);
        }
        tokio::time::sleep(Duration::from_millis(fastrand::u64(1..15))).await;
        let status = answer.as_ref().map_or(0, |response| response.status().as_u16());
        // A repeated page is well enough to be followed.
        let genuine = matches!(effect, None | Some(Effect::Late(_) | Effect::Repeat));
        if self.notes().answer(op, &query, status == 200 && genuine) {
            self.0.trace.violate("L1", format!("the list goes round in circles: {line}"));
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
        // A server whose handlers lag is two: one that discovers, and one that handles.
        if !self.0.storage_versions && head.uri.path().contains("/storageversions") {
            return Ok(canned(Effect::Status(404)).map(Body::from));
        }
        let handled = lagging && matches!(op, Op::List | Op::Write | Op::Read);
        let server = if handled { 1 } else { server };
        let Some(client) = self.direct(server) else { return Err("connection refused".into()) };
        let is_page = op == Op::List && !head.uri.query().is_some_and(|query| query.contains("watch="));
        let sent = client.send(Request::from_parts(head, Body::from(body)));
        // As long as restow's connections over a network wait for something to read.
        let mut response = tokio::time::timeout(TIMEOUT, sent).await??;
        // Servers of one process leave that to their listeners.
        if let Some(now) = http_date() {
            response.headers_mut().insert(DATE, now);
        }
        if !is_page {
            return Ok(response);
        }
        let (head, body) = response.into_parts();
        let bytes = tokio::time::timeout(TIMEOUT, body.collect()).await??.to_bytes();
        self.notes().page = Some(bytes.clone());
        Ok(Response::from_parts(head, Body::from(bytes)))
    }
}

/// The first half of a body; of a stream, of what comes until it pauses.
async fn half(mut body: Body) -> Bytes {
    let mut bytes = BytesMut::new();
    while let Ok(Some(Ok(frame))) = tokio::time::timeout(PAUSE, body.frame()).await {
        bytes.extend_from_slice(frame.data_ref().map_or(&[], |data| data.as_ref()));
    }
    bytes.truncate(bytes.len() / 2);
    bytes.freeze()
}

/// The servers' own time.
fn http_date() -> Option<HeaderValue> {
    let now = DateTimePrinter::new().timestamp_to_rfc9110_string(&restow_clock::now()).ok()?;
    HeaderValue::from_str(&now).ok()
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
