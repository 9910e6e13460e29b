//! Injects the faults of the plan into real requests.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use http::{HeaderMap, HeaderValue, StatusCode, header};
use jiff::Timestamp;
use restow_lab::{Action, Observer, Seen};

use super::limits::MAX_DELAY;
use crate::faults::{Faults, RequestLog, emptied, fake_response, missing_precondition, op};
use crate::oracle::Oracle;
use crate::plan::{Effect, Op, Plan};
use crate::trace::Trace;

/// The state that all proxies of a plan share.
pub(super) struct Shared {
    plural: &'static str,
    trace: Trace,
    oracle: Oracle,
    faults: Mutex<Faults>,
    request_log: Arc<Mutex<RequestLog>>,
    /// When restow started to read the CRD, and the store's revision at that time.
    looks: Mutex<Vec<(Timestamp, u64)>>,
}

impl Shared {
    pub(super) fn new(plan: &Plan, trace: &Trace, oracle: &Oracle) -> Arc<Self> {
        Arc::new(Self {
            plural: plan.scene.plural(),
            trace: trace.clone(),
            oracle: oracle.clone(),
            faults: Mutex::new(Faults::new(plan)),
            request_log: Arc::default(),
            looks: Mutex::default(),
        })
    }

    pub(super) fn request_log(&self) -> MutexGuard<'_, RequestLog> {
        lock(&self.request_log)
    }

    /// The store's revision when restow last started to read the CRD before a time.
    pub(super) fn looked_before(&self, time: Timestamp) -> u64 {
        let looks = lock(&self.looks);
        looks.iter().rev().find(|(at, _)| *at < time).map_or(0, |(_, revision)| *revision)
    }
}

/// The proxy in front of one server.
pub(super) struct Proxy {
    pub(super) server: usize,
    pub(super) shared: Arc<Shared>,
}

impl Proxy {
    fn told(&self, seen: &Seen, what: &str) {
        let query = if seen.query.is_empty() { String::new() } else { format!("?{}", seen.query) };
        let server = ["a", "b"][self.server.min(1)];
        self.shared.trace.step(&format!("{server} {} {}{query} -> {what}", seen.method, seen.path));
    }
}

impl Observer for Proxy {
    fn request(&self, seen: &Seen) -> Action {
        let shared = &self.shared;
        let (op, name) = op(shared.plural, &seen.method, &seen.path);
        // Faults of metrics are per server.
        let name = name.or_else(|| (op == Op::Metrics).then(|| crate::plan::name(self.server)));
        if op == Op::Write
            && let Some((invariant, field)) = missing_precondition(&seen.body)
        {
            let what = format!("{} {} was sent without a {field}", seen.method, seen.path);
            shared.trace.violate(invariant, what);
        }
        let effect = lock(&shared.faults).hit(op, name.as_deref(), &seen.query);
        let page = {
            let (mut request_log, revision) = (shared.request_log(), shared.oracle.revision());
            request_log.request(op, &seen.path, revision);
            if matches!(op, Op::Look | Op::Members) {
                lock(&shared.looks).push((restow_clock::now(), request_log.looked));
            }
            if let Some(effect) = effect {
                request_log.effect(op, name.as_deref(), effect);
            }
            request_log.page.clone()
        };
        let is_page = op == Op::List && !seen.query.contains("watch=");
        let Some(effect) = effect else { return if is_page { self.keep() } else { Action::Forward } };
        self.told(seen, &format!("[{effect:?}]"));
        // A repeated page is well formed, so restow may follow it.
        if effect == Effect::Repeat {
            self.answered(op, seen, true);
        }
        match effect {
            Effect::Cut => Action::DropBefore,
            Effect::Lost => Action::DropAfter,
            Effect::Late(millis) => {
                Action::Wait(Box::pin(tokio::time::sleep(Duration::from_millis(millis).min(MAX_DELAY))))
            }
            Effect::Short => Action::Change(Box::new(emptied)),
            Effect::Half => Action::Change(Box::new(|answer| answer.slice(..answer.len() / 2))),
            Effect::Repeat => match page {
                Some(page) => Action::Reply(json(http::Response::new(page))),
                None => self.keep(),
            },
            effect => Action::Reply(json(fake_response(effect))),
        }
    }

    fn response(&self, seen: &Seen, status: StatusCode, _: &HeaderMap) {
        self.told(seen, status.as_str());
        let (op, _) = op(self.shared.plural, &seen.method, &seen.path);
        self.answered(op, seen, status == StatusCode::OK);
    }
}

impl Proxy {
    /// Records how a request was answered.
    fn answered(&self, op: Op, seen: &Seen, well: bool) {
        if self.shared.request_log().answer(op, &seen.query, well) {
            let what = format!("the list goes in circles: {}?{}", seen.path, seen.query);
            self.shared.trace.violate("L1", what);
        }
    }

    /// Forwards a page, and keeps it to be repeated.
    fn keep(&self) -> Action {
        let request_log = Arc::clone(&self.shared.request_log);
        Action::Change(Box::new(move |page| {
            lock(&request_log).page = Some(page.clone());
            page
        }))
    }
}

fn json(mut response: http::Response<bytes::Bytes>) -> http::Response<bytes::Bytes> {
    let kind = HeaderValue::from_static("application/json");
    response.headers_mut().insert(header::CONTENT_TYPE, kind);
    response
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
