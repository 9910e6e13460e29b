//! Kubernetes Events about objects, few enough to be read.
//!
//! They are sent in the background: an Events API that is slow or down holds nothing up.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::api::events::v1::Event;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use kube::Api;
use kube::api::{ObjectMeta, PostParams};
pub use kube::runtime::events::EventType;
use restow_clock::Instant;
use restow_core::controller::flood::Flood;
use restow_core::controller::object_name;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use crate::observe::metrics::Metrics;

/// How long an Event may take to be sent.
const PATIENCE: Duration = Duration::from_secs(5);
/// How many Events may wait to be sent; more are dropped and counted.
const QUEUE: usize = 256;
/// How many bytes of a message the API server takes.
const LONGEST_MESSAGE: usize = 1024;
/// How many of a reason.
const LONGEST_REASON: usize = 128;
/// How many of the name of who reports.
const LONGEST_INSTANCE: usize = 128;

/// Tells of what happens to objects.
pub struct Events {
    identity: String,
    queue: Mutex<Option<mpsc::Sender<Event>>>,
    sending: Mutex<Option<JoinHandle<()>>>,
    flood: Mutex<Flood>,
    started: Instant,
    metrics: Arc<Metrics>,
}

impl Events {
    /// Events in the name of restow, from the process of this identity.
    pub fn new(client: kube::Client, identity: String, metrics: Arc<Metrics>) -> Self {
        let (queue, events) = mpsc::channel(QUEUE);
        Self {
            identity,
            queue: Mutex::new(Some(queue)),
            sending: Mutex::new(Some(tokio::spawn(send_all(client, events)))),
            flood: Mutex::default(),
            started: Instant::now(),
            metrics,
        }
    }

    /// Tells something about an object, unless it or too much else was told just now.
    ///
    /// It returns at once. An Event that cannot be sent is lost, and no more than that.
    pub fn tell(&self, object: &ObjectReference, kind: EventType, reason: &str, message: &str) {
        if !self.admit(object, reason, message) {
            let name = object.name.as_deref();
            return tracing::debug!(name, reason, message, "an Event is kept back");
        }
        let event = self.event(object, kind, reason, message);
        let queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
        if queue.as_ref().is_none_or(|queue| queue.try_send(event).is_err()) {
            self.metrics.event_dropped();
            tracing::debug!(reason, message, "an Event is dropped: too many wait to be sent");
        }
    }

    /// Sends what is still waiting, for a moment and no longer.
    pub async fn finish(&self) {
        drop(self.queue.lock().unwrap_or_else(PoisonError::into_inner).take());
        let sending = self.sending.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(mut sending) = sending else { return };
        if tokio::time::timeout(PATIENCE, &mut sending).await.is_err() {
            sending.abort();
            tracing::info!("some Events were not sent in {PATIENCE:?}");
        }
    }

    fn event(&self, object: &ObjectReference, kind: EventType, reason: &str, message: &str) -> Event {
        let now = restow_clock::now();
        let number = u128::try_from(now.as_nanosecond()).unwrap_or_default();
        let about = object.name.as_deref().unwrap_or(restow_api::MANAGER);
        Event {
            metadata: ObjectMeta {
                name: Some(object_name::of_event(about, number)),
                // As for all objects that are cluster-wide.
                namespace: Some(object.namespace.clone().unwrap_or_else(|| "default".to_owned())),
                ..ObjectMeta::default()
            },
            action: Some(cut(reason, LONGEST_REASON).to_owned()),
            reason: Some(cut(reason, LONGEST_REASON).to_owned()),
            note: Some(cut(message, LONGEST_MESSAGE).to_owned()),
            type_: Some(match kind {
                EventType::Normal => "Normal".to_owned(),
                EventType::Warning => "Warning".to_owned(),
            }),
            event_time: Some(MicroTime(now)),
            regarding: Some(object.clone()),
            reporting_controller: Some(restow_api::MANAGER.to_owned()),
            reporting_instance: Some(cut(&self.identity, LONGEST_INSTANCE).to_owned()),
            ..Event::default()
        }
    }

    fn admit(&self, object: &ObjectReference, reason: &str, message: &str) -> bool {
        let name = object.uid.as_deref().or(object.name.as_deref()).unwrap_or_default();
        let mut flood = self.flood.lock().unwrap_or_else(PoisonError::into_inner);
        flood.admit(name, reason, message, self.started.elapsed())
    }
}

/// Sends one Event after the other, until nobody tells any more.
async fn send_all(client: kube::Client, mut events: mpsc::Receiver<Event>) {
    while let Some(event) = events.recv().await {
        let namespace = event.metadata.namespace.as_deref().unwrap_or("default");
        let api = Api::<Event>::namespaced(client.clone(), namespace);
        let (reason, message) = (event.reason.as_deref(), event.note.as_deref());
        match tokio::time::timeout(PATIENCE, api.create(&PostParams::default(), &event)).await {
            Ok(Ok(_)) => {}
            Ok(Err(error)) => tracing::warn!(reason, message, "an Event could not be sent: {error}"),
            Err(_) => tracing::warn!(reason, message, "an Event could not be sent in {PATIENCE:?}"),
        }
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

    /// A client whose server never answers.
    fn silent() -> kube::Client {
        let service = tower::service_fn(|_: http::Request<kube::client::Body>| {
            std::future::pending::<Result<http::Response<kube::client::Body>, std::io::Error>>()
        });
        kube::Client::new(service, "default")
    }

    #[tokio::test(start_paused = true)]
    async fn a_server_that_is_silent_holds_nothing_up() {
        let metrics = Arc::new(Metrics::default());
        let events = Events::new(silent(), "one".to_owned(), Arc::clone(&metrics));
        let began = Instant::now();
        for number in 0..QUEUE + 50 {
            let object = ObjectReference { name: Some(format!("m-{number}")), ..ObjectReference::default() };
            events.tell(&object, EventType::Normal, "Started", "to storage version v2");
        }
        assert_eq!(began.elapsed(), Duration::ZERO);
        // One is being sent at most, the queue is full, and the rest is counted.
        let text = metrics.encode();
        let line = text.lines().find(|line| line.starts_with("restow_events_dropped_total ")).unwrap();
        let dropped: usize = line.rsplit(' ').next().unwrap().parse().unwrap();
        assert!((49..=50).contains(&dropped), "{line}");
        events.finish().await;
        assert_eq!(began.elapsed(), PATIENCE);
    }
}
