//! Kubernetes Events about CRDs: one for each change of how a CRD stands with the webhook.

use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::api::events::v1::Event;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use kube::Api;
use kube::api::{ObjectMeta, PostParams};
use restow_lease::request::ask;

use super::gates::CrdState;

/// Where Events about cluster-scoped objects belong.
const NAMESPACE: &str = "default";
/// The longest message that an API server accepts, in bytes.
const MAX_MESSAGE: usize = 1024;

/// The type, the reason and the message of an Event about a state.
fn words(state: &CrdState) -> (&'static str, String, String) {
    match state {
        CrdState::Registered => {
            let message = "API servers call the conversion webhook, and trust its certificate authorities";
            ("Normal", "ConversionRegistered".to_owned(), message.to_owned())
        }
        CrdState::LeftAlone(why) => ("Warning", "ConversionLeftAlone".to_owned(), why.clone()),
        CrdState::Held(closed) | CrdState::Waiting(closed) => {
            ("Warning", closed.gate.to_string(), closed.message.clone())
        }
    }
}

/// Publishes an Event about a CRD. One that cannot be sent is dropped.
pub(super) async fn publish(client: &kube::Client, instance: &str, crd: &str, state: &CrdState) {
    let (kind, reason, mut message) = words(state);
    while message.len() > MAX_MESSAGE {
        message.pop();
    }
    let event = Event {
        metadata: ObjectMeta {
            name: Some(format!("{crd}.{:016x}", restow_clock::random())),
            namespace: Some(NAMESPACE.to_owned()),
            ..ObjectMeta::default()
        },
        action: Some(reason.clone()),
        reason: Some(reason),
        note: Some(message),
        type_: Some(kind.to_owned()),
        event_time: Some(MicroTime(restow_clock::now())),
        regarding: Some(ObjectReference {
            api_version: Some("apiextensions.k8s.io/v1".to_owned()),
            kind: Some("CustomResourceDefinition".to_owned()),
            name: Some(crd.to_owned()),
            ..ObjectReference::default()
        }),
        reporting_controller: Some("restow.dev/webhook".to_owned()),
        reporting_instance: Some(instance.chars().take(128).collect()),
        ..Event::default()
    };
    let events: Api<Event> = Api::namespaced(client.clone(), NAMESPACE);
    if let Err(error) = ask(events.create(&PostParams::default(), &event)).await {
        tracing::debug!(crd, "could not send an Event: {error}");
    }
}
