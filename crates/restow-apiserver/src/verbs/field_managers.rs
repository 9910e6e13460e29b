//! Field managers: records who sets which field, and merges applied configurations.

mod conversions;
mod reset;

use restow_apply::{ApplyError, FieldManager, Unconverted};
use serde_json::{Value, json};

use crate::http::status::golang::is_printable;
use crate::http::status::{Cause, CauseKind, StatusError};
use crate::object::meta::{field, set, time};
use crate::object::protobuf::schema::structure;
use crate::registry::resource::Implementation;
use crate::verbs::request::ResourceRequest;
use crate::verbs::strategy;
pub(super) use conversions::{Conversions, Interrupted};
use conversions::{ResourceVersions, is_known};

/// The manager of a request: its parameter, or the first part of its User-Agent.
pub(crate) fn manager(given: &str, user_agent: &str) -> String {
    if !given.is_empty() {
        return given.to_owned();
    }
    let first = user_agent.split('/').next().unwrap_or_default();
    let mut manager = String::new();
    for letter in first.chars().filter(|letter| is_printable(*letter)) {
        if manager.len() + letter.len_utf8() > 128 {
            break;
        }
        manager.push(letter);
    }
    manager
}

/// Records in the object which fields a request changes.
pub(super) fn record(
    request: &ResourceRequest,
    object: &mut Value,
    live: Option<&Value>,
    conversions: &Conversions,
) -> Result<(), Interrupted> {
    omit_empty(request, object);
    let versions = ResourceVersions::new(request, conversions);
    let now = time(restow_clock::now());
    let empty;
    let live = match live {
        Some(live) => live,
        None => {
            empty = empty_object(request);
            &empty
        }
    };
    match field_manager(request, &versions, &now).update(live, object, &request.manager) {
        Ok(managed) => {
            set(object, "managedFields", managed);
            Ok(())
        }
        Err(Unconverted::Pending) if versions.has_wanted() => Err(versions.interrupted()),
        Err(_) => {
            set(object, "managedFields", None);
            Ok(())
        }
    }
}

/// Removes empty fields of built-in objects, which nobody owns. An empty list of managedFields clears them, and is kept.
fn omit_empty(request: &ResourceRequest, object: &mut Value) {
    let given = field(object, "managedFields").cloned();
    strategy::omit_empty(request, object);
    if given.is_some() {
        set(object, "managedFields", given);
    }
}

/// The object after a configuration is applied to it, with its managedFields.
pub(super) fn apply(
    request: &ResourceRequest,
    live: Option<&Value>,
    config: &Value,
    conversions: &Conversions,
) -> Result<Value, Interrupted> {
    let versions = ResourceVersions::new(request, conversions);
    let (now, empty) = (time(restow_clock::now()), empty_object(request));
    let manager = field_manager(request, &versions, &now);
    let applied = manager.apply(
        live.unwrap_or(&empty),
        config,
        &empty,
        &request.manager,
        request.options.force == Some(true),
    );
    applied.map_err(|error| match error {
        ApplyError::Pending if versions.has_wanted() => versions.interrupted(),
        ApplyError::ManagedFields => StatusError::bad_request(error.to_string()).into(),
        ApplyError::Conflicts(conflicts) => {
            let message = ApplyError::Conflicts(conflicts.clone()).to_string();
            let cause = |conflict: &restow_apply::Conflict| {
                Cause::bare(CauseKind::FieldManagerConflict, conflict.message(), conflict.path.to_string())
            };
            StatusError::apply_conflict(message, conflicts.iter().map(cause).collect()).into()
        }
        error => StatusError::plain(error.to_string()).into(),
    })
}

fn field_manager<'a>(
    request: &'a ResourceRequest,
    versions: &'a ResourceVersions<'a>,
    now: &'a str,
) -> FieldManager<'a> {
    FieldManager {
        versions,
        api_version: &request.view.api_version,
        subresource: &request.target.subresource,
        now,
    }
}

/// What an object is created from.
fn empty_object(request: &ResourceRequest) -> Value {
    let (api_version, kind) = (&request.view.api_version, &request.resource.kind);
    match &request.resource.implementation {
        Implementation::BuiltIn(_) => {
            structure(api_version, kind).map(|found| found.empty.clone()).unwrap_or_default()
        }
        Implementation::Custom(_) => json!({ "apiVersion": api_version, "kind": kind }),
    }
}

/// Whether all managedFields survive a write that changes nothing.
pub(super) fn is_lasting(request: &ResourceRequest, object: &Value) -> bool {
    let entries = field(object, "managedFields").and_then(Value::as_array);
    let mut versions = entries.into_iter().flatten().filter_map(|entry| entry["apiVersion"].as_str());
    versions.all(|version| version == request.view.api_version || is_known(&request.resource, version))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_manager_is_the_field_manager_or_the_user_agent() {
        let cases = [
            ("m", "kubectl/v1", "m"),
            ("", "kubectl/v1.36 (linux)", "kubectl"),
            ("", "a\u{7}b", "ab"),
            ("", "", ""),
        ];
        for (given, agent, expected) in cases {
            assert_eq!(manager(given, agent), expected);
        }
        assert_eq!(manager("", &"x".repeat(200)).len(), 128);
    }
}
