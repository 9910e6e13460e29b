//! Normalizes metadata as kube-apiserver does: known fields with the right types, and no empty ones.

use jiff::Timestamp;
use serde_json::{Map, Value, json};

use crate::http::status::{StatusError, golang};

/// The types of the fields of metadata.
#[derive(Clone, Copy)]
enum Type {
    Text,
    Uid,
    Number,
    /// A number that is kept even if it is 0.
    OptionalNumber,
    Flag,
    Time,
    /// Any object.
    Fields,
    Texts,
    TextMap,
    Owners,
    Managed,
    Operation,
}

const METADATA: &[(&str, Type)] = &[
    ("name", Type::Text),
    ("generateName", Type::Text),
    ("namespace", Type::Text),
    ("selfLink", Type::Text),
    ("uid", Type::Uid),
    ("resourceVersion", Type::Text),
    ("generation", Type::Number),
    ("creationTimestamp", Type::Time),
    ("deletionTimestamp", Type::Time),
    ("deletionGracePeriodSeconds", Type::OptionalNumber),
    ("labels", Type::TextMap),
    ("annotations", Type::TextMap),
    ("ownerReferences", Type::Owners),
    ("finalizers", Type::Texts),
    ("managedFields", Type::Managed),
];

const OWNER: &[(&str, Type)] = &[
    ("apiVersion", Type::Text),
    ("kind", Type::Text),
    ("name", Type::Text),
    ("uid", Type::Uid),
    ("controller", Type::Flag),
    ("blockOwnerDeletion", Type::Flag),
];

const MANAGED: &[(&str, Type)] = &[
    ("manager", Type::Text),
    ("operation", Type::Operation),
    ("apiVersion", Type::Text),
    ("time", Type::Time),
    ("fieldsType", Type::Text),
    ("fieldsV1", Type::Fields),
    ("subresource", Type::Text),
];

/// Metadata has a field of a wrong type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TypeMismatch {
    /// The message of Go's JSON decoder.
    pub message: String,
}

/// Normalizes the metadata of a sent object. Returns the paths of unknown fields, which are dropped.
///
/// `kind` and `version` are for the error message; `within` is the path that the decoder reports: empty for custom
/// resources, `metadata` for others.
pub(crate) fn coerce(
    object: &mut Value,
    kind: &str,
    version: &str,
    within: &str,
) -> Result<Vec<String>, StatusError> {
    let Some(metadata) = object.get_mut("metadata") else { return Ok(Vec::new()) };
    let mut unknown = Vec::new();
    *metadata = coerced(metadata, within, &mut unknown).map_err(|mismatch| {
        StatusError::bad_request(format!(
            "{kind} in version {} cannot be handled as a {kind}: {}",
            golang::quote(version),
            mismatch.message
        ))
    })?;
    Ok(unknown.into_iter().map(|path| format!("metadata.{path}")).collect())
}

/// The normalized metadata; the paths of unknown fields are added to `unknown`.
pub(crate) fn coerced(
    metadata: &Value,
    within: &str,
    unknown: &mut Vec<String>,
) -> Result<Value, TypeMismatch> {
    match metadata {
        Value::Object(_) | Value::Null => record(metadata, METADATA, "ObjectMeta", within, "", unknown),
        _ => Err(TypeMismatch {
            message: format!(
                "json: cannot unmarshal {} into Go value of type v1.ObjectMeta",
                golang::kind(metadata)
            ),
        }),
    }
}

fn record(
    value: &Value,
    fields: &[(&str, Type)],
    go: &str,
    within: &str,
    path: &str,
    unknown: &mut Vec<String>,
) -> Result<Value, TypeMismatch> {
    let mut kept = Map::new();
    for (key, value) in value.as_object().into_iter().flatten() {
        let path = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
        let Some((_, kind)) = fields.iter().find(|(name, _)| name == key) else {
            unknown.push(path);
            continue;
        };
        let place = if within.is_empty() { key.clone() } else { format!("{within}.{key}") };
        if let Some(value) = one(value, *kind, go, &place, &path, unknown)? {
            kept.insert(key.clone(), value);
        }
    }
    Ok(Value::Object(kept))
}

