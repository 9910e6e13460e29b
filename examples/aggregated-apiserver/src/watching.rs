//! Changes of ships, as a stream of events.

use std::time::Duration;

use bytes::Bytes;
use futures::{StreamExt as _, future, stream};
use http::StatusCode;
use restow_store::{Changes, StoreError};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::answer::{Answer, Body, answer};
use crate::failure::Failure;
use crate::form::Form;
use crate::request::Options;
use crate::ships::{Event, Ships, Wanted, event};

/// How long a watch lasts that does not say.
const USUAL: u64 = 1800;

/// Shows what there is, unless a revision is given, and then what changes, until it is time to stop.
pub async fn watch(
    ships: &Ships,
    namespace: Option<String>,
    form: Form,
    options: &Options,
    stop: CancellationToken,
) -> Result<Answer, Failure> {
    let (first, after) = match options.revision {
        Some(revision) => (Vec::new(), revision),
        None => {
            let page = ships.list(&Wanted { namespace: namespace.clone(), ..Wanted::default() }).await?;
            (page.ships.into_iter().map(|ship| Ok(Event::Added(ship))).collect(), page.revision)
        }
    };
    let changes = ships.watch(namespace.as_deref(), after).await?;
    let lasts = Duration::from_secs(options.seconds.unwrap_or(USUAL));
    let over = async move {
        tokio::select! {
            () = stop.cancelled() => {}
            () = tokio::time::sleep(lasts) => {}
        }
    };
    let events = stream::iter(first).chain(changes.flat_map(|changes| stream::iter(events(changes))));
    // The first that cannot be shown is the last.
    let lines = events.scan(false, move |failed, event| {
        let shown = event.and_then(|event| show(form, &event));
        let line = (!*failed).then(|| line(shown.as_ref()));
        *failed = *failed || shown.is_err();
        future::ready(line)
    });
    let body = Body::stream(lines.take_until(Box::pin(over)));
    Ok(answer(StatusCode::OK, "application/json", body))
}

fn events(changes: Result<Changes, StoreError>) -> Vec<Result<Event, Failure>> {
    match changes {
        Ok(changes) => changes
            .changes
            .iter()
            .map(|change| {
                event(change).unwrap_or_else(|| Err(Failure::internal("what was deleted is not known")))
            })
            .collect(),
        Err(error) => vec![Err(error.into())],
    }
}

fn show(form: Form, event: &Event) -> Result<Value, Failure> {
    let (kind, ship) = match event {
        Event::Added(ship) => ("ADDED", ship),
        Event::Modified(ship) => ("MODIFIED", ship),
        Event::Deleted(ship) => ("DELETED", ship),
    };
    Ok(json!({"type": kind, "object": form.object(ship)?}))
}

fn line(shown: Result<&Value, &Failure>) -> Bytes {
    let line = match shown {
        Ok(event) => event.to_string(),
        Err(failure) => json!({"type": "ERROR", "object": failure.status()}).to_string(),
    };
    Bytes::from(line + "\n")
}
