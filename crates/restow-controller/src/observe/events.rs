//! Publishes Kubernetes Events, limited in number.
//!
//! They are sent in the background: an Events API that is slow or down delays nothing.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::api::events::v1::Event;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use kube::Api;
use kube::api::{ObjectMeta, PostParams};
pub use kube::runtime::events::EventType;
use restow_clock::Instant;
use restow_core::controller::event_limiter::EventLimiter;
use restow_core::controller::object_name;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use crate::observe::metrics::Metrics;

/// The timeout for sending an Event.
const SEND_TIMEOUT: Duration = Duration::from_secs(5);
/// How many Events may wait to be sent; more are dropped and counted.
const QUEUE_LENGTH: usize = 256;
/// The longest message that the API server accepts, in bytes.
const MAX_MESSAGE: usize = 1024;
/// The longest reason, in bytes.
const MAX_REASON: usize = 128;
/// The longest `reportingInstance`, in bytes.
const MAX_INSTANCE: usize = 128;

/// Publishes Events about objects.
pub struct Events {
    identity: String,
    queue: Mutex<Option<mpsc::Sender<Event>>>,
    sending: Mutex<Option<JoinHandle<()>>>,
    event_limiter: Mutex<EventLimiter>,
    started: Instant,
    metrics: Arc<Metrics>,
}

impl Events {
    /// Events with restow as reporting controller and `identity` as its instance.
    pub fn new(client: kube::Client, identity: String, metrics: Arc<Metrics>) -> Self {
        let (queue, events) = mpsc::channel(QUEUE_LENGTH);
        Self {
            identity,
            queue: Mutex::new(Some(queue)),
            sending: Mutex::new(Some(tokio::spawn(send_all(client, events)))),
            event_limiter: Mutex::default(),
            started: Instant::now(),
            metrics,
        }
    }

    /// Publishes an Event about an object, unless it is a repetition or too many were published recently.
    ///
    /// Returns at once. An Event that cannot be sent is dropped.
    pub fn publish(&self, object: &ObjectReference, kind: EventType, reason: &str, message: &str) {
        if !self.admit(object, reason, message) {
            let name = object.name.as_deref();
            return tracing::debug!(name, reason, message, "suppressed an Event");
        }
        let event = self.event(object, kind, reason, message);
        let queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
        if queue.as_ref().is_none_or(|queue| queue.try_send(event).is_err()) {
            self.metrics.event_dropped();
            tracing::debug!(reason, message, "dropped an Event: too many wait to be sent");
        }
    }

    /// Sends the Events that still wait, within a timeout.
    pub async fn finish(&self) {
        drop(self.queue.lock().unwrap_or_else(PoisonError::into_inner).take());
        let sending = self.sending.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(mut sending) = sending else { return };
        if tokio::time::timeout(SEND_TIMEOUT, &mut sending).await.is_err() {
            sending.abort();
            tracing::info!("could not send all Events within {} s", SEND_TIMEOUT.as_secs());
        }
    }

    fn event(&self, object: &ObjectReference, kind: EventType, reason: &str, message: &str) -> Event {
        let now = restow_clock::now();
        let number = u128::try_from(now.as_nanosecond()).unwrap_or_default();
        let about = object.name.as_deref().unwrap_or(restow_api::MANAGER);
        Event {
            metadata: ObjectMeta {
                name: Some(object_name::of_event(about, number)),
                // Where Events about cluster-scoped objects belong.
                namespace: Some(object.namespace.clone().unwrap_or_else(|| "default".to_owned())),
                ..ObjectMeta::default()
            },
            action: Some(truncate(reason, MAX_REASON).to_owned()),
            reason: Some(truncate(reason, MAX_REASON).to_owned()),
            note: Some(truncate(message, MAX_MESSAGE).to_owned()),
            type_: Some(match kind {
                EventType::Normal => "Normal".to_owned(),
                EventType::Warning => "Warning".to_owned(),
            }),
            event_time: Some(MicroTime(now)),
            regarding: Some(object.clone()),
            reporting_controller: Some(restow_api::MANAGER.to_owned()),
            reporting_instance: Some(truncate(&self.identity, MAX_INSTANCE).to_owned()),
            ..Event::default()
        }
    }

    fn admit(&self, object: &ObjectReference, reason: &str, message: &str) -> bool {
        let name = object.uid.as_deref().or(object.name.as_deref()).unwrap_or_default();
        let mut event_limiter = self.event_limiter.lock().unwrap_or_else(PoisonError::into_inner);
        event_limiter.admit(name, reason, message, self.started.elapsed())
    }
}

/// Sends one Event after the other, until the queue is closed.
async fn send_all(client: kube::Client, mut events: mpsc::Receiver<Event>) {
    while let Some(event) = events.recv().await {
        let namespace = event.metadata.namespace.as_deref().unwrap_or("default");
        let api = Api::<Event>::namespaced(client.clone(), namespace);
        let (reason, message) = (event.reason.as_deref(), event.note.as_deref());
        match tokio::time::timeout(SEND_TIMEOUT, api.create(&PostParams::default(), &event)).await {
            Ok(Ok(_)) => {}
            Ok(Err(error)) => tracing::warn!(reason, message, "could not send an Event: {error}"),
            Err(_) => {
                tracing::warn!(reason, message, "could not send an Event within {} s", SEND_TIMEOUT.as_secs())
            }
        }
    }
}

/// Truncates a text to a number of bytes, between characters.
fn truncate(text: &str, longest: usize) -> &str {
    let end = (0..=longest.min(text.len())).rev().find(|end| text.is_char_boundary(*end));
    &text[..end.unwrap_or_default()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_truncated_between_characters() {
        for (text, longest, expected) in [
            ("", 3, ""),
            ("abc", 3, "abc"),
            ("abcd", 3, "abc"),
            ("aäö", 3, "aä"),
            ("aäö", 2, "a"),
            ("ä", 1, ""),
        ] {
            assert_eq!(truncate(text, longest), expected, "{text} to {longest}");
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
    async fn a_silent_server_delays_nothing() {
        let metrics = Arc::new(Metrics::default());
        let events = Events::new(silent(), "one".to_owned(), Arc::clone(&metrics));
        let began = Instant::now();
        for number in 0..QUEUE_LENGTH + 50 {
            let object = ObjectReference { name: Some(format!("m-{number}")), ..ObjectReference::default() };
            events.publish(&object, EventType::Normal, "Started", "to storage version v2");
        }
        assert_eq!(began.elapsed(), Duration::ZERO);
        // At most one is being sent, the queue is full, and the rest is counted.
        let text = metrics.encode();
        let line = text.lines().find(|line| line.starts_with("restow_events_dropped_total ")).unwrap();
        let dropped: usize = line.rsplit(' ').next().unwrap().parse().unwrap();
        assert!((49..=50).contains(&dropped), "{line}");
        events.finish().await;
        assert_eq!(began.elapsed(), SEND_TIMEOUT);
    }
}
