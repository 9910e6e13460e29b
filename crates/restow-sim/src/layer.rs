//! What stands between restow and its API servers, and does to requests what the plan says.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode};
use http_body_util::BodyExt as _;
use kube::client::Body;
use restow_clock::Instant;
use serde_json::json;
use tower::BoxError;

use crate::plan::{Effect, Event, Fault, Op, Plan, QUIET, Scene, Span};
use crate::store::Memory;
use crate::trace::Trace;

const READ_TIMEOUT: Duration = Duration::from_secs(70);

/// The layer.
#[derive(Clone)]
pub struct Layer(Arc<Inner>);

struct Inner {
    trace: Trace,
    store: Arc<Memory>,
    scene: Scene,
    quiet: Instant,
    servers: Vec<Mutex<Option<kube::Client>>>,
    faults: Mutex<Vec<Active>>,
    notes: Mutex<Notes>,
}

/// A fault in its course.
struct Active {
    fault: Fault,
    passed: u32,
    hits: u32,
    since: Option<Instant>,
}

/// What the layer has seen of restow.
#[derive(Default)]
pub struct Notes {
    /// Writes that restow has sent.
    pub writes: u64,
    /// The store's revision when restow last began to look at the API servers.
    pub looked: u64,
    /// The store's revision when restow last began to look at the encryption configurations.
    pub measured: u64,
    /// What was done to writes of each object.
    pub blamed: BTreeMap<String, Vec<Effect>>,
    page: Option<Bytes>,
}

impl Layer {
    /// A layer before servers that are not there yet.
    pub fn new(plan: &Plan, trace: &Trace, store: &Arc<Memory>) -> Self {
        let fault = |event: &Event| match event {
            Event::Fault(fault) => Some(Active { fault: *fault, passed: 0, hits: 0, since: None }),
            Event::At(..) => None,
        };
        Self(Arc::new(Inner {
            trace: trace.clone(),
            store: Arc::clone(store),
            scene: plan.scene,
            quiet: Instant::now() + QUIET,
            servers: (0..plan.scene.servers()).map(|_| Mutex::default()).collect(),
            faults: Mutex::new(plan.events.iter().filter_map(fault).collect()),
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

    fn op(&self, method: &Method, path: &str) -> (Op, Option<String>) {
        let plural = self.0.scene.plural();
        let reads = method == Method::GET;
        if path.ends_with(&format!("/{plural}")) {
            return (Op::List, None);
        }
        if let Some((_, name)) = path.split_once(&format!("/{plural}/")) {
            return (if reads { Op::Read } else { Op::Write }, Some(name.to_owned()));
        }
        if path.contains("/customresourcedefinitions") {
            return (if reads { Op::Look } else { Op::Prune }, None);
        }
        let op = if path.contains("/storageversions") || path.contains("/leases") {
            Op::Look
        } else if path == "/metrics" {
            Op::Metrics
        } else {
            Op::Discover
        };
        (op, None)
    }

    async fn pass(&self, server: usize, request: Request<Body>) -> Result<Response<Body>, BoxError> {
        let (head, body) = request.into_parts();
        let body = body.collect_bytes().await?;
        let line = format!("{} {} {}", ["a", "b"][server.min(1)], head.method, head.uri);
        let (op, name) = self.op(&head.method, head.uri.path());
        {
            let mut notes = self.notes();
            match op {
                Op::Look if head.uri.path().contains("/customresourcedefinitions/") => {
                    notes.looked = self.0.store.newest();
                }
                Op::Metrics => notes.measured = self.0.store.newest(),
                Op::Write => notes.writes += 1,
                _ => {}
            }
        }
        tokio::time::sleep(Duration::from_millis(fastrand::u64(1..15))).await;
        let effect = self.hit(op, name.as_deref());
        if let (Some(effect), Some(name)) = (effect, &name)
            && op == Op::Write
        {
            self.notes().blamed.entry(name.clone()).or_default().push(effect);
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
            Some(Effect::Half) => match self.forward(server, op, head, body).await {
                Ok(response) => {
                    let (head, body) = response.into_parts();
                    let bytes = body.collect().await?.to_bytes();
                    Ok(Response::from_parts(head, Body::from(bytes.slice(..bytes.len() / 2))))
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
            Some(effect) => canned(effect),
            None => self.forward(server, op, head, body).await,
        };
        tokio::time::sleep(Duration::from_millis(fastrand::u64(1..15))).await;
        let told = match &answer {
            Ok(response) => response.status().as_u16().to_string(),
            Err(error) => error.to_string(),
        };
        let marked = effect.map(|effect| format!(" [{effect:?}]")).unwrap_or_default();
        self.0.trace.step(&format!("{line} -> {told}{marked}"));
        answer
    }

    /// What is to be done to a request.
    fn hit(&self, op: Op, name: Option<&str>) -> Option<Effect> {
        let mut faults = lock(&self.0.faults);
        for active in faults.iter_mut() {
            let fault = active.fault;
            let is_its = fault.object.is_none_or(|object| name == Some(crate::plan::name(object).as_str()));
            if fault.op != op || !is_its {
                continue;
            }
            if active.passed < fault.skip {
                active.passed += 1;
                continue;
            }
            let since = *active.since.get_or_insert_with(Instant::now);
            let lasts = match fault.span {
                Span::Times(times) => active.hits < times,
                Span::Millis(millis) => since.elapsed() < Duration::from_millis(millis),
                Span::Always => true,
            };
            if lasts && (fault.span == Span::Always || Instant::now() < self.0.quiet) {
                active.hits += 1;
                return Some(fault.effect);
            }
        }
        None
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
        if lagging && head.uri.path().contains("/storageversions") {
            return canned(Effect::Status(404));
        }
        let handled = lagging && matches!(op, Op::List | Op::Write | Op::Read);
        let server = if handled { 1 } else { server };
        let Some(client) = self.direct(server) else { return Err("connection refused".into()) };
        let is_page = op == Op::List && !head.uri.query().is_some_and(|query| query.contains("watch="));
        let sent = client.send(Request::from_parts(head, Body::from(body)));
        // As long as restow's connections over a network wait for something to read.
        let response = tokio::time::timeout(READ_TIMEOUT, sent).await??;
        if !is_page {
            return Ok(response);
        }
        let (head, body) = response.into_parts();
        let bytes = body.collect().await?.to_bytes();
        self.notes().page = Some(bytes.clone());
        Ok(Response::from_parts(head, Body::from(bytes)))
    }
}

/// An answer that no API server has given.
fn canned(effect: Effect) -> Result<Response<Body>, BoxError> {
    let status = |code: u16| {
        json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "code": code,
            "message": format!("a simulated {code}"), "reason": "Simulated",
        })
    };
    let (code, body) = match effect {
        Effect::Status(code) => (code, status(code).to_string()),
        Effect::Text(code) => (code, "<html>default backend</html>".to_owned()),
        Effect::Success => {
            (200, json!({"kind": "Status", "apiVersion": "v1", "status": "Success"}).to_string())
        }
        Effect::Foreign => (200, json!({"error": "gateway timeout"}).to_string()),
        _ => (200, "{}".to_owned()),
    };
    let mut response = Response::new(Body::from(body.into_bytes()));
    *response.status_mut() = StatusCode::from_u16(code)?;
    if code == 429 {
        response.headers_mut().insert("retry-after", http::HeaderValue::from_static("1"));
    }
    if code == 302 {
        response.headers_mut().insert("location", http::HeaderValue::from_static("/login"));
    }
    Ok(response)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
