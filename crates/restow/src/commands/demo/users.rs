//! The users of the demo. They create, change and delete objects through either server, and remember what was acknowledged.
//!
//! One writes ConfigMaps, a built-in resource; the others write boats, a custom resource.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use http::{Method, Request, StatusCode};
use kube::Client;
use serde_json::{Value, json};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::commands::demo::boats;

const CONFIG_MAPS: &str = "/api/v1/namespaces/default/configmaps";
/// How many there are.
const USERS: usize = 4;
/// How many objects each has.
const OBJECTS: usize = 25;
/// How long each rests between two writes.
const REST: Duration = Duration::from_millis(15);

/// What happened to the users' writes so far.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    /// Stored, as the server said.
    pub(crate) acknowledged: AtomicU64,
    /// Answered with 503 and sent to the other server.
    pub(crate) turned_away: AtomicU64,
    /// Not answered: the server was going away.
    pub(crate) unanswered: AtomicU64,
}

/// Whether all acknowledged writes were kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Kept {
    /// Objects that are as they were last written.
    pub(crate) intact: usize,
    /// Objects that were deleted and are gone.
    pub(crate) gone: usize,
    /// Objects that differ: lost writes.
    pub(crate) lost: usize,
}

/// The users, at work.
pub(crate) struct Users {
    tally: Arc<Tally>,
    stop: CancellationToken,
    work: JoinSet<(WrittenKind, Memory)>,
    servers: Vec<Client>,
}

/// The expected state of an object; unknown after a write without an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Expected {
    Absent,
    Number(u64),
    Unknown,
}

type Memory = BTreeMap<String, Expected>;

/// What a user writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum WrittenKind {
    Boats,
    ConfigMaps,
}

/// How a write was answered.
enum Answer {
    Done,
    TurnedAway,
    Unanswered,
    Refused(StatusCode),
}

impl Users {
    /// Starts them on these servers.
    pub(crate) fn start(servers: Vec<Client>) -> Self {
        let (tally, stop) = (Arc::new(Tally::default()), CancellationToken::new());
        let mut work = JoinSet::new();
        for user in 0..USERS {
            let kind = if user == 0 { WrittenKind::ConfigMaps } else { WrittenKind::Boats };
            let user = User {
                kind,
                servers: servers.clone(),
                tally: Arc::clone(&tally),
                first: user,
                memory: (0..OBJECTS).map(|n| (format!("user-{user}-{n:02}"), Expected::Absent)).collect(),
            };
            work.spawn(user.work(stop.clone()));
        }
        Self { tally, stop, work, servers }
    }

    /// What happened so far.
    pub(crate) fn tally(&self) -> &Tally {
        &self.tally
    }

    /// Stops them, and checks every object that they have written.
    pub(crate) async fn stop(mut self) -> Result<Kept, kube::Error> {
        self.stop.cancel();
        let mut kept = Kept::default();
        while let Some(worked) = self.work.join_next().await {
            let Ok((kind, memory)) = worked else { continue };
            for (name, expected) in memory {
                let found = kind.number(&self.servers[0], &name).await?;
                match (expected, found) {
                    (Expected::Unknown, _) => {}
                    (Expected::Absent, None) => kept.gone += 1,
                    (Expected::Number(number), Some(found)) if number == found => kept.intact += 1,
                    _ => kept.lost += 1,
                }
            }
        }
        Ok(kept)
    }
}

struct User {
    kind: WrittenKind,
    servers: Vec<Client>,
    tally: Arc<Tally>,
    first: usize,
    memory: Memory,
}

impl User {
    async fn work(mut self, stop: CancellationToken) -> (WrittenKind, Memory) {
        let names: Vec<String> = self.memory.keys().cloned().collect();
        let mut number = 0;
        while !stop.is_cancelled() {
            number += 1;
            let name = &names[fastrand::usize(..names.len())];
            self.write(name, number).await;
            tokio::time::sleep(REST).await;
        }
        (self.kind, self.memory)
    }