/// A normalized field; none if it is empty.
fn one(
    value: &Value,
    kind: Type,
    go: &str,
    place: &str,
    path: &str,
    unknown: &mut Vec<String>,
) -> Result<Option<Value>, TypeMismatch> {
    let mismatch = |value: &Value, go_type: &str| {
        let message = format!(
            "json: cannot unmarshal {} into Go struct field {go}.{place} of type {go_type}",
            golang::kind(value)
        );
        TypeMismatch { message }
    };
    Ok(match (kind, value) {
        (_, Value::Null) => None,
        (Type::Text | Type::Uid | Type::Operation, Value::String(text)) => {
            (!text.is_empty()).then(|| value.clone())
        }
        (Type::Number, Value::Number(number)) if number.is_i64() => {
            (number.as_i64() != Some(0)).then(|| value.clone())
        }
        (Type::OptionalNumber, Value::Number(number)) if number.is_i64() => Some(value.clone()),
        (Type::Number | Type::OptionalNumber, Value::Number(number)) => {
            return Err(TypeMismatch {
                message: format!(
                    "json: cannot unmarshal number {number} into Go struct field {go}.{place} of type int64"
                ),
            });
        }
        (Type::Flag, Value::Bool(_)) => Some(value.clone()),
        (Type::Fields, Value::Object(_)) => Some(value.clone()),
        (Type::Time, Value::String(text)) => moment(text)?,
        (Type::TextMap, Value::Object(map)) => {
            let mut kept = Map::new();
            for (key, value) in map {
                kept.insert(key.clone(), plain_text(value).ok_or_else(|| mismatch(value, "string"))?);
            }
            (!kept.is_empty()).then_some(Value::Object(kept))
        }
        (Type::Texts, Value::Array(list)) => {
            let kept: Result<Vec<_>, _> =
                list.iter().map(|value| plain_text(value).ok_or_else(|| mismatch(value, "string"))).collect();
            some_list(kept?)
        }
        (Type::Owners, Value::Array(list)) => records(list, OWNER, "OwnerReference", place, path, unknown)?
            .map(|owners| complete(owners, &OWNER[..4])),
        (Type::Managed, Value::Array(list)) => {
            records(list, MANAGED, "ManagedFieldsEntry", place, path, unknown)?
        }
        (kind, value) => return Err(mismatch(value, go_type(kind))),
    })
}

fn records(
    list: &[Value],
    fields: &[(&str, Type)],
    go: &str,
    place: &str,
    path: &str,
    unknown: &mut Vec<String>,
) -> Result<Option<Value>, TypeMismatch> {
    let mut kept = Vec::new();
    for (index, value) in list.iter().enumerate() {
        if !value.is_object() && !value.is_null() {
            let message = format!(
                "json: cannot unmarshal {} into Go struct field ObjectMeta.{place} of type v1.{go}",
                golang::kind(value)
            );
            return Err(TypeMismatch { message });
        }
        kept.push(record(value, fields, go, place, &format!("{path}[{index}]"), unknown)?);
    }
    Ok(some_list(kept))
}

/// Adds the fields that an owner reference has even if they are empty.
fn complete(mut owners: Value, fields: &[(&str, Type)]) -> Value {
    for owner in owners.as_array_mut().into_iter().flatten() {
        for (key, _) in fields {
            if owner.get(key).is_none() {
                owner[key] = json!("");
            }
        }
    }
    owners
}

fn some_list(list: Vec<Value>) -> Option<Value> {
    (!list.is_empty()).then_some(Value::Array(list))
}

fn plain_text(value: &Value) -> Option<Value> {
    match value {
        Value::String(_) => Some(value.clone()),
        Value::Null => Some(json!("")),
        _ => None,
    }
}

/// A time in whole seconds in UTC.
fn moment(text: &str) -> Result<Option<Value>, TypeMismatch> {
    if text.is_empty() {
        return Err(bad_time(text));
    }
    let at: Timestamp = text.parse().map_err(|_| bad_time(text))?;
    Ok(Some(json!(super::time(at))))
}

fn bad_time(text: &str) -> TypeMismatch {
    let quoted = golang::quote(text);
    let format = "2006-01-02T15:04:05Z07:00";
    TypeMismatch {
        message: format!("parsing time {quoted} as \"{format}\": cannot parse {quoted} as \"2006\""),
    }
}

fn go_type(kind: Type) -> &'static str {
    match kind {
        Type::Text => "string",
        Type::Uid => "types.UID",
        Type::Number | Type::OptionalNumber => "int64",
        Type::Flag => "bool",
        Type::Time => "v1.Time",
        Type::Fields => "v1.FieldsV1",
        Type::Texts => "[]string",
        Type::TextMap => "map[string]string",
        Type::Owners => "[]v1.OwnerReference",
        Type::Managed => "[]v1.ManagedFieldsEntry",
        Type::Operation => "v1.ManagedFieldsOperationType",
    }
}
