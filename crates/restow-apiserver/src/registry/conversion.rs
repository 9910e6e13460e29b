//! Converts objects between versions.

use futures::future::BoxFuture;
use serde_json::{Map, Value, json};

use crate::http::status::StatusError;
use crate::registry::custom_resource::ServedDefinition;
use crate::registry::resource::{Implementation, Resource};

/// Calls the conversion webhook of a definition.
pub(crate) trait Converter: Send + Sync + 'static {
    /// The objects in another version, as many and in the same order.
    fn convert<'a>(
        &'a self,
        definition: &'a ServedDefinition,
        objects: Vec<Value>,
        desired: &'a str,
    ) -> BoxFuture<'a, Result<Vec<Value>, StatusError>>;
}

/// Converts objects to a version. Objects of that version are not changed.
pub(crate) async fn convert(
    converter: &dyn Converter,
    resource: &Resource,
    desired: &str,
    mut objects: Vec<Value>,
) -> Result<Vec<Value>, StatusError> {
    match &resource.implementation {
        Implementation::BuiltIn(_) => {
            objects.iter_mut().for_each(|object| to_built_in(object, desired));
            Ok(objects)
        }
        Implementation::Custom(custom) if custom.has_webhook() => {
            by_webhook(converter, custom, desired, objects).await
        }
        Implementation::Custom(_) => {
            objects.iter_mut().for_each(|object| object["apiVersion"] = json!(desired));
            Ok(objects)
        }
    }
}

/// Sends objects of other versions to the webhook.
async fn by_webhook(
    converter: &dyn Converter,
    custom: &ServedDefinition,
    desired: &str,
    mut objects: Vec<Value>,
) -> Result<Vec<Value>, StatusError> {
    let others: Vec<usize> = (0..objects.len()).filter(|&at| objects[at]["apiVersion"] != desired).collect();
    if others.is_empty() {
        return Ok(objects);
    }
    let sent = others.iter().map(|&at| objects[at].take()).collect();
    let converted = converter.convert(custom, sent, desired).await?;
    if converted.len() != others.len() {
        return Err(StatusError::plain("the conversion webhook returned another number of objects"));
    }
    for (at, object) in others.into_iter().zip(converted) {
        objects[at] = object;
    }
    Ok(objects)
}

/// How Events are called in their two groups: core, then events.k8s.io.
const EVENT_FIELDS: [(&str, &str); 7] = [
    ("count", "deprecatedCount"),
    ("firstTimestamp", "deprecatedFirstTimestamp"),
    ("involvedObject", "regarding"),
    ("lastTimestamp", "deprecatedLastTimestamp"),
    ("message", "note"),
    ("reportingComponent", "reportingController"),
    ("source", "deprecatedSource"),
];
const EVENTS: &str = "events.k8s.io/v1";

/// An Event in the other group, or nothing but another apiVersion.
pub(crate) fn to_built_in(object: &mut Value, desired: &str) {
    let Some(fields) = object.as_object_mut() else { return };
    let stored = fields.get("apiVersion").and_then(Value::as_str).unwrap_or_default();
    if stored == desired {
        return;
    }
    let rename = |fields: &mut Map<String, Value>, from: &str, to: &str| {
        if let Some(value) = fields.remove(from) {
            fields.insert(to.to_owned(), value);
        }
    };
    let (from_new, to_new) = (stored == EVENTS, desired == EVENTS);
    for (old, new) in EVENT_FIELDS {
        if to_new {
            rename(fields, old, new);
        } else if from_new {
            rename(fields, new, old);
        }
    }
    fields.insert("apiVersion".to_owned(), json!(desired));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_of_both_groups_convert_into_each_other() {
        let old =
            json!({"apiVersion": "v1", "kind": "Event", "message": "m", "involvedObject": {"name": "a"}});
        let mut event = old.clone();
        to_built_in(&mut event, EVENTS);
        let new = json!({"apiVersion": EVENTS, "kind": "Event", "note": "m", "regarding": {"name": "a"}});
        assert_eq!(event, new);
        to_built_in(&mut event, "v1");
        assert_eq!(event, old);
    }
}
