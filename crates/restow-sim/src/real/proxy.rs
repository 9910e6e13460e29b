//! Does to real requests what the plan says.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use http::{HeaderMap, HeaderValue, StatusCode, header};
use jiff::Timestamp;
use restow_lab::{Action, Observer, Seen};

use super::LONGEST;
use crate::faults::{Faults, Notes, canned, op, shortened, unbound};
use crate::oracle::Oracle;
use crate::plan::{Effect, Op, Plan};
use crate::trace::Trace;

/// What all proxies of a plan share: its faults are drawn once, whichever server a request goes to.
pub(super) struct Shared {
    plural: &'static str,
    trace: Trace,
    oracle: Oracle,
    faults: Mutex<Faults>,
    notes: Arc<Mutex<Notes>>,
    /// When restow began to look at the definition, and the store's revision then.
    looks: Mutex<Vec<(Timestamp, u64)>>,
}

impl Shared {
    pub(super) fn new(plan: &Plan, trace: &Trace, oracle: &Oracle) -> Arc<Self> {
        Arc::new(Self {
            plural: plan.scene.plural(),
            trace: trace.clone(),
            oracle: oracle.clone(),
            faults: Mutex::new(Faults::new(plan)),
            notes: Arc::default(),
            looks: Mutex::default(),
        })
    }

    pub(super) fn notes(&self) -> MutexGuard<'_, Notes> {
        lock(&self.notes)
    }

    /// The store's revision when restow last began to look at the definition before a time.
    pub(super) fn looked_before(&self, time: Timestamp) -> u64 {
        let looks = lock(&self.looks);
        looks.iter().rev().find(|(at, _)| *at < time).map_or(0, |(_, revision)| *revision)
    }
}

/// The proxy before one server.
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
        // Metrics are a server's own.
        let name = name.or_else(|| (op == Op::Metrics).then(|| crate::plan::name(self.server)));
        if op == Op::Write
            && let Some((invariant, field)) = unbound(&seen.body)
        {
            let what = format!("{} {} was sent without a {field}", seen.method, seen.path);
            shared.trace.violate(invariant, what);
        }
        let effect = lock(&shared.faults).hit(op, name.as_deref(), &seen.query);
        let page = {
            let (mut notes, revision) = (shared.notes(), shared.oracle.revision());
            notes.request(op, &seen.path, revision);
            if matches!(op, Op::Look | Op::Members) {
                lock(&shared.looks).push((restow_clock::now(), notes.looked));
            }
            if let Some(effect) = effect {
                notes.effect(op, name.as_deref(), effect);
            }
            notes.page.clone()
        };
        let is_page = op == Op::List && !seen.query.contains("watch=");
        let Some(effect) = effect else { return if is_page { self.keep() } else { Action::Forward } };
        self.told(seen, &format!("[{effect:?}]"));
        // A repeated page is well enough to be followed.
        if effect == Effect::Repeat {
            self.answered(op, seen, true);
        }
        match effect {
            Effect::Cut => Action::DropBefore,
            Effect::Lost => Action::DropAfter,
            Effect::Late(millis) => {
                Action::Wait(Box::pin(tokio::time::sleep(Duration::from_millis(millis).min(LONGEST))))
            }
            Effect::Short => Action::Change(Box::new(shortened)),
            Effect::Half => Action::Change(Box::new(|answer| answer.slice(..answer.len() / 2))),
            Effect::Repeat => match page {
                Some(page) => Action::Reply(json(http::Response::new(page))),
                None => self.keep(),
            },
            effect => Action::Reply(json(canned(effect))),
        }
    }

    fn response(&self, seen: &Seen, status: StatusCode, _: &HeaderMap) {
        self.told(seen, status.as_str());
        let (op, _) = op(self.shared.plural, &seen.method, &seen.path);
        self.answered(op, seen, status == StatusCode::OK);
    }
}

impl Proxy {
    /// Takes down how a request was answered.
    fn answered(&self, op: Op, seen: &Seen, well: bool) {
        if self.shared.notes().answer(op, &seen.query, well) {
            let what = format!("the list goes round in circles: {}?{}", seen.path, seen.query);
            self.shared.trace.violate("L1", what);
        }
    }

    /// Passes a page on, and keeps it to be repeated.
    fn keep(&self) -> Action {
        let notes = Arc::clone(&self.shared.notes);
        Action::Change(Box::new(move |page| {
            lock(&notes).page = Some(page.clone());
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
