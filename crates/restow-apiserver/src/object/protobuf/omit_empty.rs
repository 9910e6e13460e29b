//! Drops empty fields, as Go's `omitempty` does.

use serde_json::{Map, Value, json};

use super::table::{Field, Kind, Message, message, root};
use super::wire::is_zero;

/// Drops empty fields of a built-in object as kube-apiserver does. `spec` and `status` are kept even if they are empty.
pub(crate) fn omit_empty(api_version: &str, kind: &str, object: &mut Value) {
    let (Some(message), Some(fields)) = (root(api_version, kind), object.as_object_mut()) else { return };
    settle_fields(message, fields);
    for field in message.values().filter(|field| is_struct(field) && field.name != "metadata") {
        fields.entry(field.name).or_insert_with(|| json!({}));
    }
}

fn is_struct(field: &Field) -> bool {
    matches!(field.kind, Kind::Message(_)) && !field.pointer && !field.repeated && !field.inline
}

fn settle_fields(of: &Message, fields: &mut Map<String, Value>) {
    for field in of.values() {
        if field.inline {
            if let Kind::Message(name) = field.kind
                && let Some(inner) = message(name)
            {
                settle_fields(inner, fields);
            }
            continue;
        }
        let Some(value) = fields.get_mut(field.name) else { continue };
        let dropped = match (&field.kind, field.repeated) {
            (_, true) | (Kind::Map(_), _) => !field.required && is_empty(value),
            (Kind::Message(_), _) => false,
            _ => !field.pointer && !field.required && is_zero(value),
        };
        if dropped || (value.is_null() && !field.required) {
            fields.remove(field.name);
        } else {
            settle_value(&field.kind, value);
        }
    }
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Array(list) => list.is_empty(),
        Value::Object(fields) => fields.is_empty(),
        _ => false,
    }
}

fn settle_value(kind: &Kind, value: &mut Value) {
    match (kind, value) {
        (Kind::Map(kind), Value::Object(fields)) => {
            fields.values_mut().for_each(|value| settle_value(kind, value));
        }
        (kind, Value::Array(list)) => list.iter_mut().for_each(|item| settle_value(kind, item)),
        (Kind::Message(name), Value::Object(fields)) => {
            if let Some(message) = message(name) {
                settle_fields(message, fields);
            }
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn empty_fields_are_left_out() {
        for (kind, given, expected) in [
            (
                "ConfigMap",
                json!({"metadata": {"labels": {}, "annotations": {"a": ""}}, "data": {}, "immutable": false}),
                json!({"metadata": {"annotations": {"a": ""}}, "immutable": false}),
            ),
            (
                "Pod",
                json!({"spec": {"volumes": [{"name": "v", "emptyDir": {}}], "tolerations": [], "nodeName": ""}}),
                json!({"spec": {"volumes": [{"name": "v", "emptyDir": {}}]}, "status": {}}),
            ),
            ("Namespace", json!({}), json!({"spec": {}, "status": {}})),
        ] {
            let mut object = given.clone();
            omit_empty("v1", kind, &mut object);
            assert_eq!(object, expected, "{given}");
        }
    }
}
