//! Validates metadata.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::name::{NameRule, label, label_key, label_value};
use super::{Rules, field, finalizers, generation, is_deleting, text};
use crate::http::status::Cause;
use crate::http::status::golang::{is_printable, quote};

const LARGEST_ANNOTATIONS: usize = 256 * 1024;
const ORPHAN: &str = "orphan";
const FOREGROUND: &str = "foregroundDeletion";

/// The errors of the metadata of an object that is created.
pub(crate) fn create(object: &Value, rules: &Rules) -> Vec<Cause> {
    common(object, rules, rules.name)
}

/// The errors of the metadata of an object that replaces `old`.
///
/// kube-apiserver reports some errors twice among the causes, and so does this server.
pub(crate) fn update(object: &Value, old: &Value, rules: &Rules) -> Vec<Cause> {
    let mut causes = common(object, rules, NameRule::PathSegment);
    let changes = changes(object, old);
    causes.extend(changes.iter().cloned());
    causes.extend(changes);
    causes
}

fn common(object: &Value, rules: &Rules, rule: NameRule) -> Vec<Cause> {
    let mut causes = names(object, rule);
    let namespace = text(object, "namespace");
    match (rules.namespaced, namespace.is_empty()) {
        (true, true) => causes.push(Cause::required("metadata.namespace", "")),
        (true, false) => causes.extend(texts("metadata.namespace", namespace, label(namespace))),
        (false, false) => causes.push(Cause::forbidden("metadata.namespace", "not allowed on this type")),
        (false, true) => {}
    }
    if generation(object) < 0 {
        let detail = "must be greater than or equal to 0";
        causes.push(Cause::invalid("metadata.generation", &json!(generation(object)), detail));
    }
    causes.extend(labels(object));
    causes.extend(annotations(object));
    causes.extend(owners(object));
    causes.extend(finalizer_names(object));
    causes.extend(managed_fields(object));
    causes
}

fn names(object: &Value, rule: NameRule) -> Vec<Cause> {
    let (name, base) = (text(object, "name"), text(object, "generateName"));
    let mut causes = Vec::new();
    if !base.is_empty() {
        causes.extend(texts("metadata.generateName", base, rule.errors(base, true)));
    }
    if name.is_empty() {
        causes.push(Cause::required("metadata.name", "name or generateName is required"));
    } else {
        causes.extend(texts("metadata.name", name, rule.errors(name, false)));
    }
    causes
}

fn texts(field: &str, text: &str, errors: Vec<String>) -> Vec<Cause> {
    errors.iter().map(|error| Cause::invalid_text(field, text, error)).collect()
}

fn pairs<'a>(object: &'a Value, key: &str) -> Vec<(&'a str, &'a str)> {
    let map = field(object, key).and_then(Value::as_object);
    let pairs = map.into_iter().flatten();
    pairs.map(|(key, value)| (key.as_str(), value.as_str().unwrap_or_default())).collect()
}

/// The errors of the labels of an object.
pub(crate) fn labels(object: &Value) -> Vec<Cause> {
    let mut causes = Vec::new();
    for (key, value) in pairs(object, "labels") {
        causes.extend(texts("metadata.labels", key, label_key(key)));
        causes.extend(texts("metadata.labels", value, label_value(value)));
    }
    causes
}

/// The errors of the annotations of an object.
pub(crate) fn annotations(object: &Value) -> Vec<Cause> {
    let pairs = pairs(object, "annotations");
    let mut causes = Vec::new();
    for (key, _) in &pairs {
        causes.extend(texts("metadata.annotations", key, label_key(&key.to_lowercase())));
    }
    if pairs.iter().map(|(key, value)| key.len() + value.len()).sum::<usize>() > LARGEST_ANNOTATIONS {
        causes.push(Cause::too_long("metadata.annotations", LARGEST_ANNOTATIONS));
    }
    causes
}

fn owners(object: &Value) -> Vec<Cause> {
    let Some(owners) = field(object, "ownerReferences").and_then(Value::as_array) else { return Vec::new() };
    let mut causes = Vec::new();
    let mut controller: Option<String> = None;
    for (index, owner) in owners.iter().enumerate() {
        causes.extend(owner_errors(owner, &format!("metadata.ownerReferences[{index}]")));
        if owner.get("controller") != Some(&json!(true)) {
            continue;
        }
        let part = |key| owner.get(key).and_then(Value::as_str).unwrap_or_default();
        let this = format!("{}/{}", part("kind"), part("name"));
        match &controller {
            None => controller = Some(this),
            Some(first) => {
                let detail = format!(
                    "Only one reference can have Controller set to true. Found \"true\" in references for {first} \
                     and {this}"
                );
                causes.push(Cause::invalid("metadata.ownerReferences", &json!(owners), &detail));
            }
        }
    }
    causes
}

