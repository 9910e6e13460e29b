//! Decides which fault of a plan affects which request, for simulated and real API servers.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderValue, Method, Response, StatusCode};
use restow_clock::Instant;
use restow_core::rewrite::outcome::REFUSAL_TIMEOUT;
use restow_core::rewrite::token::Token;
use serde_json::{Value, json};

use crate::plan::{Effect, Event, Fault, Op, Plan, Span};

/// The faults of a plan and their state.
pub struct Faults {
    active: Vec<Active>,
    quiet: Instant,
}

struct Active {
    fault: Fault,
    passed: u32,
    hits: u32,
    since: Option<Instant>,
}

impl Faults {
    /// The faults of a plan that starts now.
    pub fn new(plan: &Plan) -> Self {
        let fault = |event: &Event| match event {
            Event::Fault(fault) => Some(Active { fault: *fault, passed: 0, hits: 0, since: None }),
            Event::At(..) => None,
        };
        Self { active: plan.events.iter().filter_map(fault).collect(), quiet: Instant::now() + plan.quiet() }
    }

    /// The effect on a request, if a fault affects it.
    pub fn hit(&mut self, op: Op, name: Option<&str>, query: &str) -> Option<Effect> {
        for active in &mut self.active {
            let fault = active.fault;
            let is_its = fault.object.is_none_or(|object| name == Some(crate::plan::name(object).as_str()));
            let is_op = fault.op == op || (fault.op, op) == (Op::Look, Op::Members);
            // A wrong first page cannot be detected; a wrong later page can.
            let is_page = !matches!(fault.effect, Effect::Short | Effect::Repeat) || goes_on(query);
            if !is_op || !is_its || !is_page {
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
            if lasts && (fault.span == Span::Always || Instant::now() < self.quiet) {
                active.hits += 1;
                return Some(fault.effect);
            }
        }
        None
    }
}

/// How long restow waits for an answer.
pub const TIMEOUT: Duration = Duration::from_secs(70);

/// No page has to be requested this many times.
const MAX_REPEATS: u32 = 60;

/// What was observed of restow's requests.
#[derive(Default)]
pub struct RequestLog {
    /// The number of writes that restow sent.
    pub writes: u64,
    /// The store's revision when restow last started to read the CRD.
    pub looked: u64,
    /// The store's revision when restow last started to read metrics.
    pub measured: u64,
    /// Whether identity Leases were ever refused.
    pub forbidden: bool,
    /// Whether the last read of identity Leases failed.
    pub unlisted: bool,
    /// How many times each page that is not the first was answered.
    pub pages: BTreeMap<String, u32>,
    /// The objects whose last write failed, with the times of the first and last failure since a success.
    failing: BTreeMap<String, (Instant, Instant)>,
    /// The objects that could have been quarantined at some time.
    blamed: BTreeSet<String>,
    /// The last page of objects.
    pub page: Option<Bytes>,
}

impl RequestLog {
    /// Records a request, and the store's revision at that time.
    pub fn request(&mut self, op: Op, path: &str, revision: u64) {
        match op {
            Op::Look if path.contains("/customresourcedefinitions/") => self.looked = revision,
            Op::Metrics => self.measured = revision,
            Op::Write => self.writes += 1,
            _ => {}
        }
    }

    /// Records the effect of a fault on a request.
    pub fn effect(&mut self, op: Op, name: Option<&str>, effect: Effect) {
        let answered = matches!(effect, Effect::Late(millis) if millis < TIMEOUT.as_millis() as u64);
        if let (Op::Write, Some(name), false) = (op, name, answered) {
            self.failed(name);
        }
        self.forbidden |= (op, effect) == (Op::Members, Effect::Status(403));
    }

    /// Records whether a request was answered correctly, and returns whether a list goes in circles.
    pub fn answer(&mut self, op: Op, query: &str, well: bool) -> bool {
        match op {
            Op::Members => self.unlisted = !well,
            Op::List if well && goes_on(query) => {
                let times = self.pages.entry(query.to_owned()).or_default();
                *times += 1;
                return *times == MAX_REPEATS;
            }
            _ => {}
        }
        false
    }

