//! Validates the status of a StorageVersion, as kube-apiserver does.

use std::collections::HashMap;

use serde_json::Value;

use crate::http::status::Cause;
use crate::object::meta::name::{dns_1035_label, label_key, subdomain};

/// The errors of the status of a StorageVersion.
pub(crate) fn validate(object: &Value) -> Vec<Cause> {
    let status = &object["status"];
    let entries = list(&status["storageVersions"]);
    let mut causes = Vec::new();
    for (index, entry) in entries.iter().enumerate() {
        causes.extend(server(&format!("status.storageVersions[{index}]"), entry));
    }
    causes.extend(common(entries, &status["commonEncodingVersion"]));
    causes.extend(conditions(list(&status["conditions"])));
    causes
}

fn server(path: &str, entry: &Value) -> Vec<Cause> {
    let invalid =
        |field: &str, text: &str, why: &str| Cause::invalid_text(format!("{path}.{field}"), text, why);
    let (id, encoding) = (text(&entry["apiServerID"]), text(&entry["encodingVersion"]));
    let mut causes: Vec<Cause> =
        subdomain(id, "characters").iter().map(|why| invalid("apiServerID", id, why)).collect();
    let version = |field: &str, version: &str| {
        let errors = api_version(version);
        (!errors.is_empty()).then(|| invalid(field, version, &errors.join(",")))
    };
    causes.extend(version("encodingVersion", encoding));
    let decodable = list(&entry["decodableVersions"]);
    for (index, decodable) in decodable.iter().enumerate() {
        causes.extend(version(&format!("decodableVersions[{index}]"), text(decodable)));
    }
    if !decodable.iter().any(|decodable| text(decodable) == encoding) {
        let why = format!("decodableVersions must include encodingVersion {encoding}");
        causes.push(Cause::invalid(format!("{path}.decodableVersions"), &entry["decodableVersions"], &why));
    }
    causes
}

/// The errors of an `apiVersion`.
fn api_version(api_version: &str) -> Vec<String> {
    const EMPTY: &str = "must be non-empty";
    let part = |part: &str, text: &str, errors: Vec<String>| -> Vec<String> {
        let errors = if text.is_empty() { vec![EMPTY.to_owned()] } else { errors };
        errors.into_iter().map(|error| format!("{part} part: {error}")).collect()
    };
    let parts: Vec<&str> = api_version.split('/').collect();
    match parts[..] {
        [version] => part("version", version, dns_1035_label(version)),
        [group, version] => {
            let mut errors = part("group", group, subdomain(group, "characters"));
            errors.extend(part("version", version, dns_1035_label(version)));
            errors
        }
        _ => vec!["an apiVersion is a version with an optional group and '/' before it".to_owned()],
    }
}

/// The errors of the common version, which follows from the entries.
fn common(entries: &[Value], given: &Value) -> Option<Cause> {
    const NONE: &str = "should be nil if servers do not agree on the same encoding version, or if there is no server \
                        reporting the supported versions yet";
    let versions = entries.iter().map(|entry| text(&entry["encodingVersion"]));
    let common = restow_core::agreement::version::common(versions);
    let field = "status.commonEncodingVersion";
    match (common, given.as_str()) {
        (None, None) => None,
        (None, Some(given)) => Some(Cause::invalid_text(field, given, NONE)),
        (Some(common), None) => {
            Some(Cause::invalid(field, &Value::Null, &format!("the common encoding version is {common}")))
        }
        (Some(common), Some(given)) => (common != given).then(|| {
            Cause::invalid_text(field, given, &format!("the actual common encoding version is {common}"))
        }),
    }
}

fn conditions(conditions: &[Value]) -> Vec<Cause> {
    let mut causes = Vec::new();
    let mut seen = HashMap::new();
    for (index, condition) in conditions.iter().enumerate() {
        // kube-apiserver leaves `conditions` out of these paths.
        let field = |field: &str| format!("status[{index}].{field}");
        let kind = text(&condition["type"]);
        if let Some(first) = seen.insert(kind, index) {
            let why =
                format!("the type of the condition is not unique, it also appears in conditions[{first}]");
            causes.push(Cause::invalid_text(field("type"), kind, &why));
        }
        causes.extend(label_key(kind).iter().map(|why| Cause::invalid_text(field("type"), kind, why)));
        let status = label_key(text(&condition["status"]));
        causes.extend(status.iter().map(|why| Cause::invalid_text(field("status"), kind, why)));
        for (name, why) in [("reason", "reason cannot be empty"), ("message", "message cannot be empty")] {
            if text(&condition[name]).is_empty() {
                causes.push(Cause::required(field(name), why));
            }
        }
    }
    causes
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map(Vec::as_slice).unwrap_or_default()
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_inconsistent_storage_version_status_is_refused() {
        let entry = |id: &str, encoding: &str, decodable: &[&str]| json!({"apiServerID": id, "encodingVersion": encoding, "decodableVersions": decodable});
        let a = entry("a", "e.com/v1", &["e.com/v1", "e.com/v2"]);
        let b = entry("b", "e.com/v2", &["e.com/v1", "e.com/v2"]);
        let condition = json!({"type": "T", "status": "True", "reason": "R", "message": "M"});
        for (status, expected) in [
            (json!({}), ""),
            (json!({"storageVersions": [a], "commonEncodingVersion": "e.com/v1"}), ""),
            (json!({"storageVersions": [a, b]}), ""),
            (json!({"conditions": [condition]}), ""),
            (json!({"storageVersions": [a]}), "status.commonEncodingVersion"),
            (
                json!({"storageVersions": [a], "commonEncodingVersion": "e.com/v2"}),
                "status.commonEncodingVersion",
            ),
            (
                json!({"storageVersions": [a, b], "commonEncodingVersion": "e.com/v2"}),
                "status.commonEncodingVersion",
            ),
            (json!({"commonEncodingVersion": "e.com/v2"}), "status.commonEncodingVersion"),
            (
                json!({"storageVersions": [entry("a", "v1", &["v2"])], "commonEncodingVersion": "v1"}),
                "status.storageVersions[0].decodableVersions",
            ),
            (
                json!({"storageVersions": [entry("A", "v1", &["v1"])], "commonEncodingVersion": "v1"}),
                "status.storageVersions[0].apiServerID",
            ),
            (
                json!({"storageVersions": [entry("a", "1", &["1", "/v1", "a/b/c"])], "commonEncodingVersion": "1"}),
                "status.storageVersions[0].encodingVersion status.storageVersions[0].decodableVersions[0] \
                 status.storageVersions[0].decodableVersions[1] status.storageVersions[0].decodableVersions[2]",
            ),
            (json!({"conditions": [condition, condition]}), "status[1].type"),
            (json!({"conditions": [{"type": "T", "status": "True"}]}), "status[0].reason status[0].message"),
        ] {
            let causes = validate(&json!({"status": status}));
            let fields: Vec<String> =
                causes.iter().map(|cause| cause.to_value()["field"].as_str().unwrap().to_owned()).collect();
            assert_eq!(fields.join(" "), expected, "{status}");
        }
    }
}
