//! The audit log: one event for each write, with its user, object and status code. It never has the content of objects.
//!
//! Events are those of `audit.k8s.io/v1` at level `Metadata`, so that tools for the audit log of kube-apiserver read them.

use std::fs::{self, File};
use std::io::{self, Write};
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::Duration;

use jiff::Timestamp;
use serde::Serialize;

use crate::auth::user::User;
use crate::private_file;

/// How many events may wait to be written. More are dropped and counted: no request waits for the disk.
const WAITING: usize = 16 * 1024;
/// The size at which the file is rotated. One rotated file is kept.
const LARGEST: u64 = 64 * 1024 * 1024;
/// How many bytes are written at a time.
const BATCH: usize = 256 * 1024;
/// How long a stopping server waits for events to be written.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(2);

/// A request that was answered.
#[derive(Clone, Debug)]
pub struct Event<'a> {
    /// The id of the request.
    pub id: &'a str,
    /// When the request was received.
    pub received: Timestamp,
    /// When it was answered.
    pub answered: Timestamp,
    /// The path and query.
    pub uri: &'a str,
    /// The verb, such as `create`.
    pub verb: &'a str,
    /// The authenticated user.
    pub user: &'a User,
    /// The impersonated user, if any.
    pub impersonated: Option<&'a User>,
    /// The address of the client.
    pub source: Option<IpAddr>,
    /// The client's User-Agent.
    pub user_agent: &'a str,
    /// The object of the request.
    pub object: Object<'a>,
    /// The status code of the response.
    pub code: u16,
}

/// The object of a request.
#[derive(Clone, Copy, Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Object<'a> {
    #[serde(skip_serializing_if = "str::is_empty")]
    pub resource: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    pub namespace: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    pub name: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    pub api_group: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    pub api_version: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    pub subresource: &'a str,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Line<'a> {
    kind: &'static str,
    api_version: &'static str,
    level: &'static str,
    #[serde(rename = "auditID")]
    audit_id: &'a str,
    stage: &'static str,
    #[serde(rename = "requestURI")]
    request_uri: &'a str,
    verb: &'a str,
    user: Person<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    impersonated_user: Option<Person<'a>>,
    #[serde(rename = "sourceIPs", skip_serializing_if = "Option::is_none")]
    source_ips: Option<[IpAddr; 1]>,
    #[serde(skip_serializing_if = "str::is_empty")]
    user_agent: &'a str,
    object_ref: Object<'a>,
    response_status: Status,
    request_received_timestamp: String,
    stage_timestamp: String,
}

#[derive(Serialize)]
struct Person<'a> {
    username: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    uid: &'a str,
    groups: &'a [String],
}

#[derive(Serialize)]
struct Status {
    code: u16,
}

impl<'a> From<&'a User> for Person<'a> {
    fn from(user: &'a User) -> Self {
        Self { username: &user.name, uid: &user.uid, groups: &user.groups }
    }
}

impl Event<'_> {
    /// The event as one line of JSON.
    pub fn line(&self) -> String {
        let line = Line {
            kind: "Event",
            api_version: "audit.k8s.io/v1",
            level: "Metadata",
            audit_id: self.id,
            stage: "ResponseComplete",
            request_uri: self.uri,
            verb: self.verb,
            user: self.user.into(),
            impersonated_user: self.impersonated.map(Person::from),
            source_ips: self.source.map(|source| [source]),
            user_agent: self.user_agent,
            object_ref: self.object,
            response_status: Status { code: self.code },
            request_received_timestamp: micros(self.received),
            stage_timestamp: micros(self.answered),
        };
        // Every field can be written as JSON.
        serde_json::to_string(&line).unwrap_or_default()
    }
}

fn micros(time: Timestamp) -> String {
    time.strftime("%Y-%m-%dT%H:%M:%S.%6fZ").to_string()
}

/// The audit log. Clones write to the same log.
#[derive(Clone, Debug, Default)]
pub struct Audit(Option<Arc<Inner>>);

#[derive(Debug)]
struct Inner {
    lines: SyncSender<Message>,
    dropped: Arc<AtomicU64>,
}

#[derive(Debug)]
enum Message {
    Line(String),
    /// Is answered when everything before it is written.
    Mark(SyncSender<()>),
}

impl Audit {
    /// No audit log.
    pub fn off() -> Self {
        Self(None)
    }

    /// Appends to a file that only its owner may read.
    pub fn to_file(path: &Path) -> io::Result<Self> {
        let file = Rotated::open(path.to_owned())?;
        Self::to(file)
    }

    /// Writes to standard error.
    pub fn to_stderr() -> io::Result<Self> {
        Self::to(io::stderr())
    }

    /// Writes to a writer, from a separate thread that ends with the last clone.
    pub fn to(writer: impl Write + Send + 'static) -> io::Result<Self> {
        let (lines, waiting) = sync_channel(WAITING);
        let dropped = Arc::new(AtomicU64::new(0));
        let counted = Arc::clone(&dropped);
        std::thread::Builder::new()
            .name("audit".to_owned())
            .spawn(move || write_all(writer, &waiting, &counted))?;
        Ok(Self(Some(Arc::new(Inner { lines, dropped }))))
    }

    /// Whether events are recorded.
    pub fn is_on(&self) -> bool {
        self.0.is_some()
    }

