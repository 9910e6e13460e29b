//! Validates the size and immutability of ConfigMaps and Secrets.

use serde_json::Value;

use super::{role, role_binding};
use crate::http::status::Cause;

/// The largest data of a ConfigMap or Secret, in bytes.
const MOST: usize = 1 << 20;

/// The errors of a built-in beside its metadata.
pub(crate) fn validate(kind: &str, object: &Value, old: Option<&Value>) -> Vec<Cause> {
    let mut causes = Vec::new();
    match kind {
        "ConfigMap" | "Secret" => {
            if size(object) > MOST {
                let field = if kind == "Secret" { "data" } else { "[]" };
                causes.push(Cause::too_long(field, MOST));
            }
            if let Some(old) = old {
                causes.extend(unchanged(kind, object, old));
            }
        }
        "Role" | "ClusterRole" => causes.extend(role::validate(kind, object)),
        "RoleBinding" | "ClusterRoleBinding" => causes.extend(role_binding::validate(kind, object, old)),
        _ => {}
    }
    causes
}

/// Refuses changes of the type of a Secret, and of immutable ConfigMaps and Secrets.
fn unchanged(kind: &str, object: &Value, old: &Value) -> Vec<Cause> {
    let mut causes = Vec::new();
    if kind == "Secret" && object["type"] != old["type"] {
        causes.push(Cause::invalid("type", &object["type"], "field is immutable"));
    }
    if old["immutable"] == true {
        if object["immutable"] != true {
            causes.push(Cause::forbidden("immutable", "field is immutable when `immutable` is set"));
        }
        for field in ["data", "binaryData"] {
            if object[field] != old[field] {
                causes.push(Cause::forbidden(field, "field is immutable when `immutable` is set"));
            }
        }
    }
    causes
}

/// The size of the data, with base64 decoded.
fn size(object: &Value) -> usize {
    let of = |field: &str| -> usize {
        let texts = object[field].as_object().into_iter().flat_map(|fields| fields.values());
        texts.filter_map(Value::as_str).map(str::len).sum()
    };
    let encoded = if object["kind"] == "Secret" { of("data") + of("binaryData") } else { of("binaryData") };
    let plain = if object["kind"] == "Secret" { 0 } else { of("data") };
    plain + encoded / 4 * 3
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn immutable_data_cannot_change() {
        for (kind, old, new, expected) in [
            ("Secret", json!({"type": "a"}), json!({"type": "a", "data": {"k": "dg=="}}), vec![]),
            ("Secret", json!({"type": "a"}), json!({"type": "b"}), vec!["type"]),
            ("ConfigMap", json!({"immutable": true}), json!({"immutable": true, "data": {}}), vec!["data"]),
            ("ConfigMap", json!({"immutable": true}), json!({}), vec!["immutable"]),
            ("ConfigMap", json!({}), json!({"immutable": true}), vec![]),
        ] {
            let causes = validate(kind, &new, Some(&old));
            let fields: Vec<String> =
                causes.iter().map(|cause| cause.to_value()["field"].as_str().unwrap().to_owned()).collect();
            assert_eq!(fields, expected, "{kind} {new}");
        }
    }

    #[test]
    fn the_size_of_data_is_counted_decoded() {
        let of = |kind: &str, data: usize| json!({"kind": kind, "data": {"k": "x".repeat(data)}});
        for (object, fits) in [
            (of("ConfigMap", MOST), true),
            (of("ConfigMap", MOST + 1), false),
            (of("Secret", MOST / 3 * 4), true),
            (of("Secret", MOST / 3 * 4 + 8), false),
        ] {
            let kind = object["kind"].as_str().unwrap();
            assert_eq!(validate(kind, &object, None).is_empty(), fits);
        }
    }
}