    /// Sends one write to one server or, if that refuses it, to the other.
    async fn write(&mut self, name: &str, number: u64) {
        let before = self.memory.get(name).copied().unwrap_or(Expected::Absent);
        let (request, after) = match before {
            Expected::Unknown => return self.look(name).await,
            Expected::Absent => (self.kind.create(name, number), Expected::Number(number)),
            Expected::Number(_) if fastrand::u8(..8) == 0 => (self.kind.delete(name), Expected::Absent),
            Expected::Number(_) => (self.kind.change(name, number), Expected::Number(number)),
        };
        self.first = self.first.wrapping_add(1);
        for turn in 0..self.servers.len() {
            let server = self.servers[(self.first + turn) % self.servers.len()].clone();
            match send(&server, request.clone()).await {
                Answer::Done => {
                    self.tally.acknowledged.fetch_add(1, Ordering::Relaxed);
                    self.memory.insert(name.to_owned(), after);
                    return;
                }
                Answer::TurnedAway => _ = self.tally.turned_away.fetch_add(1, Ordering::Relaxed),
                Answer::Unanswered => {
                    self.tally.unanswered.fetch_add(1, Ordering::Relaxed);
                    self.memory.insert(name.to_owned(), Expected::Unknown);
                    return;
                }
                Answer::Refused(status) => {
                    tracing::debug!(name, %status, "a user's write is refused");
                    self.memory.insert(name.to_owned(), Expected::Unknown);
                    return;
                }
            }
        }
    }

    /// Reads the object after a write without an answer.
    async fn look(&mut self, name: &str) {
        self.first = self.first.wrapping_add(1);
        let server = self.servers[self.first % self.servers.len()].clone();
        if let Ok(found) = self.kind.number(&server, name).await {
            self.memory.insert(name.to_owned(), found.map_or(Expected::Absent, Expected::Number));
        }
    }
}

type Write = (Method, String, &'static str, Value);

impl WrittenKind {
    fn all(self, version: &str) -> String {
        match self {
            Self::Boats => boats::all(version),
            Self::ConfigMaps => CONFIG_MAPS.to_owned(),
        }
    }

    fn one(self, version: &str, name: &str) -> String {
        format!("{}/{name}", self.all(version))
    }

    fn create(self, name: &str, number: u64) -> Write {
        let object = match self {
            Self::Boats => boats::boat("v1", name, number),
            Self::ConfigMaps => json!({
                "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name},
                "data": {"number": number.to_string()},
            }),
        };
        (Method::POST, self.all("v1"), "application/json", object)
    }

    fn change(self, name: &str, number: u64) -> Write {
        let change = match self {
            Self::Boats => json!({"spec": {"number": number}}),
            Self::ConfigMaps => json!({"data": {"number": number.to_string()}}),
        };
        (Method::PATCH, self.one("v2", name), "application/merge-patch+json", change)
    }

    fn delete(self, name: &str) -> Write {
        (Method::DELETE, self.one("v1", name), "application/json", json!({}))
    }

    /// The number in an object, if it exists.
    async fn number(self, server: &Client, name: &str) -> Result<Option<u64>, kube::Error> {
        let request = Request::get(self.one("v1", name)).body(Vec::new()).map_err(kube::Error::HttpError)?;
        let found = match server.request::<Value>(request).await {
            Ok(found) => found,
            Err(kube::Error::Api(status)) if status.code == 404 => return Ok(None),
            Err(error) => return Err(error),
        };
        Ok(match self {
            Self::Boats => found["spec"]["number"].as_u64(),
            Self::ConfigMaps => found["data"]["number"].as_str().and_then(|number| number.parse().ok()),
        })
    }
}

async fn send(server: &Client, (method, path, content_type, body): Write) -> Answer {
    let request = Request::builder().method(method).uri(path).header("Content-Type", content_type);
    let Ok(request) = request.body(kube::client::Body::from(body.to_string().into_bytes())) else {
        return Answer::Unanswered;
    };
    match server.send(request).await.map(|response| response.status()) {
        Ok(status) if status.is_success() => Answer::Done,
        Ok(StatusCode::SERVICE_UNAVAILABLE) => Answer::TurnedAway,
        Ok(status) => Answer::Refused(status),
        Err(_) => Answer::Unanswered,
    }
}