fn owner_errors(owner: &Value, path: &str) -> Vec<Cause> {
    let part = |key| owner.get(key).and_then(Value::as_str).unwrap_or_default();
    let api_version = part("apiVersion");
    let version = api_version.rsplit('/').next().unwrap_or_default();
    let mut causes = Vec::new();
    if version.is_empty() {
        let field = format!("{path}.apiVersion");
        causes.push(Cause::invalid_text(field, api_version, "version must not be empty"));
    }
    for key in ["kind", "name", "uid"] {
        if part(key).is_empty() {
            causes.push(Cause::invalid_text(format!("{path}.{key}"), "", "must not be empty"));
        }
    }
    if (api_version, part("kind")) == ("v1", "Event") {
        causes.push(Cause::invalid(path, owner, "/v1, Kind=Event is disallowed from being an owner"));
    }
    causes
}

fn finalizer_names(object: &Value) -> Vec<Cause> {
    let names = finalizers(object);
    let mut causes: Vec<_> =
        names.iter().flat_map(|name| texts("metadata.finalizers", name, label_key(name))).collect();
    if names.contains(&ORPHAN) && names.contains(&FOREGROUND) {
        let detail = format!("finalizer {ORPHAN} and {FOREGROUND} cannot be both set");
        causes.push(Cause::invalid("metadata.finalizers", &json!(names), &detail));
    }
    causes
}

fn managed_fields(object: &Value) -> Vec<Cause> {
    let entries = field(object, "managedFields").and_then(Value::as_array);
    let mut causes = Vec::new();
    for (index, entry) in entries.into_iter().flatten().enumerate() {
        let path = format!("metadata.managedFields[{index}]");
        let part = |key| entry.get(key).and_then(Value::as_str).unwrap_or_default();
        if !["Apply", "Update"].contains(&part("operation")) {
            let field = format!("{path}.operation");
            causes.push(Cause::invalid_text(field, part("operation"), "must be `Apply` or `Update`"));
        }
        if !["", "FieldsV1"].contains(&part("fieldsType")) {
            let field = format!("{path}.fieldsType");
            causes.push(Cause::invalid_text(field, part("fieldsType"), "must be `FieldsV1`"));
        }
        causes.extend(manager(part("manager"), &format!("{path}.manager")));
        if part("subresource").len() > 256 {
            causes.push(Cause::too_long(format!("{path}.subresource"), 256));
        }
    }
    causes
}

/// The errors of the name of a field manager.
pub(crate) fn manager(name: &str, path: &str) -> Vec<Cause> {
    let mut causes = Vec::new();
    if name.len() > 128 {
        // Its characters are not reported one by one: each cause repeats the name.
        return vec![Cause::too_long(path, 128)];
    }
    for (position, letter) in name.char_indices().filter(|(_, letter)| !is_printable(*letter)) {
        let detail = format!("invalid character U+{:04X} (at position {position})", u32::from(letter));
        causes.push(Cause::invalid_text(path, name, &detail));
    }
    causes
}

fn changes(object: &Value, old: &Value) -> Vec<Cause> {
    let mut causes = Vec::new();
    if is_deleting(old) {
        causes.extend(new_finalizers(object, old));
    }
    if text(object, "resourceVersion").is_empty() {
        let field = "metadata.resourceVersion";
        causes.push(Cause::invalid_text(field, "", "must be specified for an update"));
    }
    if generation(object) < 0 {
        let detail = "must be greater than or equal to 0";
        causes.push(Cause::invalid("metadata.generation", &json!(generation(object)), detail));
    }
    if generation(object) < generation(old) {
        let value = json!(generation(object));
        causes.push(Cause::invalid("metadata.generation", &value, "must not be decremented"));
    }
    for key in ["name", "namespace", "uid"] {
        if text(object, key) != text(old, key) {
            let field = format!("metadata.{key}");
            causes.push(Cause::invalid_text(field, text(object, key), "field is immutable"));
        }
    }
    for key in ["creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds"] {
        if field(object, key) != field(old, key) {
            let value = field(object, key).cloned().unwrap_or_default();
            causes.push(Cause::invalid(format!("metadata.{key}"), &value, "field is immutable"));
        }
    }
    causes.extend(labels(object));
    causes.extend(annotations(object));
    causes.extend(owners(object));
    causes.extend(managed_fields(object));
    causes
}

fn new_finalizers(object: &Value, old: &Value) -> Option<Cause> {
    let known: BTreeSet<_> = finalizers(old).into_iter().collect();
    let added: BTreeSet<_> = finalizers(object).into_iter().filter(|name| !known.contains(name)).collect();
    let quoted: Vec<_> = added.iter().map(|name| quote(name)).collect();
    (!added.is_empty()).then(|| {
        Cause::forbidden(
            "metadata.finalizers",
            &format!(
                "no new finalizers can be added if the object is being deleted, found new finalizers []string{{{}}}",
                quoted.join(", ")
            ),
        )
    })
}
