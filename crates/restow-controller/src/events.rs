//! Kubernetes Events about objects, few enough to be read.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use k8s_openapi::api::core::v1::ObjectReference;
pub use kube::runtime::events::EventType;
use kube::runtime::events::{Event, Recorder, Reporter};
use restow_clock::Instant;
use restow_core::flood::Flood;

/// How long an Event may take to be sent; nothing waits for one for long.
const PATIENCE: Duration = Duration::from_secs(5);
/// How many bytes of a message the API server takes.
const LONGEST_MESSAGE: usize = 1024;
/// How many of a reason.
const LONGEST_REASON: usize = 128;

/// Tells of what happens to objects.
pub struct Events {
    client: kube::Client,
    reporter: Reporter,
    flood: Mutex<Flood>,
    started: Instant,
}

impl Events {
    /// Events in the name of restow, from the process of this identity.
    pub fn new(client: kube::Client, identity: String) -> Self {
        Self {
            client,
            reporter: Reporter { controller: restow_api::MANAGER.to_owned(), instance: Some(identity) },
            flood: Mutex::default(),
            started: Instant::now(),
        }
    }

    /// Tells something about an object, unless it or too much else was told just now.
    ///
    /// An Event that cannot be sent is lost, and no more than that.
    pub async fn tell(&self, object: &ObjectReference, kind: EventType, reason: &str, message: &str) {
        if !self.admit(object, reason, message) {
            let name = object.name.as_deref();
            return tracing::debug!(name, reason, message, "an Event is kept back");
        }
        let event = Event {
            type_: kind,
            reason: cut(reason, LONGEST_REASON).to_owned(),
            note: Some(cut(message, LONGEST_MESSAGE).to_owned()),
            action: cut(reason, LONGEST_REASON).to_owned(),
            secondary: None,
        };
        // A recorder of its own, because one that is kept tells an old message again in place of a new one with the
        // same reason.
        let recorder = Recorder::new(self.client.clone(), self.reporter.clone());
        match tokio::time::timeout(PATIENCE, recorder.publish(&event, object)).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::warn!(reason, message, "an Event could not be sent: {error}"),
            Err(_) => tracing::warn!(reason, message, "an Event could not be sent in {PATIENCE:?}"),
        }
    }

    fn admit(&self, object: &ObjectReference, reason: &str, message: &str) -> bool {
        let name = object.uid.as_deref().or(object.name.as_deref()).unwrap_or_default();
        let mut flood = self.flood.lock().unwrap_or_else(PoisonError::into_inner);
        flood.admit(name, reason, message, self.started.elapsed())
    }
}

/// The beginning of a text, up to a number of bytes.
fn cut(text: &str, longest: usize) -> &str {
    let end = (0..=longest.min(text.len())).rev().find(|end| text.is_char_boundary(*end));
    &text[..end.unwrap_or_default()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_cut_between_characters() {
        for (text, longest, expected) in [
            ("", 3, ""),
            ("abc", 3, "abc"),
            ("abcd", 3, "abc"),
            ("aäö", 3, "aä"),
            ("aäö", 2, "a"),
            ("ä", 1, ""),
        ] {
            assert_eq!(cut(text, longest), expected, "{text} to {longest}");
        }
    }
}