    /// Records a server's own answer to a write, or that there was none.
    pub fn wrote(&mut self, op: Op, name: Option<&str>, query: &str, code: Option<u16>) {
        let Some(name) = name.filter(|_| op == Op::Write) else { return };
        match code {
            // The write after a dry run may still fail.
            Some(200..=299) if query.contains("dryRun=") => {}
            Some(200..=299) => {
                self.failing.remove(name);
            }
            // The object was deleted or changed.
            Some(404 | 409) => {}
            _ => self.failed(name),
        }
    }

    fn failed(&mut self, name: &str) {
        let now = Instant::now();
        let (first, last) = self.failing.entry(name.to_owned()).or_insert((now, now));
        *last = now;
        if *last - *first >= REFUSAL_TIMEOUT {
            self.blamed.insert(name.to_owned());
        }
    }

    /// Whether an object could have been quarantined at some time.
    pub fn was_to_blame(&self, name: &str) -> bool {
        self.blamed.contains(name)
    }

    /// Whether an object may be quarantined now: all its writes have failed for long enough.
    pub fn is_to_blame(&self, name: &str) -> bool {
        self.failing.get(name).is_some_and(|(first, last)| *last - *first >= REFUSAL_TIMEOUT)
    }
}

/// The purpose of a request and the name of its object, if objects of this plural are migrated.
pub fn op(plural: &str, method: &Method, path: &str) -> (Op, Option<String>) {
    let reads = method == Method::GET;
    if path.ends_with(&format!("/{plural}")) {
        return (Op::List, None);
    }
    if let Some((_, name)) = path.split_once(&format!("/{plural}/")) {
        return (if reads { Op::Read } else { Op::Write }, Some(name.to_owned()));
    }
    let own = [
        ("/storagestates", Op::State),
        ("/storageversionmigrations", Op::Migration),
        ("/namespaces/default/leases", Op::Lease),
        ("/events", Op::Event),
    ];
    if let Some((_, op)) = own.iter().find(|(part, _)| path.contains(part)) {
        return (*op, None);
    }
    if path.contains("/customresourcedefinitions") {
        return (if reads { Op::Look } else { Op::Prune }, None);
    }
    let op = if path.contains("/storageversions") {
        Op::Look
    } else if path.contains("/leases") {
        Op::Members
    } else if path == "/metrics" {
        Op::Metrics
    } else {
        Op::Discover
    };
    (op, None)
}

/// Whether a page continues a list at the same resourceVersion.
pub fn goes_on(query: &str) -> bool {
    let token = query.split('&').find_map(|pair| pair.strip_prefix("continue=")).and_then(Token::decode);
    token.is_some_and(|token| token.resource_version > 0)
}

/// A list without its objects and without a next page. Other documents stay as they are.
pub fn emptied(body: Bytes) -> Bytes {
    match serde_json::from_slice::<Value>(&body) {
        Ok(mut list) if list["items"].is_array() => {
            list["items"] = json!([]);
            list["metadata"] = json!({"resourceVersion": list["metadata"]["resourceVersion"]});
            list.to_string().into()
        }
        _ => body,
    }
}

/// S3 and S4: the precondition that a write lacks, with its invariant.
pub fn missing_precondition(body: &[u8]) -> Option<(&'static str, &'static str)> {
    let sent: Value = serde_json::from_slice(body).unwrap_or_default();
    let lacks = |field: &str| sent["metadata"][field].as_str().unwrap_or_default().is_empty();
    [("S3", "uid"), ("S4", "resourceVersion")].into_iter().find(|(_, field)| lacks(field))
}

/// An answer that does not come from an API server.
pub fn fake_response(effect: Effect) -> Response<Bytes> {
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
    let mut response = Response::new(Bytes::from(body));
    *response.status_mut() = StatusCode::from_u16(code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    if code == 429 {
        response.headers_mut().insert("retry-after", HeaderValue::from_static("1"));
    }
    if code == 302 {
        response.headers_mut().insert("location", HeaderValue::from_static("/login"));
    }
    response
}
