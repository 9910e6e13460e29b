//! Objects that kubectl applied on the client's side before.
//!
//! Their last configuration is in an annotation. kubectl's manager takes over fields that still have the values of that
//! configuration, and keeps the annotation current.

use serde_json::Value;

use crate::schema::Schema;
use crate::set::Set;
use crate::typed::compare::compare;
use crate::typed::field_set::field_set;
use crate::typed::validate::{Duplicates, validate};
use crate::updater::Conflict;

/// The only manager with which this happens.
pub(super) const MANAGER: &str = "kubectl";
const ANNOTATION: &str = "kubectl.kubernetes.io/last-applied-configuration";
/// How many bytes all annotations of an object may have.
const MOST_ANNOTATION_BYTES: usize = 256 * 1024;

/// The conflicts that are not with the last configuration.
pub(super) fn remaining(conflicts: Vec<Conflict>, allowed: Option<&Set>) -> Vec<Conflict> {
    let Some(allowed) = allowed else { return conflicts };
    conflicts.into_iter().filter(|conflict| !allowed.contains(&conflict.path.0)).collect()
}

fn annotation(object: &Value) -> Option<&str> {
    object.get("metadata")?.get("annotations")?.get(ANNOTATION)?.as_str().filter(|text| !text.is_empty())
}

/// The fields of the last configuration that the object still has with the same values. Both are of this version.
pub(super) fn fields(schema: &Schema, api_version: &str, live: &Value) -> Option<Set> {
    let last: Value = serde_json::from_str(annotation(live)?).ok()?;
    if last.get("apiVersion").and_then(Value::as_str) != Some(api_version) {
        return None;
    }
    validate(schema, live, Duplicates::Refused).ok()?;
    validate(schema, &last, Duplicates::Refused).ok()?;
    let differing = compare(schema, &last, live).ok()?;
    let fields = field_set(schema, &last).difference(&differing.modified);
    Some(fields.difference(&differing.added).difference(&differing.removed))
}

/// Writes a configuration into the annotation, if the object has one. It is dropped if it would be too large.
pub(super) fn refresh(object: &mut Value, config: &Value) {
    if annotation(object).is_none() {
        return;
    }
    let mut config = config.clone();
    if let Some(annotations) = config.pointer_mut("/metadata/annotations").and_then(Value::as_object_mut) {
        annotations.remove(ANNOTATION);
        if annotations.is_empty()
            && let Some(metadata) = config.get_mut("metadata").and_then(Value::as_object_mut)
        {
            metadata.remove("annotations");
        }
    }
    let Some(annotations) = object.pointer_mut("/metadata/annotations").and_then(Value::as_object_mut) else {
        return;
    };
    annotations.insert(ANNOTATION.to_owned(), Value::String(format!("{config}\n")));
    let bytes: usize = annotations
        .iter()
        .map(|(key, value)| key.len() + value.as_str().map(str::len).unwrap_or_default())
        .sum();
    if bytes > MOST_ANNOTATION_BYTES {
        annotations.remove(ANNOTATION);
    }
}
