//! A watch: events in order, each with a deadline.

use std::time::Duration;

use http_body_util::BodyExt as _;
use kube::client::Body;
use serde_json::Value;

const WITHIN: Duration = Duration::from_secs(60);

/// An open watch.
pub(crate) struct Watching {
    body: Body,
    read: Vec<u8>,
}

impl Watching {
    pub(crate) fn new(body: Body) -> Self {
        Self { body, read: Vec::new() }
    }

    /// The next event; none at the end of the stream.
    pub(crate) async fn event(&mut self) -> Option<Value> {
        loop {
            if let Some(end) = self.read.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.read.drain(..=end).collect();
                return Some(serde_json::from_slice(&line).unwrap());
            }
            let frame = tokio::time::timeout(WITHIN, self.body.frame()).await.expect("an event in time");
            let data = frame?.unwrap().into_data().unwrap();
            self.read.extend_from_slice(&data);
        }
    }

    /// The next event's type and the name of its object.
    pub(crate) async fn next(&mut self) -> String {
        let event = self.event().await.expect("an event, not the end");
        summary(&event)
    }

    /// The next events.
    pub(crate) async fn take(&mut self, count: usize) -> Vec<String> {
        let mut events = Vec::new();
        for _ in 0..count {
            events.push(self.next().await);
        }
        events
    }
}

/// An event in short: `ADDED a`, `BOOKMARK`, or `ERROR 410 Expired: …`.
pub(crate) fn summary(event: &Value) -> String {
    let (kind, object) = (event["type"].as_str().unwrap_or("?"), &event["object"]);
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    if kind == "ERROR" {
        return format!("ERROR {} {}: {}", object["code"], text(&object["reason"]), text(&object["message"]));
    }
    format!("{kind} {}", text(&object["metadata"]["name"])).trim_end().to_owned()
}
