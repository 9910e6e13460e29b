//! Runs restow through a proxy that records, delays, drops or answers each request as a test says.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use http::{HeaderMap, Method, StatusCode};
use restow_lab::{Action, Cluster, Observer, Recorder, Seen};
use serde_json::{Value, json};
use tokio::process::Child;
use tokio::sync::{Notify, watch};

use crate::support::{Ran, Restow};

/// A request that is held until a test lets it go.
#[derive(Clone, Default)]
pub(crate) struct Held {
    come: Arc<Notify>,
    go_on: Arc<Notify>,
}

impl Held {
    /// Holds a request.
    pub(crate) fn hold(&self) -> Action {
        let held = self.clone();
        Action::Wait(Box::pin(async move {
            held.come.notify_one();
            held.go_on.notified().await;
        }))
    }

    /// Returns when it has come.
    pub(crate) async fn come(&self) {
        self.come.notified().await;
    }

    /// Lets it go.
    pub(crate) fn let_go(&self) {
        self.go_on.notify_one();
    }
}

/// What a test makes of a request, given how often the same one came before.
type Rule = Box<dyn Fn(&Seen, usize) -> Action + Send + Sync>;

/// All requests that went by.
pub(crate) struct Traffic {
    rule: Rule,
    log: Mutex<Log>,
    patches: watch::Sender<usize>,
}

#[derive(Default)]
struct Log {
    requests: Vec<Request>,
    times: HashMap<String, usize>,
    answers: Vec<(String, u16)>,
}

#[derive(Clone)]
pub(crate) struct Request {
    pub(crate) at: Instant,
    pub(crate) method: Method,
    pub(crate) path: String,
    pub(crate) query: String,
}

impl Traffic {
    /// Records what goes to the first server, under a rule.
    pub(crate) async fn record(
        cluster: &Cluster,
        rule: impl Fn(&Seen, usize) -> Action + Send + Sync + 'static,
    ) -> (Recorder, Arc<Self>) {
        let (log, patches) = (Mutex::default(), watch::channel(0).0);
        let traffic = Arc::new(Self { rule: Box::new(rule), log, patches });
        let recorder = Recorder::start(cluster, 0, "admin", Arc::clone(&traffic)).await.unwrap();
        (recorder, traffic)
    }

    /// Everything so far.
    pub(crate) fn requests(&self) -> Vec<Request> {
        self.log().requests.clone()
    }

    /// The patches of one object so far, or of all.
    pub(crate) fn patches_of(&self, object: &str) -> Vec<Request> {
        let all = self.requests().into_iter();
        all.filter(|request| request.method == Method::PATCH && request.path.ends_with(object)).collect()
    }

    /// What the server itself answered to the patches of one object.
    pub(crate) fn answers_to(&self, object: &str) -> Vec<u16> {
        let log = self.log();
        log.answers.iter().filter(|(path, _)| path.ends_with(object)).map(|(_, code)| *code).collect()
    }

    /// How many patches were sent so far.
    pub(crate) fn patches(&self) -> usize {
        *self.patches.borrow()
    }

    /// Returns as soon as so many patches were sent; fails when `child` ends before.
    pub(crate) async fn reach(&self, patches: usize, child: &mut Child) {
        let mut sent = self.patches.subscribe();
        tokio::select! {
            reached = sent.wait_for(|sent| *sent >= patches) => drop(reached.unwrap()),
            _ = child.wait() => panic!("it ended before it had sent {patches} patches: {}", said(child)),
        }
    }

    fn log(&self) -> MutexGuard<'_, Log> {
        self.log.lock().unwrap()
    }
}

impl Observer for Traffic {
    fn request(&self, seen: &Seen) -> Action {
        let before = {
            let mut log = self.log();
            log.requests.push(Request {
                at: Instant::now(),
                method: seen.method.clone(),
                path: seen.path.clone(),
                query: seen.query.clone(),
            });
            let key = format!("{} {}?{}", seen.method, seen.path, seen.query);
            let times = log.times.entry(key).or_default();
            *times += 1;
            *times - 1
        };
        if seen.method == Method::PATCH {
            self.patches.send_modify(|patches| *patches += 1);
        }
        (self.rule)(seen, before)
    }

    fn response(&self, seen: &Seen, status: StatusCode, _: &HeaderMap) {
        if seen.method == Method::PATCH {
            self.log().answers.push((seen.path.clone(), status.as_u16()));
        }
    }
}

/// A Status as a server would answer it.
pub(crate) fn status(code: u16, reason: &str, message: &str) -> Action {
    Action::reply(code, &status_body(code, reason, message).to_string())
}

/// The same, for more to be put into it.
pub(crate) fn status_body(code: u16, reason: &str, message: &str) -> Value {
    json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "reason": reason, "message": message, "code": code,
    })
}

/// The number of the object a request is for.
pub(crate) fn number(seen: &Seen) -> Option<usize> {
    seen.path.rsplit_once("/w-")?.1.parse().ok()
}

impl Restow {
    /// Starts `restow migrate`.
    pub(crate) fn start(&self, resource: &str, more: &[&str]) -> Child {
        let mut args = vec!["migrate", resource];
        args.extend(more);
        self.command(&args).spawn().unwrap()
    }

    /// The progress it has kept, which is whole at any instant.
    pub(crate) fn progress(&self, resource: &str) -> Option<Value> {
        let clusters = std::fs::read_dir(self.state.path().join("restow")).ok()?;
        let mut files = clusters.map(|dir| dir.unwrap().path().join(format!("{resource}.json")));
        let text = files.find_map(|file| std::fs::read(file).ok())?;
        let saved: Value = serde_json::from_slice(&text).expect("a state file that is JSON");
        Some(saved["progress"].clone())
    }

    /// How many objects it has done in the pass of this name (`counts`, `verify`), as far as it has kept.
    pub(crate) fn listed(&self, resource: &str, pass: &str) -> u64 {
        self.progress(resource).and_then(|progress| progress[pass]["listed"].as_u64()).unwrap_or_default()
    }
}

/// What a restow that has ended said.
pub(crate) fn said(child: &mut Child) -> String {
    let stdout = child.stdout.take().unwrap().into_owned_fd().unwrap();
    let stderr = child.stderr.take().unwrap().into_owned_fd().unwrap();
    [stdout, stderr].map(|pipe| std::io::read_to_string(std::fs::File::from(pipe)).unwrap()).concat()
}

/// Waits for a started restow to end.
pub(crate) async fn ended(child: Child) -> Ran {
    let output = tokio::time::timeout(Duration::from_secs(120), child.wait_with_output()).await;
    output.expect("it should have ended within two minutes").unwrap().into()
}
