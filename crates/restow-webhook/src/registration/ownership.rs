//! Who owns the fields of a CRD that the webhook created: a pure function.
//!
//! A create request makes its field manager the owner of all fields by Update. Server-side apply takes that for another
//! manager, so it would refuse every later change of the definition as a conflict.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{FieldsV1, ManagedFieldsEntry};
use serde_json::{Map, Value, json};

use super::stanza::{ANNOUNCED, CREATOR, FIELD_MANAGER};

/// The owners after the fields of the create request are owned by server-side apply, and the stanza by who registers the
/// webhook. If apply owned the stanza too, the next one would remove it. None if there is nothing to change.
pub(super) fn handed_over(entries: &[ManagedFieldsEntry]) -> Option<Vec<ManagedFieldsEntry>> {
    let created = entries.iter().find(|entry| is_of(entry, CREATOR, "Update"))?;
    let mut rest: Vec<_> = entries.iter().filter(|entry| !is_of(entry, CREATOR, "Update")).cloned().collect();
    let mut definition = created.fields_v1.as_ref().map(|fields| fields.0.clone()).unwrap_or_default();
    let annotation = format!("f:{ANNOUNCED}");
    let mut stanza = json!({});
    for path in [&["f:spec", "f:conversion"][..], &["f:metadata", "f:annotations", &annotation]] {
        move_field(&mut definition, &mut stanza, path);
    }
    for (manager, operation, fields) in [(CREATOR, "Apply", definition), (FIELD_MANAGER, "Update", stanza)] {
        match rest.iter_mut().find(|entry| is_of(entry, manager, operation)) {
            Some(entry) => merge(&mut entry.fields_v1.get_or_insert_with(|| FieldsV1(json!({}))).0, fields),
            None => rest.push(ManagedFieldsEntry {
                manager: Some(manager.to_owned()),
                operation: Some(operation.to_owned()),
                fields_v1: Some(FieldsV1(fields)),
                ..created.clone()
            }),
        }
    }
    Some(rest)
}

fn is_of(entry: &ManagedFieldsEntry, manager: &str, operation: &str) -> bool {
    let subresource = entry.subresource.as_deref().unwrap_or_default();
    (entry.manager.as_deref(), entry.operation.as_deref(), subresource)
        == (Some(manager), Some(operation), "")
}

fn move_field(from: &mut Value, to: &mut Value, path: &[&str]) {
    let Some((last, parents)) = path.split_last() else { return };
    let parent = parents.iter().try_fold(from, |at, part| at.get_mut(*part));
    if let Some(field) = parent.and_then(Value::as_object_mut).and_then(|parent| parent.remove(*last)) {
        let moved = path.iter().rev().fold(field, |field, part| json!({*part: field}));
        merge(to, moved);
    }
}

fn merge(into: &mut Value, fields: Value) {
    if let (Value::Object(into), Value::Object(fields)) = (into, fields) {
        for (name, value) in fields {
            merge(into.entry(name).or_insert_with(|| Value::Object(Map::new())), value);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(manager: &str, operation: &str, fields: Value) -> ManagedFieldsEntry {
        serde_json::from_value(json!({
            "manager": manager, "operation": operation, "apiVersion": "apiextensions.k8s.io/v1",
            "fieldsType": "FieldsV1", "fieldsV1": fields,
        }))
        .unwrap()
    }

    fn created() -> ManagedFieldsEntry {
        let annotations = json!({".": {}, format!("f:{ANNOUNCED}"): {}, "f:docs": {}});
        let conversion =
            json!({".": {}, "f:strategy": {}, "f:webhook": {"f:clientConfig": {"f:caBundle": {}}}});
        let spec = json!({"f:group": {}, "f:conversion": conversion, "f:versions": {}});
        entry(CREATOR, "Update", json!({"f:metadata": {"f:annotations": annotations}, "f:spec": spec}))
    }

    fn definition() -> Value {
        json!({
            "f:metadata": {"f:annotations": {".": {}, "f:docs": {}}},
            "f:spec": {"f:group": {}, "f:versions": {}},
        })
    }

    fn stanza() -> Value {
        json!({
            "f:metadata": {"f:annotations": {format!("f:{ANNOUNCED}"): {}}},
            "f:spec": {"f:conversion": {
                ".": {}, "f:strategy": {}, "f:webhook": {"f:clientConfig": {"f:caBundle": {}}},
            }},
        })
    }

    #[test]
    fn a_definition_is_applied_from_then_on_and_its_stanza_is_not() {
        let others = entry("argocd", "Apply", json!({"f:metadata": {"f:labels": {"f:team": {}}}}));
        let status = ManagedFieldsEntry {
            subresource: Some("status".to_owned()),
            ..entry(CREATOR, "Update", json!({"f:status": {}}))
        };
        let after = handed_over(&[others.clone(), created(), status.clone()]).unwrap();
        let expected =
            [others, status, entry(CREATOR, "Apply", definition()), entry(FIELD_MANAGER, "Update", stanza())];
        assert_eq!(after, expected);
        assert_eq!(handed_over(&after), None, "it is done once");
    }

    #[test]
    fn what_the_same_managers_own_already_stays_theirs() {
        let applied = entry(CREATOR, "Apply", json!({"f:spec": {"f:scope": {}}}));
        let registered =
            entry(FIELD_MANAGER, "Update", json!({"f:spec": {"f:conversion": {"f:strategy": {}}}}));
        let after = handed_over(&[applied, registered, created()]).unwrap();
        let mut both = definition();
        both["f:spec"]["f:scope"] = json!({});
        assert_eq!(after, [entry(CREATOR, "Apply", both), entry(FIELD_MANAGER, "Update", stanza())]);
    }
}
