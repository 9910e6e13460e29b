//! Watches: changes of ships as a stream of events.

use std::time::Duration;

use bytes::Bytes;
use futures::{StreamExt as _, future, stream};
use http::StatusCode;
use restow_store::{Changes, StoreError};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::answer::{Answer, Body, answer};
use crate::error::ApiError;
use crate::representation::Representation;
use crate::request::Options;
use crate::ships::{Event, ListOptions, Ships, event};

/// The default `timeoutSeconds` of a watch.
const DEFAULT_SECONDS: u64 = 1800;

/// Streams the current ships, unless a resourceVersion is given, and then all changes until the timeout or `stop`.
pub async fn watch(
    ships: &Ships,
    namespace: Option<String>,
    representation: Representation,
    options: &Options,
    stop: CancellationToken,
) -> Result<Answer, ApiError> {
    let (first, after) = match options.revision {
        Some(revision) => (Vec::new(), revision),
        None => {
            let page =
                ships.list(&ListOptions { namespace: namespace.clone(), ..ListOptions::default() }).await?;
            (page.ships.into_iter().map(|ship| Ok(Event::Added(ship))).collect(), page.revision)
        }
    };
    let changes = ships.watch(namespace.as_deref(), after).await?;
    let lasts = Duration::from_secs(options.seconds.unwrap_or(DEFAULT_SECONDS));
    let over = async move {
        tokio::select! {
            () = stop.cancelled() => {}
            () = tokio::time::sleep(lasts) => {}
        }
    };
    let events = stream::iter(first).chain(changes.flat_map(|changes| stream::iter(events(changes))));
    // The stream ends after the first error.
    let lines = events.scan(false, move |failed, event| {
        let shown = event.and_then(|event| show(representation, &event));
        let line = (!*failed).then(|| line(shown.as_ref()));
        *failed = *failed || shown.is_err();
        future::ready(line)
    });
    let body = Body::stream(lines.take_until(Box::pin(over)));
    Ok(answer(StatusCode::OK, "application/json", body))
}

fn events(changes: Result<Changes, StoreError>) -> Vec<Result<Event, ApiError>> {
    match changes {
        Ok(changes) => changes
            .changes
            .iter()
            .map(|change| {
                event(change).unwrap_or_else(|| Err(ApiError::internal("the deleted object is unknown")))
            })
            .collect(),
        Err(error) => vec![Err(error.into())],
    }
}

fn show(representation: Representation, event: &Event) -> Result<Value, ApiError> {
    let (kind, ship) = match event {
        Event::Added(ship) => ("ADDED", ship),
        Event::Modified(ship) => ("MODIFIED", ship),
        Event::Deleted(ship) => ("DELETED", ship),
    };
    Ok(json!({"type": kind, "object": representation.object(ship)?}))
}

fn line(shown: Result<&Value, &ApiError>) -> Bytes {
    let line = match shown {
        Ok(event) => event.to_string(),
        Err(failure) => json!({"type": "ERROR", "object": failure.status()}).to_string(),
    };
    Bytes::from(line + "\n")
}
