//! Deletes Events an hour after their last occurrence.

use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use restow_store::{Range, StoreError};
use serde_json::Value;

use super::place::path;
use super::writer::Writer;
use crate::object::meta::name;
use crate::object::stored::DecodeScope;
use crate::registry::resource::Resource;
use crate::verbs::api::Api;

/// How long Events are kept.
const KEPT: SignedDuration = SignedDuration::from_hours(1);
/// The interval of checks.
const EVERY: Duration = Duration::from_secs(60);
/// The page size of lists.
const PAGE: usize = 500;

/// Deletes expired Events; never ends.
pub(super) async fn run(api: Arc<Api>, writer: Writer) {
    let mut tick = tokio::time::interval(EVERY);
    loop {
        tick.tick().await;
        let Some(events) = api.registry.built_in("", "events") else { return };
        if let Err(error) = sweep(&api, &writer, &events).await {
            tracing::warn!("could not list Events: {error}");
        }
    }
}

async fn sweep(api: &Api, writer: &Writer, events: &Resource) -> Result<(), StoreError> {
    let mut range = Range { prefix: events.prefix.clone(), start: None, limit: PAGE, revision: None };
    loop {
        let listed = api.store.list(range.clone()).await?;
        range.start = listed.entries.last().map(|entry| format!("{}\0", entry.key));
        for entry in listed.entries {
            let path = path(events, &entry.key);
            let Ok(event) = api.decode(events, entry, DecodeScope::Whole) else { continue };
            if let Some(path) = path.filter(|_| is_expired(&event, restow_clock::now()))
                && let Err(error) = writer.delete(&path, &event["metadata"], "Background").await
            {
                tracing::warn!("could not delete the expired Event {}: {error}", name(&event));
            }
        }
        if listed.remaining == 0 {
            return Ok(());
        }
    }
}

/// Whether the last occurrence of an Event is too old. Times in the future are ignored.
fn is_expired(event: &Value, now: Timestamp) -> bool {
    let times = [
        &event["metadata"]["creationTimestamp"],
        &event["lastTimestamp"],
        &event["eventTime"],
        &event["series"]["lastObservedTime"],
    ];
    let seen = times.into_iter().filter_map(|time| time.as_str()?.parse::<Timestamp>().ok());
    seen.filter(|seen| *seen <= now).max().is_some_and(|seen| now.duration_since(seen) > KEPT)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_event_expires_an_hour_after_its_latest_time() {
        let now: Timestamp = "2026-01-01T12:00:00Z".parse().unwrap();
        let at = |time: &str| json!(format!("2026-01-01T{time}Z"));
        for (created, field, time, expected) in [
            ("11:30:00", "lastTimestamp", Value::Null, false),
            ("10:59:59", "lastTimestamp", Value::Null, true),
            ("11:00:00", "lastTimestamp", Value::Null, false),
            ("10:00:00", "lastTimestamp", at("11:30:00"), false),
            ("10:00:00", "lastTimestamp", at("10:30:00"), true),
            ("11:30:00", "lastTimestamp", at("01:00:00"), false),
            ("10:00:00", "eventTime", at("11:30:00.123456"), false),
            ("10:00:00", "eventTime", at("13:00:00"), true),
            ("10:00:00", "eventTime", json!("nonsense"), true),
        ] {
            let mut event = json!({"metadata": {"creationTimestamp": at(created)}});
            event[field] = time.clone();
            assert_eq!(is_expired(&event, now), expected, "{created} {field} {time}");
        }
        let series = json!({
            "metadata": {"creationTimestamp": at("10:00:00")}, "series": {"lastObservedTime": at("11:59:00")},
        });
        assert!(!is_expired(&series, now));
        assert!(!is_expired(&json!({}), now));
    }
}