    /// Queues an event to be written.
    pub fn record(&self, event: &Event<'_>) {
        if let Some(inner) = &self.0
            && inner.lines.try_send(Message::Line(event.line())).is_err()
        {
            inner.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }
    /// Blocks until all queued events are written, or until a timeout.
    pub fn flush(&self) {
        let Some(inner) = &self.0 else { return };
        let (mark, written) = sync_channel(1);
        if inner.lines.try_send(Message::Mark(mark)).is_ok() {
            let _ = written.recv_timeout(FLUSH_TIMEOUT);
        }
    }
}

fn write_all(mut writer: impl Write, waiting: &Receiver<Message>, dropped: &AtomicU64) {
    let mut batch = Vec::new();
    let mut marks = Vec::new();
    while let Ok(first) = waiting.recv() {
        for message in std::iter::once(first).chain(waiting.try_iter()) {
            match message {
                Message::Line(line) => batch.extend_from_slice((line + "\n").as_bytes()),
                Message::Mark(mark) => marks.push(mark),
            }
            if batch.len() >= BATCH {
                break;
            }
        }
        if let Err(error) = writer.write_all(&batch).and_then(|()| writer.flush()) {
            tracing::error!("could not write audit events: {error}");
        }
        batch.clear();
        for mark in marks.drain(..) {
            // The other side may have timed out.
            let _ = mark.try_send(());
        }
        match dropped.swap(0, Ordering::Relaxed) {
            0 => {}
            events => tracing::error!(events, "dropped audit events"),
        }
    }
}

/// A file that is rotated when it is large.
struct Rotated {
    path: PathBuf,
    file: File,
    size: u64,
}

impl Rotated {
    fn open(path: PathBuf) -> io::Result<Self> {
        let file = private_file::append(&path)?;
        let size = file.metadata()?.len();
        Ok(Self { path, file, size })
    }
}

impl Write for Rotated {
    fn write(&mut self, lines: &[u8]) -> io::Result<usize> {
        if self.size >= LARGEST {
            let mut old = self.path.clone().into_os_string();
            old.push(".1");
            fs::rename(&self.path, old)?;
            *self = Self::open(self.path.clone())?;
        }
        let written = self.file.write(lines)?;
        self.size += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use serde_json::{Value, json};

    use super::*;

    fn event<'a>(user: &'a User, impersonated: Option<&'a User>) -> Event<'a> {
        Event {
            id: "7",
            received: "2026-01-02T03:04:05.5Z".parse().unwrap(),
            answered: "2026-01-02T03:04:05.75Z".parse().unwrap(),
            uri: "/api/v1/namespaces/a/secrets?dryRun=All",
            verb: "create",
            user,
            impersonated,
            source: Some([127, 0, 0, 1].into()),
            user_agent: "kubectl/\n\"v1\"",
            object: Object { resource: "secrets", namespace: "a", api_version: "v1", ..Object::default() },
            code: 201,
        }
    }

    #[test]
    fn an_event_is_one_line() {
        let user = User::known("alice", ["dev"]);
        let line = event(&user, None).line();
        assert_eq!(line.lines().count(), 1);
        assert_eq!(
            serde_json::from_str::<Value>(&line).unwrap(),
            json!({
                "kind": "Event", "apiVersion": "audit.k8s.io/v1", "level": "Metadata", "auditID": "7",
                "stage": "ResponseComplete", "requestURI": "/api/v1/namespaces/a/secrets?dryRun=All",
                "verb": "create", "user": {"username": "alice", "groups": ["dev", "system:authenticated"]},
                "sourceIPs": ["127.0.0.1"], "userAgent": "kubectl/\n\"v1\"",
                "objectRef": {"resource": "secrets", "namespace": "a", "apiVersion": "v1"},
                "responseStatus": {"code": 201},
                "requestReceivedTimestamp": "2026-01-02T03:04:05.500000Z",
                "stageTimestamp": "2026-01-02T03:04:05.750000Z",
            })
        );
        let admin = User::admin();
        let line: Value = serde_json::from_str(&event(&admin, Some(&user)).line()).unwrap();
        assert_eq!(line["user"]["username"], "restow:admin");
        assert_eq!(line["impersonatedUser"]["username"], "alice");
    }

    #[test]
    fn events_are_written_to_the_file() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("audit.log");
        let user = User::admin();
        for _ in 0..2 {
            let audit = Audit::to_file(&path).unwrap();
            for _ in 0..50 {
                audit.record(&event(&user, None));
            }
            audit.flush();
        }
        assert_eq!(fs::read_to_string(&path).unwrap().lines().count(), 100);
        Audit::off().record(&event(&user, None));
    }

    #[test]
    fn a_large_audit_file_is_rotated() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("audit.log");
        let mut file = Rotated::open(path.clone()).unwrap();
        file.write_all(b"one\n").unwrap();
        file.size = LARGEST;
        file.write_all(b"two\n").unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "two\n");
        assert_eq!(fs::read_to_string(dir.path().join("audit.log.1")).unwrap(), "one\n");
    }

    /// A disk that blocks until it is released.
    struct Stuck(Arc<Mutex<()>>);

    impl Write for Stuck {
        fn write(&mut self, lines: &[u8]) -> io::Result<usize> {
            let _free = self.0.lock();
            Ok(lines.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn recording_never_waits_for_the_disk() {
        let lock = Arc::new(Mutex::new(()));
        let held = lock.lock().unwrap();
        let audit = Audit::to(Stuck(Arc::clone(&lock))).unwrap();
        let user = User::admin();
        for _ in 0..2 * WAITING {
            audit.record(&event(&user, None));
        }
        let dropped = audit.0.as_ref().unwrap().dropped.load(Ordering::Relaxed);
        assert!(dropped > 0 && dropped <= 2 * WAITING as u64, "{dropped}");
        drop(held);
    }
}
