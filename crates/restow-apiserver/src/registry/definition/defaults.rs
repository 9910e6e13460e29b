//! Defaults of a definition.

use super::fields::{flag, list, text, texts};
use serde_json::{Map, Value, json};

/// Sets defaults: names, conversion, and the port of a webhook's service.
pub(crate) fn set_defaults(definition: &mut Value) {
    let Some(spec) = definition.get_mut("spec").and_then(Value::as_object_mut) else { return };
    if let Some(names) = spec.get_mut("names").and_then(Value::as_object_mut) {
        fill_names(names);
    }
    let conversion = spec.entry("conversion").or_insert(Value::Null);
    if conversion.is_null() {
        *conversion = json!({"strategy": "None"});
    }
    let service = conversion.pointer_mut("/webhook/clientConfig/service").and_then(Value::as_object_mut);
    if let Some(service) = service {
        service.entry("port").or_insert(json!(443));
    }
}

fn fill_names(names: &mut Map<String, Value>) {
    let kind = names.get("kind").and_then(Value::as_str).unwrap_or_default().to_owned();
    let lacks = |names: &Map<String, Value>, key: &str| {
        names.get(key).and_then(Value::as_str).is_none_or(str::is_empty)
    };
    if !kind.is_empty() && lacks(names, "singular") {
        names.insert("singular".into(), json!(kind.to_lowercase()));
    }
    if !kind.is_empty() && lacks(names, "listKind") {
        names.insert("listKind".into(), json!(format!("{kind}List")));
    }
}

/// Sets the status of a new definition: no accepted names yet, and its storage version among the stored versions.
pub(crate) fn prepare_create(definition: &mut Value) {
    let stored = storage_version(definition).into_iter().collect::<Vec<_>>();
    if let Some(fields) = definition.as_object_mut() {
        let names = json!({"kind": "", "plural": ""});
        fields.insert(
            "status".into(),
            json!({"conditions": null, "acceptedNames": names, "storedVersions": stored}),
        );
    }
}

/// Keeps the old status, and adds the storage version to the stored versions.
pub(crate) fn prepare_update(definition: &mut Value, old: &Value) {
    let mut status = old.get("status").cloned().unwrap_or_else(|| json!({}));
    let mut stored = texts(&status, "storedVersions");
    stored.extend(storage_version(definition).filter(|version| !stored.contains(version)));
    if let Some(fields) = status.as_object_mut() {
        fields.insert("storedVersions".into(), json!(stored));
    }
    if let Some(fields) = definition.as_object_mut() {
        fields.insert("status".into(), status);
    }
}

fn storage_version(definition: &Value) -> Option<String> {
    let versions = list(definition.get("spec")?, "versions");
    versions.iter().find(|version| flag(version, "storage")).map(|version| text(version, "name"))
}
